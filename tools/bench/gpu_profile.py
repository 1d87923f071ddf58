#!/usr/bin/python3
"""The time of each kernel in a training step on a GPU, by Nsight Compute (ncu) or, if ncu is missing or not permitted,
Nsight Systems (nsys).

    usage: gpu_profile.py --owt PROGRAM [--cases MODEL:BATCH:PRECISION,...] [--limit SECONDS] [--out DIR]
                          [--results FILE]

The steps are launched kernel by kernel, without a recorded graph. Whole steps are counted, from one loss to the next.
Prints for each kernel of a step: launches, microseconds, and from ncu megabytes of DRAM, GB/s and millions of
instructions. Adds the same to the file of --results. DIR gets the tables of the tools. If no tool works, it reports
the reason, and prints the times of the layers that owt measures between events. Exit status: 0 kernels were profiled,
77 none were, 1 not even layers.
"""
import collections
import csv
import io
import math
import pathlib
import sys
import tempfile
import time

import commands
from gpu_compare import FILES, LEFT_OUT, machine_of, owt_times, parser_of, version_of
from results import Results

# The first launches belong to start and warm-up. In two steps and a bit one is whole.
SKIPPED_LAUNCHES, LAUNCHES, STEPS, COUNTED_STEPS = 300, 200, 12, 2.2
LOSS = "softmax_rows"  # part of the name of a kernel that every step runs once
MOST_SECONDS = 60  # limit for one tool on one case
SHORTEST = 10  # remaining seconds below which no case is started
COUNTERS = ("gpu__time_duration.sum", "dram__bytes.sum", "sm__inst_executed.sum")


def owt_command(options, case):
    return [options.owt, "time", str(FILES[case.model]), "--device", options.device, "--precision", case.precision,
            "--steps", str(STEPS), "--set", f"data.batch={case.batch}", "--set", "run.cuda_graph=false"]


def run(command, seconds):
    """(exit status, output); the status is None after the time limit."""
    with tempfile.NamedTemporaryFile("r", errors="replace") as log:
        return commands.run(command, seconds, log.name), log.read()


def rows_of(text, column):
    """The rows of a CSV table with this column; lines before the table are skipped."""
    lines = text.splitlines()
    head = next((i for i, line in enumerate(lines) if column in line and not line.startswith("==")), len(lines))
    return list(csv.DictReader(io.StringIO("\n".join(lines[head:]))))


def number(text):
    return float(text.replace(",", "") or 0)


def ncu_launches(tool, options, case, file, seconds):
    """(kernel, us, MB, millions of instructions) of each launch, and ncu's message if there are none."""
    table = file.with_suffix(".ncu.csv")
    of_step = len(case.step()["launches"])
    status, said = run([tool, "--clock-control", "none", "--metrics", ",".join(COUNTERS), "--launch-skip",
                        str(max(SKIPPED_LAUNCHES, of_step)), "--launch-count",
                        str(max(LAUNCHES, math.ceil(COUNTED_STEPS * of_step))), "--csv", "--page", "raw",
                        "--print-units", "base", "--log-file", str(table), *owt_command(options, case)], seconds)
    text = table.read_text(errors="replace") if table.exists() else ""
    launches = [(row["Kernel Name"], number(row[COUNTERS[0]]) / 1e3, number(row[COUNTERS[1]]) / 1e6,
                 number(row[COUNTERS[2]]) / 1e6)
                for row in rows_of(text, "Kernel Name") if (row.get("ID") or "").isdigit()]
    return launches, reason("ncu", status, said + text)


def nsys_launches(tool, options, case, file, seconds):
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = f"{folder}/report"
        status, said = run([tool, "profile", "--trace", "cuda", "--output", report, *owt_command(options, case)],
                           seconds)
        if status != 0:
            return [], reason("nsys", status, said)
        status, text = run([tool, "stats", "--report", "cuda_gpu_trace", "--format", "csv", f"{report}.nsys-rep"],
                           seconds - (time.monotonic() - begin))
    file.with_suffix(".nsys.csv").write_text(text)
    launches = [(row["Name"], number(row["Duration (ns)"]) / 1e3, 0.0, 0.0) for row in rows_of(text, "Duration (ns)")]
    return launches[SKIPPED_LAUNCHES:], reason("nsys", status, text)


