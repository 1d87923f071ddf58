#!/usr/bin/env bash
# Tests functions of the script of reports: ticks of an axis, and smoothing. Prints what is wrong; exits 1 then.
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
