#!/usr/bin/python3
"""Checks owt against PyTorch on CIFAR-10: the same weights give the same losses, accuracies and training steps.

    usage: torch_check.py --owt PROGRAM --data DIR [--steps N] [CONFIG]...

CONFIG: recipes on CIFAR-10 with per-pixel mean, no other augmentation and no dropout; default cifar10_quick,
cifar10_26pct and cifar10_18pct. For each of them:
  1. owt trains N steps. PyTorch evaluates that checkpoint on the test images; loss and top-1 must equal owt's.
  2. From that checkpoint both train 10 steps on the same batches in file order. The loss of every step must be the
     same, to 1e-3 or to three times the difference between PyTorch's own steps in float32 and float64 at that point
     (batch norms over few rows amplify rounding).
  3. Weights drawn by PyTorch, saved as safetensors, give the same loss and top-1 in `owt eval`.
Prints each comparison. Exits 1 if one differs; the limit for evaluations is 1e-4 (loss, relative; top-1, absolute).
Needs Debian's python3-torch.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy
import torch
from torch.nn.functional import cross_entropy

from owt_time import CONFIGS
from recipe import read_recipe
from torch_net import load_safetensors, make_net, make_optimizer, save_safetensors

TRAINED_STEPS = 10
IMAGE_BYTES = 3 * 32 * 32


def read_images(folder, names):
    records = [numpy.fromfile(folder / name, numpy.uint8).reshape(-1, 1 + IMAGE_BYTES) for name in names]
    records = numpy.concatenate(records)
    return records[:, 1:].reshape(-1, 3, 32, 32), torch.from_numpy(records[:, 0].astype(numpy.int64))


class Cifar10:
    """Images minus the mean of their pixels, times `scale`, with `pad` zeros on each side."""

    def __init__(self, folder, pad=0, scale=1.0):
        folder = pathlib.Path(folder)
        if (folder / "cifar-10-batches-bin").is_dir():
            folder = folder / "cifar-10-batches-bin"
        train, self.train_labels = read_images(folder, [f"data_batch_{i}.bin" for i in range(1, 6)])
        test, self.test_labels = read_images(folder, ["test_batch.bin"])
        mean = train.mean(axis=0, dtype=numpy.float64).astype(numpy.float32)
        made = lambda images: torch.nn.functional.pad(
            torch.from_numpy((images.astype(numpy.float32) - mean) * numpy.float32(scale)), [pad] * 4)
        self.train = made(train[:5000])  # more than the steps here use
        self.test = made(test)


def evaluate(net, images, labels):
    """Mean loss, and top-1 as a fraction."""
    loss = right = 0
    with torch.no_grad():
        for some, wanted in zip(images.split(100), labels.split(100)):
            scores = net.eval()(some)
            loss += cross_entropy(scores.double(), wanted, reduction="sum").item()
            right += (scores.argmax(1) == wanted).sum().item()
    return loss / len(labels), right / len(labels)


def train(state, recipe, data, dtype=torch.float32):
    """Losses of the first steps in file order."""
    net = make_net(recipe["model"])
    net.load_state_dict(state)
    net.to(dtype)
    optimizer = make_optimizer(net, recipe)
    batch = recipe["data"]["batch"]
    losses = []
    for step in range(TRAINED_STEPS):
        rows = slice(step * batch, (step + 1) * batch)
        optimizer.zero_grad()
        loss = cross_entropy(net.train()(data.train[rows].to(dtype)), data.train_labels[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class Owt:
    def __init__(self, program, config, data, folder):
        self.program, self.config, self.data, self.folder = program, str(config), data, pathlib.Path(folder)

    def run(self, *words):
        command = [self.program, *words, "--data", self.data]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"torch_check: error: {' '.join(command)}\n{done.stdout}{done.stderr}")
        return done.stdout

    def train(self, name, steps, *more):
        """Returns the records of metrics.jsonl and the weights file."""
        out = self.folder / name
        self.run("train", self.config, "--out", str(out), "--steps", str(steps), "--set", "run.log_every=1", *more)
        records = [json.loads(text) for text in (out / "metrics.jsonl").read_text().splitlines()]
        return records, out / "checkpoints" / f"step-{steps:08d}" / "weights.safetensors"

    def evaluate(self, weights):
        output = self.run("eval", self.config, "--weights", str(weights))
        found = re.search(r"top-1 ([\d.]+) %.*loss ([\d.]+)", output)
        return float(found[2]), float(found[1]) / 100


class Report:
    def __init__(self):
        self.failed = False

    def compare(self, what, ours, theirs, tolerance, relative=True):
        error = abs(ours - theirs) / (abs(theirs) if relative else 1)
        good = error <= tolerance
        self.failed |= not good
        print(f"  {'ok    ' if good else 'FAILED'} {what}: owt {ours:.6f}, PyTorch {theirs:.6f}, difference {error:.1e}")

    def compare_evaluations(self, what, ours, theirs):
        self.compare(f"{what}, loss", ours[0], theirs[0], 1e-4)
        # One image in ten thousand may lie on the border between two classes.
        self.compare(f"{what}, top-1", ours[1], theirs[1], 1.01e-4, relative=False)


def check(owt, config, data, steps, report):
    recipe = read_recipe(config)
    net = make_net(recipe["model"])

    records, weights = owt.train("first", steps)
    evaluation = next(record for record in records if record["kind"] == "eval")
    state = load_safetensors(weights)
    net.load_state_dict(state)
    theirs = evaluate(net, data.test, data.test_labels)
    report.compare_evaluations(f"after {steps} steps of owt", (evaluation["loss"], evaluation["top1"]), theirs)

    records, _ = owt.train("second", TRAINED_STEPS, "--weights", str(weights), "--set", "data.shuffle=false")
    losses = [record["loss"] for record in records if record["kind"] == "train"]
    rounding = 0
    in_both = zip(losses, train(state, recipe, data), train(state, recipe, data, torch.float64), strict=True)
    for step, (ours, theirs, exact) in enumerate(in_both, 1):
        rounding = max(rounding, abs(theirs - exact) / exact)
        report.compare(f"training step {step}, loss", ours, theirs, max(1e-3, 3 * rounding))

    torch.manual_seed(1)
    net = make_net(recipe["model"])
    save_safetensors(owt.folder / "torch.safetensors", net.state_dict())
    theirs = evaluate(net, data.test, data.test_labels)
    report.compare_evaluations("weights of PyTorch", owt.evaluate(owt.folder / "torch.safetensors"), theirs)


def main():
    parser = argparse.ArgumentParser(description="Checks owt against PyTorch on CIFAR-10.")
    parser.add_argument("--owt", required=True, metavar="PROGRAM")
    parser.add_argument("--data", required=True, metavar="DIR", help="CIFAR-10, binary version")
    parser.add_argument("--steps", type=int, default=100, metavar="N", help="of owt before the first comparison")
    parser.add_argument("configs", nargs="*", metavar="CONFIG")
    options = parser.parse_args()
    data = Cifar10(options.data)
    report = Report()
    names = ("cifar10_quick", "cifar10_26pct", "cifar10_18pct")
    for config in options.configs or [CONFIGS / f"{name}.toml" for name in names]:
        print(config)
        with tempfile.TemporaryDirectory() as folder:
            check(Owt(options.owt, config, options.data, folder), config, data, options.steps, report)
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
