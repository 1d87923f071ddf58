#!/usr/bin/env bash
# tools/check_format.sh where clang-format 14 is not installed. Prints each case; exits 1 at the first that fails.
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
