// The script of a report. It draws the charts again from their points, which the page has as JSON, so that readers can
// zoom, smooth, and hide lines. The page has the controls; without the script they are hidden and the pictures fixed.
// Names and other texts of runs are set as text only, never as markup. The build leaves out comments and indentation
// (embed.cmake).
'use strict';
const kLeft = 60, kTop = 24, kWide = 362, kHigh = 186, kBottom = kTop + kHigh, kRight = kLeft + kWide;
const kMostDots = 60, kMostValues = 12;

const short = value => {
  const size = Math.abs(value);
  return size >= 1e3 && size < 1e9 ? value.toFixed() : String(+value.toPrecision(4));
};

// Places from low to high, at 1, 2 or 5 times a power of ten.
const ticks = (low, high, count) => {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(factor => factor * power > rough * .99), first = Math.ceil(low / step);
  return Array.from({length: Math.min(count + 1, Math.floor(high / step + 1e-9) - first + 1)}, (_, i) => (first + i) * step);
};
// low and high are logarithms.
const logTicks = (low, high) => {
  if (high - low < 1) return ticks(10 ** low, 10 ** high, 5);
  const all = [], step = Math.ceil((high - low) / 6), factors = high - low < 3 ? [1, 2, 5] : [1];
  for (let power = Math.floor(low); power <= high; power += step) all.push(...factors.map(factor => factor * 10 ** power));
  return all.filter(y => y >= 10 ** low && y <= 10 ** high);
};

// The exponential moving average of TensorBoard, which has no bias to 0 at the beginning.
const smoothed = (values, weight) => {
  let sum = 0, count = 0;
  return values.map(value => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    return sum / (1 - weight ** ++count);
  });
};

const limited = (value, low, high) => Math.max(low, Math.min(high, value));
const path = (look, d) => `<path class="${look}" d="${d}"/>`;
const text = (x, y, anchor, value) => `<text x="${x}" y="${y}" text-anchor="${anchor}">${short(value)}</text>`;

// chosen: axis, smooth, zoom, log. show() zooms to a range, null: everything.
function draw(figure, plot, {axis, unit, smooth, zoom, log}, data, show) {
  const picture = figure.querySelector('svg'), box = figure.querySelector('output');
  const scaled = value => log ? Math.log10(value) : value, drawn = value => value !== null && (!log || value > 0);
  const lines = plot.lines.filter(line => line.shown && data.x[line.x][axis].length).map(line => ({
    ...line, x: data.x[line.x][axis], look: `${line.color % 8} k${Math.floor(line.color / 8) % 3}`,
    raw: line.y, y: line.dots ? line.y : smoothed(line.y, smooth)
  }));
  const ends = lines.length ? lines.flatMap(({x}) => [x[0], x.at(-1)]) : [0, 1];
  let [begin, end] = zoom ?? [Math.min(...ends), Math.max(...ends)];
  if (!(begin < end)) [begin, end] = [begin - 1, begin + 1];
  if (begin < end / 20) begin = Math.min(begin, 0);
  const inside = x => x >= begin && x <= end;
  const values = lines.flatMap(({x, y}) => y.filter((value, i) => drawn(value) && inside(x[i]))).sort((a, b) => a - b);
  // A run that diverges must not make the others flat.
  const usual = values[Math.floor((values.length - 1) * .9)], most = values.at(-1) ?? 1;
  let low = scaled(values[0] ?? 1), high = scaled(!log && usual > 0 && most > 100 * usual ? 2 * usual : most);
  // Smoothing adds rounding errors to equal values.
  if (high - low < Math.abs(high) * 1e-9) high = low;
  if (!log && low > 0 && low < high / 3) low = 0;
  const more = (high - low) * .04 || Math.abs(high) / 2 || 1;
  if (low || high === low) low -= more;
  high += more;
  const toX = x => (kLeft + (x - begin) / (end - begin) * kWide).toFixed(1);
  const toY = y => (kBottom - limited((scaled(y) - low) / (high - low), 0, 1) * kHigh).toFixed(1);
  const area = (from, to, top, bottom) => path('usual', `M${from} ${top}H${to}V${bottom}H${from}Z`);
  const dot = (look, x, y) => `<circle class="b${look}" cx="${toX(x)}" cy="${toY(y)}" r="2.4"/>`;

  let all = plot.usual ? area(kLeft, kRight, ...plot.usual.map(toY)) : '';
  for (const y of log ? logTicks(low, high) : ticks(low, high, 5))
    all += path('grid', `M${kLeft} ${toY(y)}H${kRight}`) + text(kLeft - 6, +toY(y) + 4, 'end', y);
  for (const x of ticks(begin, end, 6)) all += text(toX(x), kBottom + 16, 'middle', x);
  all += path('axis', `M${kLeft} ${kBottom}H${kRight}`);
  // It cuts off what is outside.
  all += `<svg x="${kLeft - 3}" width="${kWide + 6}" viewBox="${kLeft - 3} 0 ${kWide + 6} 250">`;
  for (const {x, y, raw, look, light, dots} of lines) {
    const curve = (values, more) => {
      let to = 'M';
      return path(`line s${look} ${light ? 'light' : ''} ${more}`, values.map((value, i) => {
        const way = drawn(value) ? to + toX(x[i]) + ' ' + toY(value) : '';
        to = way ? 'L' : 'M';
        return way;
      }).join(''));
    };
    all += (smooth && !dots ? curve(raw, 'raw') : '') + curve(y, '');
    if (y.length < 2 || dots && y.length <= kMostDots) y.forEach((value, i) => all += drawn(value) ? dot(look, x[i], value) : '');
  }
  picture.querySelector('g').innerHTML = all + '</svg><g></g>';
  picture.querySelector('.name').textContent = unit;

  // The pointer, and where it was pressed, on the x axis.
  let at = null, from = null;
  const point = x => {
    at = x === null ? x : limited(x, begin, end);
    const near = at === null ? [] : lines.map(({x, y, ...line}) => {
      const far = x.map(each => Math.abs(each - at)), i = far.indexOf(Math.min(...far));
      return {...line, x: x[i], y: y[i]};
    }).filter(({x, y}) => drawn(y) && inside(x)).sort((a, b) => b.y - a.y);
    picture.querySelector('g g').innerHTML = at === null ? '' : path('axis', `M${toX(at)} ${kTop}V${kBottom}`) +
      near.map(({look, x, y}) => dot(look, x, y)).join('') + (from === null ? '' : area(toX(from), toX(at), kTop, kBottom));
    box.textContent = near.slice(0, kMostValues).map(({name, kind, y}) => `${short(y)}  ${name}${kind && ', ' + kind}\n`).join('') +
      (near.length > kMostValues ? `and ${near.length - kMostValues} below\n` : '') + (near.length ? `at ${short(at)} ${unit}` : '');
    box.className = at > (begin + end) / 2 ? 'left' : '';
  };
  point(null);
  const place = ({clientX}) => {
    const {left, width} = picture.getBoundingClientRect();
    return begin + ((clientX - left) / width * 440 - kLeft) / kWide * (end - begin);
  };
  picture.onpointerdown = event => (point(place(event)), from = at);
  picture.onpointermove = event => point(place(event));
  picture.onpointerup = () => {
    const range = [from ?? at, at].sort((a, b) => a - b);
    from = null;
    if (range[1] - range[0] > (end - begin) / 50) show(range);
  };
  picture.onpointerleave = ({pointerType}) => (from = null, pointerType === 'touch' || point(null));
  picture.onblur = () => point(null);
  picture.ondblclick = () => show(null);
  picture.onkeydown = event => {
    const x = at ?? (begin + end) / 2, move = {ArrowLeft: -1, ArrowRight: 1}[event.key], factor = {'+': .5, '-': 2}[event.key];
    if (move) point(x + move * (end - begin) / 50);
    else if (factor) show([x - (x - begin) * factor, x + (end - x) * factor]);
    else if (event.key === 'Escape') show(null);
    else return;
    event.preventDefault();
  };
}

