#!/usr/bin/python3
"""Accuracy on glyphs beside PyTorch, which begins with the same weights and uses the same recipe.

    usage: glyph_accuracy.py WORK --owt PROGRAM [--recipe NAME] [--epochs E] [--seeds N,N,...] [--out DIR]
                             [--python PROGRAM] [--torch-steps N]

WORK is the folder of tools/glyphs.sh. For each seed owt trains on WORK/shards and is evaluated on WORK/test, and
tools/bench/torch_glyphs.py trains on the same images; --python is a Python with PyTorch and torchvision, and
--torch-steps ends its runs earlier (0: none). Runs that are in --out already are not repeated. Prints the accuracies
as a Markdown table, and the curves as CSV into DIR/NAME.csv.
"""
import argparse
import csv
import json
import os
import subprocess
import sys

import accuracy_runs
from accuracy_runs import lines_of, numbers, percent, table
from commands import end_with_commands, run

TORCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench", "torch_glyphs.py")
MOST_POINTS = 100  # points of a curve


def checked(line, log):
    if (status := run(line, accuracy_runs.SECONDS, log)) != 0:
        sys.exit(f"{' '.join(line)}: exit status {status}, see {log}")


def train_owt(options, seed):
    """The run's lines, and top-1 of its last evaluation and of the test faces."""
    folder = os.path.join(options.out, f"{options.recipe}-owt-{seed}")
    evaluations = accuracy_runs.train(folder, [*options.command, "--seed", str(seed)], options.epochs)
    done = subprocess.run([options.owt, "eval", folder, "--data", os.path.join(options.work, "test"), "--json", "-"],
                          check=True, capture_output=True, text=True)
    return lines_of(folder, "train"), evaluations[-1]["top1"], json.loads(done.stdout)["top1"]


def train_torch(options, seed):
    folder = os.path.join(options.out, f"{options.recipe}-torch-{seed}")
    metrics = os.path.join(folder, "metrics.jsonl")
    if not os.path.exists(metrics):
        os.makedirs(folder, exist_ok=True)
        drawn = os.path.join(folder, "drawn")
        line = [*options.command, "--seed", str(seed), "--out", drawn, "--lr", "1e-12", "--steps", "1"]
        checked(line, folder + ".drawn.log")
        weights = os.path.join(drawn, "checkpoints", "step-00000001", "weights.safetensors")
        more = ["--steps", str(options.torch_steps)] if options.torch_steps else []
        checked([options.python, TORCH, accuracy_runs.config(options.recipe), options.work, weights, metrics + ".part",
                 "--epochs", str(options.epochs), "--seed", str(seed), *more], folder + ".log")
        os.rename(metrics + ".part", metrics)
    last = {line["split"]: line["top1"] for line in lines_of(folder, "eval")}
    return lines_of(folder, "train"), last["val"], last["test"]


def points(lines):
    """Step, loss and top-1 of evenly distributed lines: of one step in owt's, the mean of 20 steps in PyTorch's."""
    every = -(-len(lines) // MOST_POINTS)
    return [(line["step"], f"{line['loss']:.4f}", f"{line['top1']:.4f}") for line in lines[::every]]


def main():
    parser = argparse.ArgumentParser(description="Accuracy on glyphs beside PyTorch.")
    parser.add_argument("work", metavar="WORK", help="folder of tools/glyphs.sh")
    parser.add_argument("--owt", required=True, metavar="PROGRAM")
    parser.add_argument("--recipe", default="glyphs_1k", metavar="NAME")
    parser.add_argument("--epochs", type=int, default=3, metavar="E")
    parser.add_argument("--seeds", type=numbers, default=[1, 2, 3], metavar="N,N,...")
    parser.add_argument("--out", default="glyph_accuracy", metavar="DIR", help="of the runs")
    parser.add_argument("--python", default=sys.executable, metavar="PROGRAM")
    parser.add_argument("--torch-steps", type=int, metavar="N", help="0: only owt")
    options = parser.parse_args()
    options.command = [options.owt, "train", accuracy_runs.config(options.recipe), "--data",
                       os.path.join(options.work, "shards"), "--set", f"schedule.epochs={options.epochs}"]

    end_with_commands()
    os.makedirs(options.out, exist_ok=True)
    programs = {"owt": train_owt} | ({} if options.torch_steps == 0 else {"PyTorch": train_torch})
    rows, curves = [], []
    for program, train in programs.items():
        runs = [train(options, seed) for seed in options.seeds]
        for seed, (lines, _, _) in zip(options.seeds, runs):
            curves += [(options.recipe, program, seed, *point) for point in points(lines)]
        tests = [test for _, _, test in runs]
        rows.append([program, percent(tests), *(f"{100 * test:.2f}" for test in tests),
                     percent([val for _, val, _ in runs])])
    with open(os.path.join(options.out, options.recipe + ".csv"), "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("recipe", "program", "seed", "step", "loss", "top1"), *curves])
    print(table([options.recipe, "test faces, top-1 %", *(f"seed {seed}" for seed in options.seeds),
                 "validation face, %"], rows))


if __name__ == "__main__":
    main()
