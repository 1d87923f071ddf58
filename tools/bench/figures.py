#!/usr/bin/python3
"""Draws tables of docs/measurements: the pictures of docs/images that show measurements.

    usage: figures.py [--pages DIR] [--out DIR] [--only NAME,...]

A cell is a mean, or a mean and a deviation ("3.94 +- 0.17"); text after it is ignored. "never" is a gap.
Wants matplotlib (Debian: python3-matplotlib).
"""
import argparse
import csv
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class Table:
    """A table of the page: the cells of its head, and of each of its rows."""

    def __init__(self, head, rows):
        self.head, self.rows = head, rows


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def table_of(page, heading, *first):
    """The first table under `heading` whose head begins with these cells."""
    with open(page, encoding="utf-8") as file:
        lines = file.read().splitlines()
    try:
        at = next(i for i, line in enumerate(lines) if re.fullmatch("#+ " + re.escape(heading), line))
        at = next(i for i in range(at, len(lines)) if lines[i].startswith("|") and tuple(cells(lines[i])[:len(first)]) == first)
    except StopIteration:
        sys.exit(f"figures.py: error: {page} has no table '{' | '.join(first)}' under '{heading}'")
    end = next((i for i in range(at, len(lines)) if not lines[i].startswith("|")), len(lines))
    return Table(cells(lines[at]), [cells(line) for line in lines[at + 2:end]])


def mean_and_deviation(cell):
    found = re.match(r"(-?[\d.]+)(?: \+- ([\d.]+))?", cell)
    return (float(found[1]), float(found[2] or 0)) if found else (float("nan"), 0)


def draw_line(axes, xs, row, label, **look):
    means, deviations = zip(*map(mean_and_deviation, row))
    look = {"marker": "o", "markersize": 3, "linewidth": 1.2, "capsize": 2} | look
    return axes.errorbar(xs, means, yerr=deviations, label=label, **look)


def batches_of(table):
    return [int(name.split()[1]) for name in table.head[1:]]


def large_batches(pages, figure):
    page = os.path.join(pages, "large_batches.md")
    short = table_of(page, "Large batches", "error in %, 5 epochs (rate)")
    long = table_of(page, "Large batches", "error in %, 20 epochs (rate)")
    axes = figure.subplots()
    colours = {}
    for row in short.rows:
        colours[row[0]] = draw_line(axes, batches_of(short), row[1:], row[0]).lines[0].get_color()
    for row in long.rows:
        draw_line(axes, batches_of(long), row[1:], None, marker="s", markersize=5, linestyle="", color=colours[row[0]],
                  markerfacecolor="white")
    axes.errorbar([], [], marker="s", markersize=5, linestyle="", color="grey", markerfacecolor="white",
                  label="after 20 epochs")
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches_of(short), [str(batch) for batch in batches_of(short)])
    axes.set_xlabel("images of a step")
    axes.set_ylabel("error after 5 epochs, %")
    axes.set_ylim(0, 100)
    axes.legend(frameon=False)


def delays(pages, figure):
    with open(os.path.join(pages, "tables", "delays.csv"), encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    table = Table(head[1:], [row[1:] for row in rows if row[0] == "cifar10_quick"])
    left, right = figure.subplots(1, 2)
    all_workers = list(dict.fromkeys(row[0] for row in table.rows))
    names = list(dict.fromkeys(row[1] for row in table.rows))
    for axes, column, label in ((left, "idle, %", "time that a worker waits for others, %"),
                                (right, "simulated seconds", "simulated seconds to the loss")):
        at = table.head.index(column)
        for workers in all_workers:
            draw_line(axes, range(len(names)), [row[at] for row in table.rows if row[0] == workers],
                      f"{workers} workers")
        axes.set_xticks(range(len(names)), names)
        axes.set_xlabel("delay")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
    left.legend(frameon=False)


def glyphs(pages, figure):
    with open(os.path.join(pages, "tables", "glyphs.csv"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    loss, top1 = figure.subplots(1, 2)
    colours = {"owt": "tab:blue", "PyTorch": "tab:orange"}
    lines = {"glyphs_1k": ("--", "1,000 classes"), "glyphs_41k": ("-", "40,959 classes")}
    for recipe, program, seed in dict.fromkeys((row["recipe"], row["program"], row["seed"]) for row in rows):
        curve = [row for row in rows if (row["recipe"], row["program"], row["seed"]) == (recipe, program, seed)]
        style, classes = lines[recipe]
        look = {"color": colours[program], "linestyle": style, "linewidth": 1,
                "label": f"{program}, {classes}" if seed == "1" else None}
        steps = [int(row["step"]) for row in curve]
        loss.plot(steps, [float(row["loss"]) for row in curve], **look)
        top1.plot(steps, [100 * float(row["top1"]) for row in curve], **look)
    for axes, label in ((loss, "training loss"), (top1, "top-1 in training, %")):
        axes.set_xscale("log")
        axes.set_xlim(left=20)
        axes.set_xlabel("step of 256 images")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
    loss.set_ylim(top=17)  # room for the legend
    loss.legend(frameon=False, loc="upper right")


FIGURES = {"large-batches": (large_batches, 5.5), "async-delay": (delays, 8), "glyphs": (glyphs, 8)}  # and how wide they are, in inches


def main():
    parser = argparse.ArgumentParser(description="Draws tables of docs/measurements.")
    parser.add_argument("--pages", default=os.path.join(ROOT, "docs", "measurements"), metavar="DIR")
    parser.add_argument("--out", default=os.path.join(ROOT, "docs", "images"), metavar="DIR")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(FIGURES), metavar="NAME,...")
    options = parser.parse_args()
    if unknown := set(options.only) - set(FIGURES):
        parser.error(f"no figure '{unknown.pop()}'; there are {', '.join(FIGURES)}")
    try:
        import matplotlib
    except ImportError:
        sys.exit("figures.py: error: there is no matplotlib; install what Debian calls python3-matplotlib")
    matplotlib.use("svg")
    matplotlib.rcParams.update({"font.size": 9, "svg.hashsalt": "owt", "svg.fonttype": "none"})  # the same bytes every time
    import matplotlib.pyplot

    for name in options.only:
        draw, width = FIGURES[name]
        figure = matplotlib.pyplot.figure(figsize=(width, 3.2), layout="constrained")
        draw(options.pages, figure)
        figure.savefig(os.path.join(options.out, name + ".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
