# Cases side by side, for scripts that wait most of the time. To be sourced by a script that keeps its files in $work
# and has set clean_up, the command that clears away when a shell ends: it calls end_lanes before it removes $work.
# shellcheck shell=bash disable=SC2034,SC2154
#
#   beside COMMAND...   in a shell with a folder $work of its own; $lane is its number
#   all_ended           waits for all of them; fails where one has
#   end_lanes           ends those that run

lanes=()

beside() {
  (
    lane=${#lanes[@]}
    work=$work/lane$lane lanes=()
    mkdir "$work"
    trap clean_up EXIT
    trap 'exit 143' TERM
    "$@"
  ) &
  lanes+=($!)
}

all_ended() {
  local pid
  for pid in "${lanes[@]}"; do wait "$pid" || return 1; done
}

end_lanes() {
  [ ${#lanes[@]} -gt 0 ] || return 0
  kill "${lanes[@]}" 2>/dev/null || true
  wait "${lanes[@]}" || true
}
