#!/usr/bin/python3
"""Trains the same few steps in many ways and checks that the losses of all steps agree.

    usage: compare_losses.py --owt PROGRAM --config RECIPE [--device cuda|cpu] [--steps N] [--workers K,...]
                             [--strategies NAME,...] [--set KEY=VALUE]... [--results FILE]

All runs use the same generated images, seed, dropout and shuffling. Each is compared with one worker in fp32 without
a recorded graph:
  the same again, and with the step recorded as a CUDA graph     the same digits
  with K workers twice                                           the same digits
  the CPU; every strategy with K workers on the one device       to 1e-3
  tf32 and bf16 with one worker                                  to 5e-2
A run with one worker in bf16 with a graph is compared with the run without a graph: the same digits. On the CPU only
supported runs are made. Prints a line for each run, and adds one to the file of --results; exits 1 if a run differs
or failed. With --workers "" only runs of one worker are made.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from results import Results

SAME, CLOSE, ROUGH = 0.0, 1e-3, 5e-2  # largest relative difference of a step's loss
# Fixed, because the CPU would choose algorithms by their times, and could choose others in each run.
CHANGES = ["data.format=synthetic", "data.train_images=2000", "data.test_images=20", "run.log_every=1",
           "run.conv_algorithm=direct"]


class Runs:
    def __init__(self, options, folder):
        self.options, self.folder, self.results = options, pathlib.Path(folder), Results(options.results)
        self.outcomes = {}  # run -> whether its losses are as required

    def losses(self, name, device, precision="fp32", workers=1, strategy="owt-a", graph=True):
        """The loss of each step, or None if the run failed."""
        out = self.folder / name.replace(" ", "_").replace(",", "")
        command = [self.options.owt, "train", self.options.config, "--out", str(out), "--steps",
                   str(self.options.steps), "--workers", str(workers), "--parallel", strategy, "--device", device,
                   "--precision", precision]
        for change in [*CHANGES, *self.options.set, f"run.cuda_graph={'true' if graph else 'false'}"]:
            command += ["--set", change]
        # All runs share the plans that the first run measures.
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env={"OWT_CACHE": str(self.folder / "plans")} | os.environ)
        if done.returncode != 0:
            self.note(name, (done.stderr.strip() or f"status {done.returncode}").splitlines()[-1], False)
            return None
        records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        losses = [record["loss"] for record in records if record["kind"] == "train"]
        if len(losses) != self.options.steps:
            self.note(name, f"{len(losses)} losses in metrics.jsonl, wanted {self.options.steps}", False)
            return None
        return losses

    def compare(self, name, reference, tolerance, **how):
        losses = self.losses(name, **how)
        if losses is None:
            return
        errors = [abs(a - b) / abs(b) if a == a else float("inf") for a, b in zip(losses, reference)]
        worst = max(range(len(errors)), key=errors.__getitem__)
        wanted = "the same digits" if tolerance == SAME else f"at most {tolerance:.0e}"
        self.note(name, f"largest difference {errors[worst]:.1e} in step {worst + 1}, wanted {wanted}",
                  errors[worst] <= tolerance)

    def note(self, name, text, good):
        self.outcomes[name] = good
        self.results.add(kind="losses", run=name, result="PASS" if good else "FAIL", text=text)
        print(f"{'ok    ' if good else 'FAILED'} {name}: {text}", flush=True)

    def reference(self, name, **how):
        losses = self.losses(name, **how)
        if losses:
            self.note(name, f"loss {losses[0]:.4f} in the first step, {losses[-1]:.4f} in the last", losses[-1] == losses[-1])
        return losses


def compare_all(runs, options):
    on = options.device
    one = runs.reference("1 worker, fp32", device=on, graph=False)
    if one is None:
        return
    runs.compare("1 worker, again", one, SAME, device=on, graph=False)
    if on != "cpu":
        runs.compare("1 worker, recorded graph", one, SAME, device=on)
        runs.compare("1 worker, CPU", one, CLOSE, device="cpu")
    for workers in options.workers:
        for strategy in options.strategies:
            runs.compare(f"{workers} workers, {strategy}", one, CLOSE, device=on, workers=workers, strategy=strategy)
        once = runs.reference(f"{workers} workers", device=on, workers=workers, strategy="dp")
        if once is not None:
            runs.compare(f"{workers} workers, again", once, SAME, device=on, workers=workers, strategy="dp")
    if on == "cpu":
        return
    runs.compare("1 worker, tf32", one, ROUGH, device=on, precision="tf32")
    runs.compare("1 worker, bf16", one, ROUGH, device=on, precision="bf16")
    rounded = runs.reference("1 worker, bf16 without a graph", device=on, precision="bf16", graph=False)
    if rounded is not None:
        runs.compare("1 worker, bf16, recorded graph", rounded, SAME, device=on, precision="bf16")


def words(text):
    return [word for word in text.split(",") if word]


def main():
    parser = argparse.ArgumentParser(description="Checks that the same steps give the same losses in many ways.")
    parser.add_argument("--owt", required=True, metavar="PROGRAM")
    parser.add_argument("--config", required=True, metavar="RECIPE", help="of 32x32 images; batch norm with rows, if any")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", type=int, default=30, metavar="N")
    parser.add_argument("--workers", type=words, default=["2", "4"], metavar="K,...")
    parser.add_argument("--strategies", type=words, metavar="NAME,...",
                        default=["dp", "dp-zero", "dp-star", "owt-a", "owt-b", "owt-c", "owt-d", "mp", "mp-dense"])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the recipe")
    parser.add_argument("--results", metavar="FILE", help="gets a JSON object a line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(options, folder)
        compare_all(runs, options)
    failed = [name for name, good in runs.outcomes.items() if not good]
    print(f"{len(runs.outcomes) - len(failed)} of {len(runs.outcomes)} runs agree"
          + (f"; not: {'; '.join(failed)}" if failed else ""))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
