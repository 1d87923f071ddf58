#!/usr/bin/env bash
# Tests that the drawings of owt inspect and owt plan are well-formed XML, for every recipe and model in configs/ and
# under every strategy. Prints each case; exits 1 at the first that fails.
#
#   usage: draw_test.sh OWT
set -euo pipefail

owt=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! command -v xmllint >/dev/null; then
  echo "skipped: there is no xmllint; Debian has it as libxml2-utils"
  exit 77
fi

check() {  # check NAME COMMAND OPTION...
  local name=$1
  shift
  "$owt" "$@" --draw "$work/drawn.svg" >/dev/null
  xmllint --noout "$work/drawn.svg"
  echo "passed: $name"
}

for config in "$root"/configs/*.toml "$root"/configs/models/*.toml; do
  check "the network of ${config#"$root"/}" inspect "$config" --workers 1 --parallel dp
done
for strategy in dp dp-zero dp-star ps owt-a owt-b owt-c owt-d mp mp-dense pipeline; do
  check "alexnet_small on 4 workers under $strategy" inspect "$root/configs/models/alexnet_small.toml" --workers 4 \
    --set data.batch=64 --parallel "$strategy"
  check "a step of it" plan "$root/configs/models/alexnet_small.toml" --workers 4 --set data.batch=64 --gpu A100 \
    --parallel "$strategy"
done
check "a grid" inspect "$root/configs/models/alexnet_small.toml" --workers 4 --set data.batch=64 --parallel owt-d \
  --set parallel.model_ranks=2

# Names that mean something in XML, and letters that are cut off within no character.
cat >"$work/names.toml" <<'END'
name = "a <model> & \"more\""
input = [3, 8, 8]
classes = 4
[[layer]]
name = "</text><script>&\"schräg_schräg_schräg_schräg_schräg_schräg"
type = "conv"
out = 4
kernel = 3
[[layer]]
name = "fc"
type = "dense"
out = 4
END
check "names" inspect "$work/names.toml"
check "names in a step" plan "$work/names.toml" --workers 2 --set data.batch=8 --gpu A100
