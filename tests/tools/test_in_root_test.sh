#!/usr/bin/env bash
# Tests the command line of tools/test_in_root.sh, and that it leaves no files if a root cannot be made. Prints each
# case; exits 1 at the first that fails.
set -euo pipefail

tools=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/tools
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/tmp"

program() {  # program NAME COMMANDS
  printf '#!%s\n%s\n' "$(command -v bash)" "$2" >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}
ends_with() {  # ends_with STATUS MESSAGE ARGUMENT...
  local wanted=$1 message=$2 status=0
  shift 2
  TMPDIR=$work/tmp PATH=$work/bin:$PATH "$tools/test_in_root.sh" "$@" >"$work/output" 2>&1 || status=$?
  [ "$status" = "$wanted" ] && grep -qF -- "$message" "$work/output" && [ -z "$(ls "$work/tmp")" ] && return
  echo "FAILED: $case_name: status $status, left behind: $(ls "$work/tmp")" >&2
  sed 's/^/  | /' "$work/output" >&2
  exit 1
}
program id 'echo 0'
program debootstrap 'echo "E: no such suite" ; exit 1'
program unshare 'exit 0'

case_name="--help lists the options"
ends_with 0 "--short" --help
case_name="a wrong command line"
ends_with 2 "which suite?"
ends_with 2 "no option --fast" --fast trixie
ends_with 2 "--root wants a value" trixie --root
ends_with 2 "one suite at a time" trixie bookworm
case_name="a package that is not there"
ends_with 1 "there is no package $work/owt.deb" --deb "$work/owt.deb" trixie
case_name="a root that cannot be made leaves nothing behind"
ends_with 77 "E: no such suite" no-such-suite
case_name="a machine without name spaces is told"
program unshare 'exit 1'
ends_with 77 "no name spaces" trixie
case_name="a user who is not root is told"
program id 'echo 1000'
ends_with 77 "need root" trixie
echo "passed"
