#!/usr/bin/env bash
# Every model and recipe under configs/ can be read and planned.
#   usage: configs_test.sh PROGRAM
set -euo pipefail

owt=$1
configs=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/configs

for config in "$configs"/*.toml "$configs"/models/*.toml; do
  "$owt" inspect "$config" >/dev/null || { echo "FAILED: owt inspect $config" >&2; exit 1; }
  # Four ranks, or three where the batch divides by three, under a scheme with rounds: shards of all dense layers.
  "$owt" plan "$config" --workers 4 --parallel owt-c >/dev/null 2>&1 ||
    "$owt" plan "$config" --workers 3 --parallel owt-c >/dev/null || { echo "FAILED: owt plan $config" >&2; exit 1; }
  echo "passed: ${config#"$configs"/}"
done
