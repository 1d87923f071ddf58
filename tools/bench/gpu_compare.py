#!/usr/bin/python3
"""Training speed of owt against PyTorch on one GPU, and against the floor of gpu_floor.py.

    usage: gpu_compare.py --owt PROGRAM [--cases MODEL:BATCH:PRECISION,...] [--limit SECONDS] [--json FILE]

Same net, batch and precision; the batch lies in the GPU's memory; a step is forward, loss, backward and update. PyTorch
has channels-last tensors, bf16 autocast or tf32 (fp32: neither), fused SGD, and runs twice: eager with cudnn.benchmark,
and with torch.compile(mode="max-autotune"); the faster one counts. Its time is the median of several windows between CUDA
events; owt's is the mean over one stretch of steps without timers inside (`owt time`).

Cases with a target come first, then the others, for which torch.compile is tried last: it takes its time. What no longer
fits into the limit is left out and says so. Prints a table, and owt's slowest layers with their floors; --json FILE gets
all of it. Exit status: 0 all targets met, 1 one missed or a measurement failed, 77 a target could not be judged (no
PyTorch, or no time left). Python 3.11; without PyTorch, owt is measured alone.
"""
import argparse
import csv
import dataclasses
import datetime
import importlib.util
import json
import math
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from gpu_floor import floor_of
from owt_time import CONFIGS
from recipe import read_recipe

FILES = {name: CONFIGS / "models" / f"{name}.toml" for name in ("alexnet_owt", "vgg16", "cifar10_quick")}
CASES = [("alexnet_owt", 128), ("alexnet_owt", 1024), ("vgg16", 64), ("cifar10_quick", 128), ("alexnet_owt", 512),
         ("cifar10_quick", 1024)]
RATIO_TARGETS = {("alexnet_owt", 128, "bf16"): 1.3, ("alexnet_owt", 1024, "bf16"): 1.2, ("vgg16", 64, "bf16"): 1.1,
                 ("cifar10_quick", 128, "bf16"): 3.0}
FLOOR_TARGETS = {("alexnet_owt", 1024, "bf16"): 0.5}  # share of the floor's images per second
COMPILE_SECONDS = 120  # at most, of one case
SHORTEST = {"owt": 10, "eager": 10, "compiled": 40}  # seconds left below which a measurement is not begun
UNJUDGED = 77


@dataclasses.dataclass
class Case:
    model: str
    batch: int
    precision: str
    results: dict = dataclasses.field(default_factory=dict)  # by engine: {"ms": ...} or {"error": ...}

    @property
    def key(self):
        return self.model, self.batch, self.precision

    def has_target(self):
        return self.key in RATIO_TARGETS or self.key in FLOOR_TARGETS

    def floor(self):
        return floor_of(read_recipe(FILES[self.model])["model"], self.batch, self.precision)

    def ms(self, engine):
        return self.results.get(engine, {}).get("ms", math.nan)

    def rate(self, engine):
        """Images per second."""
        return 1e3 * self.batch / self.ms(engine)

    def floor_share(self):
        return 1e3 * self.floor().step / self.ms("owt")

    def ratio(self):
        """owt / the faster PyTorch of those measured."""
        times = [self.ms(engine) for engine in ("eager", "compiled") if not math.isnan(self.ms(engine))]
        return min(times, default=math.nan) / self.ms("owt")

    def verdict(self):
        """'met', 'missed', 'open' (not all of it was measured), or '' without a target."""
        if not self.has_target():
            return ""
        if math.isnan(self.ms("owt")):
            return "open"
        if self.ratio() < RATIO_TARGETS.get(self.key, 0) or self.floor_share() < FLOOR_TARGETS.get(self.key, 0):
            return "missed"
        return "open" if math.isnan(self.ms("eager") + self.ms("compiled")) else "met"


class Torch:
    """The process of gpu_torch.py. One that takes too long is ended with all it started, and the next one is fresh."""

    def __init__(self, log):
        self.log, self.process = log, None

    def ask(self, seconds, **request):
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, theirs = context.Pipe()
            self.process = context.Process(target=serve, args=(theirs, self.log), daemon=False)
            self.process.start()
            theirs.close()
        self.pipe.send(request)
        try:
            if self.pipe.poll(seconds):
                return self.pipe.recv()
        except EOFError:
            self.stop()
            return {"error": "the process of PyTorch died"}
        self.stop()
        return {"error": f"not done in {seconds:.0f} s"}

    def stop(self):
        if self.process is None:
            return
        self.pipe.close()
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:  # it ended, or has no group of its own yet
            self.process.kill()
        self.process.join()
        self.process = None


