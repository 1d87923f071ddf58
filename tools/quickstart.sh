#!/usr/bin/env bash
# From a fresh clone to a trained network: installs missing packages, builds, trains and reports. Takes about three
# minutes on two cores; later runs only train.
#
#   usage: tools/quickstart.sh [OPTION OF owt train]...      e.g. tools/quickstart.sh --workers 4 --parallel owt-a
#
# Data: CIFAR-10 in $OWT_DATA or ./datasets (tools/fetch_cifar10.sh datasets downloads it), else drawn images. The
# program is built in build/, and the run folder is in runs/. Without an NVIDIA driver the build is for the CPU only,
# unless build/ exists and was configured differently.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/tools/packages.sh"
owt=$root/build/owt

say() { printf '\n== %s\n' "$*"; }

given() {  # given NAME WORD...: prints the value of option --NAME; fails if the words do not have it
  local option=--$1
  shift
  while [ $# -gt 0 ]; do
    case $1 in
      "$option") echo "${2:-}" && return ;;
      "$option="*) echo "${1#*=}" && return ;;
    esac
    shift
  done
  return 1
}

is_cifar10() {  # the argument is the folder of the files, or its parent
  local folder
  for folder in "$1" "$1/cifar-10-batches-bin"; do
    if [ -s "$folder/data_batch_1.bin" ] && [ -s "$folder/test_batch.bin" ]; then return 0; fi
  done
  return 1
}

# Sets `data` to the folder of CIFAR-10; empty: there is none.
find_data() {
  local folder
  data=
  for folder in ${OWT_DATA:+"$OWT_DATA"} datasets "$root/datasets"; do
    if is_cifar10 "$folder"; then
      data=$folder
      echo "Found in $data: images in the format of CIFAR-10."
      return 0
    fi
  done
  echo "There is no CIFAR-10 in \$OWT_DATA or ./datasets, so the network learns ten classes of drawn shapes instead."
}

has_nvidia_driver() { [ -e /proc/driver/nvidia/version ] || command -v nvidia-smi >/dev/null; }

# Prints the option that disables CUDA if there is no GPU driver. An existing configuration of build/ stays.
without_cuda() {
  has_nvidia_driver || grep -qs '^OWT_CUDA:' "$root/build/CMakeCache.txt" || echo -DOWT_CUDA=OFF
}

# On a terminal shows ninja's progress, "[3/40]", in one line that is overwritten.
show_progress() {
  local line progress='^(\[[0-9]+/[0-9]+\])'
  while IFS= read -r line; do
    if [ -t 1 ] && [[ $line =~ $progress ]]; then printf '\r%s ' "${BASH_REMATCH[1]}"; fi
  done
  if [ -t 1 ]; then printf '\r'; fi
}

# run_quietly COMMAND...: shows the output only if the command fails.
run_quietly() {
  "$@" 2>&1 | tee "$log" | show_progress || {
    cat "$log" >&2
    echo "quickstart: error: the build failed; the lines above say why" >&2
    exit 1
  }
}

build() {
  local cuda begin=$SECONDS
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  cuda=$(without_cuda)
  if [ -n "$cuda" ]; then
    echo "No NVIDIA driver here, so it is built for the CPU only; 'cmake --preset release -DOWT_CUDA=ON' changes that."
  fi
  run_quietly cmake -S "$root" --preset release -DOWT_TESTS=OFF ${cuda:+"$cuda"}
  run_quietly cmake --build "$root/build" --target owt --parallel "$(nproc)"
  echo "$(shown "$owt") is built ($((SECONDS - begin)) s)."
}

shown() { realpath -m --relative-base="$PWD" "$1"; }  # a path relative to the current folder

for word in "$@"; do
  if [ "$word" = --help ] || [ "$word" = -h ]; then
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
    exit 0
  fi
done

say "1 of 4: packages (compiler and libraries, from the distribution)"
install_packages "${build_packages[@]}"
echo "All ${#build_packages[@]} are installed."

say "2 of 4: build (three minutes on two cores, the first time)"
build

arguments=()
given timing "$@" >/dev/null || arguments+=(--timing)
say "3 of 4: data"
if data=$(given data "$@"); then
  echo "Taken from --data."
else
  find_data
  if [ -n "$data" ]; then arguments+=(--data "$data"); fi
fi
if ! run=$(given out "$@"); then
  run=$root/runs/quickstart-$(date +%Y%m%d-%H%M%S)
  arguments+=(--out "$run")
fi

say "4 of 4: training (at most a minute on two cores)"
cat <<'END'
Two workers share each step's images. Each computes the convolutional layers on its own half, and a part of the dense
layers on all of them: the trick of the paper. The table at the end says what each layer and each transfer took.

END
"$owt" train "$root/configs/quickstart.toml" "${arguments[@]}" "$@"

owt=$(shown "$owt") home=$(shown "$root") from=${data:+" --data $(shown "$data")"}
say "What to try next"
cat <<END
The run as one page with curves, network and times, for a browser:
  $owt report $(shown "$run")
Accuracy once more, from the run's best checkpoint:
  $owt eval $(shown "$run")$from
What four workers would send each other to train AlexNet, strategy by strategy:
  $owt plan alexnet_owt --workers 4
The same training by four workers, with another of the paper's schemes:
  $owt train quickstart$from --workers 4 --parallel owt-a --out $home/runs/owt-a
Real photographs: CIFAR-10 (163 MB), and the recipe that reaches 75 % on it in some minutes:
  $home/tools/fetch_cifar10.sh $home/datasets && $owt train cifar10_quick --data $home/datasets
All commands: $owt --help
END
