#!/usr/bin/env bash
# Tests the page of owt report in a browser: it loads without an error or a network request, and every figure has its
# numbers as text. Prints each case; exits 1 at the first that fails.
#
#   usage: report_test.sh OWT
set -euo pipefail

owt=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Pages print paths. One word of this path is wider than the screen of a phone.
work=$scratch/a_folder_of_a_user_who_gives_long_names_to_experiments_and_puts_the_settings_into_them
mkdir "$work"

browser=
for name in chromium-headless-shell chromium; do
  [ -n "$browser" ] || ! command -v "$name" >/dev/null || browser=$name
done
if [ -z "$browser" ]; then  # Ubuntu has it as a snap only, which does not run in containers
  echo "skipped: there is no Chromium; Debian has it as chromium-headless-shell"
  exit 77
fi

wrong() {
  echo "FAILED: $case_name: $*" >&2
  tail -n 20 "$work/messages" >&2 2>/dev/null || true
  exit 1
}
passed() { echo "passed: $case_name"; }

# The page's contents after loading, with the script's results at its end. The browser cannot run in a sandbox as root.
load() {  # load PAGE [OPTION]...
  local page=$1
  shift
  "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" --virtual-time-budget=5000 \
    --enable-logging=stderr --v=0 --dump-dom "$@" "file://$page" >"$work/dom" 2>"$work/messages" ||
    wrong "$browser ended with $?"
  if grep -E 'CONSOLE|ERR_' "$work/messages" >&2; then wrong "the console has messages"; fi
}

# Every figure has a title, a picture with a label for screen readers and a size, and numbers. Ids are unique, every
# link leads to a section, and nothing is wider than the page.
cat >"$work/check.js" <<'END'
const wrong = [], note = (element, what) => wrong.push(what + ': ' + element.outerHTML.slice(0, 120).replaceAll('\n', ' '));
const figures = [...document.querySelectorAll('figure')];
for (const figure of figures) {
  if (!figure.querySelector('figcaption').textContent.trim()) note(figure, 'no title');
  const pictures = [...figure.querySelectorAll('svg:not(svg svg), img, [role=img]')].filter(e => !e.closest('details'));
  for (const picture of pictures) {
    if (!(picture.getAttribute('aria-label') || picture.getAttribute('alt'))) note(picture, 'no text');
    const box = picture.getBoundingClientRect();
    if (box.width < 1 || box.height < 1) note(picture, 'no size');
    if (picture.tagName === 'IMG' && picture.naturalWidth === 0) note(picture, 'no image');
  }
  if (!figure.querySelector('td, img[alt]')) note(figure, 'no numbers');
}
const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
if (new Set(ids).size !== ids.length) wrong.push('an id is there twice');
for (const link of document.querySelectorAll('a')) if (!document.querySelector(link.getAttribute('href'))) note(link, 'leads nowhere');
const page = document.documentElement;
if (page.scrollWidth > page.clientWidth) {
  wrong.push('wider than the page: ' + page.scrollWidth + ' > ' + page.clientWidth);
  for (const e of document.querySelectorAll('body *'))
    if (!e.closest('.scroll') && e.getBoundingClientRect().left + e.scrollWidth > page.clientWidth) note(e, 'too wide');
}
if (/NaN|undefined/.test(document.querySelector('main').textContent)) wrong.push('a number is none');
parent.postMessage({width: innerWidth, found: figures.length + ' figures' + wrong.map(w => '; ' + w).join('')}, '*');
END
# The page in windows of two widths, and unchanged, in frames of one page, because the browser takes long to start.
check() {  # check PAGE LEAST-FIGURES
  local found width
  sed '/<\/body>/d;/<\/html>/d;s/<meta http-equiv="Content-Security-Policy"[^>]*>//' "$1" >"$work/checked.html"
  { echo "<script>"; cat "$work/check.js"; echo "</script></body></html>"; } >>"$work/checked.html"
  cat >"$work/frames.html" <<END
<!doctype html><html><head><meta charset="utf-8"></head><body>
<script>onmessage = ({data}) => document.body.setAttribute('data-width' + data.width, data.found);</script>
<iframe src="checked.html" width="1200" height="2000" frameborder="0"></iframe>
<iframe src="checked.html" width="390" height="2000" frameborder="0"></iframe>
<iframe src="unchanged.html" width="1200" height="2000" frameborder="0"></iframe>
</body></html>
END
  cp "$1" "$work/unchanged.html"
  load "$work/frames.html" --window-size=3000,2100 --hide-scrollbars
  for width in 1200 390; do
    found=$(sed -n "s/.*data-width$width=\"\([^\"]*\)\".*/\1/p" "$work/dom")
    [[ $found =~ ^([0-9]+)\ figures$ ]] || wrong "in a window of $width: ${found:-the script did not end}"
    [ "${BASH_REMATCH[1]}" -ge "$2" ] || wrong "there are $found, wanted $2"
  done
}

