#!/usr/bin/env bash
# Tests that TensorBoard reads the files of run.tensorboard, also of a resumed run. Prints each case; exits 1 at the
# first that fails. If python3 has no TensorBoard, it is installed from PyPI beside the program, once; skipped (exit 77)
# if that fails.
#
#   usage: tensorboard_test.sh OWT
set -euo pipefail

owt=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shellcheck source-path=SCRIPTDIR/../support
source "$(dirname "${BASH_SOURCE[0]}")/../support/venv.sh"
reads_events() {
  "$1" -c 'from tensorboard.backend.event_processing import plugin_event_accumulator
from tensorboard.summary.writer import event_file_writer' 2>/dev/null
}
install() { "${pip[@]}" install --quiet --no-compile --timeout 20 --retries 1 "$@" >"$work/pip" 2>&1; }
venv=$(dirname "$owt")/tensorboard-venv
python=$venv/bin/python
if reads_events python3; then
  python=python3
elif ! reads_events "$python"; then
  rm -rf "$venv"
  # First only what reads events; the other packages serve pages.
  if ! { make_venv "$venv" >"$work/pip" 2>&1 && install --no-deps tensorboard numpy protobuf absl-py &&
    { reads_events "$python" || install tensorboard; }; }; then
    rm -rf "$venv"
    echo "skipped: tensorboard cannot be installed from PyPI: $(tail -n 1 "$work/pip")"
    exit 77
  fi
fi

train=("$owt" train quickstart --data "$work/shapes" --out "$work/runs/one" --workers 2 --set run.tensorboard=true
  --set run.log_every=1 --set run.eval_every_steps=4 --set run.checkpoint_every_steps=3 --set run.keep_checkpoints=9)
# compare COMMAND...: metrics.jsonl and a TensorBoard that was started before the command must agree.
compare() {
  "$python" - "$work/runs/one" "$@" <<'END'
import json
import math
import pathlib
import subprocess
import sys
import time

from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

run = pathlib.Path(sys.argv[1])
events = EventAccumulator(str(run), size_guidance={"tensors": 0})
if run.exists():
    events.Reload()
subprocess.run(sys.argv[2:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
events.Reload()
wanted = {}
for line in map(json.loads, open(run / "metrics.jsonl")):
    step, kind = line["step"], line["kind"]
    if kind == "train":
        tags = {"loss": "loss/train", "top1": "top1/train", "lr": "lr", "epoch": "epoch",
                "images_per_second": "images_per_second", "data_wait_ms": "data_wait_ms"}
        for key, tag in tags.items():
            wanted.setdefault(tag, []).append((step, line[key]))
    elif kind == "eval":
        for key in ("loss", "top1", "top5"):
            wanted.setdefault(f"{key}/{line['split']}", []).append((step, line[key]))
    elif kind == "weights":
        for name, mean in line["mean"].items():
            wanted.setdefault("weight_mean/" + name, []).append((step, mean))
            change = line.get("change", {}).get(name)
            if change is not None:
                wanted.setdefault("weight_change/" + name, []).append((step, change))
                wanted.setdefault("weight_ratio/" + name, []).append((step, change / mean))
found = events.Tags()["tensors"]
assert sorted(found) == sorted([*wanted, "recipe", "start"]), (found, sorted(wanted))
now = time.time()
for tag, points in wanted.items():
    read = events.Tensors(tag)
    values = [make_ndarray(p.tensor_proto).item() for p in read]
    assert [p.step for p in read] == [step for step, _ in points], (tag, read, points)
    assert all(math.isclose(a, b, rel_tol=1e-6) for a, (_, b) in zip(values, points)), (tag, values, points)
    assert all(now - 3600 < p.wall_time < now + 60 for p in read), (tag, read, now)
assert events.SummaryMetadata("recipe").plugin_data.plugin_name == "text"
recipe = events.Tensors("recipe")[-1].tensor_proto.string_val[0].decode()
assert "    tensorboard = true" in recipe.split("\n"), recipe
start = events.Tensors("start")
print(len(wanted), "scalars of", len(wanted["loss/train"]), "steps;", len(start), "starts")
END
}

wrong() {
  echo "FAILED: $case_name: $*" >&2
  exit 1
}
passed() { echo "passed: $case_name"; }

"$owt" prepare synthetic "$work/shapes" --train 400 --test 100 >/dev/null

case_name="a run"
found=$(compare "${train[@]}" --steps 10) || wrong "what it reads"
[[ $found == *"of 10 steps; 1 starts" ]] || wrong "$found"
passed

case_name="a run that went on"
found=$(compare "${train[@]}" --steps 14 --resume auto) || wrong "what it reads"
[[ $found == *"of 14 steps; 2 starts" ]] || wrong "$found"
passed

case_name="a run that went on from an older checkpoint has no step twice"
found=$(compare "${train[@]}" --steps 12 --resume "$work/runs/one/checkpoints/step-00000006") || wrong "what it reads"
[[ $found == *"of 12 steps; 2 starts" ]] || wrong "$found"
[ "$(find "$work/runs/one" -name '*tfevents*' -size +0 | wc -l)" = 1 ] || wrong "files are left"
passed
