# Runs cases in parallel, for scripts that mostly wait. The script that sources this file keeps its files in $work and
# sets clean_up, the command that cleans up when a shell ends; it must call end_lanes before it removes $work.
# shellcheck shell=bash disable=SC2034,SC2154
#
#   beside COMMAND...   runs in a shell with a separate folder $work; $lane is its number
#   all_ended           waits for all of them; fails if one has failed
#   end_lanes           kills the cases that still run

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
  local pid running
  running=" $(jobs -pr | paste -s -d ' ') "
  for pid in "${lanes[@]}"; do
    # The number of a case that has ended may be another process's by now.
    [[ $running != *" $pid "* ]] || kill "$pid" 2>/dev/null || true
  done
  [ ${#lanes[@]} = 0 ] || wait "${lanes[@]}" || true
}
