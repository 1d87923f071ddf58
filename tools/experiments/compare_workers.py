#!/usr/bin/python3
"""Compares the speed of K workers with one thread each and of one worker with K threads, at the same batch.

    usage: compare_workers.py --owt PROGRAM [--model cifar10_quick|alexnet] [--batch N] [--workers K]
                              [--parallel NAME] [--repeats R]

The two alternate. Prints the median of each over all turns, minimum and maximum, and the ratio of images per second.
"""
import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
from owt_time import MODELS, owt_step, spread  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description="Speed of several workers against one with as many threads.")
    parser.add_argument("--owt", required=True, metavar="PROGRAM")
    parser.add_argument("--model", choices=sorted(MODELS), default="cifar10_quick")
    parser.add_argument("--batch", type=int, metavar="N", help="rows of a step (default: 128, AlexNet 64)")
    parser.add_argument("--workers", type=int, metavar="K", default=2)
    parser.add_argument("--parallel", metavar="NAME", default="owt-a", help="strategy of the workers")
    parser.add_argument("--repeats", type=int, metavar="R", default=7, help="turns of each")
    options = parser.parse_args()

    config, batch, steps = MODELS[options.model]
    batch, count = options.batch or batch, options.workers
    workers = ["--workers", str(count), "--parallel", options.parallel]
    one, several = [], []
    for _ in range(options.repeats):
        one.append(owt_step(options.owt, config, batch, steps, count)[0])
        several.append(owt_step(options.owt, config, batch, steps, count, *workers)[0])
    print(f"{options.model}, batch {batch}, {count} cores, fp32, {options.repeats} turns of {steps} steps")
    print(f"  1 worker, {count} threads: {spread(one)} ms per step")
    print(f"  {count} workers, 1 thread each, {options.parallel}: {spread(several)} ms per step")
    print(f"  workers / threads: {spread([a / b for a, b in zip(one, several)], 3)} x images/s")


if __name__ == "__main__":
    main()
