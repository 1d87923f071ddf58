#!/usr/bin/env python3
"""Checks that onnxruntime computes the same from exported models as owt.

    usage: onnx_check.py --owt PROGRAM [--images N] [--photo FILE]... [--weights FILE] CONFIG...

CONFIG is a model file or a recipe. For each CONFIG, N images (photos, cropped to the network's input, then generated
ones) go through `owt extract`, and through `owt export` and onnxruntime. onnxruntime gets them normalised as the
metadata of the ONNX file says, as raw pixels, one at a time and together, and for probabilities. Without --weights
the weights are random. Prints the largest difference of each, in units of the largest logit; exits 1 if one is above
1e-4. Needs NumPy, onnxruntime (pip install onnxruntime) and, for photos, Pillow.
"""
import argparse
import sys
import tempfile

import numpy
import onnxruntime

from interop import Config, error, photo

TOLERANCE = 1e-4


def read_images(config, photos, count):
    _, height, width = config.model["input"]
    cut = [photo(path, height, width) for path in photos[:count]]
    return numpy.stack(cut + list(config.made_up_images(count))[len(cut):])


class Exported:
    def __init__(self, config, *words):
        file = config.folder / "model.onnx"
        config.run("export", "--weights", config.weights, "--onnx", file, *words)
        self.session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        self.metadata = self.session.get_modelmeta().custom_metadata_map
        file.unlink()

    def normalised(self, images):
        values = {key: numpy.array(self.metadata["owt." + key].split(), numpy.float64) for key in ("mean", "std", "scale")}
        return (images - values["mean"]) * values["scale"] / values["std"]

    def run(self, images):
        planes = numpy.ascontiguousarray(numpy.moveaxis(images, -1, 1), numpy.float32)
        return self.session.run(None, {"images": planes})[0]


def check(config, images):
    """Yields (what, difference)."""
    wanted = config.logits(images)
    plain = Exported(config)
    values = plain.normalised(images)
    yield "normalised", error(plain.run(values), wanted)
    yield "one at a time", error(numpy.concatenate([plain.run(values[i:i + 1]) for i in range(len(values))]), wanted)
    yield "raw pixels, batch of 1", error(Exported(config, "--raw", "--batch", 1).run(images[:1]), wanted[:1])
    yield "probabilities, opset 17", error(Exported(config, "--softmax", "--opset", 17).run(values), config.probabilities(wanted))


def main():
    parser = argparse.ArgumentParser(description="Checks exported models against owt in onnxruntime.")
    parser.add_argument("--owt", required=True, metavar="PROGRAM")
    parser.add_argument("--images", type=int, default=4, metavar="N")
    parser.add_argument("--photo", action="append", default=[], metavar="FILE")
    parser.add_argument("--weights", metavar="FILE", help="of one CONFIG")
    parser.add_argument("configs", nargs="+", metavar="CONFIG")
    options = parser.parse_args()
    failed = False
    for path in options.configs:
        with tempfile.TemporaryDirectory() as folder:
            config = Config(options.owt, path, options.weights, folder)
            for what, difference in check(config, read_images(config, options.photo, options.images)):
                failed |= not difference <= TOLERANCE
                print(f"{path}: {what}: {difference:.1e}{'' if difference <= TOLERANCE else '  FAILED'}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
