#!/usr/bin/env python3
"""Accuracy and speed of INT8 models of `owt export --int8` on the test images of CIFAR-10.

    usage: int8.py --owt PROGRAM --data DIR [--calibrate N] [--threads T] [--repeats R] RUN...

DIR is the folder with cifar-10-batches-bin. For each RUN it evaluates the network with `owt eval` in fp32 and bf16, then
exports it in f32 and in INT8 with each calibration. onnxruntime computes the logits of all test images, and is timed
with batches of 1 and 64 in turns: every turn runs each model once. Prints a Markdown table: top-1; the share of
images with the same class as f32; the median time of a batch, and its ratio to f32. The models take pixels
(`--raw`). Needs NumPy and onnxruntime.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy
import onnxruntime

BATCHES = {1: 20, 64: 1}  # rows, and the runs of a turn


def test_images(folder):
    rows = numpy.fromfile(next(pathlib.Path(folder).rglob("test_batch.bin")), numpy.uint8).reshape(-1, 3073)
    return rows[:, 1:].reshape(-1, 3, 32, 32).astype(numpy.float32), rows[:, 0].astype(int)


def owt(program, *words):
    return subprocess.run([program, *map(str, words)], check=True, text=True, stdout=subprocess.PIPE).stdout


class Exported:
    def __init__(self, options, run, file, *words):
        owt(options.owt, "export", run, "--data", options.data, "--onnx", file, "--raw", "-q", *words)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.threads
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
    images, labels = test_images(options.data)
    name = pathlib.Path(run).name
    for precision in ("fp32", "bf16"):
        found = json.loads(owt(options.owt, "eval", run, "--data", options.data, "--device", "cpu", "--precision", precision,
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
    parser.add_argument("--calibrate", type=int, default=512, metavar="N", help="training images")
    parser.add_argument("--threads", type=int, default=2, metavar="T")
    parser.add_argument("--repeats", type=int, default=15, metavar="R", help="turns")
    parser.add_argument("runs", nargs="+", metavar="RUN")
    options = parser.parse_args()
    print("| run | program | MB | top-1, % | same class as f32, % |" +
          "".join(f" ms of a batch of {rows} (ratio to f32) |" for rows in BATCHES) + "\n" + "|---" * (5 + len(BATCHES)) + "|")
    for run in options.runs:
        with tempfile.TemporaryDirectory() as folder:
            measure(options, run, pathlib.Path(folder))


if __name__ == "__main__":
    main()
