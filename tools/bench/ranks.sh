# shellcheck shell=bash
# Finds the ranks of a program that a script runs under mpirun, by a mark in their environment. The script that sources
# this file must set `owt`, the program's path.
#
#   OWT_TEST_MARK=$ranks_mark mpirun ...   starts ranks that can be found
#   ranks_running                          prints "RANK PID" lines
#   pid_of_rank RANK                       prints nothing if the rank has ended
#   kill_ranks                             kills all ranks at once

ranks_mark=owt-ranks-$$-$RANDOM

ranks_running() {
  local file rank
  for file in $(grep -lzxF "OWT_TEST_MARK=$ranks_mark" /proc/[0-9]*/environ 2>/dev/null); do
    # shellcheck disable=SC2154
    [ "${file%/environ}/exe" -ef "$owt" ] || continue
    rank=$({ tr '\0' '\n' <"$file" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p'; } 2>/dev/null) || continue  # it may have ended
    file=${file#/proc/}
    [ -z "$rank" ] || echo "$rank ${file%/environ}"
  done
}

pid_of_rank() { ranks_running | sed -n "s/^$1 //p"; }

kill_ranks() {
  local pid
  ranks_running | while read -r _ pid; do kill -KILL "$pid" 2>/dev/null || true; done
}
