#!/usr/bin/python3
"""Accuracy and loss on CIFAR-10 under the schedules of a pipeline, after equally many updates.

    usage: pipeline_accuracy.py --owt PROGRAM --data DIR [--out DIR] [--config FILE] [--stages S] [--epochs E]
                                [--seeds N,N,...] [--schedules NAME,NAME,...] [--rows R] [--in-flight M]
                                [--rate SCHEDULE=RATE,...]

Every update uses a mini-batch of R rows. Under 1f1b a step is one mini-batch in a single micro-batch, so that batch
norm sees the same rows under all schedules. Under the others a step is M mini-batches, with an update for each.
Stages are threads of one process. Runs that are in --out already are not repeated. Prints Markdown tables.
"""
import argparse
import os
import sys

import accuracy_runs
from accuracy_runs import mean, numbers, percent, table
from commands import end_with_commands

SCHEDULES = "1f1b,vanilla,pipedream,spectrain,spectrain2"


def train(options, schedule, seed):
    """The evaluations of a run, epoch by epoch."""
    flush = schedule == "1f1b"
    updates = 1 if flush else options.in_flight
    keys = {"pipeline.schedule": schedule, "pipeline.micro_batches": updates, "data.batch": updates * options.rows,
            "schedule.epochs": options.epochs, "run.seed": seed, "run.equality_every": 0, "run.log_every": 1}
    if schedule in options.rates:
        keys["optimizer.learning_rate"] = options.rates[schedule]
    words = ["--workers", str(options.stages), "--parallel", "pipeline", "--threads", "1"]
    return accuracy_runs.train(os.path.join(options.out, f"{schedule}-{seed}"),
                               accuracy_runs.command(options, options.config, keys, words), options.epochs)


def accuracy_row(schedule, runs):
    last = [evaluations[-1]["top1"] for evaluations in runs]
    return [schedule, *(f"{100 * top1:.2f} %" for top1 in last), percent(last),
            f"{mean([evaluations[-1]['loss'] for evaluations in runs]):.4f}"]


def rates(text):
    return {name: float(rate) for name, rate in (each.split("=") for each in text.split(",") if each)}


def main():
    parser = argparse.ArgumentParser(description="What the schedules of a pipeline learn on CIFAR-10.")
    parser.add_argument("--owt", required=True, metavar="PROGRAM")
    parser.add_argument("--data", required=True, metavar="DIR", help="of CIFAR-10")
    parser.add_argument("--out", default="pipeline_accuracy", metavar="DIR", help="of the runs")
    parser.add_argument("--config", default=accuracy_runs.config("cifar10_vgg"), metavar="FILE")
    parser.add_argument("--stages", type=int, default=4, metavar="S")
    parser.add_argument("--epochs", type=int, default=8, metavar="E")
    parser.add_argument("--seeds", type=numbers, default=[1, 2, 3], metavar="N,N,...")
    parser.add_argument("--schedules", type=lambda text: text.split(","), default=SCHEDULES.split(","),
                        metavar="NAME,NAME,...")
    parser.add_argument("--rows", type=int, default=125, metavar="R", help="of a mini-batch")
    parser.add_argument("--in-flight", type=int, default=40, metavar="M", help="mini-batches of a step without a flush")
    parser.add_argument("--rate", type=rates, default={}, dest="rates", metavar="SCHEDULE=RATE,...",
                        help="learning rates other than the recipe's")
    options = parser.parse_args()

    end_with_commands()
    os.makedirs(options.out, exist_ok=True)
    runs = {schedule: [] for schedule in options.schedules}
    for seed in options.seeds:
        for schedule in options.schedules:
            runs[schedule].append(train(options, schedule, seed))
            print(f"{schedule}, seed {seed}: {100 * runs[schedule][-1][-1]['top1']:.2f} %", file=sys.stderr)

    seeds = [f"seed {seed}" for seed in options.seeds]
    print(table(["schedule", *seeds, "top-1, mean +- deviation", "test loss"],
                [accuracy_row(schedule, runs[schedule]) for schedule in options.schedules]))
    updates = runs[options.schedules[0]][0][-1]["step"] // options.epochs
    if options.schedules[0] != "1f1b":
        updates *= options.in_flight
    print("\nTest loss after so many updates, mean of the seeds:\n")
    print(table(["schedule", *(str(updates * (epoch + 1)) for epoch in range(options.epochs))],
                [[schedule, *(f"{mean([each[epoch]['loss'] for each in runs[schedule]]):.3f}"
                              for epoch in range(options.epochs))] for schedule in options.schedules]))


if __name__ == "__main__":
    main()
