# Setup for tests of the scripts in tools/bench: a folder to work in, and checks of the output of a case in
# $work/output. A case sets case_name first and ends with `passed`.
# shellcheck shell=bash disable=SC2034,SC2154

bench=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/tools/bench
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

wrong() {
  echo "FAILED: $case_name: $*" >&2
  sed 's/^/  | /' "$work/output" >&2
  exit 1
}
expect() { grep -qE -- "$1" "$work/output" || wrong "no line matches '$1'"; }
expect_none() { if grep -qE -- "$1" "$work/output"; then wrong "a line matches '$1'"; fi; }
ends_with() {  # ends_with STATUS COMMAND...
  local status=0 wanted=$1
  shift
  "$@" >"$work/output" 2>&1 || status=$?
  [ "$status" = "$wanted" ] || wrong "it ended with $status, wanted $wanted"
}
passed() { echo "passed: $case_name"; }
