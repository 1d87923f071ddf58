#!/usr/bin/python3
"""Shortest time a training step can take on one H200, layer by layer: a model of operations and bytes, no measurement.

    usage: gpu_floor.py MODEL --batch N [--precision bf16|tf32|fp32]

MODEL: a model file or a recipe. Each pass of a layer takes the longer of its arithmetic and its memory traffic, every
tensor being read or written once and nothing staying in caches from one pass to the next. What is fused: bias, relu and
dropout with the convolution or dense layer before them; the backward pass of a pool with that of relu and with the bias
gradient. Images have 3 channels padded to 4; the first layer needs no gradient of them. SGD with momentum reads and
writes 20 bytes per parameter: weight and momentum in fp32 twice each, and a gradient and a copy of the weight in bf16, or
a gradient in fp32.
"""
import argparse
from dataclasses import dataclass, field

from recipe import read_recipe

BYTES_PER_SECOND = 4.3e12  # of a copy, read and written bytes together
# bf16: of a large matrix product; tf32: half of that, as in NVIDIA's data sheet; fp32: data sheet, without tensor cores.
FLOPS_PER_SECOND = {"bf16": 790e12, "tf32": 395e12, "fp32": 67e12}
ELEMENT_BYTES = {"bf16": 2, "tf32": 4, "fp32": 4}
OPTIMIZER_BYTES = 20  # per parameter
INDEX_BYTES = 1       # of a max pool's index


@dataclass
class Floor:
    """Seconds. `layers` has forward and backward by the layer's name; what is fused into another layer takes 0."""
    layers: dict = field(default_factory=dict)
    update: float = 0.0
    parameters: int = 0

    @property
    def step(self):
        return sum(self.layers.values()) + self.update


def windows(extent, kernel, stride, pad, up=False):
    """Output extent; rounding up leaves out a window that would begin behind the image and its first padding."""
    room = extent + 2 * pad - kernel
    out = (room + (stride - 1 if up else 0)) // stride + 1
    return out - 1 if up and (out - 1) * stride >= extent + pad else out


class Walk:
    """Goes through the layers and adds up passes."""

    def __init__(self, model, batch, precision):
        self.rate, self.each = FLOPS_PER_SECOND[precision], ELEMENT_BYTES[precision]
        self.batch = batch
        self.floor = Floor()
        channels, self.height, self.width = model["input"]
        self.channels = channels
        self.first = True
        layers = model["layer"]
        for i, layer in enumerate(layers):
            self.floor.layers[layer["name"]] = 0.0
            self.followers = [after["type"] for after in layers[i + 1:]]
            getattr(self, layer["type"])(layer)
        self.floor.update = OPTIMIZER_BYTES * self.floor.parameters / BYTES_PER_SECOND

    def values(self):
        return self.batch * self.height * self.width * self.channels

    def spend(self, layer, flops, moved):
        self.floor.layers[layer["name"]] += max(flops / self.rate, moved / BYTES_PER_SECOND)

    def product(self, layer, flops, x, w, y):
        """Forward, gradient of the weight, gradient of the input."""
        for _ in range(2 if self.first else 3):
            self.spend(layer, flops, x + w + y)
        self.first = False

    def conv(self, layer):
        kernel, stride, pad = layer["kernel"], layer.get("stride", 1), layer.get("pad", 0)
        x = self.values() * self.each * (4 / 3 if self.first and self.channels == 3 else 1)
        weights = layer["out"] * (self.channels // layer.get("groups", 1)) * kernel * kernel
        self.height = windows(self.height, kernel, stride, pad, layer.get("round", "down") == "up")
        self.width = windows(self.width, kernel, stride, pad, layer.get("round", "down") == "up")
        self.channels = layer["out"]
        y = self.values() * self.each
        flops = 2 * weights * self.batch * self.height * self.width
        self.product(layer, flops, x, weights * self.each, y)
        if self.relu_stands_alone():  # dy and y are read, and the gradient before relu is written
            self.spend(layer, 0, 3 * y)
        self.floor.parameters += weights + (layer["out"] if layer.get("bias", True) is not False else 0)

    def relu_stands_alone(self):
        """Of the layers up to the next with weights: relu without a pool whose backward pass it could share."""
        between = []
        for kind in self.followers:
            if kind in ("conv", "dense"):
                break
            between.append(kind)
        return "relu" in between and not any(kind.endswith("pool") for kind in between)

    def dense(self, layer):
        inputs = self.channels * self.height * self.width
        weights = inputs * layer["out"]
        x = self.values() * self.each
        self.channels, self.height, self.width = layer["out"], 1, 1
        self.product(layer, 2 * weights * self.batch, x, weights * self.each, self.values() * self.each)
        self.floor.parameters += weights + (layer["out"] if layer.get("bias", True) is not False else 0)

    def pool(self, layer, index_bytes):
        up = layer.get("round", "down") == "up"
        kernel, stride, pad = layer["kernel"], layer.get("stride", layer["kernel"]), layer.get("pad", 0)
        x = self.values() * self.each
        self.height, self.width = (windows(n, kernel, stride, pad, up) for n in (self.height, self.width))
        y, index = self.values() * self.each, self.values() * index_bytes
        self.spend(layer, 0, x + y + index)
        self.spend(layer, 0, 2 * y + index + x)  # reads dy and, for relu, y

    def max_pool(self, layer):
        self.pool(layer, INDEX_BYTES)

    def avg_pool(self, layer):
        self.pool(layer, 0)

    def global_avg_pool(self, layer):
        self.pool(layer | {"kernel": self.height, "stride": self.height, "pad": 0}, 0)

    def relu(self, layer):
        pass

    def dropout(self, layer):
        pass

    def lrn(self, layer):
        x = self.values() * self.each
        self.spend(layer, 0, 2 * x)
        self.spend(layer, 0, 3 * x)

    def batch_norm(self, layer):
        x = self.values() * self.each
        self.spend(layer, 0, 3 * x)  # x is read for the statistics and again
        self.spend(layer, 0, 5 * x)  # x and dy likewise
        self.floor.parameters += 2 * self.channels


def floor_of(model, batch, precision):
    return Walk(model, batch, precision).floor


def main():
    parser = argparse.ArgumentParser(description="Shortest time a training step can take on one H200.")
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--batch", type=int, required=True, metavar="N")
    parser.add_argument("--precision", choices=sorted(FLOPS_PER_SECOND), default="bf16")
    options = parser.parse_args()
    floor = floor_of(read_recipe(options.model)["model"], options.batch, options.precision)
    for name, seconds in floor.layers.items():
        if seconds > 0:
            print(f"{name:<12} {1e6 * seconds:10.1f} us")
    print(f"{'update':<12} {1e6 * floor.update:10.1f} us  ({floor.parameters / 1e6:.2f} million parameters)")
    print(f"{'step':<12} {1e6 * floor.step:10.1f} us = {options.batch / floor.step:.0f} images/s")


if __name__ == "__main__":
    main()
