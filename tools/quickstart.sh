#!/usr/bin/env bash
# From a fresh clone to a trained network: installs what is missing, builds, finds or makes data, trains, reports.
#
#   usage: tools/quickstart.sh [OPTION OF owt train]...      e.g. tools/quickstart.sh --workers 4 --parallel owt-a
#
# Data: the CIFAR-10 in $OWT_DATA or ./datasets (tools/fetch_cifar10.sh datasets gets it), else a synthetic data set in
# datasets/synthetic. The program lands in build/, a new run folder in runs/.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/tools/packages.sh"
owt=$root/build/owt

say() { printf '\n== %s\n' "$*"; }

given() {  # given NAME WORD...: is option --NAME among the words?
  local name=$1 word
  shift
  for word in "$@"; do
    case $word in "--$name" | "--$name="*) return 0 ;; esac
  done
  return 1
}

is_cifar10() {  # the folder of the files, or the one above it
  local folder
  for folder in "$1" "$1/cifar-10-batches-bin"; do
    if [ -s "$folder/data_batch_1.bin" ] && [ -s "$folder/test_batch.bin" ]; then return 0; fi
  done
  return 1
}

# Sets `data` to the folder of a data set, making one if need be.
find_data() {
  local folder
  for folder in ${OWT_DATA:+"$OWT_DATA"} datasets "$root/datasets"; do
    if is_cifar10 "$folder"; then
      data=$folder
      echo "$data holds a data set in the format of CIFAR-10"
      return 0
    fi
  done
  data=$root/datasets/synthetic
  echo "No CIFAR-10 in \$OWT_DATA or ./datasets; taking the synthetic data set $data"
  is_cifar10 "$data" || "$owt" prepare synthetic "$data"
}

for word in "$@"; do
  if [ "$word" = --help ] || [ "$word" = -h ]; then
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
    exit 0
  fi
done

say "Packages"
install_packages "${build_packages[@]}"
echo "all there"

say "Build (once; a few minutes)"
if ! configured=$(cmake -S "$root" --preset release -DOWT_TESTS=OFF 2>&1); then
  echo "$configured" >&2
  echo "quickstart: error: cmake could not configure the build; see above" >&2
  exit 1
fi
cmake --build "$root/build" --target owt --parallel "$(nproc)"

arguments=()
given timing "$@" || arguments+=(--timing)
if ! given data "$@"; then
  say "Data"
  find_data
  arguments+=(--data "$data")
fi
if ! given out "$@"; then
  run=$root/runs/quickstart-$(date +%Y%m%d-%H%M%S)
  arguments+=(--out "$run")
fi

say "Training (under two minutes on two cores)"
"$owt" train "$root/configs/quickstart.toml" "${arguments[@]}" "$@"

home=$(realpath --relative-base="$PWD" "$root")
say "What to try next"
cat <<END
The program is $home/build/owt, run folders lie in $home/runs. What travels per step under each strategy, with four workers:
  $home/build/owt plan $home/configs/models/alexnet_owt.toml --workers 4
The same training with four workers and another scheme of the paper:
  $home/build/owt train $home/configs/quickstart.toml ${data:+--data $data }--workers 4 --parallel owt-a --out $home/runs/owt-a
CIFAR-10, 163 MB, and the recipe that reaches 75 % on it:
  $home/tools/fetch_cifar10.sh $home/datasets && $home/build/owt train $home/configs/cifar10_quick.toml --data $home/datasets
END
