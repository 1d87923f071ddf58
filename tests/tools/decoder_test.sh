#!/usr/bin/env bash
# Tests the choice of the decoder on the command line, with the program of the simulated GPU: owt bench-data measures
# both decoders, and owt train uses the one that the recipe names.
#
#   usage: decoder_test.sh OWT
set -euo pipefail

simulated=$(dirname "$1")/tests/simulated_gpu/owt_on_simulated_gpu
if [ ! -x "$simulated" ]; then
  echo "skipped: this build has no simulated GPU"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OWT_CACHE=$work/plans

wrong() {
  echo "FAILED: $*" >&2
  cat "$work/out" >&2
  exit 1
}

"$simulated" prepare synthetic "$work/photos" --photos --train 24 --test 8 >"$work/out" 2>&1 || wrong "no photographs"
"$simulated" prepare imagenet "$work/photos" "$work/shards" --size 80 >"$work/out" 2>&1 || wrong "no shards"
cat >"$work/small.toml" <<END
[model]
name = "small"
input = [3, 64, 64]
classes = 10
layer = [{ name = "fc", type = "dense", out = 10 }]
[data]
format = "shards"
batch = 4
augment = { area = [0.2, 1.0] }
[optimizer]
learning_rate = 0.01
[schedule]
epochs = 1
END
"$simulated" bench-data "$work/shards" --recipe "$work/small.toml" --device cuda --seconds 0.2 \
  --set data.decoder=auto >"$work/out" 2>&1 || wrong "exit code $?"
grep -q 'wait for files %  decoder$' "$work/out" || wrong "no column of decoders"
for decoder in cpu gpu; do grep -q "^ .* $decoder\$" "$work/out" || wrong "no row of $decoder"; done
"$simulated" bench-data "$work/shards" --recipe "$work/small.toml" --device cuda --seconds 0.2 \
  --set data.decoder=gpu --json >"$work/out" 2>&1 || wrong "exit code $?"
grep -q '"decoder": "gpu"' "$work/out" || wrong "no decoder in JSON"
for decoder in cpu gpu; do
  "$simulated" train "$work/small.toml" --data "$work/shards" --device cuda --steps 3 --out "$work/$decoder" \
    --set "data.decoder=$decoder" >"$work/out" 2>&1 || wrong "exit code $?"
done
code=0
"$simulated" train "$work/small.toml" --data "$work/shards" --device cpu --steps 3 --out "$work/none" \
  --set data.decoder=gpu >"$work/out" 2>&1 || code=$?
[ "$code" = 1 ] && grep -q 'error: data.decoder is "gpu", and this run computes on the CPU' "$work/out" ||
  wrong "exit code $code on the CPU"
echo "passed: the decoder of photographs"