"$owt" prepare synthetic "$work/shapes" --train 400 --test 100 >/dev/null
cat >"$work/small.toml" <<'END'
[model]
name = "small"
input = [3, 32, 32]
classes = 10
[[model.layer]]
name = "conv1"
type = "conv"
out = 8
kernel = 5
stride = 4
[[model.layer]]
name = "relu1"
type = "relu"
[[model.layer]]
name = "fc1"
type = "dense"
out = 10
[data]
format = "cifar10"
batch = 20
augment = { mirror = true, mean = "channel", std = "channel" }
[optimizer]
learning_rate = 0.01
momentum = 0.9
[schedule]
epochs = 3
[run]
device = "cpu"
log_every = 1
END
train() {  # train NAME [OPTION]...
  "$owt" train "$work/small.toml" --data "$work/shapes" --out "$work/$1" "${@:2}" >"$work/log" 2>&1 ||
    { cat "$work/log" >&2 && exit 1; }
}

case_name="a run with its images"
train one --workers 2 --parallel owt-c
"$owt" report "$work/one" --data "$work/shapes" --out "$work/one.html" >"$work/said" 2>&1 || wrong "$(cat "$work/said")"
grep -q '1 run, ' "$work/said" || wrong "it said $(cat "$work/said")"
check "$work/one.html" 20
passed

# Folded sections are printed as if they were unfolded, except the numbers of figures.
pages_of() {  # pages_of PAGE
  "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" --no-pdf-header-footer \
    --print-to-pdf="$work/printed.pdf" "file://$1" >"$work/messages" 2>&1 || wrong "$browser ended with $?"
  grep -ac '/Type /Page$' "$work/printed.pdf"
}
case_name="a printed page"
# Without the policy, which allows only the page's own unchanged style.
sed -e 's|settings</summary>|&<div style="height:200cm"></div>|' -e '/Content-Security-Policy/d' "$work/one.html" \
  >"$work/long.html"
sed 's/<details><summary>All/<details open><summary>All/' "$work/long.html" >"$work/unfolded.html"
sed 's/::details-content/::none/' "$work/long.html" >"$work/folded.html"
printed=$(pages_of "$work/long.html") unfolded=$(pages_of "$work/unfolded.html") folded=$(pages_of "$work/folded.html")
[ "$printed" = "$unfolded" ] || wrong "it has $printed pages, unfolded $unfolded"
[ "$printed" -gt "$folded" ] || wrong "it has $printed pages, folded as many"
passed

case_name="folders that hold no run are named in a line"
mkdir "$work/empty" "$work/broken"
printf '[data\n' >"$work/broken/config.toml"
for folder in empty broken; do
  if "$owt" report "$work/$folder" --out "$work/none.html" >"$work/said" 2>&1; then wrong "$folder has a report"; fi
  [ "$(wc -l <"$work/said")" = 1 ] && grep -q "$work/$folder" "$work/said" || wrong "$folder: $(cat "$work/said")"
  [ ! -e "$work/none.html" ] || wrong "$folder has a page"
done
passed

case_name="two runs over each other"
train '<two> & "more"' --steps 7 --set optimizer.momentum=0.5
"$owt" report "$work/one" "$work/<two> & \"more\"" --out "$work/two.html" >/dev/null
check "$work/two.html" 13
passed

