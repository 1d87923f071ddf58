"""Code shared by onnx_check.py, load_in_torch.py, torchvision_check.py and iresnet_check.py: runs of owt, test images."""
import pathlib
import struct
import subprocess
import sys

import numpy

from bench.recipe import read_recipe

# A model file alone does not define the normalisation of images; this setting tests all parts of it.
AUGMENT = "data.augment={ scale = 0.5, mean = [123.7, 116.3, 103.5], std = [58.4, 57.1, 57.4] }"


class Config:
    """A recipe or model file with weights: a file, or None for the weights after one training step from random ones."""

    def __init__(self, owt, path, weights, folder):
        self.owt, self.path, self.folder = owt, str(path), pathlib.Path(folder)
        recipe = read_recipe(path)
        self.model = recipe["model"]
        self.logistic = recipe.get("loss", {}).get("type") == "logistic"
        self.changes = ["--set", AUGMENT] if list(recipe) == ["model"] else []
        # otherwise owt would crop a larger image to the input's size
        if recipe.get("data", {}).get("format") == "shards":
            self.changes += ["--set", f"data.augment.short_side={self.model['input'][1]}"]
        self.weights = weights or self.draw_weights()

    def run(self, command, *words):
        words = [self.owt, command, self.path, *map(str, words), *self.changes]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"error: {' '.join(words)}\n{done.stdout}{done.stderr}")
        return done.stdout

    def draw_weights(self):
        run = self.folder / "run"
        self.run("train", "--steps", 1, "--out", run, "--device", "cpu", "--set", "data.batch=2", "--set",
                 "data.test_images=2", "--set", "data.train_images=2")
        return run / "checkpoints" / "step-00000001" / "weights.safetensors"

    def logits(self, images):
        return self.outputs(images, self.model["layer"][-1]["name"])

    def outputs(self, images, layer):
        """A layer's outputs for images N x H x W x 3 (bytes, of the network's input size), by `owt extract`."""
        files = []
        for number, pixels in enumerate(images):
            files.append(self.folder / f"{number}.bmp")
            write_bmp(files[-1], pixels)
        out = self.folder / "outputs.npy"
        self.run("extract", "--weights", self.weights, "--layer", layer, "--out", out, *files)
        return numpy.load(out)

    def probabilities(self, logits):
        return 1 / (1 + numpy.exp(-logits.astype(numpy.float64))) if self.logistic else softmax(logits)

    def made_up_images(self, count):
        """Blurred noise and ramps: like in photos, neighbouring pixels are similar."""
        _, height, width = self.model["input"]
        random = numpy.random.default_rng(1)
        coarse = random.uniform(0, 255, (count, -(-height // 4), -(-width // 4), 3))
        fine = coarse.repeat(4, 1).repeat(4, 2)[:, :height, :width]
        return (0.8 * fine + 0.2 * random.uniform(0, 255, fine.shape)).astype(numpy.uint8)


def write_bmp(path, pixels):
    height, width, _ = pixels.shape
    row = -(-3 * width // 4) * 4  # size in bytes
    rows = numpy.zeros((height, row), numpy.uint8)
    rows[:, :3 * width] = pixels[::-1, :, ::-1].reshape(height, -1)  # from the bottom up, blue first
    header = struct.pack("<2sIIIIiiHHIIiiII", b"BM", 54 + rows.size, 0, 54, 40, width, height, 1, 24, 0, rows.size, 0, 0, 0, 0)
    path.write_bytes(header + rows.tobytes())


def error(found, wanted):
    """The largest difference, in units of the largest value."""
    if found.shape != wanted.shape:
        sys.exit(f"error: outputs of {found.shape} against {wanted.shape}")
    return float(numpy.abs(found.astype(numpy.float64) - wanted).max() / numpy.abs(wanted).max())


def photo(path, height, width):
    from PIL import Image, ImageOps
    return numpy.asarray(ImageOps.fit(Image.open(path).convert("RGB"), (width, height)))


def softmax(logits):
    powers = numpy.exp(logits.astype(numpy.float64) - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)
