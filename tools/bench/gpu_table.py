#!/usr/bin/python3
"""Adds every time in results of tools/gpu_check.sh to a CSV table: of each step, each of owt's layers and each kernel.

    usage: gpu_table.py RESULTS [TABLE]           e.g. gpu_table.py gpu-check/results.jsonl

TABLE is docs/measurements/tables/gpu_layers.csv by default. Rows that it has already are not added again. Prints the
number of rows added.
"""
import csv
import pathlib
import sys

from results import Results

TABLE = pathlib.Path(__file__).resolve().parents[2] / "docs/measurements/tables/gpu_layers.csv"
HEAD = ["when", "gpu", "program", "net", "batch", "precision", "engine", "changed", "kind", "name", "ms"]


def times_of(record):
    """(what was changed, kind, name, milliseconds a step) of each time in a record."""
    kind, changed = record.get("kind"), record.get("variant", "")
    if kind in ("speed", "variant") and "ms" in record:
        yield changed, "step", "", record["ms"]
        if "timed_ms" in record:
            yield changed, "step", "with timers", record["timed_ms"]
        for name, ms in record.get("rows", {}).items():
            yield changed, "layer", name, ms
    elif kind == "layer":
        yield "run.cuda_graph=false", "layer", record["layer"], record["ms"]
    elif kind == "kernel":
        yield "run.cuda_graph=false", "kernel", record["kernel"], record["us"] / 1e3


def rows_of(records):
    for record in records:
        for changed, kind, name, ms in times_of(record):
            yield [record["when"], record.get("machine", ""), record.get("program", ""), record["model"],
                   str(record["batch"]), record["precision"], record.get("engine", "owt"), changed, kind, name,
                   f"{ms:.6g}"]


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-") or not pathlib.Path(sys.argv[1]).is_file():
        sys.exit("usage: gpu_table.py RESULTS [TABLE]; RESULTS is a file results.jsonl of tools/gpu_check.sh")
    table = pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else TABLE
    known = []
    if table.exists():
        with open(table, newline="") as file:
            known = list(csv.reader(file))
    old = set(map(tuple, known))
    new = [row for row in rows_of(Results(sys.argv[1]).records) if tuple(row) not in old]
    with open(table, "a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(new if known else [HEAD, *new])
    print(f"{len(new)} rows added to {table}")


if __name__ == "__main__":
    main()
