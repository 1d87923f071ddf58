#!/usr/bin/env bash
# Tests the scripts of reports without a browser: ticks of an axis, smoothing, and when a live page is fetched again.
# Prints what is wrong; exits 1 then.
#
#   usage: charts_test.sh OWT
set -euo pipefail

if ! command -v node >/dev/null; then
  echo "skipped: there is no node; report_test.sh tests the script in a browser"
  exit 77
fi
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
node --eval '
const script = require("fs").readFileSync("src/report/pages/charts.js", "utf8"), {deepEqual} = require("assert/strict");
global.document = {querySelectorAll: () => [], body: {classList: {add() {}}}};
global.IntersectionObserver = class {};
const {ticks, logTicks, smoothed, short} = new Function(script + "; return {ticks, logTicks, smoothed, short}")();
const shortened = values => values.map(short).join(" ");
deepEqual(ticks(0, 3, 6), [0, 0.5, 1, 1.5, 2, 2.5, 3]);
deepEqual(shortened(ticks(-0.31, 0.3, 4)), "-0.2 0 0.2");
// No range makes an endless list.
for (const [low, high] of [[0.01, 0.01 + 1e-17], [1e20, 1e20 + 1e5], [NaN, 1], [Infinity, -Infinity], [1, 1]])
  deepEqual(ticks(low, high, 5).length <= 6, true);
deepEqual(shortened(logTicks(-6, 0.2)), "0.000001 0.0001 0.01 1");
deepEqual(shortened(logTicks(-1.2, 0.3)), "0.1 0.2 0.5 1");
deepEqual(shortened(logTicks(0, 0.5)), "1 1.5 2 2.5 3");
deepEqual(smoothed([1, 1, null, 3], 0.5), [1, 1, null, 15 / 7]);
deepEqual(smoothed([1, 2, 3], 0), [1, 2, 3]);
deepEqual(["1e-7", "0.01235", "12345"], [1e-7, 0.012345678, 12345.4].map(short));
'
echo "passed: ticks and smoothing"

node --eval '
const live = require("fs").readFileSync("src/report/pages/live.js", "utf8"), {deepEqual} = require("assert/strict");
let source, values = "1.5 a", asked = 0, answer = {ok: true, text: async () => "page " + asked};
const waiting = [], shown = [], none = () => {};
const document = {activeElement: {id: ""}, querySelector: () => ({replaceWith: page => shown.push(page)}),
                  getElementById: () => null};
const given = {
  document, begin: none, setInterval: none, setTimeout: done => waiting.push(done),
  all: selector => selector === "output" ? [{textContent: values}] : [],
  fetch: async () => (++asked, answer ?? Promise.reject(Error("no network"))),
  EventSource: class { constructor() { source = this; } },
  DOMParser: class { parseFromString(text) { return {querySelector: () => text}; } }
};
new Function(...Object.keys(given), live)(...Object.values(given));
const change = () => (source.onmessage(), new Promise(setImmediate));
(async () => {
  await change(), await change();
  deepEqual([asked, waiting.length], [0, 1], "a reader of values is disturbed");
  values = "", waiting.pop()();
  await new Promise(setImmediate);
  deepEqual(shown, ["page 1"]);
  const good = answer;
  for (answer of [null, {ok: false, text: async () => "not found"}]) await change();
  deepEqual([asked, shown], [3, ["page 1"]], "an error replaces the page");
  answer = good;
  await change();
  deepEqual(shown, ["page 1", "page 4"]);
  process.exitCode = 0;
})();
process.exitCode = 1;  // unless the end is reached
'
echo "passed: a live page is fetched after changes"
