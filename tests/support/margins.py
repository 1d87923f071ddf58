#!/usr/bin/env python3
"""Prints the bounds that tests come closest to, from the output of runs with OWT_TEST_MARGINS=1.

  usage: margins.py [--all] LOG...      the ten tightest; --all: all that are tighter than 0.1

Each line: TIGHTNESS KIND VALUE BOUND FILE:LINE TEST. The tightness of
  error   is the largest VALUE / BOUND;
  order   (EXPECT_LT and the like) is the largest difference of VALUE or BOUND between runs, divided by the smallest
          distance of VALUE from BOUND;
  claim   is computed like that of an order: errors that are no rounding errors (margins.txt).
Errors that margins.txt calls exact are left out."""

import collections
import fnmatch
import os
import re
import sys

LINE = re.compile(r"^margin (error|order) (\S+) (\S+) (\S+) (tests/\S+) (.+)$", re.M)


def known():
    with open(os.path.join(os.path.dirname(__file__), "margins.txt"), encoding="utf-8") as file:
        rows = [line.split(None, 2) for line in file if line.strip() and not line.startswith("#")]
    return [(kind, pattern) for kind, pattern, _ in rows]


def kind_of(kind, place, test, rows):
    name = f"{place.split(':')[0]}:{test}"
    return next((said for said, pattern in rows if fnmatch.fnmatchcase(name, pattern)), kind)


def tightness(kind, found):
    shares, values, bounds = zip(*found)
    if kind == "error":
        return max(shares)
    spread = max(max(numbers) - min(numbers) for numbers in (values, bounds))
    slack = min(abs(bound - value) for value, bound in zip(values, bounds))
    return spread and (spread / slack if slack else float("inf"))


def main(arguments):
    found = collections.defaultdict(list)
    for log in [each for each in arguments if each != "--all"]:
        with open(log, encoding="utf-8", errors="replace") as file:
            for kind, share, value, bound, place, test in LINE.findall(file.read()):
                found[kind, place, test].append((float(share), float(value), float(bound)))
    rows, lines = known(), []
    for (kind, place, test), margins in found.items():
        kind = kind_of(kind, place, test, rows)
        if kind != "exact":
            _, value, bound = max(margins)
            lines.append((tightness(kind, margins), f"{kind} {value:g} {bound:g} {place} {test}"))
    lines.sort(reverse=True)
    for tight, text in [line for line in lines if line[0] > 0.1] if "--all" in arguments else lines[:10]:
        print(f"{tight:.3f} {text}")


if __name__ == "__main__":
    main(sys.argv[1:])
