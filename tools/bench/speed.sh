#!/usr/bin/env bash
# The speed figures of docs/measurements/cpu_speed.md: owt against PyTorch, and several workers against one. Wants an
# idle machine, for some hours.
#
#   usage: tools/bench/speed.sh PROGRAM [PYTHON [REPEATS]]      e.g. tools/bench/speed.sh build/owt ~/pytorch/bin/python
#
# PYTHON has PyTorch: from install_pytorch.sh, or /usr/bin/python3 with Debian's python3-torch and libopenblas0-pthread.
# The build and the tests do not need PyTorch.
set -euo pipefail

bench=$(dirname "${BASH_SOURCE[0]}")

if [ $# -lt 1 ] || [ $# -gt 3 ]; then
  echo "usage: tools/bench/speed.sh PROGRAM [PYTHON [REPEATS]]" >&2
  exit 2
fi
owt=$1
python=${2:-/usr/bin/python3}
repeats=${3:-7}
if ! "$python" -c 'import torch' 2>/dev/null; then
  echo "speed: error: $python has no PyTorch; tools/bench/install_pytorch.sh makes one that does" >&2
  exit 1
fi
compare=("$python" "$bench/compare_pytorch.py" --owt "$owt" --repeats "$repeats")
if "$python" -c 'import torch; torch.compile' 2>/dev/null; then compare+=(--compile); fi

echo "training"
"${compare[@]}"
echo "evaluation"
"${compare[@]}" --evaluate
for model in cifar10_quick alexnet; do
  "$python" "$bench/../experiments/compare_workers.py" --owt "$owt" --model "$model" --workers 2 --repeats "$repeats"
done
