#!/usr/bin/env bash
# Tests tools/glyphs.sh with 1,000 classes of 5 training images: counts, held-out faces, drawings that show no character
# or a second one, and the same bytes after three interruptions. Installs the fonts. Prints each case; exits 1 at the
# first that fails.
#
#   usage: glyphs_test.sh PROGRAM
set -euo pipefail

# shellcheck disable=SC2034,SC2154
owt=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# The test makes 100,000 small files.
if [ -z "${TMPDIR:-}" ] && [ "$(df -k --output=avail /dev/shm | tail -n 1)" -gt 2000000 ]; then export TMPDIR=/dev/shm; fi
# shellcheck source-path=SCRIPTDIR
source "$here/support/bench_cases.sh"
tools=$here/../tools
draw=("$tools/glyphs.sh" --owt "$owt" --classes 1000 --faces 5)
whole=$work/whole broken=$work/broken run=
clean_up() {
  [ -z "$run" ] || kill -KILL -- "-$run" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT

case_name="1,000 classes of 5 training images, and held-out images of nearly all classes"
ends_with 0 "${draw[@]}" "$whole"
count() { wc -l <"$whole/$1.txt"; }
counts="$(count classes) classes, $(count train) training, $(count val) validation and $(count test) test images"
if [ "$(count classes)" != 1000 ] || [ "$(count train)" != 5000 ]; then wrong "$counts"; fi
if [ "$(count val)" -lt 990 ] || [ "$(count test)" -lt 1980 ]; then wrong "$counts"; fi
for split in train val; do expect "/shards/$split: $(count $split) images of 1000 classes .* none skipped"; done
expect "/test/val: $(count test) images of 1000 classes .* none skipped"
passed

case_name="held-out faces are in their own split only"
while read -r split face; do
  for list in train val test; do
    lines=$(grep -c "^$face/" "$whole/$list.txt" || true)
    if [ "$list" = "$split" ]; then
      [ "$lines" -ge 990 ] || wrong "$list has $lines images of $face"
    else
      [ "$lines" = 0 ] || wrong "$list has $lines images of $face, which is for $split"
    fi
  done
done < <(grep -v '^#' "$tools/glyphs_held_out.txt")
passed

# A placeholder for missing glyphs is the same picture for many code points.
case_name="no drawing shows two characters of a face, and none is in the set twice"
cat "$whole"/{train,val,test}.txt >"$work/all"
(cd "$whole/images" && cut -d ' ' -f 1 "$work/all" | xargs md5sum) >"$work/sums"
# Lines `sum face code`.
sed -E 's|^([0-9a-f]+)  ([^/]+)/[^/]+/([0-9A-F]+)\.jpg$|\1 \2 \3|' "$work/sums" >"$work/output"
[ "$(wc -l <"$work/output")" = "$(wc -l <"$work/all")" ] || wrong "not every image has a sum"
for columns in 1,2 1,3; do
  twice=$(cut -d ' ' -f "$columns" "$work/output" | sort | uniq -d | head -n 3)
  [ -z "$twice" ] || wrong "drawn twice: $twice"
done
passed

case_name="a drawing of several code points, in two blocks too, counts for none of them"
mkdir -p "$work/blocks"/{4E,4F}
printf '%s\n' '4E00 0a' '4E01 0b' '4E02 0a' >"$work/blocks/4E/drawings"
printf '%s\n' '4F00 0b' '4F01 0c' >"$work/blocks/4F/drawings"
ends_with 0 env PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -c "
import sys
sys.path.insert(0, '$tools')
import glyphs
print(glyphs.read_drawings(['$work/blocks/4E', '$work/blocks/4F']) == {0x4F01: 0x0c})"
expect '^True$'
passed

# interrupt_at COUNT NAME: kills a run when this many files of this name are there. A file `drawings` completes a block.
interrupt_at() {
  setsid "${draw[@]}" "$broken" >>"$work/output" 2>&1 &
  run=$!
  while kill -0 "$run" 2>/dev/null && [ "$(find "$broken" -name "$2" 2>/dev/null | wc -l)" -lt "$1" ]; do
    sleep 0.05
  done
  kill -KILL -- "-$run" 2>/dev/null || true
  wait "$run" 2>/dev/null || true
  run=
}
case_name="three interruptions change no byte"
: >"$work/output"
interrupt_at $((RANDOM % 50 + 1)) drawings
interrupt_at $((RANDOM % 50 + 60)) drawings
interrupt_at 2 '*.tar'
ends_with 0 "${draw[@]}" "$broken"
ends_with 0 diff -r "$whole" "$broken"
passed

case_name="other settings are refused in the same folder"
ends_with 1 "${draw[@]}" "$whole" --side 32
expect 'glyphs: error: .* was begun with other settings or packages \(side 64 there, side 32 now\)'
passed
