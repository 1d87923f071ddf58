#!/usr/bin/env bash
# Tests that ranks as processes work like ranks as threads: the same losses under every strategy with 2 to 4 of them,
# the bytes of the plan, a checkpoint resumed with another number, one writer, and errors on all.
#
#   usage: processes_test.sh OWT
set -euo pipefail

owt=$1
if ! command -v mpirun >/dev/null || ! "$owt" devices | grep -q '^mpi .*Open MPI'; then
  echo "skipped: no mpirun, or owt is built without MPI"
  exit 0
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR/../support
source "$here/../support/small_processes.sh"
# shellcheck source-path=SCRIPTDIR/../support
source "$here/../support/lanes.sh"
export OMP_NUM_THREADS=1
export ONEDNN_MAX_CPU_ISA=SSE41  # kernels for six steps, which are generated in the shortest time
export OMPI_MCA_odls_base_sigkill_timeout=0  # one rank's error is enough here: mpirun need not wait for the others'
work=$(mktemp -d)
clean_up() {
  end_lanes
  rm -rf "$work"
}
trap clean_up EXIT
failed=0
wrong() {
  echo "FAILED: $*" >&2
  failed=1
}

small=$work/small.toml one=$work/one  # shared by all lanes
cat >"$small" <<'TOML'
[model]
name = "small"
input = [3, 12, 12]
classes = 50
layer = [
  { name = "conv1", type = "conv", out = 8, kernel = 3, init = { type = "msra" } },
  { name = "relu1", type = "relu" },
  { name = "pool1", type = "max_pool", kernel = 2 },
  { name = "drop1", type = "dropout", rate = 0.2 },
  { name = "fc1", type = "dense", out = 30 },
  { name = "relu2", type = "relu" },
  { name = "fc2", type = "dense", out = 22 },
  { name = "relu3", type = "relu" },
  { name = "fc3", type = "dense", out = 50 },
]
[data]
format = "synthetic"
side = 14
train_images = 50
test_images = 20
batch = 24
augment = { crop = 12, mirror = true, scale = 0.02, mean = "channel" }
[optimizer]
learning_rate = 0.02
[schedule]
epochs = 2
[run]
device = "cpu"
conv_algorithm = "direct"
log_every = 1
seed = 5
equality_every = 2
TOML

processes() {  # processes K OWT-ARGUMENTS...
  local count=$1
  shift
  timeout -s KILL 100 mpirun -np "$count" "$owt" "$@"
}

# Runs two processes with different command lines. mpirun's own ':' is not used, because Open MPI 5.0.7 crashes at it.
unlike_processes() {  # unlike_processes WORDS-OF-RANK-0... and WORDS-OF-RANK-1...
  timeout -s KILL 100 mpirun -np 2 bash -c '
    mine=()
    while [ "$1" != and ]; do mine+=("$1") && shift; done
    shift
    if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then exec "${mine[@]}"; else exec "$@"; fi' bash "$@"
}

