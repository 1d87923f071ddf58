#!/usr/bin/python3
"""Compares speed and memory of owt and PyTorch on the CPU: same network, batch, precision and threads.

    usage: compare_pytorch.py --owt PROGRAM [--model NAME,...] [--precision fp32,bf16] [--threads 2,1] [--evaluate]
                              [--compile] [--batch N] [--repeats R] [--python PROGRAM]

NAME may also be a file NAME.toml: a recipe, whose loss PyTorch computes too, with `margin` and `sample` (Partial FC).
A step is forward, loss, backward and update on one batch in memory; with --evaluate forward and loss. The programs
alternate, each in a fresh process. A process reports the median of its steps after three untimed ones. PyTorch uses
its faster layout, channels-last, its fused update, and for bf16 autocast. With --compile it also uses its compiler,
and the better result counts. Prints a Markdown table: medians over all turns, minimum and maximum, the ratio of
images per second (median of the turns' ratios), and the peak resident memory of the processes.

tools/bench/install_pytorch.sh installs the latest PyTorch. Debian's python3-torch (without torch.compile, with
libopenblas0-pthread) works too.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

from owt_time import MODELS, owt_step, run_measured, spread
from recipe import read_recipe

UNTIMED_STEPS = 3
HEAD = ("net", "batch", "precision", "threads", "owt, images/s", "PyTorch, images/s", "", "owt / PyTorch",
        "owt, MB", "PyTorch, MB")


def measure_torch(config, batch, steps, threads, precision, evaluation, compiled):
    """The median milliseconds of a step, and the peak resident memory in MB, of this process."""
    import torch
    from torch_step import make_step

    torch.set_num_threads(threads)
    step = make_step(config, batch, precision, "compiled" if compiled else "eager", "cpu", evaluation)
    times = []
    for _ in range(UNTIMED_STEPS + steps):
        begin = time.perf_counter()
        step().item()
        times.append(1e3 * (time.perf_counter() - begin))
    # wait4() is not used, because it includes the C++ compilers that torch.compile starts.
    status = pathlib.Path("/proc/self/status").read_text()
    return statistics.median(times[UNTIMED_STEPS:]), int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6


def torch_step(python, **case):
    with tempfile.NamedTemporaryFile("r") as answer:
        run_measured([python, __file__, "--torch-only", answer.name, json.dumps(case)], case["threads"])
        return json.load(answer)


def case_of(model):
    """File, rows of a step, and number of timed steps."""
    return MODELS[model] if model in MODELS else (pathlib.Path(model), read_recipe(model)["data"]["batch"], 5)


def measure(options, model, batch, precision, threads):
    """Name of a program -> [(milliseconds, MB)] of its turns."""
    config, _, steps = case_of(model)
    steps *= 3 if options.evaluate else 1
    theirs = dict(config=str(config), batch=batch, steps=steps, threads=threads, precision=precision,
                  evaluation=options.evaluate)
    ours = ["--device", "cpu", "--precision", precision] + ["--evaluation"] * options.evaluate
    programs = {"owt": lambda: owt_step(options.owt, config, batch, steps, threads, *ours),
                "eager": lambda: torch_step(options.python, compiled=False, **theirs)}
    if options.compile:
        programs["compiled"] = lambda: torch_step(options.python, compiled=True, **theirs)
    turns = [{name: program() for name, program in programs.items()} for _ in range(options.repeats)]
    return {name: [turn[name] for turn in turns] for name in programs}


def cells(batch, turns):
    """The measured values for one row of the table. The PyTorch variant with the shorter median step counts."""
    times = {name: [ms for ms, _ in of_program] for name, of_program in turns.items()}
    peer = min((name for name in times if name != "owt"), key=lambda name: statistics.median(times[name]))
    rate = lambda name: spread([1e3 * batch / ms for ms in times[name]])
    memory = lambda name: f"{statistics.median(megabytes for _, megabytes in turns[name]):.0f}"
    ratios = [theirs / ours for ours, theirs in zip(times["owt"], times[peer], strict=True)]
    return rate("owt"), rate(peer), peer, spread(ratios, 2), memory("owt"), memory(peer)


def line(words):
    return "| " + " | ".join(map(str, words)) + " |"


def main():
    several = lambda text: text.split(",")
    numbers = lambda text: [int(number) for number in several(text)]
    numbers.__name__ = "list of numbers"  # the name that argparse uses in its message
    parser = argparse.ArgumentParser(description="Speed and memory of owt against PyTorch on the CPU.")
    parser.add_argument("--owt", required=True, metavar="PROGRAM")
    parser.add_argument("--python", default=sys.executable, metavar="PROGRAM", help="that has PyTorch; default: this one")
    parser.add_argument("--model", type=several, default=list(MODELS), metavar="NAME,...",
                        help=f"of {', '.join(MODELS)}, or a recipe's file; default: all")
    parser.add_argument("--precision", type=several, default=["fp32", "bf16"], metavar="NAME,...")
    parser.add_argument("--threads", type=numbers, default=[2, 1], metavar="T,...")
    parser.add_argument("--evaluate", action="store_true", help="forward and loss only")
    parser.add_argument("--compile", action="store_true", help="torch.compile too")
    parser.add_argument("--batch", type=int, metavar="N", help="rows of a step; default: the model's own number")
    parser.add_argument("--repeats", type=int, metavar="R", default=7, help="turns of each")
    options = parser.parse_args()
    for what, named, known in (("model", options.model, MODELS), ("precision", options.precision, ("fp32", "bf16"))):
        if unknown := {name for name in named if not name.endswith(".toml")} - set(known):
            parser.error(f"no {what} '{unknown.pop()}'; there are {', '.join(known)}")

    print(line(HEAD), line("---" for _ in HEAD), sep="\n", flush=True)
    for threads in options.threads:
        for model in options.model:
            for precision in options.precision:
                batch = options.batch or case_of(model)[1]
                turns = measure(options, model, batch, precision, threads)
                print(line((pathlib.Path(model).stem, batch, precision, threads, *cells(batch, turns))), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--torch-only"]:
        pathlib.Path(sys.argv[2]).write_text(json.dumps(measure_torch(**json.loads(sys.argv[3]))))
    else:
        main()
