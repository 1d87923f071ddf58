#!/usr/bin/python3
"""Loads weights of owt into the plain PyTorch module of a model file, and compares the results of both.

    usage: load_in_torch.py --owt PROGRAM [--images N] [--weights FILE] CONFIG...

CONFIG is a model file or a recipe (with means as numbers, or the config.toml of a run folder). For each CONFIG,
`owt extract` and PyTorch get the same generated images. Without --weights the weights are random. Prints the largest
difference in units of the largest logit; exits 1 if one is above 1e-4. Needs Debian's python3-torch; reads the file
with the safetensors package if that is installed. Your own program needs three lines, with any module that has these
names:

    state = safetensors.torch.load_file("runs/x/checkpoints/step-00001000/weights.safetensors")
    net = make_net(model)          # tools/bench/torch_net.py, or your own
    net.load_state_dict(state)
"""
import argparse
import json
import pathlib
import sys
import tempfile
import tomllib

import numpy
import torch

from bench.torch_net import load_safetensors, make_net
from interop import AUGMENT, Config, error, read_recipe

TOLERANCE = 1e-4

try:
    from safetensors.torch import load_file
except ImportError:
    load_file = load_safetensors


def load(model, weights):
    net = make_net(model)
    missing, surplus = net.load_state_dict(load_file(str(weights)), strict=False)
    # owt does not count batches, and evaluation does not need the count.
    missing = [name for name in missing if not name.endswith(".num_batches_tracked")]
    if missing or surplus:
        sys.exit(f"error: {weights}: missing {missing}, too many {surplus}")
    return net.eval()


def listed(given, path, key, otherwise):
    """A mean or std as numbers: from the recipe, or from the run folder that contains it."""
    if given == "none":
        return otherwise
    if not isinstance(given, str):
        return given
    kept = pathlib.Path(path).parent / "statistics.json"
    if given == "pixel" or not kept.exists():
        sys.exit(f"error: {path}: its {key} is that of its training images; give a recipe with numbers, or a run folder's "
                 "config.toml")
    return json.loads(kept.read_text())["channel_" + key]


def normalised(images, path):
    recipe = read_recipe(path)
    augment = recipe["data"].get("augment", {}) if "data" in recipe else tomllib.loads(AUGMENT)["data"]["augment"]
    mean, std = (listed(augment.get(key, "none"), path, key, otherwise) for key, otherwise in (("mean", 0.0), ("std", 1.0)))
    values = (images - numpy.array(mean)) * augment.get("scale", 1.0) / numpy.array(std)
    return torch.from_numpy(numpy.moveaxis(values, -1, 1).astype(numpy.float32).copy())


def main():
    parser = argparse.ArgumentParser(description="Compares owt and PyTorch on the same weights and images.")
    parser.add_argument("--owt", required=True, metavar="PROGRAM")
    parser.add_argument("--images", type=int, default=4, metavar="N")
    parser.add_argument("--weights", metavar="FILE", help="of one CONFIG")
    parser.add_argument("configs", nargs="+", metavar="CONFIG")
    options = parser.parse_args()
    failed = False
    for path in options.configs:
        with tempfile.TemporaryDirectory() as folder:
            config = Config(options.owt, path, options.weights, folder)
            images = config.made_up_images(options.images)
            net = load(config.model, config.weights)
            with torch.no_grad():
                difference = error(net(normalised(images, path)).numpy(), config.logits(images))
        count = sum(parameter.numel() for parameter in net.parameters())
        failed |= not difference <= TOLERANCE
        print(f"{path}: {count} parameters, {difference:.1e}{'' if difference <= TOLERANCE else '  FAILED'}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
