#!/usr/bin/env python3
"""Trains a recipe for glyphs in PyTorch, from weights that owt has drawn, with the recipe's augmentation and schedule.

    usage: torch_glyphs.py RECIPE WORK WEIGHTS METRICS [--epochs E] [--steps N] [--seed S] [--threads T]

RECIPE is glyphs_1k.toml or glyphs_41k.toml. WORK is the folder of tools/glyphs.sh. WEIGHTS is the safetensors file of a
checkpoint of `owt train RECIPE --lr 1e-12 --steps 1`. METRICS gets the losses of training and the results of each
epoch as JSON lines, like metrics.jsonl of a run of owt. --epochs changes the recipe's schedule, --steps ends earlier.

The images that the steps need are decoded first and stay in memory. Differences to owt: windows are resized without a
filter against aliasing, and mean and deviation come from these images. Products run in bf16 (autocast).
"""
import argparse
import itertools
import json
import math
import pathlib
import time

import torch
import torchvision
from torch.nn import functional

from recipe import read_recipe
from torch_net import load_safetensors, make_net, make_optimizer

SIDE = 64  # pixels of an image


def read_list(work, name):
    lines = (work / f"{name}.txt").read_text().splitlines()
    return [line.rsplit(" ", 1) for line in lines]


def load_images(work, rows):
    """The images (rows x 1 x SIDE x SIDE, uint8), and their labels."""
    images = torch.empty((len(rows), 1, SIDE, SIDE), dtype=torch.uint8)
    for i, (path, _) in enumerate(rows):
        file = torchvision.io.read_file(str(work / "images" / path))
        images[i] = torchvision.io.decode_jpeg(file, torchvision.io.ImageReadMode.GRAY)
    return images, torch.tensor([int(label) for _, label in rows])


class Windows:
    """Cuts windows out of images, normalises them, and resizes them to the input of the network."""

    def __init__(self, images, recipe):
        self.augment = recipe["data"]["augment"]
        some = images[:40000].double()
        self.mean, self.deviation = some.mean().float(), some.std().float()

    def cut(self, images, top, left, height, width):
        side = self.augment["crop"]
        centres = (torch.arange(side) + 0.5) / side
        ys = (top[:, None] + centres * height[:, None]) / SIDE * 2 - 1
        xs = (left[:, None] + centres * width[:, None]) / SIDE * 2 - 1
        grid = torch.stack([xs[:, None, :].expand(-1, side, side), ys[:, :, None].expand(-1, side, side)], -1)
        normal = (images.float() - self.mean) / self.deviation
        cut = functional.grid_sample(normal, grid, align_corners=False, padding_mode="border")
        return cut.contiguous(memory_format=torch.channels_last)

    def at_random(self, images):
        area = SIDE * SIDE * torch.empty(len(images)).uniform_(*self.augment["area"])
        aspect = torch.exp(torch.empty(len(images)).uniform_(*map(math.log, self.augment["aspect"])))
        height = (area / aspect).sqrt().round().clamp(max=SIDE)
        width = (area * aspect).sqrt().round().clamp(max=SIDE)
        top, left = (torch.rand(len(images)) * (SIDE + 1 - extent) // 1 for extent in (height, width))
        return self.cut(images, top, left, height, width)

    def in_the_middle(self, images):
        extent = SIDE * self.augment["crop"] / self.augment["short_side"]
        at, size = (torch.full((len(images),), value) for value in ((SIDE - extent) / 2, extent))
        return self.cut(images, at, at, size, size)


def rate_at(schedule, part):
    """The factor of the learning rate after this part of the steps: schedule type "linear"."""
    start, peak, end = schedule["start"], schedule["peak"], schedule["end"]
    if part < peak:
        return start + (1 - start) * part / peak
    return 1 + (end - 1) * (part - peak) / (1 - peak)


def evaluate(net, windows, images, labels):
    net.eval()
    loss = right = 0
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for some, wanted in zip(images.split(250), labels.split(250)):
            scores = net(windows.in_the_middle(some)).float()
            loss += functional.cross_entropy(scores, wanted, reduction="sum").item()
            right += (scores.argmax(1) == wanted).sum().item()
    net.train()
    return {"loss": loss / len(labels), "top1": right / len(labels), "images": len(labels)}


def main():
    parser = argparse.ArgumentParser(description="Trains a recipe for glyphs in PyTorch.")
    parser.add_argument("recipe")
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("weights")
    parser.add_argument("metrics", type=pathlib.Path)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    recipe = read_recipe(options.recipe)
    batch, schedule = recipe["data"]["batch"], recipe["schedule"]
    epochs = options.epochs or schedule["epochs"]

    rows = read_list(options.work, "train")
    steps_per_epoch = math.ceil(len(rows) / batch)
    total = epochs * steps_per_epoch
    last = min(options.steps or total, total)
    if last < steps_per_epoch:
        rows = [rows[i] for i in torch.randperm(len(rows))[:last * batch].tolist()]
    images, labels = load_images(options.work, rows)
    tests = {name: load_images(options.work, read_list(options.work, name)) for name in ("val", "test")}
    windows = Windows(images, recipe)

    net = make_net(recipe["model"])
    missing, unknown = net.load_state_dict(load_safetensors(options.weights), strict=False)
    if unknown or any(not name.endswith("num_batches_tracked") for name in missing):  # owt counts no batches
        raise SystemExit(f"torch_glyphs: error: {options.weights} lacks {missing} and has {unknown}")
    net.to(memory_format=torch.channels_last).train()
    optimizer = make_optimizer(net, recipe)
    rates = [group["lr"] for group in optimizer.param_groups]
    smoothing = recipe["loss"]["label_smoothing"]

    with options.metrics.open("w", buffering=1) as metrics:
        write = lambda **record: print(json.dumps(record), file=metrics)
        begin = time.monotonic()
        order = itertools.chain.from_iterable(torch.randperm(len(rows)).split(batch) for _ in range(epochs))
        loss_sum = right = seen = 0
        for step, chosen in enumerate(itertools.islice(order, last), 1):
            for group, rate in zip(optimizer.param_groups, rates):
                group["lr"] = rate * rate_at(schedule, (step - 1) / total)
            with torch.autocast("cpu", torch.bfloat16):
                scores = net(windows.at_random(images[chosen]))
            wanted = labels[chosen]
            loss = functional.cross_entropy(scores.float(), wanted, label_smoothing=smoothing)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss_sum += loss.item() * len(chosen)
            right += (scores.argmax(1) == wanted).sum().item()
            seen += len(chosen)
            seconds = time.monotonic() - begin
            if step % 20 == 0 or step == last:
                write(kind="train", step=step, epoch=(step - 1) // steps_per_epoch, loss=loss_sum / seen,
                      top1=right / seen, seconds=seconds)
                loss_sum = right = seen = 0
            if step % steps_per_epoch == 0 or step == last:
                for name, (some, wanted) in tests.items():
                    write(kind="eval", split=name, step=step, **evaluate(net, windows, some, wanted), seconds=seconds)


if __name__ == "__main__":
    main()