def serve(pipe, log):
    from gpu_torch import serve as serve_here  # only the other process loads PyTorch
    serve_here(pipe, log)


def owt_times(options, case, seconds):
    """{"ms": of a step, "timed_ms": with timers inside, "rows": {name: ms}, slowest first}, or {"error": ...}."""
    steps = options.steps or max(20, min(5000, round(0.4 / case.floor().step)))
    with tempfile.TemporaryDirectory() as folder:
        table = pathlib.Path(folder) / "timing.csv"
        command = [options.owt, "time", str(FILES[case.model]), "--device", options.device, "--precision",
                   case.precision, "--steps", str(steps), "--set", f"data.batch={case.batch}", "--csv", str(table)]
        try:
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                  timeout=seconds)
        except subprocess.TimeoutExpired:
            return {"error": f"not done in {seconds:.0f} s"}
        if done.returncode != 0:
            return {"error": (done.stderr.strip() or f"status {done.returncode}").splitlines()[-1]}
        with open(table, newline="") as file:
            rows = list(csv.DictReader(file))
    times = {row["kind"]: float(row["ms"]) for row in rows}  # a row each of kind step and, on a GPU, untimed
    parts = [(row["name"], float(row["ms"])) for row in rows if row["kind"] in ("layer", "other", "transfer", "rest")]
    return {"ms": times.get("untimed") or times["step"], "timed_ms": times["step"],
            "rows": dict(sorted(parts, key=lambda part: -part[1]))}


def schedule(cases):
    """(case, engine) in the order of measurement."""
    first = [case for case in cases if case.has_target()]
    others = [case for case in cases if not case.has_target()]
    for some in (first, others):
        for engines in (("owt", "eager"), ("compiled",)):
            for case in some:
                for engine in engines:
                    yield case, engine


def measure(options, cases, torch):
    for case, engine in schedule(cases):
        left = options.deadline - time.monotonic()
        begin = time.monotonic()
        if engine != "owt" and torch is None or engine == "compiled" and options.device == "cpu":
            continue  # on the CPU, which is for trying this script only, compiling takes too long
        if left < SHORTEST[engine]:
            result = {"error": "no time left"}
        elif engine == "owt":
            result = owt_times(options, case, left)
        else:
            seconds = min(left, COMPILE_SECONDS) if engine == "compiled" else left
            result = torch.ask(seconds, config=str(FILES[case.model]), batch=case.batch, precision=case.precision,
                               compiled=engine == "compiled", device=options.device, window_seconds=options.window)
        case.results[engine] = result | {"measuring_seconds": round(time.monotonic() - begin, 1)}
        outcome = result.get("error") or f"{result['ms']:.3f} ms"
        print(f"{case.model} {case.batch} {case.precision}, {engine}: {outcome}", flush=True)


def cell(value, width, decimals=0, mark=""):
    text = "-" if math.isnan(value) else f"{value:.{decimals}f}{mark}"
    return f"{text:>{width}}"


def table(cases):
    lines = [f"{'':<13} {'':>5} {'':>9}  {'owt':>8} {'PyTorch images/s':>19} {'owt /':>8} {'':>6}  {'share of':>8}  {'owt':>8}",
             f"{'net':<13} {'batch':>5} {'precision':>9}  {'images/s':>8} {'eager':>9} {'compiled':>9} {'PyTorch':>8} "
             f"{'target':>6}  {'floor, %':>8}  {'ms/step':>8}"]
    for case in cases:
        partly = math.isnan(case.ms("eager") + case.ms("compiled"))
        lines.append(
            f"{case.model:<13} {case.batch:>5} {case.precision:>9}  {cell(case.rate('owt'), 8)} "
            f"{cell(case.rate('eager'), 9)} {cell(case.rate('compiled'), 9)} "
            f"{cell(case.ratio(), 8, 2, '*' if partly else '')} {cell(RATIO_TARGETS.get(case.key, math.nan), 6, 1)}  "
            f"{cell(100 * case.floor_share(), 8, 1)}  {cell(case.ms('owt'), 8, 3)}  "
            f"{case.verdict().upper() if case.verdict() == 'missed' else case.verdict()}".rstrip())
    if any(math.isnan(case.ms("eager") + case.ms("compiled")) and not math.isnan(case.ratio()) for case in cases):
        lines.append("* against the one PyTorch that was measured")
    lines += [f"{' '.join(map(str, key))}: wanted at least {100 * share:.0f} % of the floor"
              for key, share in FLOOR_TARGETS.items() if any(case.key == key for case in cases)]
    return "\n".join(lines)


