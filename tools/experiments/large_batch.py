#!/usr/bin/python3
"""The error on CIFAR-10 with large batches after equally many epochs, for several recipes.

    usage: large_batch.py --owt PROGRAM --data DIR [--out DIR] [--epochs E] [--seeds N,N,...] [--batches B,B,...]
                          [--recipes NAME,NAME,...] [--precision NAME] [--rate RECIPE:BATCH=RATE,...] [--held-out
                          SHARE]
           large_batch.py --rounds ... [--workers K,K,...]

The first form trains cifar10_vgg with one worker. Recipes: `nothing` keeps the learning rate of batch 128; `linear`
multiplies it by batch / 128; `warm-up` also begins with a fifth of the epochs from 0 (Goyal et al. 2017); `lars` (You
et al. 2017) and `rmsprop` (Akiba et al. 2017) are as in docs/recipes.md, LARS with the same warm-up. --rate sets a
recipe's learning rate at a batch. To choose it use --held-out 0.1, which evaluates on held-out training images.

The second form, --rounds, trains cifar10_quick with K workers and 128 images each under owt-b, with K times its
learning rate. The dense layers are updated after each of K rounds with their own rate, (m, 128) in the One Weird
Trick paper, or once a step, (m, m). Runs that are in --out already are not repeated. Prints a Markdown table.
"""
import argparse
import os
import sys

import accuracy_runs
from accuracy_runs import numbers, percent, table
from commands import end_with_commands

SMALL = 128  # the batch for which the learning rate is chosen
RATE = 0.05
RECIPES = ["nothing", "linear", "warm-up", "lars", "rmsprop"]
LARS_RATE = 2.0  # for batch 128; grows with the square root of the batch


def keys_of_recipe(recipe, batch, epochs):
    factor = batch / SMALL
    linear = {"optimizer.learning_rate": RATE * factor}
    if recipe == "nothing":
        return {"optimizer.learning_rate": RATE}
    if recipe == "linear":
        return linear
    warm_up = {"schedule.warmup_epochs": epochs / 5}
    if recipe == "warm-up":
        return linear | warm_up
    if recipe == "lars":
        return {"optimizer.type": "lars", "optimizer.learning_rate": LARS_RATE * factor ** 0.5} | warm_up
    # In 90 epochs the paper takes 10 until both rules have equal shares, and 5 more.
    return linear | {"optimizer.type": "rmsprop_warmup", "optimizer.center": epochs / 9,
                     "optimizer.period": epochs / 18}


def common_keys(options, seed):
    return {"schedule.epochs": options.epochs, "run.seed": seed, "run.equality_every": 0,
            "run.precision": options.precision} | (
                {"data.validation": options.held_out} if options.held_out else {})


def errors(options, name, config, keys, words=()):
    """The error of each seed's run, as a fraction."""
    found = []
    for seed in options.seeds:
        folder = os.path.join(options.out, f"{name}-{seed}")
        line = accuracy_runs.command(options, accuracy_runs.config(config), common_keys(options, seed) | keys, words)
        evaluations = accuracy_runs.train(folder, line, options.epochs)
        found.append(1 - evaluations[-1]["top1"])
        print(f"{name}, seed {seed}: {100 * found[-1]:.2f} %", file=sys.stderr)
    return found


def batch_table(options):
    rows = []
    for recipe in options.recipes:
        cells = []
        for batch in options.batches:
            # With micro-batches of 128 rows batch norm uses as many rows at every batch size, like with that many
            # workers.
            keys = {"data.batch": batch, "data.accumulate": batch // SMALL} | keys_of_recipe(recipe, batch, options.epochs)
            rate = options.rates.get((recipe, batch), keys["optimizer.learning_rate"])
            keys["optimizer.learning_rate"] = rate
            # At batch 128 the two are the same recipe.
            name = "nothing" if recipe == "linear" and batch == SMALL else recipe
            cells.append(f"{percent(errors(options, f'{name}-{batch}-{rate:g}', 'cifar10_vgg', keys))} ({rate:g})")
        rows.append([recipe, *cells])
    return table(["error in % (rate)", *(f"batch {batch}" for batch in options.batches)], rows)


def rounds_table(options):
    rows = []
    for workers in options.workers:
        words = ["--workers", str(workers), "--parallel", "owt-b"]
        cells = []
        for update in ("round", "step"):
            keys = {"data.batch": SMALL * workers, "parallel.dense_update": update, "parallel.scale_lr": "linear",
                    "schedule.milestones": f"[{0.8 * options.epochs:g}]"}
            cells.append(percent(errors(options, f"{update}-{workers}", "cifar10_quick", keys, words)))
        rows.append([str(workers), *cells])
    return table(["K", "error in %, (128 K, 128)", "(128 K, 128 K)"], rows)


def rates(text):
    pairs = (each.split("=") for each in text.split(",") if each)
    return {(recipe, int(batch)): float(rate) for (recipe, batch), rate in
            ((name.split(":"), rate) for name, rate in pairs)}


def words(text):
    return text.split(",")


def main():
    parser = argparse.ArgumentParser(description="What large batches cost on CIFAR-10, and what keeps the level.")
    parser.add_argument("--owt", required=True, metavar="PROGRAM")
    parser.add_argument("--data", required=True, metavar="DIR", help="of CIFAR-10")
    parser.add_argument("--out", default="large_batch", metavar="DIR", help="of the runs")
    parser.add_argument("--epochs", type=int, default=10, metavar="E")
    parser.add_argument("--seeds", type=numbers, default=[1, 2, 3], metavar="N,N,...")
    parser.add_argument("--batches", type=numbers, default=[128, 512, 2048, 8192], metavar="B,B,...")
    parser.add_argument("--recipes", type=words, default=RECIPES, metavar="NAME,NAME,...")
    parser.add_argument("--precision", default="fp32", metavar="NAME")
    parser.add_argument("--rate", type=rates, default={}, dest="rates", metavar="RECIPE:BATCH=RATE,...",
                        help="rates other than the rule's")
    parser.add_argument("--held-out", type=float, default=0, metavar="SHARE",
                        help="of the training images, which are evaluated instead of the test images")
    parser.add_argument("--rounds", action="store_true", help="compare (m, 128) with (m, m) instead")
    parser.add_argument("--workers", type=numbers, default=[4, 8], metavar="K,K,...", help="with --rounds")
    options = parser.parse_args()
    for recipe in options.recipes:
        if recipe not in RECIPES:
            parser.error(f"no recipe is named '{recipe}'; there are {', '.join(RECIPES)}")

    end_with_commands()
    os.makedirs(options.out, exist_ok=True)
    print(rounds_table(options) if options.rounds else batch_table(options))


if __name__ == "__main__":
    main()
