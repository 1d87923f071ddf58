#!/usr/bin/env bash
# How fast shards are read and made: the loader on one core against a plain one, its memory, and owt prepare against bare
# decoding, resizing and encoding on all cores. Wants an idle machine.
#
#   usage: tools/bench/loader.sh BUILD PHOTOS [ROUNDS]      e.g. tools/bench/loader.sh build ~/photos
#
# BUILD: a build folder; gets the program loader_speed. PHOTOS: a folder with JPEG files.
set -euo pipefail

if [ $# -lt 2 ] || [ $# -gt 3 ]; then
  echo "usage: tools/bench/loader.sh BUILD PHOTOS [ROUNDS]" >&2
  exit 2
fi
build=$1
photos=$(cd "$2" && pwd)
rounds=${3:-7}
cmake --build "$build" --target owt loader_speed >/dev/null
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

find "$photos" -type f \( -iname '*.jpeg' -o -iname '*.jpg' \) | sort | sed 's/$/ 0/' >"$work/list"
if [ ! -s "$work/list" ]; then
  echo "loader: error: no JPEG files in $photos" >&2
  exit 1
fi
"$build/owt" prepare list "$work/list" "$work/shards" >/dev/null 2>&1
"$build/loader_speed" shards "$work/shards" "$rounds"
"$build/loader_speed" memory "$work/shards" 40

# The same photos many times over, so that starting and ending count little.
while [ "$(wc -l <"$work/list")" -lt 2000 ]; do
  cat "$work/list" "$work/list" >"$work/twice"
  mv "$work/twice" "$work/list"
done
images=$(wc -l <"$work/list")
for ((round = 1; round <= (rounds + 1) / 2; ++round)); do
  floor=$("$build/loader_speed" floor "$work/list" "$(nproc)")
  begin=$(date +%s.%N)
  "$build/owt" prepare list "$work/list" "$work/prepared-$round" >/dev/null 2>&1
  end=$(date +%s.%N)
  rm -rf "$work/prepared-$round"
  awk -v images="$images" -v floor="$floor" -v begin="$begin" -v end="$end" 'BEGIN {
    speed = images / (end - begin)
    printf "%.3f owt prepare: %.0f img/s, %.2f of bare decoding, resizing and encoding (%.0f)\n", speed / floor, speed, speed / floor, floor }'
done | sort -n | awk '{ line[NR] = $0 } END { $0 = line[int((NR + 1) / 2)]; sub(/^[^ ]* /, ""); print }'
