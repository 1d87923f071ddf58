#!/usr/bin/env bash
# Measures how fast shards are read on one core, compared with a plain loader; the memory; and how fast shards are made
# (prepare.sh). `owt bench-data` measures the stages of the loader, and each augmentation.
#
#   usage: tools/bench/loader.sh PHOTOS [BUILD]      PHOTOS: a folder of JPEG files; BUILD: by default build
#
# Needs OpenCV's imgcodecs (libopencv-imgcodecs-dev), which owt itself does not use.
#
# Prints medians of seven rounds (ROUNDS=N: another number) of 2000 images; the loaders alternate.
set -euo pipefail

photos=$(realpath "${1:?usage: tools/bench/loader.sh PHOTOS [BUILD]}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${2:-build}
cmake --build "$build" --target owt loader_speed >/dev/null

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
find "$photos" -maxdepth 1 -iname '*.jp*g' -printf '%f 0\n' | sort >"$work/list.txt"
[ -s "$work/list.txt" ] || { echo "loader.sh: error: no JPEG files in $photos" >&2; exit 1; }
"$build/owt" prepare list "$work/list.txt" "$work/shards" --root "$photos" >/dev/null 2>&1
"$build/loader_speed" shards "$work/shards" "${ROUNDS:-7}"
"$build/loader_speed" memory "$work/shards" 40
tools/bench/prepare.sh "$photos" "$build"
