# shellcheck shell=bash
# The ranks of a program that a script runs under mpirun, found by a mark in their environment. To be sourced by a
# script that has set `owt`, the program's path.
#
#   OWT_TEST_MARK=$ranks_mark mpirun ...   starts ranks that are found again
#   ranks_running                          "RANK PID" lines
#   pid_of_rank RANK                       empty where it has ended
#   kill_ranks                             ends all of them, at once

ranks_mark=owt-ranks-$$-$RANDOM

ranks_running() {
  local folder variables
  for folder in /proc/[0-9]*; do
    # shellcheck disable=SC2154
    [ "$folder/exe" -ef "$owt" ] || continue
    variables=$({ tr '\0' '\n' <"$folder/environ"; } 2>/dev/null) || continue  # it may just have ended
    grep -qx "OWT_TEST_MARK=$ranks_mark" <<<"$variables" || continue
    echo "$(sed -n 's/^OMPI_COMM_WORLD_RANK=//p' <<<"$variables") ${folder#/proc/}"
  done
}

pid_of_rank() { ranks_running | sed -n "s/^$1 //p"; }

kill_ranks() {
  local pid
  ranks_running | while read -r _ pid; do kill -KILL "$pid" 2>/dev/null || true; done
}
