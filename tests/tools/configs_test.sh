#!/usr/bin/env bash
# Tests that every model and recipe under configs/ can be read and planned.
#   usage: configs_test.sh PROGRAM
set -euo pipefail

owt=$1
configs=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/configs

# Plans four ranks, or as many as the batch allows with batch norm's groups, under a scheme with rounds: shards of all
# dense layers.
can_be_planned() {
  local workers
  for workers in 4 3; do
    "$owt" plan "$1" --workers $workers --parallel owt-c >/dev/null 2>&1 && return
  done
  "$owt" plan "$1" --workers 2 --parallel owt-c >/dev/null
}

for config in "$configs"/*.toml "$configs"/models/*.toml; do
  "$owt" inspect "$config" >/dev/null || { echo "FAILED: owt inspect $config" >&2; exit 1; }
  can_be_planned "$config" || { echo "FAILED: owt plan $config" >&2; exit 1; }
  echo "passed: ${config#"$configs"/}"
done