# Chooses in the first chart of a page of two runs what its reader may choose.
cat >"$work/reader.js" <<'END'
const wrong = [], expect = (what, is) => is || wrong.push(what);
const element = id => document.getElementById('curves-' + id);
const figure = document.querySelector('form figure'), picture = figure.querySelector('svg');
const values = () => figure.querySelector('output').textContent, zoom = () => JSON.parse(element('zoom').value);
const lines = look => picture.querySelectorAll('.line' + look).length;
const ticks = () => [...picture.querySelectorAll('text')].map(text => text.outerHTML).join(' ');
const choose = (id, value) => {
  const input = element(id);
  Object.assign(input, typeof value === 'boolean' ? {checked: value} : {value});
  input.dispatchEvent(new Event('input', {bubbles: true}));
};
const point = (type, share) => {
  const {left, width} = picture.getBoundingClientRect();
  picture.dispatchEvent(new PointerEvent(type, {clientX: left + share * width}));
};
const press = key => picture.dispatchEvent(new KeyboardEvent('keydown', {key}));
const changes = (what, action) => {
  const before = ticks();
  action();
  expect(what, ticks() !== before);
};
expect('training and test of two runs', lines('') === 4);
choose('name-one', false);
expect('a hidden run', lines('') === 2 && values() === '');
choose('kind-training', false);
expect('hidden training', lines('') === 1);
choose('name-one', true);
choose('kind-training', true);
choose('smooth', 0.5);
expect('smoothing', lines('.raw') === 2);
choose('smooth', 0);
expect('no smoothing', lines('.raw') === 0);
changes('a logarithmic axis', () => choose('log0', true));
choose('log0', false);
changes('an axis of steps', () => choose('axis-steps', true));
expect('the name of the axis', picture.querySelector('.name').textContent === 'steps');
point('pointermove', .5);
expect('values: ' + values(), values().includes('<two> & "more", training\n') && values().includes(' steps'));
point('pointerdown', .5);
point('pointermove', .7);
changes('a zoom', () => point('pointerup', .7));
expect('the range of the zoom', zoom() && zoom()[0] < zoom()[1]);
changes('the whole range', () => picture.dispatchEvent(new MouseEvent('dblclick')));
expect('no range', zoom() === null);
press('ArrowRight');
expect('values by key', values().includes(' steps'));
changes('a zoom by key', () => press('+'));
changes('the whole range by key', () => press('Escape'));
point('pointerup', .5);
expect('no zoom without a press', zoom() === null);
for (const name of ['one', '<two> & "more"']) choose('name-' + name, false);
point('pointermove', .5);
press('+');
expect('nothing to show: ' + picture.innerHTML, values() === '' && !/NaN|Infinity/.test(picture.innerHTML + zoom()));
point('pointermove', .5);
point('pointerleave', 0);
expect('no values', values() === '');
document.body.dataset.found = wrong.join('; ') || 'all follow';
END
case_name="charts follow their reader"
{
  sed '/<\/body>/d;/<\/html>/d;s/<meta http-equiv="Content-Security-Policy"[^>]*>//' "$work/two.html"
  echo "<script>{"
  cat "$work/reader.js"
  echo "}</script></body></html>"
} >"$work/read.html"
load "$work/read.html" --window-size=1200,2000
found=$(sed -n 's/.*data-found="\([^"]*\)".*/\1/p' "$work/dom")
[ "$found" = "all follow" ] || wrong "not: ${found:-the script did not end}"
passed

case_name="runs of all kinds"
train single --steps 1
train resumed --steps 3
train resumed --steps 9 --resume auto --workers 2
train pipeline --steps 4 --workers 2 --parallel pipeline
train unevaluated --steps 4 --set run.eval_every_epochs=0 --set data.accumulate=2
train tuned --steps 3 --weights "$work"/one/checkpoints/step-*60/weights.safetensors --except fc1
if "$owt" train "$work/small.toml" --data "$work/shapes" --out "$work/diverged" --set optimizer.learning_rate=1e30 \
  >"$work/log" 2>&1; then wrong "a rate of 1e30 did no harm"; fi
for i in $(seq 0 39); do echo "$i $((i + 40)) $((i % 2))"; done >"$work/pairs.txt"
"$owt" verify "$work/single" "$work/pairs.txt" --data "$work/shapes" >"$work/log" 2>&1 || wrong "$(cat "$work/log")"
kinds=(single resumed pipeline unevaluated tuned diverged one)
for kind in single pipeline diverged; do
  "$owt" report "$work/$kind" --out "$work/$kind.html" >/dev/null
  check "$work/$kind.html" 6
done
grep -q '<figcaption>TAR over FAR (ROC)</figcaption>' "$work/single.html" || wrong "there is no ROC"
grep -q '>diverged</td>' "$work/diverged.html" || wrong "it does not say that the run diverged"
"$owt" report "${kinds[@]/#/$work/}" --out "$work/all.html" >/dev/null
check "$work/all.html" 34
passed

case_name="a run that has just begun"
mkdir "$work/new"
cp "$work/one/config.toml" "$work/new"
"$owt" report "$work/new" --out "$work/new.html" >/dev/null
check "$work/new.html" 1
passed
