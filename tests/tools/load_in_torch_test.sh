#!/usr/bin/env bash
# Tests that checkpoints load in PyTorch and give the same outputs; the models together have every layer type. Skipped
# (exit 77) if Debian's python3-torch is not installed: it is too large to require.
set -euo pipefail

owt=$(realpath "$1")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if ! /usr/bin/python3 -c 'import torch' 2>/dev/null; then
  echo "skipped: python3-torch is not installed"
  exit 77
fi
cd "$root/configs/models"
PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 "$root/tools/load_in_torch.py" --owt "$owt" cifar10_quick.toml cifar10_18pct.toml \
  cifar10_bn.toml quickstart.toml alexnet_small.toml
