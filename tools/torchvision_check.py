#!/usr/bin/env python3
"""Checks that owt computes the same as torchvision's networks, with random weights on photographs.

    usage: torchvision_check.py --owt PROGRAM [--images N] --photo FILE [--photo FILE]... [MODEL...]

MODEL is torchvision's name of a network; default: all of MODELS. torchvision's network gets random weights, and
torchvision_weights.py converts its state_dict from a .pth file. `owt extract` uses these weights on the photographs,
cropped to 224 x 224, with torchvision's mean and std. Prints the largest difference of a logit in units of the
largest logit, and the largest difference of a probability; exits 1 if one is above 1e-4. Needs torchvision and
Pillow.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import torchvision

from interop import Config, error, photo, softmax

TOLERANCE = 1e-4
MODELS = {"alexnet": "alexnet_owt", "vgg16": "vgg16", "resnet18": "resnet18", "resnet34": "resnet34", "resnet50": "resnet50",
          "resnet101": "resnet101", "googlenet": "googlenet", "squeezenet1_1": "squeezenet", "mobilenet_v2": "mobilenet_v2"}
OPTIONS = {"googlenet": {"aux_logits": False, "init_weights": False}}
MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
TOOLS = pathlib.Path(__file__).resolve().parent


def drawn(name):
    """Weights for which every layer affects the outputs, with running averages unlike the initial ones, as after
    training."""
    torch.manual_seed(1)
    net = getattr(torchvision.models, name)(weights=None, **OPTIONS.get(name, {}))
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(module.running_mean, std=0.1)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.normal_(module.bias, std=0.1)
        elif isinstance(module, (torch.nn.Conv2d, torch.nn.Linear)):
            torch.nn.init.kaiming_normal_(module.weight)
            if module.bias is not None:
                torch.nn.init.normal_(module.bias, std=0.1)
    return net.eval()


def logits_of_torch(net, images):
    values = (images - numpy.array(MEAN)) / numpy.array(STD)
    with torch.no_grad():
        return net(torch.from_numpy(numpy.moveaxis(values, -1, 1).astype(numpy.float32).copy())).numpy()


def check(owt, name, images, folder):
    net = drawn(name)
    model, state, weights = TOOLS.parent / "configs" / "models" / f"{MODELS[name]}.toml", folder / "state.pth", folder / "weights.safetensors"
    torch.save(net.state_dict(), state)
    subprocess.run([sys.executable, TOOLS / "torchvision_weights.py", "--model", model, state, weights], check=True)
    config = Config(owt, model, weights, folder)
    config.changes = ["--set", f"data.augment={{ mean = {MEAN}, std = {STD} }}"]
    found, wanted = config.logits(images), logits_of_torch(net, images)
    return error(found, wanted), float(numpy.abs(softmax(found) - softmax(wanted)).max())


def main():
    parser = argparse.ArgumentParser(description="Checks owt's outputs against torchvision's.")
    parser.add_argument("--owt", required=True, metavar="PROGRAM")
    parser.add_argument("--photo", action="append", required=True, metavar="FILE")
    parser.add_argument("models", nargs="*", metavar="MODEL", default=list(MODELS), help=", ".join(MODELS))
    options = parser.parse_args()
    images = numpy.stack([photo(path, 224, 224) for path in options.photo])
    failed = False
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            logits, probabilities = check(options.owt, name, images, pathlib.Path(folder))
        passed = logits <= TOLERANCE and probabilities <= TOLERANCE
        failed |= not passed
        print(f"{name}: {len(images)} photographs, logits {logits:.1e}, probabilities {probabilities:.1e}{'' if passed else '  FAILED'}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
