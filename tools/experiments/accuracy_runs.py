"""Runs of owt for comparisons of accuracy: each is run once, and its evaluations are read from its folder."""
import json
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
from commands import run  # noqa: E402

SECONDS = 4 * 3600  # time limit of a run


def config(name):
    """The path of a recipe that belongs to the program."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "configs", name + ".toml")


def command(options, config, keys, words=()):
    """owt train CONFIG with recipe keys; `words`: further arguments."""
    line = [options.owt, "train", config, "--data", options.data, *words]
    for key, value in keys.items():
        line += ["--set", f"{key}={value}"]
    return line


def lines_of(folder, kind):
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        return [line for line in map(json.loads, file) if line["kind"] == kind]


def is_done(folder, epochs):
    path = os.path.join(folder, "metrics.jsonl")
    return os.path.exists(path) and len(lines_of(folder, "eval")) == epochs


def train(folder, line, epochs):
    """The evaluations of a run, epoch by epoch. An existing run is not repeated."""
    if not is_done(folder, epochs):
        log = folder + ".log"
        resume = ["--resume", "auto"] if os.path.isdir(folder) else []
        status = run([*line, "--out", folder, *resume], SECONDS, log)
        if status != 0:
            sys.exit(f"{folder}: exit status {status}, see {log}")
    return lines_of(folder, "eval")


def mean(values):
    return sum(values) / len(values)


def percent(values):
    """Mean and standard deviation in percent, of values from 0 to 1."""
    spread = statistics.stdev(values) if len(values) > 1 else 0
    return f"{100 * mean(values):.2f} +- {100 * spread:.2f}"


def table(head, rows):
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def numbers(text):
    return [int(each) for each in text.split(",")]
