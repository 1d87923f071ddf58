"""Times steps of owt from a script: runs `owt time` and summarises repeated measurements."""
import csv
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs"
# Name -> file, rows of a step, number of timed steps that takes a second or two.
MODELS = {
    "alexnet": (CONFIGS / "models" / "alexnet_owt.toml", 64, 5),
    "cifar10_quick": (CONFIGS / "cifar10_quick.toml", 128, 40),
    "vgg16": (CONFIGS / "models" / "vgg16.toml", 16, 2),
    "resnet18": (CONFIGS / "models" / "resnet18.toml", 32, 3),
    "cifar10_94": (CONFIGS / "models" / "cifar10_94.toml", 256, 5),
    "cifar10_11pct": (CONFIGS / "models" / "cifar10_11pct.toml", 128, 5),
    "cifar10_resnet20": (CONFIGS / "models" / "cifar10_resnet20.toml", 128, 3),
    "googlenet": (CONFIGS / "models" / "googlenet.toml", 16, 2),
    "squeezenet": (CONFIGS / "models" / "squeezenet.toml", 16, 3),
    "mobilenet_v1": (CONFIGS / "models" / "mobilenet_v1.toml", 16, 2),
    "mobilenet_v2": (CONFIGS / "models" / "mobilenet_v2.toml", 16, 2),
    "resnet34": (CONFIGS / "models" / "resnet34.toml", 16, 2),
    "resnet101": (CONFIGS / "models" / "resnet101.toml", 8, 2),
    "glyphs_1k": (CONFIGS / "models" / "glyphs_1k.toml", 256, 4),
    "glyphs_41k": (CONFIGS / "models" / "glyphs_41k.toml", 256, 3),
}


def run_measured(command, threads):
    """The peak resident memory, in MB, of a command with this many threads. Its standard output is discarded. If it
    fails, this process exits with its error message."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            sys.exit(f"error: {' '.join(map(str, command))}\n{errors.read()}")
    return usage.ru_maxrss * 1024 / 1e6


def owt_step(program, config, batch, steps, threads, *more):
    """Median milliseconds of a step, and the program's peak resident memory in MB."""
    with tempfile.TemporaryDirectory() as folder:
        table = pathlib.Path(folder) / "timing.csv"
        megabytes = run_measured([program, "time", str(config), "--steps", str(steps), "--threads", str(threads),
                                  "--set", f"data.batch={batch}", "--csv", str(table), *more], threads)
        with open(table, newline="") as file:
            return next(float(row["ms"]) for row in csv.DictReader(file) if row["kind"] == "step"), megabytes


def spread(values, decimals=1):
    """'median (min to max)'."""
    median, low, high = statistics.median(values), min(values), max(values)
    return f"{median:.{decimals}f} ({low:.{decimals}f} to {high:.{decimals}f})"
