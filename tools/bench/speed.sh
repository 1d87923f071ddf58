#!/usr/bin/env bash
# The speed figures of docs/results.md: owt against PyTorch, and several workers against one. Wants an idle machine.
#
#   usage: tools/bench/speed.sh PROGRAM [REPEATS]        e.g. tools/bench/speed.sh build/owt
#
# Needs Debian's python3-torch and libopenblas0-pthread, which the build and the tests do not.
set -euo pipefail

bench=$(dirname "${BASH_SOURCE[0]}")
python=/usr/bin/python3

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  echo "usage: tools/bench/speed.sh PROGRAM [REPEATS]" >&2
  exit 2
fi
owt=$1
repeats=${2:-7}
if ! "$python" -c 'import torch' 2>/dev/null; then
  echo "speed: error: PyTorch is missing; apt-get install python3-torch libopenblas0-pthread" >&2
  exit 1
fi

for model in cifar10_quick alexnet; do
  for threads in 2 1; do
    "$python" "$bench/compare_pytorch.py" --owt "$owt" --model "$model" --threads "$threads" --repeats "$repeats"
  done
done
for model in cifar10_quick alexnet; do
  "$python" "$bench/compare_workers.py" --owt "$owt" --model "$model" --workers 2 --repeats "$repeats"
done
