#!/usr/bin/env bash
# Measures the speed of owt prepare, compared with the sum of its parts: decoding, resizing and encoding from memory on
# all cores.
#
#   usage: tools/bench/prepare.sh PHOTOS [BUILD]     PHOTOS: a folder of JPEG files; BUILD: by default build
#
# Needs OpenCV's imgcodecs (libopencv-imgcodecs-dev), which owt itself does not use.
#
# Prepares each photo 20 times (TIMES=N: another number), alternating with the parts alone; prints the best of three.
set -euo pipefail

photos=$(realpath "${1:?usage: tools/bench/prepare.sh PHOTOS [BUILD]}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${2:-build}
times=${TIMES:-20}
cmake --build "$build" --target owt prepare_floor >/dev/null

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mapfile -t files < <(find "$photos" -maxdepth 1 -iname '*.jp*g' | sort)
[ "${#files[@]}" -gt 0 ] || { echo "prepare.sh: error: no JPEG files in $photos" >&2; exit 1; }
for _ in $(seq "$times"); do
  for file in "${files[@]}"; do echo "$(basename "$file") 0"; done
done >"$work/list.txt"

best_floor=0 best_opencv=0 best_prepare=0
for _ in 1 2 3; do
  read -r floor opencv < <("$build/prepare_floor" "$(nproc)" "$times" "${files[@]}")
  rm -rf "$work/out"
  begun=$(date +%s%N)
  "$build/owt" prepare list "$work/list.txt" "$work/out" --root "$photos" >/dev/null 2>&1
  prepare=$((${#files[@]} * times * 1000000000 / ($(date +%s%N) - begun)))
  [ "$floor" -le "$best_floor" ] || best_floor=$floor
  [ "$opencv" -le "$best_opencv" ] || best_opencv=$opencv
  [ "$prepare" -le "$best_prepare" ] || best_prepare=$prepare
done
echo "$(nproc) cores, ${#files[@]} photos $times times, short side 256, quality 90; images/s:"
echo "  owt prepare                                  $best_prepare"
echo "  its decode + resize + encode alone           $best_floor (prepare: $((100 * best_prepare / best_floor)) %)"
echo "  OpenCV's imdecode + resize + imencode alone  $best_opencv (prepare: $((100 * best_prepare / best_opencv)) %)"
