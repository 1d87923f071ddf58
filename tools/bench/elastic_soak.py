#!/usr/bin/env python3
"""Disturbs a run with changing workers at random, for as long as wanted, and compares its losses with an undisturbed run.

    usage: elastic_soak.py PROGRAM [--minutes M] [--strategies NAME,...] [--seed N] [--out DIR]

In rounds, under one strategy after the other: owt launch --elastic 1:4 begins with 3 workers. Events follow at random:
a worker is killed (SIGKILL) or stopped (SIGSTOP), leaves (SIGUSR2), or another one joins. After each the script waits
for the next world and for its first step. It prints, for each event, the seconds from the event to that step, and the
steps that were computed again; at the end a table. Exits 1 if a run has ended early, took more than 10 s for an event, or
has another curve than one worker: more than 1e-4 in a loss.
"""
import argparse
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

RECIPE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/support/small_images.toml")
# Smooth layers, so that rounding does not grow.
KEYS = ["run.log_every=25", "run.eval_every_epochs=0", "run.checkpoint_every_epochs=0", "run.checkpoint_every_steps=1000",
        "elastic.mirror_every=50", "optimizer.learning_rate=0.003", "optimizer.momentum=0.9",
        "model.layer.1.type=avg_pool", "model.layer.3.type=activation", "model.layer.3.kind=gelu",
        'data.augment={ mean = "channel", std = "channel" }', "parallel.timeout_s=2"]
KILL, STOP, LEAVE, JOIN = "kill", "stop", "leave", "join"
LONGEST = 10  # seconds


def command(options, out, steps, strategy):
    line = [options.program, "train", RECIPE, "--out", out, "--parallel", strategy, "--steps", str(steps)]
    for key in KEYS:
        line += ["--set", key]
    return line


def records(run, kind):
    try:
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as lines:
            return [record for record in map(json.loads, lines) if record["kind"] == kind]
    except (FileNotFoundError, json.JSONDecodeError):  # a line is being written
        return []


def curve(run):
    return {record["step"]: record["loss"] for record in records(run, "train")}


class Disturbed:
    """A run under owt launch --elastic."""

    def __init__(self, options, folder, strategy):
        self.options, self.run, self.strategy = options, os.path.join(folder, "run"), strategy
        self.line = command(options, self.run, options.steps, strategy)
        self.output = open(os.path.join(folder, "output"), "w+", encoding="utf-8")
        self.launcher = subprocess.Popen([options.program, "launch", "--workers", "3", "--elastic", "1:4", *self.line],
                                         stdout=self.output, stderr=self.output)
        self.joined = []
        self.until(lambda: len(curve(self.run)) > 2)
        with open(self.output.name, encoding="utf-8") as output:
            self.address = re.search(r"--join (\S+) ", output.read()).group(1)

    def until(self, condition):
        while not condition():
            if self.launcher.poll() is not None:
                raise RuntimeError(f"the run has ended with {self.launcher.returncode}")
            time.sleep(0.02)

    def workers(self):
        """The processes of the workers."""
        found = []
        for launcher in [self.launcher, *self.joined]:
            listed = subprocess.run(["pgrep", "-P", str(launcher.pid)], capture_output=True, text=True, check=False)
            found += map(int, listed.stdout.split())
        return found

    def disturb(self, event, draw):
        """Returns the seconds until the next world has done a step, and the steps that it has repeated."""
        before, begin = len(records(self.run, "world")), time.monotonic()
        if event == JOIN:
            self.joined.append(subprocess.Popen([self.options.program, "launch", "--join", self.address, "--workers", "1",
                                                 *self.line], stdout=self.output, stderr=self.output))
        else:
            number = {KILL: signal.SIGKILL, STOP: signal.SIGSTOP, LEAVE: signal.SIGUSR2}[event]
            os.kill(draw.choice(self.workers()), number)
        self.until(lambda: len(records(self.run, "world")) > before)
        world = records(self.run, "world")[-1]
        self.until(lambda: any(step > world["step"] for step in curve(self.run)))
        return time.monotonic() - begin, world

    def end(self):
        code = self.launcher.wait()
        if code != 0:
            raise RuntimeError(f"exit code {code}")

    def kill(self):
        for process in [*self.workers(), *(each.pid for each in [self.launcher, *self.joined])]:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass


def one_round(options, folder, strategy, draw, undisturbed, figures):
    os.makedirs(folder)
    run = Disturbed(options, folder, strategy)
    try:
        workers = 3
        while max(curve(run.run)) < 0.8 * options.steps:
            wanted = [event for event, fits in ((KILL, workers > 1), (STOP, workers > 1), (LEAVE, workers > 1),
                                                (JOIN, workers < 4)) if fits]
            event = draw.choice(wanted)
            seconds, world = run.disturb(event, draw)
            figures.append((strategy, event, seconds, world["repeated"]))
            print(f"{strategy}: {event}: {workers} -> {world['workers']} workers, {seconds:.1f} s, "
                  f"{world['repeated']} steps again", flush=True)
            if world["workers"] != workers + (1 if event == JOIN else -1) or seconds > LONGEST:
                raise RuntimeError("unexpected")
            workers = world["workers"]
        run.end()
        ours = curve(run.run)
        if set(ours) != set(undisturbed):
            raise RuntimeError("steps are missing")
        worst = max(abs(ours[step] - undisturbed[step]) for step in ours)
        print(f"{strategy}: largest difference of a loss: {worst:.1e}", flush=True)
        if worst > 1e-4:
            raise RuntimeError("another curve")
    except BaseException:
        run.kill()
        print(f"FAILED under {strategy}: see {folder}", file=sys.stderr)
        raise


def main():
    parser = argparse.ArgumentParser(description="Disturbs runs with changing workers at random.")
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("--minutes", type=float, default=5, metavar="M")
    parser.add_argument("--strategies", default="dp,owt-a,owt-c,owt-d,mp,dp-zero", metavar="NAME,...")
    parser.add_argument("--steps", type=int, default=20000, metavar="N", help="of a round")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--out", metavar="DIR", help="of the runs (default: a new folder)")
    options = parser.parse_args()

    out = options.out or tempfile.mkdtemp(prefix="elastic_soak-")
    os.environ["OMP_NUM_THREADS"] = "1"
    alone = os.path.join(out, "undisturbed")
    subprocess.run([*command(options, alone, options.steps, "dp"), "--workers", "1"], check=True, capture_output=True)
    undisturbed, figures, draw = curve(alone), [], random.Random(options.seed)
    end, number = time.monotonic() + 60 * options.minutes, 0
    names = options.strategies.split(",")
    while time.monotonic() < end:
        strategy = names[number % len(names)]
        one_round(options, os.path.join(out, f"round-{number}"), strategy, draw, undisturbed, figures)
        number += 1
    print(f"\n{number} rounds, {len(figures)} events\n\n| event | number | median s | longest s | most steps again |\n"
          "|---|---|---|---|---|")
    for event in (KILL, STOP, LEAVE, JOIN):
        of_event = [figure for figure in figures if figure[1] == event]
        if of_event:
            seconds = [figure[2] for figure in of_event]
            print(f"| {event} | {len(of_event)} | {statistics.median(seconds):.1f} | {max(seconds):.1f} "
                  f"| {max(figure[3] for figure in of_event)} |")


if __name__ == "__main__":
    main()
