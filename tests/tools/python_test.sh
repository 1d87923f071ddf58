#!/usr/bin/env bash
# Tests the package of tools/package/owt on a run of the program: starts tests/tools/python_package.py with python3, and
# with the Python of tensorboard_test.sh if it exists. PYTHON names another one, e.g. with pandas, polars, wandb and
# mlflow.
#
#   usage: python_test.sh OWT
set -euo pipefail

owt=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$owt" prepare synthetic "$work/shapes" --train 400 --test 100 >/dev/null
train() {
  "$owt" train quickstart --data "$work/shapes" --out "$work/runs/one" --workers 2 --set run.log_every=1 \
    --set run.eval_every_steps=4 --set run.checkpoint_every_steps=4 --set optimizer.ema=0.9 "$@" >"$work/log" 2>&1 ||
    { cat "$work/log" >&2 && exit 1; }
}
train --steps 10
train --steps 14 --resume auto

pythons=("${PYTHON:-python3}")
[ -n "${PYTHON:-}" ] || [ ! -x "$(dirname "$owt")/tensorboard-venv/bin/python" ] ||
  pythons+=("$(dirname "$owt")/tensorboard-venv/bin/python")
for python in "${pythons[@]}"; do
  "$python" -B "$here/python_package.py" "$work/runs" --verbose
done
