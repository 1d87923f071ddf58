#!/usr/bin/env bash
# Tests the launcher of packages (tools/package/launcher.cpp) with programs that only print their name and arguments.
# Prints each case; exits 1 at the first that fails.
#
#   usage: tests/tools/launcher_test.sh OWT      OWT: the program in its build folder
set -euo pipefail

launcher=$(dirname "$(realpath "$1")")/tests/owt_launcher
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

wrong() {
  echo "FAILED: $case_name: $*" >&2
  exit 1
}
begin() {  # begin NAME LEVEL...: an installed package with the programs of these levels
  case_name=$1
  rm -rf "$work/usr"
  mkdir -p "$work/usr/bin" "$work/usr/libexec"
  cp "$launcher" "$work/usr/bin/owt"
  for level in "${@:2}"; do add "$work/usr/libexec/owt-$level"; done
}
add() {
  printf '#!/bin/sh\necho "${0##*/} $# $*"\nexit 5\n' >"$1"
  chmod +x "$1"
}
passed() { echo "passed: $case_name"; }
expect() {  # expect WANTED LIMIT WORD...: the launcher's output under OWT_MAX_CPU=LIMIT
  local wanted=$1 limit=$2 found
  shift 2
  found=$(OWT_MAX_CPU=$limit "$work/usr/bin/owt" "$@" 2>&1) || true
  [[ $found == $wanted ]] || wrong "it printed '$found', wanted '$wanted'"
}

begin "it runs the program of the level that it is told" x86-64-v2 x86-64-v3 x86-64-v4 avx512_bf16
expect "owt-x86-64-v2 0 " x86-64-v2
passed

begin "it hands over words as they are, and the exit code" x86-64-v2
status=0
found=$(OWT_MAX_CPU=x86-64-v2 "$work/usr/bin/owt" train 'a  b' '') || status=$?
[ "$found" = "owt-x86-64-v2 3 train a  b " ] || wrong "it printed '$found'"
[ "$status" = 5 ] || wrong "it ended with $status"
passed

begin "it runs the best program that is there, and none that needs more than the processor has" x86-64-v2 avx512_bf16
expect "owt-x86-64-v2 0 " x86-64-v4
features=" $(sed -n '/^flags/{s/.*: //p;q}' /proc/cpuinfo) "
case $features in
  *" avx512_bf16 "*) expect "owt-avx512_bf16 0 " avx512_bf16 && expect "owt-avx512_bf16 0 " '' ;;
  *) expect "owt-x86-64-v2 0 " avx512_bf16 && expect "owt-x86-64-v2 0 " '' ;;
esac
passed

begin "in a build the programs lie beside it"
add "$work/usr/bin/owt-x86-64-v2"
expect "owt-x86-64-v2 0 " x86-64-v2
passed

begin "without a program it says where it looked"
expect "owt: error: there is no program owt-x86-64-v2 *$work/usr/bin or $work/usr/libexec; install owt again" x86-64-v2
passed

begin "it says which levels there are" x86-64-v2
expect "owt: error: *OWT_MAX_CPU is 'avx3', wanted one of x86-64-v2, *" avx3
passed
