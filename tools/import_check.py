#!/usr/bin/env python3
"""Checks that networks which `owt import` reads from ONNX compute the same as in PyTorch, and learn the same.

    usage: import_check.py --owt PROGRAM [--side N] [--steps N] [NAME]...

NAME: as in torch_to_onnx.py; default: MODELS. For each network, with random weights and images:
  1. torch_to_onnx.py saves it, `owt import` makes a model file and weights of it, and `owt extract` computes the logits
     of images. Their largest difference from PyTorch's, in units of the largest logit, must be at most 1e-5.
  2. Both train ten steps on the same batches. The largest relative difference of a loss must be at most 2e-5, or three
     times the difference between PyTorch's own losses in float32 and float64.
Prints both differences. Exits 1 if one is larger. Dropout and stochastic depth are off, since the programs draw
differently. Needs PyTorch, onnx, and torchvision or timm.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch

from interop import Config, error
from torch_to_onnx import make, save

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "bench"))
from torch_check import Cifar10  # noqa: E402

MODELS = ("efficientnet_b0", "mobilenet_v3_large", "regnet_y_400mf", "convnext_tiny", "resnext50_32x4d", "densenet121", "wide_resnet50_2", "inception_v3")
LOGITS, LOSSES = 1e-5, 2e-5
BATCH, SCALE, RATE = 16, 0.01, 1e-4

RECIPE = """
model = "net.toml"
[data]
format = "cifar10"
classes = "number"
batch = {batch}
shuffle = false
augment = {{ pad = {pad}, crop = {side}, mean = "pixel", scale = {scale} }}
[optimizer]
learning_rate = {rate}
momentum = 0.9
decay = 0.0
[schedule]
max_steps = {steps}
epochs = 1
[run]
log_every = 1
"""


def run(*words):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"import_check: error: {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")


def drawn(name):
    """The network with running averages unlike the initial ones, as after training, and without random layers."""
    torch.manual_seed(1)
    net = make(name, classes=10)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(module.running_mean, std=0.1)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
        if type(module).__name__ in ("Dropout", "StochasticDepth"):
            module.p = 0.0
        if type(module).__name__ == "DropPath":
            module.drop_prob = 0.0
    return net


def losses_of_torch(net, data, steps, dtype):
    net = net.to(dtype).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=0.9)
    losses = []
    for step in range(steps):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(data.train[rows].to(dtype)), data.train_labels[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def logits_of_torch(net, images):
    values = torch.from_numpy(numpy.moveaxis((images - 127.5) * SCALE, -1, 1).astype(numpy.float32).copy())
    with torch.no_grad():
        return net.eval()(values).numpy()


def check(owt, name, side, steps, data, folder):
    net = drawn(name)
    save(net, side, folder / "net.onnx")
    run(owt, "import", folder / "net.onnx", "--out", folder / "net.toml", "--weights", folder / "net.safetensors")
    config = Config(owt, folder / "net.toml", folder / "net.safetensors", folder)
    config.changes = ["--set", f"data.augment={{ mean = [127.5, 127.5, 127.5], scale = {SCALE} }}"]
    images = config.made_up_images(8)
    logits = error(config.logits(images), logits_of_torch(net, images))

    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(batch=BATCH, pad=(side - 32) // 2, side=side, scale=SCALE, rate=RATE, steps=steps))
    run(owt, "train", recipe, "--weights", folder / "net.safetensors", "--data", folder.parent, "--out", folder / "run",
        "--set", "run.eval_every_epochs=0")
    records = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    ours = [record["loss"] for record in records if record["kind"] == "train"]
    state = {key: value.clone() for key, value in net.state_dict().items()}
    theirs = losses_of_torch(net, data, steps, torch.float32)
    net.load_state_dict(state)
    exact = losses_of_torch(net, data, steps, torch.float64)
    apart = lambda losses: max(abs(a - b) / abs(b) for a, b in zip(losses, exact, strict=True))
    return logits, max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True)), apart(ours), apart(theirs)


def main():
    parser = argparse.ArgumentParser(description="Checks networks that owt import reads from ONNX against PyTorch.")
    parser.add_argument("--owt", required=True, metavar="PROGRAM")
    parser.add_argument("--side", type=int, default=96, metavar="N", help="of the images, 32 plus an even number")
    parser.add_argument("--steps", type=int, default=10, metavar="N", help="of training")
    parser.add_argument("names", nargs="*", metavar="NAME", default=MODELS)
    options = parser.parse_args()
    failed = False
    print("network, largest difference of: logits, losses of ten steps; losses from float64: owt, PyTorch")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        run(options.owt, "prepare", "synthetic", folder, "--train", "500", "--test", "100")
        data = Cifar10(folder, pad=(options.side - 32) // 2, scale=SCALE)
        for number, name in enumerate(options.names):
            inner = folder / str(number)
            inner.mkdir()
            logits, losses, ours, theirs = check(options.owt, name, options.side, options.steps, data, inner)
            passed = logits <= LOGITS and losses <= max(LOSSES, 3 * theirs)
            failed |= not passed
            print(f"{name}: {logits:.1e}, {losses:.1e}; {ours:.1e}, {theirs:.1e}{'' if passed else '  FAILED'}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
