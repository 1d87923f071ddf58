// The script of a live page (owt watch), which runs after charts.js: replaces the page's content when the server reports
// a change, and keeps what its reader has chosen.
new EventSource('events').onmessage = async () => {
  // A reader of values is not disturbed.
  while (all('output').some(box => box.textContent)) await new Promise(done => setTimeout(done, 500));
  const page = new DOMParser().parseFromString(await (await fetch('./')).text(), 'text/html');
  const open = all('details').map(each => each.open), inputs = all('input'), focus = document.activeElement.id;
  document.querySelector('main').replaceWith(page.querySelector('main'));
  for (const {id, checked, value} of inputs) Object.assign(document.getElementById(id) ?? {}, {checked, value});
  begin();
  all('details').forEach((each, i) => each.open = open[i]);
  document.getElementById(focus)?.focus({preventScroll: true});
};
setInterval(() => all('time[data-at]').forEach(time => {
  const age = Math.max(0, Math.round(Date.now() / 1e3 - time.dataset.at));
  if (age < 7200) time.textContent = age < 120 ? age + ' s ago' : Math.round(age / 60) + ' min ago';
}), 1000);
