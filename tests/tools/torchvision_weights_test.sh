#!/usr/bin/env bash
# Tests that torchvision_weights.py names tensors after a model's layers, in order, and that owt reads the file. Skipped
# (exit 77) if Python has no TOML reader.
set -euo pipefail

owt=$(realpath "$1")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if ! python3 -c 'import tomllib' 2>/dev/null; then
  echo "skipped: python3 is older than 3.11"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/model.toml" <<'TOML'
name = "small"
input = [3, 8, 8]
classes = 4
layer = [
  { name = "first", type = "conv", out = 2, kernel = 3 },
  { name = "relu", type = "relu" },
  { name = "second", type = "conv", out = 5, kernel = 3 },
  { name = "head", type = "dense", out = 4 },
]
TOML
# write_state FILE HEAD_OUTPUTS [WIDTH]: as torchvision names such a network, the tensors sorted by name as files have
# them
write_state() {
  python3 - "$@" <<'PYTHON'
import json, struct, sys
outputs, width = int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 2
shapes = {"features.2.weight": [width, 3, 3, 3], "features.2.bias": [width], "features.10.weight": [5, 2, 3, 3], "features.10.bias": [5],
          "classifier.1.weight": [outputs, 80], "classifier.1.bias": [outputs]}
header, data = {}, b""
for number, name in enumerate(sorted(shapes)):
    count = 1
    for extent in shapes[name]:
        count *= extent
    begin = len(data)
    data += struct.pack(f"<{count}f", *[(number + 1) / 100] * count)
    header[name] = {"dtype": "F32", "shape": shapes[name], "data_offsets": [begin, len(data)]}
text = json.dumps(header).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + data)
PYTHON
}
convert() { PYTHONDONTWRITEBYTECODE=1 python3 "$root/tools/torchvision_weights.py" --model "$work/model.toml" "$@"; }
train() { "$owt" train "$work/model.toml" --steps 1 --device cpu --set data.batch=4 --set data.train_images=8 --set data.test_images=4 "$@" 2>&1; }
# expect TEXT COMMAND...
expect() {
  local text=$1 output
  shift
  output=$("$@" 2>&1) || true
  if [[ $output != *"$text"* ]]; then
    printf 'expected "%s" from %s, got:\n%s\n' "$text" "$*" "$output"
    exit 1
  fi
}

write_state "$work/state.safetensors" 4
convert "$work/state.safetensors" "$work/weights.safetensors"
for tensor in "first.weight" "first.bias" "second.weight" "second.bias" "head.weight" "head.bias"; do
  expect "$tensor" "$owt" inspect "$work/weights.safetensors"
done
expect "6 tensors taken from" train --weights "$work/weights.safetensors" --out "$work/run"
expect "6 tensors" "$owt" inspect "$work/run/checkpoints/step-00000001/weights.safetensors"
# A file that has the model's names stays as it is.
convert "$work/weights.safetensors" "$work/again.safetensors"
cmp <(python3 -c "print(sorted(open('$work/weights.safetensors', 'rb').read()))") <(python3 -c "print(sorted(open('$work/again.safetensors', 'rb').read()))")

# A file without the model's last layer, as InsightFace's, stays as it is too; the slopes of a prelu are weights.
cat > "$work/faces.toml" <<'TOML'
name = "faces"
input = [3, 8, 8]
classes = 4
layer = [
  { name = "conv", type = "conv", out = 2, kernel = 8 },
  { name = "prelu", type = "activation", kind = "prelu" },
  { name = "fc", type = "dense", out = 3 },
  { name = "head", type = "dense", out = 4 },
]
TOML
"$owt" train "$work/faces.toml" --steps 1 --device cpu --set data.batch=4 --set data.train_images=8 --set data.test_images=4 \
  --out "$work/faces" >"$work/log" 2>&1
python3 - "$work"/faces/checkpoints/*/weights.safetensors "$work/embedding.safetensors" <<'PYTHON'
import json, struct, sys
content = open(sys.argv[1], "rb").read()
begin = 8 + struct.unpack("<Q", content[:8])[0]
header = {name: entry for name, entry in json.loads(content[8:begin]).items() if not name.startswith("head")}
text, data = json.dumps(header).encode(), content[begin:]
end = max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
first = min(entry["data_offsets"][0] for name, entry in header.items() if name != "__metadata__")
assert first == 0
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data[:end])
PYTHON
PYTHONDONTWRITEBYTECODE=1 python3 "$root/tools/torchvision_weights.py" --model "$work/faces.toml" "$work/embedding.safetensors" "$work/weights.safetensors"
expect "prelu.weight" "$owt" inspect "$work/weights.safetensors"
expect "conv.weight" "$owt" inspect "$work/weights.safetensors"

# Another head is the user's to leave out; other layers are another model.
write_state "$work/wide.safetensors" 7
convert "$work/wide.safetensors" "$work/weights.safetensors"
expect "--except head initialises this layer randomly" train --weights "$work/weights.safetensors" --out "$work/refused"
expect "initialised randomly: head" train --weights "$work/weights.safetensors" --except-mismatched --out "$work/other"
write_state "$work/another.safetensors" 4 3
expect "they belong to different models" convert "$work/another.safetensors" "$work/none.safetensors"
[ ! -e "$work/none.safetensors" ]