def reason(tool, status, said):
    lines = [line for line in said.splitlines() if "ERROR" in line or "rror:" in line or "ailed" in line]
    ended = "its time was up" if status is None else f"it ended with status {status}"
    return f"{tool}: {lines[0].strip() if lines else ended}"


def per_step(launches):
    """For each kernel [launches, us, MB, millions of instructions] of a step, longest first; empty without a whole
    step."""
    losses = [i for i, launch in enumerate(launches) if LOSS in launch[0]]
    if len(losses) < 2:
        return {}
    sums = collections.defaultdict(lambda: [0, 0.0, 0.0, 0.0])
    for name, *counted in launches[losses[0]:losses[-1]]:
        sums[name] = [a + b for a, b in zip(sums[name], [1, *counted])]
    steps = len(losses) - 1
    return {name: [value / steps for value in sums[name]] for name in sorted(sums, key=lambda name: -sums[name][1])}


def show(case, kernels, tool):
    total = sum(us for _, us, _, _ in kernels.values())
    print(f"{case}, by {tool}: {sum(each[0] for each in kernels.values()):.0f} launches, {total:.0f} us\n"
          f"{'launches':>9} {'us':>9} {'share, %':>9} {'MB':>9} {'GB/s':>7} {'M instr.':>9}  kernel")
    for name, (count, us, megabytes, instructions) in kernels.items():
        print(f"{count:>9.1f} {us:>9.1f} {100 * us / total:>9.1f} {megabytes:>9.1f} {1e3 * megabytes / us:>7.0f} "
              f"{instructions:>9.2f}  {name[:120]}")


def facts_of(options, case):
    return dict(model=case.model, batch=case.batch, precision=case.precision, machine=options.machine,
                program=options.version)


def profile(options, case, results):
    """Whether kernels were profiled, and the reasons if not."""
    refused = []
    options.out.mkdir(parents=True, exist_ok=True)
    for name, launches_of in (("ncu", ncu_launches), ("nsys", nsys_launches)):
        tool, left = commands.find_tool(name), options.deadline - time.monotonic()
        if tool is None:
            refused.append(f"{name} is not installed")
            continue
        if left < SHORTEST:
            refused.append(f"{name}: no time left")
            continue
        launches, said = launches_of(tool, options, case, options.out / f"{case.model}-{case.batch}",
                                     min(left, MOST_SECONDS))
        kernels = per_step(launches)
        if kernels:
            for kernel, (count, us, megabytes, instructions) in kernels.items():
                results.add(kind="kernel", **facts_of(options, case), tool=name, kernel=kernel,
                            launches=count, us=us, dram_mb=megabytes, million_instructions=instructions)
            show(case, kernels, name)
            return True, refused
        refused.append(said if not launches else f"{name}: no whole step among {len(launches)} launches")
    return False, refused


def show_layers(options, case, results):
    """Prints the times of layers between events; returns whether there are any."""
    result = owt_times(options, case, max(options.deadline - time.monotonic(), 1), ["run.cuda_graph=false"])
    for name, ms in result.get("rows", {}).items():
        results.add(kind="layer", **facts_of(options, case), layer=name, ms=ms)
        print(f"{1e3 * ms:>9.1f} us  {name}")
    if "error" in result:
        print(f"{case}: {result['error']}")
    return "rows" in result


def read_options():
    parser = parser_of("Where the time of a training step on a GPU goes, kernel by kernel.")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("profile"), metavar="DIR")
    options = parser.parse_args()
    options.deadline = time.monotonic() + options.limit
    options.machine, options.version = machine_of(options), version_of(options)
    return options


def main():
    options = read_options()
    commands.end_with_commands()
    results, profiled, all_refused, status = Results(options.results), 0, {}, 0
    for case in options.cases:
        if options.deadline - time.monotonic() < SHORTEST:
            all_refused[f"no time for {case}"] = None
            continue
        good, refused = (False, ["wants a GPU"]) if options.device == "cpu" else profile(options, case, results)
        profiled += good
        if not good:
            all_refused |= dict.fromkeys(refused)  # unique, in order
            if not show_layers(options, case, results):
                status = 1
    print("; ".join([f"kernels of {profiled} of {len(options.cases)} cases", *all_refused]))
    sys.exit(status or (0 if profiled else LEFT_OUT))


if __name__ == "__main__":
    main()