def floor_of_row(floor, name):
    """Milliseconds; a row may stand for several layers that ran as one, joined by '+'."""
    if name == "weights":
        return 1e3 * floor.update
    return 1e3 * sum(floor.layers.get(part, 0.0) for part in name.split("+"))


def slowest_layers(case, count):
    floor = case.floor()
    rows = list(case.results["owt"]["rows"].items())[:count]
    return f"{case.model} {case.batch} {case.precision}: " + ", ".join(
        f"{name} {ms:.3f} ms" + (f" (floor {least:.3f})" if (least := floor_of_row(floor, name)) > 0 else "")
        for name, ms in rows)


def to_json(options, cases):
    def number(value):
        return None if math.isnan(value) else value
    rows = [{"model": case.model, "batch": case.batch, "precision": case.precision, "results": case.results,
             "owt_images_per_s": number(case.rate("owt")), "ratio": number(case.ratio()),
             "floor_images_per_s": case.batch / case.floor().step, "floor_share": number(case.floor_share()),
             "ratio_target": RATIO_TARGETS.get(case.key), "floor_target": FLOOR_TARGETS.get(case.key),
             "verdict": case.verdict()} for case in cases]
    found = subprocess.run([options.owt, "devices"], capture_output=True, text=True)
    return json.dumps({"when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                       "devices": found.stdout.splitlines(), "torch": torch_version(), "cases": rows}, indent=1)


def torch_version():
    """None without PyTorch. Reads the version only: loading PyTorch would take memory of the GPU."""
    if importlib.util.find_spec("torch") is None:
        return None
    from importlib.metadata import PackageNotFoundError, version
    try:
        return version("torch")
    except PackageNotFoundError:
        return "of unknown version"


def read_cases(text):
    cases = []
    for word in text.split(","):
        parts = word.split(":")
        if len(parts) != 3 or parts[0] not in FILES or not parts[1].isdigit() or parts[2] not in ("bf16", "tf32", "fp32"):
            raise argparse.ArgumentTypeError(f"'{word}': wanted MODEL:BATCH:PRECISION, MODEL one of {', '.join(FILES)}, "
                                             "PRECISION one of bf16, tf32, fp32")
        cases.append(Case(parts[0], int(parts[1]), parts[2]))
    return cases


def read_options():
    parser = argparse.ArgumentParser(description="Training speed of owt against PyTorch on one GPU.")
    parser.add_argument("--owt", required=True, metavar="PROGRAM")
    parser.add_argument("--cases", type=read_cases, metavar="MODEL:BATCH:PRECISION,...",
                        default=[Case(*at, precision) for precision in ("bf16", "tf32") for at in CASES],
                        help="default: AlexNet, VGG16 and cifar10_quick in bf16 and tf32")
    parser.add_argument("--limit", type=float, default=1800, metavar="SECONDS", help="of all of it (default: 1800)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", type=int, metavar="N", help="of owt (default: about a second of them)")
    parser.add_argument("--window", type=float, default=0.2, metavar="SECONDS", help="of PyTorch's windows")
    parser.add_argument("--layers", type=int, default=5, metavar="N", help="slowest layers to show")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    options.deadline = time.monotonic() + options.limit
    return options


def main():
    options = read_options()
    cases = options.cases
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the process of PyTorch is ended too
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "torch.log"
        torch = Torch(str(log)) if torch_version() else None
        if torch is None:
            print(f"PyTorch is not installed for {sys.executable}: owt is measured alone", flush=True)
        try:
            measure(options, cases, torch)
        finally:
            if torch:
                torch.stop()
        failed = [f"{case.model} {case.batch} {case.precision}, {engine}" for case in cases
                  for engine, result in case.results.items()
                  if engine != "compiled" and result.get("error", "no time left") != "no time left" and "ms" not in result]
        if failed and log.exists():
            print("The end of what PyTorch printed:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-20:]))
    if options.json:
        options.json.write_text(to_json(options, cases) + "\n")

    print("\n" + table(cases) + "\n\nSlowest parts of owt's step")
    for case in cases:
        if "rows" in case.results.get("owt", {}):
            print("  " + slowest_layers(case, options.layers))
    verdicts = [case.verdict() for case in cases]
    counts = {word: verdicts.count(word) for word in ("met", "missed", "open")}
    print(f"\ntargets: {counts['met']} met, {counts['missed']} missed, {counts['open']} not judged"
          + (f"; failed: {'; '.join(failed)}" if failed else ""))
    sys.exit(1 if failed or counts["missed"] else UNJUDGED if counts["open"] or torch is None else 0)


if __name__ == "__main__":
    main()
