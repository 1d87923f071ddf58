#!/usr/bin/env bash
# From a fresh clone to a trained network: installs what is missing, builds, finds or makes data, trains, reports.
#
#   usage: tools/quickstart.sh [OPTION OF owt train]...      e.g. tools/quickstart.sh --workers 4 --parallel owt-a
#
# Data: the CIFAR-10 in $OWT_DATA or ./datasets (tools/fetch_cifar10.sh datasets gets it), else a synthetic data set.
# The program lands in build/, a new run folder in runs/.
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

is_cifar10() { [ -s "$1/data_batch_1.bin" ] && [ -s "$1/test_batch.bin" ]; }

# Prints the folder of the data set; it may be a real or an earlier synthetic one.
find_data() {
  local folder
  for folder in ${OWT_DATA:+"$OWT_DATA"} datasets "$root/datasets"; do
    if is_cifar10 "$folder" || is_cifar10 "$folder/cifar-10-batches-bin"; then
      echo "$folder"
      return 0
    fi
  done
  return 1
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
if ! configured=$(cmake -S "$root" --preset release 2>&1); then
  echo "$configured" >&2
  echo "quickstart: error: cmake could not configure the build; see above" >&2
  exit 1
fi
cmake --build "$root/build" --target owt --parallel "$(nproc)"

arguments=(--timing)
if ! given data "$@"; then
  say "Data"
  if data=$(find_data); then
    echo "$data holds a data set in the format of CIFAR-10"
  else
    data=$root/datasets
    echo "No CIFAR-10 in \$OWT_DATA or ./datasets; making a synthetic data set"
    "$owt" prepare synthetic "$data"
  fi
  arguments+=(--data "$data")
fi
if ! given out "$@"; then
  run=$root/runs/quickstart-$(date +%Y%m%d-%H%M%S)
  arguments+=(--out "$run")
fi

say "Training (under two minutes on two cores)"
"$owt" train "$root/configs/quickstart.toml" "${arguments[@]}" "$@"

say "What to try next"
cat <<END
The program is $owt; its run folders lie in $root/runs.
  $owt plan $root/configs/models/alexnet_owt.toml --workers 4     what travels per step, under each strategy
  $owt train $root/configs/quickstart.toml --workers 4 --parallel owt-a --out $root/runs/four-workers
  $root/tools/fetch_cifar10.sh $root/cifar10 && $owt train $root/configs/cifar10_quick.toml --data $root/cifar10
END
