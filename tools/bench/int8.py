#!/usr/bin/env python3
"""Accuracy and speed of INT8 models of `owt export --int8` on the test images of a data set.

    usage: int8.py --owt PROGRAM --data DIR [--test DIR] [--calibrate N] [--threads T] [--repeats R] RUN...

DIR of --data is the data set of the RUNs, whose training images calibrate; --test names another one with the test
images. For each RUN it evaluates the network with `owt eval` in fp32 and bf16, then exports it in f32 and in INT8 with
each calibration. onnxruntime computes the logits of all test images, and is timed with batches of 1 and 64 in turns:
every turn runs each model once. Prints a Markdown table: top-1; the share of images with the same class as f32; the
median time of a batch, and its ratio to f32. The models take pixels (`--raw`). In the f32 model Clip replaces the four
operators of a relu6, because onnxruntime makes it part of a convolution. Needs NumPy, ONNX and onnxruntime.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy
import onnx
import onnxruntime

from recipe import read_recipe

BATCHES = {1: 20, 64: 1}  # rows, and the runs of a turn


def owt(program, *words):
    done = subprocess.run([program, *map(str, words)], text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return done.stdout


def test_images(options, run, folder):
    """The pixels and labels of the test images as the network sees them: the outputs of a network that changes nothing."""
    classes = read_recipe(pathlib.Path(run) / "config.toml")["model"]["classes"]
    layers = f"""[{{ name = "pixels", type = "avg_pool", kernel = 1 }}, {{ name = "out", type = "dense", out = {classes} }}]"""
    changes = ["model.layer=" + layers, *(f"data.augment.{key}" for key in ("mean=none", "std=none", "scale=1"))]
    pixels, labels = folder / "pixels.npy", folder / "labels.npy"
    owt(options.owt, "extract", run, "--data", options.test, "--layer", "pixels", "--out", pixels, "--labels", labels,
        "--precision", "fp32", *(word for change in changes for word in ("--set", change)))
    return numpy.load(pixels), numpy.load(labels)


def clip_relu6(file):
    """Replaces the operators of relu6 by Clip: less = x - 6, above = relu(less), positive = relu(x), positive - above."""
    model = onnx.load(file)
    bounds = [onnx.numpy_helper.from_array(numpy.float32(value), f"bound{value}") for value in (0, 6)]
    model.graph.initializer.extend(bounds)
    nodes = {node.output[0]: node for node in model.graph.node}
    for name, node in list(nodes.items()):
        if name + ".above" in node.input:
            x = nodes[name + ".less"].input[0]
            node.CopyFrom(onnx.helper.make_node("Clip", [x, *(bound.name for bound in bounds)], [name], name))
            for part in (".less", ".above", ".positive"):
                model.graph.node.remove(nodes[name + part])
    onnx.save(model, file)


class Exported:
    def __init__(self, options, run, file, *words):
        owt(options.owt, "export", run, "--data", options.data, "--onnx", file, "--raw", "-q", *words)
        if "--int8" not in words:
            clip_relu6(file)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.threads
        settings.log_severity_level = 3  # no warnings about what falls away
        self.session = onnxruntime.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])
        self.megabytes = file.stat().st_size / 1e6

    def run(self, images):
        return self.session.run(None, {"images": images})[0]

    def classes(self, images):
        return numpy.concatenate([self.run(images[i:i + 250]).argmax(1) for i in range(0, len(images), 250)])

    def time(self, images, runs):
        """Milliseconds of a run."""
        start = time.perf_counter()
        for _ in range(runs):
            self.run(images)
        return (time.perf_counter() - start) * 1e3 / runs


def measure(options, run, folder):
    images, labels = test_images(options, run, folder)
    name = pathlib.Path(run).name
    for precision in ("fp32", "bf16"):
        found = json.loads(owt(options.owt, "eval", run, "--data", options.test, "--device", "cpu", "--precision", precision,
                               "--threads", options.threads, "--json", "-"))
        print(f"| {name} | owt, {precision} | | {100 * found['top1']:.2f} | |" + " |" * len(BATCHES), flush=True)
    models = {"f32": Exported(options, run, folder / "f32.onnx")}
    for method in ("minmax", "percentile", "kl"):
        models[f"INT8, {method}"] = Exported(options, run, folder / f"{method}.onnx", "--int8", "--calibrate",
                                             options.calibrate, "--calibration", method)
    classes = {key: model.classes(images) for key, model in models.items()}
    times = {(key, rows): [] for key in models for rows in BATCHES}
    for _ in range(options.repeats):
        for rows, runs in BATCHES.items():
            for key, model in models.items():
                times[key, rows].append(model.time(images[:rows], runs))
    median = lambda key, rows: statistics.median(times[key, rows])
    for key, model in models.items():
        speed = "".join(f" {median(key, rows):.2f} ({median(key, rows) / median('f32', rows):.2f}) |" for rows in BATCHES)
        print(f"| {name} | onnxruntime, {key} | {model.megabytes:.2f} | {100 * (classes[key] == labels).mean():.2f} | "
              f"{100 * (classes[key] == classes['f32']).mean():.2f} |{speed}", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Accuracy and speed of INT8 models.")
    parser.add_argument("--owt", required=True, metavar="PROGRAM")
    parser.add_argument("--data", required=True, metavar="DIR")
    parser.add_argument("--test", metavar="DIR")
    parser.add_argument("--calibrate", type=int, default=512, metavar="N", help="training images")
    parser.add_argument("--threads", type=int, default=2, metavar="T")
    parser.add_argument("--repeats", type=int, default=15, metavar="R", help="turns")
    parser.add_argument("runs", nargs="+", metavar="RUN")
    options = parser.parse_args()
    options.test = options.test or options.data
    print("| run | program | MB | top-1, % | same class as f32, % |" +
          "".join(f" ms of a batch of {rows} (ratio to f32) |" for rows in BATCHES) + "\n" + "|---" * (5 + len(BATCHES)) + "|")
    for run in options.runs:
        with tempfile.TemporaryDirectory() as folder:
            measure(options, run, pathlib.Path(folder))


if __name__ == "__main__":
    main()
