#!/usr/bin/python3
"""Compares steps of owt with one setting changed with the unchanged step; they alternate, so that a change of clock
rates affects all.

    usage: gpu_variants.py --owt PROGRAM [--cases MODEL:BATCH:PRECISION,...] [--variants KEY=VALUE,...] [--times N]
                           [--limit SECONDS] [--results FILE]

A variant is a recipe key with another value, or an option of `owt time`. Each is measured N times (2) by `owt time`; a measurement is added to
the file of --results immediately, with the time of each layer ("rows"). Prints medians. Exit status: 1 a measurement
failed, 77 there was not enough time for all of them, 0 otherwise.
"""
import statistics
import sys
import time

from gpu_compare import LEFT_OUT, SHORTEST, machine_of, owt_times, parser_of, version_of
from results import Results

PLAIN = ""
VARIANTS = ["run.cuda_graph=false", "run.update_beside=on", "run.update_beside=off", "--keep-gradients",
            "run.deterministic=false"]


def read_options():
    parser = parser_of("Steps of owt with one thing switched, against the step as it is.")
    parser.add_argument("--variants", type=lambda text: text.split(","), default=VARIANTS, metavar="KEY=VALUE,...")
    parser.add_argument("--times", type=int, default=2, metavar="N")
    options = parser.parse_args()
    options.deadline = time.monotonic() + options.limit
    return options


def measure(options, results):
    """Milliseconds of a step by case and variant; and messages about failed and skipped measurements."""
    machine, version = machine_of(options), version_of(options)
    times, failed, left_out = {}, [], []
    for _ in range(options.times):
        for case in options.cases:
            for variant in [PLAIN, *options.variants]:
                left = options.deadline - time.monotonic()
                if left < SHORTEST["owt"]:
                    left_out.append(f"{case} {variant}".rstrip())
                    continue
                result = owt_times(options, case, left, [variant] if variant else [])
                results.add(kind="variant", model=case.model, batch=case.batch, precision=case.precision,
                            machine=machine, program=version, variant=variant, **result)
                if "ms" in result:
                    times.setdefault((str(case), variant), []).append(result["ms"])
                else:
                    failed.append(f"{case} {variant}: {result['error']}")
    return times, failed, left_out


def main():
    options = read_options()
    times, failed, left_out = measure(options, Results(options.results))
    for (case, variant), values in times.items():
        ms, plain = statistics.median(values), times.get((case, PLAIN))
        share = f", {ms / statistics.median(plain):.3f} of the plain step" if variant and plain else ""
        print(f"{case} {variant or 'as it is'}: {ms:.3f} ms ({min(values):.3f} to {max(values):.3f}){share}")
    print("; ".join([f"{sum(map(len, times.values()))} measurements", *failed,
                     *([f"no time for {', '.join(left_out)}"] if left_out else [])]))
    sys.exit(1 if failed else LEFT_OUT if left_out else 0)


if __name__ == "__main__":
    main()
