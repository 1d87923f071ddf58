#!/usr/bin/python3
"""Compares the speed of two builds of owt, e.g. before and after a change.

    usage: compare_versions.py --old PROGRAM --new PROGRAM [--model NAME,...] [--precision fp32,bf16] [--threads T]
                               [--evaluate] [--repeats R] [--steps-times N]

Every turn runs the old program, the new one, and the old one again; every other turn swaps old and new. The two runs
of the old program show the noise of the machine. Prints a Markdown table: milliseconds of a step (medians over all
turns); the median of the turns' ratios old / new (above 1: the new one is faster), minimum and maximum; and the same
for the old program's two runs, as old / old.
"""
import argparse
import pathlib
import statistics

from owt_time import MODELS, owt_step, spread


def case(text):
    """Name, file, rows of a step and timed steps, of one of MODELS or of FILE:BATCH:STEPS."""
    if text in MODELS:
        return text, *MODELS[text]
    try:
        file, batch, steps = text.rsplit(":", 2)
        return pathlib.Path(file).stem, file, int(batch), int(steps)
    except ValueError:
        known = ", ".join(MODELS)
        raise argparse.ArgumentTypeError(f"no model '{text}'; there are {known}, or FILE:BATCH:STEPS") from None


def main():
    several = lambda text: text.split(",")
    parser = argparse.ArgumentParser(description="Speed of two builds of owt against each other.")
    parser.add_argument("--old", required=True, metavar="PROGRAM")
    parser.add_argument("--new", required=True, metavar="PROGRAM")
    parser.add_argument("--model", type=lambda text: [case(each) for each in several(text)], metavar="NAME,...",
                        default="cifar10_quick,alexnet,resnet18,vgg16,cifar10_94",
                        help=f"of {', '.join(MODELS)}; or FILE:BATCH:STEPS, where the old program has none")
    parser.add_argument("--precision", type=several, default=["bf16", "fp32"], metavar="NAME,...")
    parser.add_argument("--threads", type=int, metavar="T", default=2)
    parser.add_argument("--evaluate", action="store_true", help="forward and loss only")
    parser.add_argument("--repeats", type=int, metavar="R", default=8, help="turns")
    parser.add_argument("--steps-times", type=int, metavar="N", default=1, help="N times as many steps in each run")
    options = parser.parse_args()

    print("| net, batch | precision | old, ms | new, ms | old / new | old / old |\n" + "|---" * 6 + "|", flush=True)
    for model, config, batch, steps in options.model:
        steps *= options.steps_times * (3 if options.evaluate else 1)
        for precision in options.precision:
            more = ["--device", "cpu", "--precision", precision] + ["--evaluation"] * options.evaluate
            step = lambda program: owt_step(program, config, batch, steps, options.threads, *more)[0]
            old, new, again = [], [], []
            for turn in range(options.repeats):
                of_turn = [(old, options.old), (new, options.new), (again, options.old)]
                for times, program in of_turn if turn % 2 == 0 else reversed(of_turn):
                    times.append(step(program))
            # The new program ran between the two runs of the old one; their mean is an estimate for that time.
            before = [(a + b) / 2 for a, b in zip(old, again)]
            print(f"| {model}, {batch} | {precision} | {statistics.median(old + again):.2f} | "
                  f"{statistics.median(new):.2f} | {spread([b / n for b, n in zip(before, new)], 3)} | "
                  f"{spread([a / b for a, b in zip(old, again)], 3)} |", flush=True)


if __name__ == "__main__":
    main()
