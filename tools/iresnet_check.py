#!/usr/bin/env python3
"""Checks that owt computes the same embeddings as IResNets written in PyTorch, with random weights.

    usage: iresnet_check.py --owt PROGRAM [--images N] [DEPTH...]

DEPTH is 18, 50 or 100; default: all. The networks follow the description in the model files, with InsightFace's names
of parameters. torchvision_weights.py converts the state_dict from a .pth file, and `owt extract --layer features` uses
these weights on generated images. Prints the number of parameters and the largest difference of a value in units of
the largest value; exits 1 if it is above 1e-5. Needs PyTorch.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
from torch import nn

from interop import Config, error

TOLERANCE = 1e-5
BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 14, 3), 100: (3, 13, 30, 3)}
MEAN = STD = 127.5
TOOLS = pathlib.Path(__file__).resolve().parent


class Block(nn.Module):
    """Batch norm, 3x3 convolution, batch norm, prelu, 3x3 convolution, batch norm; added to the shortcut."""

    def __init__(self, channels, out, stride):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(channels), nn.Conv2d(channels, out, 3, padding=1, bias=False)
        self.bn2, self.prelu = nn.BatchNorm2d(out), nn.PReLU(out)
        self.conv2, self.bn3 = nn.Conv2d(out, out, 3, stride, padding=1, bias=False), nn.BatchNorm2d(out)
        self.downsample = nn.Identity()
        if stride > 1:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.prelu(self.bn2(self.conv1(self.bn1(x))))
        return self.bn3(self.conv2(y)) + self.downsample(x)


class IResNet(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.conv1, self.bn1, self.prelu = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.PReLU(64)
        channels = 64
        for number, (out, blocks) in enumerate(zip((64, 128, 256, 512), BLOCKS[depth]), 1):
            strides = [2] + [1] * (blocks - 1)
            layer = [Block(channels if stride > 1 else out, out, stride) for stride in strides]
            self.add_module(f"layer{number}", nn.Sequential(*layer))
            channels = out
        self.bn2, self.fc, self.features = nn.BatchNorm2d(512), nn.Linear(512 * 7 * 7, 512), nn.BatchNorm1d(512)

    def forward(self, x):
        x = self.prelu(self.bn1(self.conv1(x)))
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return self.features(self.fc(self.bn2(x).flatten(1)))


def drawn(depth):
    """Weights for which every layer affects the outputs, with running averages unlike the initial ones, as after
    training. Activations keep their size through the blocks."""
    torch.manual_seed(depth)
    net = IResNet(depth)
    for name, module in net.named_modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            if name != "features":
                nn.init.uniform_(module.weight, 0.5, 1.5)
            if name.endswith("bn3"):
                module.weight.data *= 0.3
            nn.init.normal_(module.bias, std=0.1)
        elif isinstance(module, nn.PReLU):
            nn.init.uniform_(module.weight, 0.1, 0.4)
        elif isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    return net.eval()


def check(owt, depth, count, folder):
    net = drawn(depth)
    model, state, weights = TOOLS.parent / "configs" / "models" / f"iresnet{depth}.toml", folder / "state.pth", folder / "weights.safetensors"
    torch.save(net.state_dict(), state)
    subprocess.run([sys.executable, TOOLS / "torchvision_weights.py", "--model", model, state, weights], check=True)
    config = Config(owt, model, weights, folder)
    config.changes = ["--set", f"data.augment={{ mean = {[MEAN] * 3}, std = {[STD] * 3} }}"]
    images = config.made_up_images(count)
    values = torch.from_numpy(numpy.moveaxis((images - MEAN) / STD, -1, 1).astype(numpy.float32).copy())
    with torch.no_grad():
        wanted = net(values).numpy()
    return sum(parameter.numel() for parameter in net.parameters()), error(config.outputs(images, "features"), wanted)


def main():
    parser = argparse.ArgumentParser(description="Compares embeddings of owt and PyTorch.")
    parser.add_argument("--owt", required=True, metavar="PROGRAM")
    parser.add_argument("--images", type=int, default=4, metavar="N")
    parser.add_argument("depths", nargs="*", type=int, metavar="DEPTH", help="18, 50 or 100; default: all")
    options = parser.parse_args()
    failed = False
    for depth in options.depths or BLOCKS:
        with tempfile.TemporaryDirectory() as folder:
            count, difference = check(options.owt, depth, options.images, pathlib.Path(folder))
        passed = difference <= TOLERANCE
        failed |= not passed
        print(f"iresnet{depth}: {count} parameters, {options.images} images, {difference:.1e}{'' if passed else '  FAILED'}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
