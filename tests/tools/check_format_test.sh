#!/usr/bin/env bash
# Tests how tools/check_format.sh reports long comments and a missing clang-format 14. Prints each case; exits 1 at the
# first that fails.
set -euo pipefail

script=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/tools/check_format.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
for tool in bash dirname grep; do ln -s "$(command -v "$tool")" "$work/bin/$tool"; done

check_on() {  # check_on CODENAME: its exit status, on a release with this name
  echo "VERSION_CODENAME=$1" >"$work/os-release"
  status=0
  PATH=$work/bin os_release=$work/os-release bash "$script" >"$work/output" 2>&1 || status=$?
}
wrong() {
  echo "FAILED: $*: status $status" >&2
  sed 's/^/  | /' "$work/output" >&2
  exit 1
}

check_on trixie
[ $status = 0 ] && grep -q '^check_format: skipped: .* no package clang-format-14' "$work/output" ||
  wrong "a release without a package of it is told that the check is left out"
echo "passed: a release without a package of it is told that the check is left out"

check_on bookworm
[ $status = 1 ] && grep -q '^check_format: error: clang-format 14 is not installed; apt-get install' "$work/output" ||
  wrong "a release with a package of it has to have it installed"
echo "passed: a release with a package of it has to have it installed"

# A tree with one comment of COLUMNS columns in FILE, and a clang-format that finds everything in order.
check_comment() {  # check_comment FILE SIGN COLUMNS: the exit status
  rm -rf "$work/tree"
  mkdir -p "$work/tree/bin" "$work/tree"/{src,layers,data,tools,tests,configs}
  cp "$script" "$(dirname "$script")/packages.sh" "$work/tree/tools/"
  touch "$work/tree/CMakeLists.txt"
  printf '#!/bin/sh\necho version 14.0\n' >"$work/tree/bin/clang-format-14"
  chmod +x "$work/tree/bin/clang-format-14"
  printf '%s %s\n' "$2" "$(printf "%0$(($3 - ${#2} - 1))d" 0)" >"$work/tree/$1"
  status=0
  PATH=$work/tree/bin:$PATH os_release=$work/os-release bash "$work/tree/tools/check_format.sh" >"$work/output" 2>&1 ||
    status=$?
}
for place in src/a.cpp:// configs/a.toml:# tools/a.sh:# tools/a.py:# CMakeLists.txt:#; do
  file=${place%%:*} sign=${place##*:}
  check_comment "$file" "$sign" 121
  [ $status = 1 ] && grep -q "^$file:1:$sign 0" "$work/output" || wrong "a comment of 121 columns in $file is refused"
  check_comment "$file" "$sign" 120
  [ $status = 0 ] || wrong "a comment of 120 columns in $file is let through"
done
echo "passed: comments of more than 120 columns are refused, in whatever language"