losses() { sed -n 's/.*"kind":"train".*"loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
same_losses() {  # same_losses RUN RUN: to 1e-4, and there are some
  paste <(losses "$1") <(losses "$2") | awk '
    { ++lines; d = $1 - $2; if (NF != 2 || d * d > (1e-4 * $1) ^ 2) bad = 1 }
    END { exit bad || lines != 6 }'
}

# The rest consists of functions, which run in parallel in separate folders.
"$owt" train "$small" --threads 1 --out "$one" >/dev/null 2>&1
strategies=$("$owt" plan "$small" --workers 2 | sed -n '/^strategy /,/^$/p' | awk 'NR > 1 && NF { print $1 }')

trained() {  # trained RUN STRATEGY PROCESSES CONFIG OPTION...: a run with the losses of $one and the bytes of the plan
  local run=$1 strategy=$2 count=$3 what="$2 on $3 processes" sent planned
  shift 3
  processes "$count" train "$@" --parallel "$strategy" --out "$run" >"$run.out" 2>"$run.err" ||
    wrong "$what: exit code $?: $(tail -n 3 "$run.err")"
  [ "$(grep -c '^test accuracy' "$run.out")" = 1 ] || wrong "$what: not one result on stdout"
  sent=$(bytes_sent "$run/timing.csv")
  planned=$("$owt" plan "$@" --workers "$count" --parallel "$strategy" |
    sed -n 's/^one way in the busiest link *\([0-9]*\) .*/\1/p')
  # What the plan says of a pipeline is the stage that sends most; train_test compares every stage's.
  [ "$strategy" = pipeline ] || [ "$sent" = "$planned" ] ||
    wrong "$what: the first process sent $sent bytes a step, planned $planned"
}
bytes_sent() {  # bytes_sent TABLE: by the first process in a step
  awk -F, 'NR == 1 { for (i = 1; i <= NF; ++i) if ($i == "bytes_sent") column = i }
           $1 == "transfer" && $NF == 0 { sum += $column } END { print sum }' "$1"
}

# Rank 0 and servers add in the order of dp's sums. In another order the numbers of four ranks round otherwise.
same_sums() {
  local strategy
  for strategy in dp dp-star ps; do
    trained "$work/sums-$strategy" $strategy 4 "$small"
    same_losses "$one" "$work/sums-$strategy" || wrong "$strategy on 4 processes: other losses than one rank"
    cmp -s "$work/sums-dp"/checkpoints/step-*6/weights.safetensors \
      "$work/sums-$strategy"/checkpoints/step-*6/weights.safetensors || wrong "$strategy on 4 processes: other weights than dp"
  done
}

# With a delay a step's loss still covers all rows, the weights are equal where the ranks meet, and a run resumes.
served() {
  local rules steps
  for rules in ps.delay=1 ps.delay=inf "ps.delay=3 --set ps.pushes=2"; do
    run=$work/served-${rules%% *} steps=6
    [ "$rules" = ps.delay=1 ] || steps=4
    # shellcheck disable=SC2086
    processes 3 train "$small" --parallel ps --set $rules --steps $steps --out "$run" >/dev/null 2>"$work/error.txt" ||
      wrong "$rules: $(tail -n 3 "$work/error.txt")"
    # shellcheck disable=SC2086
    [ $steps = 6 ] ||
      processes 2 train "$small" --parallel ps --set $rules --resume auto --out "$run" >/dev/null \
        2>"$work/error.txt" || wrong "$rules, resumed: $(tail -n 3 "$work/error.txt")"
    [ "$(losses "$run" | wc -l)" = 6 ] || wrong "$rules: not a loss for every step"
    paste <(losses "$one") <(losses "$run") | awk 'NR == 1 { d = $1 - $2; exit d * d > (1e-4 * $1) ^ 2 }' ||
      wrong "$rules: another first loss than of one rank"
  done
}

# Local SGD has the same losses as among threads, and owt time finds the mean bytes of the plan.
local_steps() {
  local local_steps=(--set parallel.average_every=2)
  for strategy in dp owt-c; do
    "$owt" train "$small" --workers 3 --threads 3 --parallel "$strategy" "${local_steps[@]}" \
      --out "$work/local-$strategy" >/dev/null 2>&1
    processes 3 train "$small" --parallel "$strategy" "${local_steps[@]}" --out "$work/local-$strategy-3" \
      >/dev/null 2>"$work/error.txt" || wrong "local steps of $strategy on 3 processes: $(tail -n 3 "$work/error.txt")"
    same_losses "$work/local-$strategy" "$work/local-$strategy-3" ||
      wrong "local steps of $strategy: processes learn something else than threads"
    processes 3 time "$small" --parallel "$strategy" "${local_steps[@]}" --steps 3 --csv "$work/time.csv" \
      >/dev/null 2>&1 || wrong "owt time of local steps"
    sent=$(bytes_sent "$work/time.csv")
    planned=$("$owt" plan "$small" --workers 3 --parallel "$strategy" "${local_steps[@]}" |
      sed -n 's/^sent per worker and step *\([0-9]*\) .*/\1/p')
    [ "$sent" = "$planned" ] || wrong "local steps of $strategy: three processes sent $sent bytes each, planned $planned"
  done
}

# A step in micro-batches has the losses of a whole step, and resumes from a checkpoint with other micro-batches.
sliced() {
  for strategy in dp-zero owt-d; do
    slices=(--parallel "$strategy" --set data.accumulate=3)
    processes 2 train "$small" "${slices[@]}" --steps 3 --out "$work/slices-$strategy" \
      >/dev/null 2>"$work/error.txt" || wrong "slices of $strategy on 2 processes: $(tail -n 3 "$work/error.txt")"
    processes 3 train "$small" --parallel "$strategy" --set data.accumulate=2 --resume auto \
      --out "$work/slices-$strategy" >/dev/null 2>"$work/error.txt" ||
      wrong "slices of $strategy on 3 processes: $(tail -n 3 "$work/error.txt")"
    same_losses "$one" "$work/slices-$strategy" || wrong "slices of $strategy: other losses than one rank"
  done
}

# Other recipe settings give the same results among processes as among threads: losses, norms and evaluations up to
# rounding; weights, states and averages bit for bit, except under owt-b, whose sums have another order there.
options=$work/options.toml
sed -e 's/{ name = "relu1", type = "relu" }/{ name = "norm1", type = "batch_norm", rows = 4 },\n  &/' \
  -e 's/^train_images = .*/train_images = 60/' "$small" >"$options"
metrics() { grep -oE '"(loss|top1|gradient_norm|ema|split|images)":[^,}]*' "$1/metrics.jsonl"; }
same_metrics() {  # same_metrics RUN RUN: equal words, and equal numbers to 1e-6
  paste -d: <(metrics "$1") <(metrics "$2") | awk -F: '
    { d = $2 - $4; if (NF != 4 || $1 != $3 || d * d > (1e-6 * $2) ^ 2 || ($2 + 0 == 0 && $2 != $4)) bad = 1 }
    END { exit bad || NR == 0 }'
}
same_results() {  # same_results NAME THREADS PROCESSES PATTERN: two runs; a line of metrics.jsonl matches
  local file
  same_metrics "$2" "$3" && grep -q "$4" "$3/metrics.jsonl" ||
    wrong "$1: $(metrics "$3" | paste -s), among threads $(metrics "$2" | paste -s)"
  for file in "$2"/checkpoints/step-*/*.safetensors; do
    [[ $1 = *owt-b* ]] || cmp -s "$file" "$3/${file#"$2/"}" || wrong "$1: another ${file#"$2/"}"
  done
}
alike() {  # alike NAME PROCESSES PATTERN OPTION...
  local name="$1 on $2 processes" count=$2 pattern=$3 threads=$work/alike-threads mpi=$work/alike-mpi
  shift 3
  rm -rf "$threads" "$mpi"
  "$owt" train "$options" --workers "$count" --threads "$count" "$@" --out "$threads" \
    >/dev/null 2>"$work/error.txt" || wrong "$name, as threads: $(tail -n 3 "$work/error.txt")"
  processes "$count" train "$options" "$@" --out "$mpi" >/dev/null 2>"$work/error.txt" ||
    wrong "$name: $(tail -n 3 "$work/error.txt")"
  same_results "$name" "$threads" "$mpi" "$pattern"
}
lars=(--set optimizer.type=lars --set optimizer.learning_rate=5 --set optimizer.clip=1)

# Processes also have the losses of one rank. Three are enough here, because processes_test.cpp has each transfer
# with 2, 3 and 4, and train_test each strategy with more numbers of workers.
alike_under_strategies() {
  local strategy norms=("${lars[@]}" --set optimizer.ema=0.7)
  "$owt" train "$options" --threads 1 "${norms[@]}" --out "$work/alone" >/dev/null 2>&1
  for strategy in "$@"; do
    "$owt" train "$options" --workers 3 --threads 3 "${norms[@]}" --parallel "$strategy" --out "$work/$strategy-threads" \
      >/dev/null 2>"$work/error.txt" || wrong "$strategy among threads: $(tail -n 3 "$work/error.txt")"
    trained "$work/$strategy" "$strategy" 3 "$options" "${norms[@]}"
    same_losses "$work/alone" "$work/$strategy" || wrong "$strategy on 3 processes: other losses than one rank"
    same_results "$strategy on 3 processes" "$work/$strategy-threads" "$work/$strategy" '"gradient_norm":'
  done
}
alike_with_options() {
  alike "lars on a grid" 4 '"gradient_norm":' "${lars[@]}" --parallel owt-c --set parallel.model_ranks=2 \
    --set data.batch=32
  alike "clip with bf16 on the wire" 3 '"gradient_norm":' --set optimizer.clip=1 --set parallel.wire=bf16 --parallel owt-d
  alike "adamw in slices" 2 '"loss":' --set optimizer.type=adamw --set optimizer.learning_rate=0.001 --set data.accumulate=3 \
    --parallel dp-zero
  alike "frozen dense layers" 2 '"gradient_norm":' --set 'optimizer.freeze=["fc1"]' "${lars[@]}" --parallel owt-a
  alike "other and mixed images under owt-b" 3 '"loss":' --set data.augment.mixup=0.2 --set data.augment.cutmix=1 \
    --set 'data.augment.policy="trivial_wide"' --set data.augment.erase=0.5 --set 'data.augment.mirror="alternating"' \
    --parallel owt-b
  alike "all together" 3 '"split":"val".*"ema":true' "${lars[@]}" --set optimizer.ema=0.7 --set data.accumulate=2 \
    --set data.validation=0.2 --set data.augment.mixup=0.2 --set 'optimizer.freeze=["conv*", "norm*"]' --parallel owt-c
}

# Pipelines without a flush give bit-identical results among processes and among threads.
without_a_flush() {
  for schedule in pipedream spectrain; do
    stages=(--parallel pipeline --set pipeline.schedule=$schedule --set pipeline.micro_batches=6)
    "$owt" train "$small" --workers 3 --threads 3 "${stages[@]}" --out "$work/$schedule" >/dev/null 2>&1
    processes 3 train "$small" "${stages[@]}" --out "$work/$schedule-3" >/dev/null 2>"$work/error.txt" ||
      wrong "$schedule on 3 processes: $(tail -n 3 "$work/error.txt")"
    cmp -s "$work/$schedule"/checkpoints/step-*6/weights.safetensors \
      "$work/$schedule-3"/checkpoints/step-*6/weights.safetensors ||
      wrong "$schedule: processes learn something else than threads"
  done
}

# Grids, and another number of processes from a checkpoint.
grids_and_errors() {
  local status
  processes 4 train "$small" --parallel owt-c --set parallel.model_ranks=2 --steps 3 --out "$work/grid" \
    >/dev/null 2>"$work/grid.err" || wrong "a grid of 2 x 2: $(tail -n 3 "$work/grid.err")"
  processes 3 train "$small" --parallel owt-d --resume auto --out "$work/grid" >/dev/null 2>"$work/grid.err" ||
    wrong "resuming a grid of 2 x 2 on three: $(tail -n 3 "$work/grid.err")"
  same_losses "$one" "$work/grid" || wrong "a run of 4, then 3 processes: other losses than one rank"
  [ "$(processes 2 eval "$work/grid/config.toml" --weights "$(ls -d "$work"/grid/checkpoints/step-*6)/weights.safetensors" 2>/dev/null)" = \
    "$("$owt" eval "$work/grid/config.toml" --set parallel.workers=1 --weights "$(ls -d "$work"/grid/checkpoints/step-*6)/weights.safetensors" 2>/dev/null)" ] ||
    wrong "owt eval on two processes finds another accuracy"

  # Errors: exit code 1 and the reason; no process hangs.
  status=0
  processes 2 train "$small" --out "$work/grid" >/dev/null 2>"$work/error.txt" || status=$?
  [ $status = 1 ] && grep -q '^owt: error: the run folder .* holds a run already' "$work/error.txt" ||
    wrong "a run folder in use: exit code $status, $(cat "$work/error.txt")"
  status=0
  processes 2 train "$small" --workers 3 --out "$work/three" >/dev/null 2>"$work/error.txt" || status=$?
  [ $status = 1 ] && grep -q '^owt: error: .*3 workers, but .* has started 2' "$work/error.txt" ||
    wrong "--workers 3 in two processes: exit code $status, $(cat "$work/error.txt")"
  status=0
  processes 2 train "$small" --set optimizer.learning_rate=1e30 --out "$work/nan" >/dev/null 2>"$work/error.txt" || status=$?
  [ $status = 1 ] && grep -qE '^owt: error: (rank 1 failed: )?step .*: the loss is' "$work/error.txt" ||
    wrong "a run that diverges: exit code $status, $(cat "$work/error.txt")"
}

unlike=$work/unlike.toml
cat >"$unlike" <<'TOML'
[model]
name = "quick"
input = [3, 32, 32]
classes = 50
layer = [
  { name = "conv1", type = "conv", out = 32, kernel = 5, pad = 2, init = { type = "msra" } },
  { name = "pool1", type = "max_pool", kernel = 3, stride = 2 },
  { name = "relu1", type = "relu" },
  { name = "conv2", type = "conv", out = 32, kernel = 3, pad = 1, init = { type = "msra" } },
  { name = "relu2", type = "relu" },
  { name = "conv3", type = "conv", out = 64, kernel = 3, pad = 1, init = { type = "msra" } },
  { name = "pool3", type = "avg_pool", kernel = 3, stride = 2 },
  { name = "fc1", type = "dense", out = 50 },
]
[data]
format = "synthetic"
side = 32
train_images = 60
test_images = 20
batch = 24
augment = { mirror = true, scale = 0.02, mean = "channel" }
[optimizer]
learning_rate = 0.02
[schedule]
epochs = 2
[run]
device = "cpu"
conv_algorithm = "direct"
log_every = 1
seed = 5
equality_every = 1
TOML
# Hosts with other numbers of cores and other processors round otherwise; the copies of the weights stay alike. They are
# compared in every step.
unlike_hosts() {
  for strategy in dp mp mp-dense; do
    unlike_processes env -u ONEDNN_MAX_CPU_ISA "$owt" train "$unlike" --parallel "$strategy" --out "$work/unlike" --threads 4 \
      and env ONEDNN_MAX_CPU_ISA=AVX2 "$owt" train "$unlike" --parallel "$strategy" --out "$work/unlike" --threads 2 \
      >/dev/null 2>"$work/error.txt" || wrong "unlike hosts, $strategy: exit code $?: $(tail -n 20 "$work/error.txt")"
    rm -rf "$work/unlike"
  done
}

# All ranks use rank 0's choices of algorithms, so resumed runs give the same bits as an uninterrupted one.
chosen_algorithms() {
  unset ONEDNN_MAX_CPU_ISA  # all algorithms
  sed 's/conv_algorithm = "direct"/conv_algorithm = "auto"/' "$unlike" >"$work/auto.toml"
  processes 2 train "$work/auto.toml" --parallel owt-c --set run.checkpoint_every_steps=2 --set run.keep_checkpoints=9 \
    --out "$work/whole" >/dev/null 2>"$work/error.txt" || wrong "measured algorithms: $(tail -n 3 "$work/error.txt")"
  for try in 1 2 3; do
    processes 2 train "$work/auto.toml" --parallel owt-c --resume "$work/whole/checkpoints/step-00000002" \
      --out "$work/resumed$try" >/dev/null 2>"$work/error.txt" ||
      wrong "resuming with measured algorithms: $(tail -n 3 "$work/error.txt")"
    [ "$(losses "$work/whole" | tail -n 4)" = "$(losses "$work/resumed$try")" ] ||
      wrong "a resumed run gives other bits, try $try"
  done
}

# Damaged records count once for all processes together; rank 0 reports each once.
damaged_records() {
  local pixels status
  pixels=$(printf '%s' 'BM\366\006\0\0\0\0\0\0\066\0\0\0\050\0\0\0\030\0\0\0\030\0\0\0\001\0\030\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0')
  for split in train val; do
    for index in 0 1 2 3 4 5 6 7 8 9; do
      mkdir -p "$work/photos-$split/$((index % 2))"
      { printf "$pixels" && head -c 1728 /dev/urandom; } >"$work/photos-$split/$((index % 2))/$index.bmp"
    done
    "$owt" prepare folder "$work/photos-$split" "$work/shards" --split $split --size 24 >/dev/null 2>"$work/error.txt" ||
      wrong "photos could not be prepared: $(cat "$work/error.txt")"
  done
  sed -e '/^side = \|^train_images = \|^test_images = /d' -e 's/"synthetic"/"shards"/' -e 's/batch = 24/batch = 4/' \
    -e 's/^augment = .*/augment = { crop = 12, short_side = 24 }\nmax_corrupt = 0.2/' "$small" >"$work/shards.toml"
  damage() {  # damage RECORD: one byte of its JPEG
    local begin
    begin=$(LC_ALL=C grep -obUaP '\xff\xd8\xff' "$work/shards/train/000000.tar" | LC_ALL=C cut -d: -f1 | sed -n "$(($1 + 1))p")
    printf '\0\0' | dd of="$work/shards/train/000000.tar" bs=1 seek=$((begin + 400)) conv=notrunc 2>/dev/null
  }
  damage 1
  damage 6
  processes 2 train "$work/shards.toml" --classes number --data "$work/shards" --out "$work/damaged" >/dev/null 2>"$work/error.txt" ||
    wrong "two damaged records, two allowed: $(tail -n 3 "$work/error.txt")"
  [ "$(grep -c 'damaged record [12] of at most 2, met by rank [01], ' "$work/error.txt")" = 2 ] &&
    [ "$(grep -c 'damaged record' "$work/error.txt")" = 2 ] || wrong "two damaged records: $(cat "$work/error.txt")"
  damage 3
  status=0
  processes 2 train "$work/shards.toml" --classes number --data "$work/shards" --out "$work/worse" >/dev/null 2>"$work/error.txt" || status=$?
  [ $status = 1 ] && grep -q '^owt: error: \(rank 1: \)\?\(rank [01] failed: \)\?3 damaged record(s) .*at most 2' "$work/error.txt" ||
    wrong "three damaged records, two allowed: exit code $status, $(cat "$work/error.txt")"
}

# The inputs of the processes are compared before the first step: other data, another recipe, another command line.
unlike_inputs() {
  local status
  for made in "all 60 20 1" "fewer 50 20 1" "others 60 20 2" "tests 60 30 1"; do
    read -r name images tests seed <<<"$made"
    "$owt" prepare synthetic "$work/$name" --train "$images" --test "$tests" --seed "$seed" >/dev/null 2>&1
  done
  sed -e '/^side = \|^train_images = \|^test_images = /d' -e 's/"synthetic"/"cifar10"\nclasses = "number"/' -e 's/crop = 12/crop = 12, pad = 0/' \
    "$small" >"$work/files.toml"
  differ() {  # differ NAME PATTERN DATA-OF-RANK-1 ARGUMENTS-OF-RANK-1...: both end with one line that matches
    local name=$1 pattern=$2 data=$3 status=0
    shift 3
    unlike_processes "$owt" train "$work/files.toml" --data "$work/all" --out "$work/differ" --workers 2 and \
      "$owt" train "$work/files.toml" --data "$work/$data" --out "$work/differ" --workers 2 "$@" \
      >/dev/null 2>"$work/error.txt" || status=$?
    [ $status = 1 ] && grep -q "^owt: error: \(rank 1: \)\?$pattern" "$work/error.txt" ||
      wrong "$name: exit code $status, $(cat "$work/error.txt")"
    [ ! -e "$work/differ" ] || wrong "$name: the run began"
  }
  differ "fewer images" 'number of training images: rank 1 on .* has 50 in .*/fewer, rank 0 on .* has 60 in .*/all; give' fewer
  differ "other images" 'checksum of the training images: rank 1 on .*/others, rank 0 on .*/all; give' others
  differ "other test images" 'number of test images: rank 1 on .* has 30 in .*/tests, rank 0 on .* has 20 in .*/all; give' tests
  differ "another recipe" "recipe: rank 1 on .* has the line 'batch = 12', rank 0 on .* has the line 'batch = 24'; give" all \
    --set data.batch=12
  status=0
  unlike_processes "$owt" train "$small" --out "$work/differ" and "$owt" train "$small" --out "$work/differ" \
    --workers 3 >/dev/null 2>"$work/error.txt" || status=$?
  [ $status = 1 ] && grep -q "^owt: error: \(rank 1: \)\?recipe: rank 1 on .* has the line 'workers = 3', rank 0 on .* has" \
    "$work/error.txt" || wrong "another number of workers on one rank: exit code $status, $(cat "$work/error.txt")"
  status=0
  unlike_processes "$owt" bench-comm --seconds 0.1 and "$owt" bench-comm --seconds 0.1 --workers 3 \
    >/dev/null 2>"$work/error.txt" || status=$?
  [ $status = 1 ] && grep -q '^owt: error: \(rank 1: \)\?--workers: rank 1 on .* has 3, rank 0 on .* has 2; give' "$work/error.txt" ||
    wrong "bench-comm with another number of workers on one rank: exit code $status, $(cat "$work/error.txt")"
  differ "weights for one" '--weights: rank 1 on .* has a value, rank 0 on .* has nothing; give' all --weights "$work/none"

  # A file that never returns data, like on a dead file system: the others report the rank that waits for it.
  cp -r "$work/all" "$work/hanging"
  rm "$work/hanging/cifar-10-batches-bin/data_batch_3.bin"
  mkfifo "$work/hanging/cifar-10-batches-bin/data_batch_3.bin"
  hangs() {  # hangs RANK DATA-OF-RANK-0 DATA-OF-RANK-1
    local status=0 data=("$work/$2" "$work/$3")
    unlike_processes "$owt" train "$work/files.toml" --data "${data[0]}" --out "$work/hangs" --set parallel.timeout_s=3 and \
      "$owt" train "$work/files.toml" --data "${data[1]}" --out "$work/hangs" --set parallel.timeout_s=3 \
      >/dev/null 2>"$work/error.txt" || status=$?
    local line='^owt: error: .*rank '$1' on [^ ]+ \(process [0-9]+\) makes no progress: it has waited for data for [0-9]+ s and read nothing;'
    [ $status = 1 ] && grep -qE "$line" "$work/error.txt" ||
      wrong "rank $1 waits for data: exit code $status, $(cat "$work/error.txt")"
  }
  hangs 0 hanging all
  hangs 1 all hanging
}

in_lane() {  # in_lane FUNCTION-AND-ITS-WORDS...
  local cases
  for cases in "$@"; do $cases; done
  return $failed
}
other_strategies() { alike_under_strategies $(grep -vxE 'dp|dp-zero|dp-star|ps' <<<"$strategies"); }
beside in_lane same_sums "alike_under_strategies dp dp-zero dp-star" grids_and_errors damaged_records
beside in_lane other_strategies local_steps
beside in_lane alike_with_options chosen_algorithms served
beside in_lane unlike_inputs unlike_hosts sliced without_a_flush
all_ended
echo "passed"
