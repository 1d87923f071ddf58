#!/usr/bin/env python3
"""Prints where the time of tools/test.sh went: the seconds of each group of compilations and of test entries, and the
longest of each group.

  usage: tests/support/seconds.py [BUILD]      default: build

BUILD must have been built from empty, without ccache, and tested with ctest. Two jobs run at once, and up to one test
more than cores, so the groups add up to more than the time that passed."""
import pathlib
import re
import sys

# The first pattern that is found in the name of a file names its group.
COMPILATIONS = {r"_least": "program for the lowest processor level",
                r"tests/simulated_gpu/.*\.(o|a)$": "simulated GPU: kernels, simulator, tests",
                r"\.cu\.o$": "CUDA files",
                r"tests/.*\.(o|gch)$": "tests",
                r"\.o$": "C++ files of the program",
                r"": "linking and the rest"}
TESTS = {r"^simulated_gpu/": "simulated GPU",
         r"^(device_code|cudnn|tools/gpu_check)": "nvcc, cuDNN and the scripts for a GPU",
         r"^tools/\d": "command line",
         r"^tools/": "shell tests",
         r"^(mpi|tcp|nccl)/": "processes",
         r"": "libraries on the CPU"}


def compilations(build):
    """(file, seconds) of each output of ninja."""
    latest = {}
    for line in (build / ".ninja_log").read_text().splitlines()[1:]:
        begin, end, _, output, _ = line.split("\t")
        latest[output] = (int(end) - int(begin)) / 1000
    return latest.items()


def tests(build):
    """(entry, seconds) of each test of the last ctest."""
    log = (build / "Testing/Temporary/LastTest.log").read_text(errors="replace")
    return re.findall(r"^\d+/\d+ Test: (\S+)$.*?^Test time = +([\d.]+) sec$", log, re.MULTILINE | re.DOTALL)


def table(title, rows, groups):
    found = {name: [] for name in groups.values()}
    for row, seconds in rows:
        group = next(name for pattern, name in groups.items() if re.search(pattern, row))
        found[group].append((float(seconds), row))
    print(f"{title:<42} {'s':>5}   longest")
    for name, members in sorted(found.items(), key=lambda item: -sum(seconds for seconds, _ in item[1])):
        longest = ", ".join(f"{short(row)} {seconds:.0f}" for seconds, row in sorted(members, reverse=True)[:3])
        print(f"{name:<42} {sum(seconds for seconds, _ in members):5.0f}   {longest}")


def short(row):
    """Without the folders and endings that CMake adds: tests/CMakeFiles/data_test_objects.dir/Unity/unity_1_cxx.cxx.o
    becomes data_test_objects 1."""
    target = re.search(r"(?:^|/)CMakeFiles/([^/]+)\.dir/(.*)$", row)
    if not target:
        return row
    number = re.search(r"_(\d+)[_.]", target[2])
    return f"{target[1]} {number[1]}" if number else target[1]


folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build")
if folder.name in ("-h", "--help"):
    sys.exit(__doc__)
table("compiling", compilations(folder), COMPILATIONS)
print()
table("tests", tests(folder), TESTS)
