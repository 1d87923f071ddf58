#!/usr/bin/env bash
# Tests tests/support/lanes.sh: at the end it kills the cases that still run, and no process that has got the number of
# a case that has ended.
#
#   usage: lanes_test.sh
set -euo pipefail

work=$(mktemp -d)
# shellcheck source-path=SCRIPTDIR/../support
source "$(dirname "${BASH_SOURCE[0]}")/../support/lanes.sh"
clean_up() {
  end_lanes
  rm -rf "$work"
}
trap clean_up EXIT
wrong() {
  echo "FAILED: $*" >&2
  exit 1
}

ends() { :; }
never=$work/never  # no process writes to it
mkfifo "$never"
waits() { read -r <"$never"; }
fails() { false; }
beside ends
beside waits
wait "${lanes[0]}"
killed=()
kill() {
  killed+=("$@")
  builtin kill "$@"
}
end_lanes
unset -f kill
[ "${killed[*]}" = "${lanes[1]}" ] || wrong "killed ${killed[*]} of ${lanes[*]}; the first had ended"
[ -z "$(jobs -pr)" ] || wrong "a case still runs"

lanes=()
beside ends
beside fails
if all_ended; then wrong "all ended well, though one failed"; fi
