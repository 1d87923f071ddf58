#!/usr/bin/env bash
# The ImageNet procedure at a hundredth of its size: draws photographs of 100 classes, packs them into shards of JPEG
# files, and trains an 18-layer ResNet at 224 pixels. The run is stopped in the middle of an epoch and resumed.
#
#   usage: tools/experiments/drawn_photos.sh WORK [OPTION]...     WORK: a folder for all files; existing files are
#                                                                kept, and an interrupted training run is resumed
#     --owt PROGRAM      default build/owt
#     --images N         training images; a tenth as many test images; default 50000
#     --epochs N         default 2
#     --stop STEP        step after which the run is stopped; default: in the middle of the second epoch
#
# Prints the time of each step of the procedure; images per second, data wait and memory of the training process; and
# the accuracy with one view and with ten. 50,000 images take 1.3 GB of disk.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=${1:?usage: tools/experiments/drawn_photos.sh WORK [OPTION]...}
shift
owt=$root/build/owt images=50000 epochs=2 stop="" batch=64
while [ $# -gt 0 ]; do
  case $1 in
    --owt) owt=$2 ;;
    --images) images=$2 ;;
    --epochs) epochs=$2 ;;
    --stop) stop=$2 ;;
    *) echo "drawn_photos.sh: error: unknown option $1; see the head of the file" >&2; exit 1 ;;
  esac
  shift 2
done
stop=${stop:-$((images * 3 / batch / 2))}
mkdir -p "$work"

said() { echo "$*"; "$@" 2>>"$work/log.txt"; }

if [ ! -e "$work/shards/val" ]; then
  SECONDS=0
  rm -rf "$work/photos" "$work/shards"
  said "$owt" prepare synthetic "$work/photos" --photos --classes 100 --train "$images" --test $((images / 10))
  echo "drawn in $SECONDS s"
  SECONDS=0
  said "$owt" prepare folder "$work/photos/train" "$work/shards" --split train
  said "$owt" prepare stats "$work/shards"
  echo "packed and measured in $SECONDS s: $(du -sh "$work/shards" | cut -f1)"
  said "$owt" prepare folder "$work/photos/val" "$work/shards" --split val
fi

sed -e 's/^classes = 1000/classes = 100/' -e '/^name = "fc"/,$ s/^out = 1000/out = 100/' \
  "$root/configs/models/resnet18.toml" >"$work/resnet18_100.toml"
run=$work/run

# Trains, and prints the memory of the process in MB every two seconds, without pages of mapped files.
train() {
  "$owt" train "$root/configs/imagenet_resnet18.toml" --out "$run" --data "$work/shards" --precision bf16 \
    --set "model=$work/resnet18_100.toml" --set data.batch_per_rank= --set "data.batch=$batch" \
    --set optimizer.learning_rate=0.05 --set parallel.scale_lr=none --set schedule.type=cosine \
    --set schedule.milestones= --set schedule.factor= --set schedule.warmup_epochs=0.2 --epochs "$epochs" \
    --resume auto "$@" >>"$work/log.txt" 2>&1 &
  local process=$!
  while kill -0 $process 2>/dev/null; do
    awk '/RssAnon/ { print int($2 / 1024) }' /proc/$process/status 2>/dev/null >>"$work/memory.txt" || true
    sleep 2
  done
  wait $process
}

train --steps "$stop"
train
python3 - "$run/metrics.jsonl" "$work/memory.txt" <<'PYTHON'
import json, statistics, sys

lines = [json.loads(line) for line in open(sys.argv[1])]
memory = [int(line) for line in open(sys.argv[2])]
train = [line for line in lines if line["kind"] == "train"]
steps = [line["step"] for line in train]


def tenths(values, of):
    size = max(1, len(values) // 10)
    return " ".join(of(values[at:at + size]) for at in range(0, len(values), size))


print(f"steps logged once and in order: {steps == sorted(set(steps))}")
print(f"images/s, median of the log: {statistics.median(line['images_per_second'] for line in train):.1f}")
print(f"data wait, median: {statistics.median(line['data_wait_ms'] for line in train):.2f} ms a step")
print("memory in MB, most in each tenth of the time: " + tenths(memory, lambda part: str(max(part))))
losses = [line["loss"] for line in train]
print("loss, mean of each tenth: " + tenths(losses, lambda part: f"{statistics.mean(part):.3f}"))
PYTHON
said "$owt" eval "$run" --data "$work/shards" | tail -n 3
said "$owt" eval "$run" --data "$work/shards" --views 10 | tail -n 3
