#!/usr/bin/python3
"""Checks the model files for ImageNet against PyTorch: the same weights give the same losses and training steps.

    usage: torch_models.py --owt PROGRAM [--side N] [MODEL]...

MODEL: names in configs/models; default: all for ImageNet except vgg16. The checks are those in torch_check.py, on
synthetic images in CIFAR-10's format, padded with zeros to N x N (default 96). The newer nets pool any size; the
first dense layer of AlexNet and VGG gets fewer inputs. Dropout is removed, because PyTorch draws it differently.
Exits 1 if a comparison differs. Needs Debian's python3-torch; takes about twenty minutes on two cores.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

from owt_time import CONFIGS
from torch_check import Cifar10, Owt, Report, check

MODELS = ("resnet18", "resnet34", "resnet50", "resnet101", "googlenet", "squeezenet", "mobilenet_v1", "mobilenet_v2", "vgg_a", "alexnet_owt", "alexnet_owt_384", "alexnet_owt_lrn", "alexnet_owt_lrn_384")
TRAINED_STEPS = 5  # steps of owt before the first comparison

RECIPE = """
model = "model.toml"
[data]
format = "cifar10"
classes = "number"
batch = 16
augment = {{ pad = {pad}, crop = {side}, mean = "pixel", scale = 0.01 }}
[optimizer]
learning_rate = 0.002
momentum = 0.9
decay = 0.0005
[schedule]
epochs = 1
"""


def write_recipe(model, side, folder):
    text = (CONFIGS / "models" / f"{model}.toml").read_text()
    text = re.sub(r"(?m)^input = .*", f"input = [3, {side}, {side}]", text)
    text = re.sub(r"(?m)^rate = .*", "rate = 0.0", text)
    (folder / "model.toml").write_text(text)
    recipe = folder / f"{model}.toml"
    recipe.write_text(RECIPE.format(pad=(side - 32) // 2, side=side))
    return recipe


def main():
    parser = argparse.ArgumentParser(description="Checks the model files for ImageNet against PyTorch.")
    parser.add_argument("--owt", required=True, metavar="PROGRAM")
    parser.add_argument("--side", type=int, default=96, metavar="N", help="of the images, 32 plus an even number")
    parser.add_argument("models", nargs="*", metavar="MODEL")
    options = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        subprocess.run([options.owt, "prepare", "synthetic", str(folder), "--train", "500", "--test", "100"], check=True,
                       stdout=subprocess.DEVNULL)
        data = Cifar10(folder, pad=(options.side - 32) // 2, scale=0.01)
        for model in options.models or MODELS:
            print(model, flush=True)
            runs = folder / model
            runs.mkdir()
            recipe = write_recipe(model, options.side, runs)
            check(Owt(options.owt, recipe, str(folder), runs), recipe, data, TRAINED_STEPS, report)
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