// A form has the charts of the same lines, and their controls.
function setUp(form) {
  const data = JSON.parse(form.querySelector('script').textContent), figures = [...form.querySelectorAll('figure')];
  const {zoom} = form.elements;
  const renew = () => {
    const chosen = new FormData(form), axis = chosen.get('axis'), names = chosen.getAll('name'), kinds = chosen.getAll('kind');
    const words = chosen.get('filter').toLowerCase().split(' ');
    const matches = name => words.every(word => name.toLowerCase().includes(word));
    for (const item of form.querySelectorAll('.keys li')) item.hidden = !matches(item.textContent);
    figures.forEach((figure, i) => {
      for (const line of data.plots[i].lines)
        line.shown = names.includes(line.name) && kinds.includes(line.kind) && matches(line.name);
      draw(figure, data.plots[i], {axis, unit: data.axes[axis], smooth: +chosen.get('smooth'), log: chosen.has('log' + i),
                                   zoom: JSON.parse(zoom.value)}, data, show);
    });
  };
  const show = range => (zoom.value = JSON.stringify(range), renew());
  form.oninput = ({target: {name, checked}}) => {
    if (name === 'axis') zoom.value = 'null';
    if (name === 'all') form.elements.name.forEach(each => each.checked = checked);
    renew();
  };
  form.onsubmit = () => false;
  for (const figure of figures) {
    const picture = figure.querySelector('svg'), names = picture.querySelectorAll('.name');
    picture.replaceChildren(document.createElementNS(picture.namespaceURI, 'g'), ...names);
    picture.setAttribute('tabindex', 0);
    picture.after(document.createElement('output'));
  }
  renew();
}

const all = selector => [...document.querySelectorAll(selector)];
// The contents mark the section in view.
const seen = new IntersectionObserver(entries => entries.forEach(({target, isIntersecting}) =>
  all(`nav a[href="#${target.id}"]`).forEach(link => link.classList.toggle('seen', isIntersecting))), {rootMargin: '-25% 0% -75%'});
const begin = () => {
  all('form').forEach(setUp);
  all('section').forEach(section => seen.observe(section));
};
document.body.classList.add('scripted');
begin();
