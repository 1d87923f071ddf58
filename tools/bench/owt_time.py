"""Timing steps of owt from a script: runs `owt time` and summarises repeated measurements."""
import csv
import os
import pathlib
import statistics
import subprocess
import tempfile

CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs"
# Name -> file, rows of a step, timed steps that take about a second or two.
MODELS = {
    "cifar10_quick": (CONFIGS / "cifar10_quick.toml", 128, 40),
    "alexnet": (CONFIGS / "models" / "alexnet_owt.toml", 64, 5),
    "resnet18": (CONFIGS / "models" / "resnet18.toml", 32, 3),
}


def thread_environment(threads):
    return os.environ | {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}


def owt_step_ms(program, config, batch, steps, threads, workers=1, strategy="owt-a"):
    """Median milliseconds of a training step."""
    with tempfile.TemporaryDirectory() as folder:
        table = pathlib.Path(folder) / "timing.csv"
        command = [program, "time", str(config), "--steps", str(steps), "--threads", str(threads), "--workers",
                   str(workers), "--parallel", strategy, "--set", f"data.batch={batch}", "--csv", str(table)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env=thread_environment(threads))
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        with open(table, newline="") as file:
            return next(float(row["ms"]) for row in csv.DictReader(file) if row["kind"] == "step")


def line(name, values, unit, decimals=1):
    """'name: median unit (min to max)'."""
    median, low, high = statistics.median(values), min(values), max(values)
    return f"{name}: {median:.{decimals}f} {unit} ({low:.{decimals}f} to {high:.{decimals}f})"
