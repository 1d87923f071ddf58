// The script of a live page (owt watch), which runs after charts.js: replaces the page's content when the server reports
// a change, and keeps what its reader has chosen.
let due = false, busy = false;
const renew = async () => {
  // A reader of values is not disturbed.
  while (all('output').some(box => box.textContent)) await new Promise(done => setTimeout(done, 500));
  due = false;
  const answer = await fetch('./');
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
  const open = all('details').map(each => each.open), inputs = all('input'), focus = document.activeElement.id;
  document.querySelector('main').replaceWith(page.querySelector('main'));
  for (const {id, checked, value} of inputs) Object.assign(document.getElementById(id) ?? {}, {checked, value});
  begin();
  all('details').forEach((each, i) => each.open = open[i] ?? each.open);
  document.getElementById(focus)?.focus({preventScroll: true});
};
// Changes that come while the page waits for its reader or the server are fetched once.
new EventSource('events').onmessage = async () => {
  due = true;
  if (busy) return;
  busy = true;
  while (due) await renew().catch(() => {});
  busy = false;
};
setInterval(() => all('time[data-at]').forEach(time => {
  const age = Math.max(0, Math.round(Date.now() / 1e3 - time.dataset.at));
  time.textContent = age < 120 ? age + ' s ago' : age < 7200 ? Math.round(age / 60) + ' min ago' : time.title;
}), 1000);
