#!/usr/bin/env bash
# Makes the pictures of a run's report in docs/report.md: OUT/report.png, its top; OUT/report-time.png, the times in a
# step; OUT/report-phone.png.
#
#   usage: report_pictures.sh RUN OUT [DATA]      DATA: the run's data set, for sections that need its images
#   OWT names the program (build/owt).
set -euo pipefail

if [ $# -lt 2 ] || [ $# -gt 3 ]; then
  sed -n '2,7s/^#\( \|$\)//p' "$0" >&2
  exit 2
fi
run=$1
out=$2
owt=${OWT:-build/owt}

browser=
for name in chromium-headless-shell chromium; do
  [ -n "$browser" ] || ! command -v "$name" >/dev/null || browser=$name
done
if [ -z "$browser" ]; then
  echo "error: there is no Chromium; Debian has it as chromium-headless-shell" >&2
  exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
"$owt" report "$run" ${3:+--data "$3"} --out "$work/report.html"

# picture NAME WIDTH,HEIGHT [SECTION]: a picture of the page, or of one section, in a window of this size
picture() {
  local style=
  [ $# = 2 ] || style="<style>nav,section:not(#$3){display:none}</style>"
  # The page's policy would refuse the added style.
  sed "/Content-Security-Policy/d; s|</head>|$style</head>|" "$work/report.html" >"$work/shown.html"
  # The browser cannot run in a sandbox as root. Its messages matter only if it makes no picture.
  "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/profile" \
    --virtual-time-budget=3000 --window-size="$2" --screenshot="$out/$1.png" "file://$work/shown.html" \
    >"$work/said" 2>&1 || { cat "$work/said" >&2 && exit 1; }
  [ -s "$out/$1.png" ] || { cat "$work/said" >&2 && exit 1; }
  echo "$out/$1.png"
}
picture report 1200,1150
picture report-time 1200,1150 times
picture report-phone 390,1500
