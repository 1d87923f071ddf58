#!/usr/bin/python3
"""Compares the training speed of owt and PyTorch on one GPU, and with the roofline limit of `owt plan --gpu H200`.

    usage: gpu_compare.py --owt PROGRAM [--cases MODEL:BATCH:PRECISION,...] [--engines owt,eager,graphed,compiled]
                          [--times N] [--limit SECONDS] [--results FILE]

Both use the same net, batch and precision; the batch is in the GPU's memory; a step is forward, loss, backward and
update. PyTorch uses channels-last tensors, bf16 autocast or tf32 (fp32: neither), fused SGD and cudnn.benchmark. The
fastest of its ways to run a step counts:
  eager       kernel by kernel
  graphed     the eager step, captured in a CUDA graph. First its losses and weights are compared with the eager step's
  compiled    torch.compile(mode="reduce-overhead"), and after all else, if time is left, mode="max-autotune"
PyTorch's time is the median of several windows between CUDA events. owt's time is the mean over a series of steps
without timers inside (`owt time`); the times of its layers are from other steps.

Every case is measured N times (1) by each engine, alternating, and the median counts. A measurement is added to the
file of --results immediately, owt's with the time of each layer ("rows", in milliseconds). Measurements in the file for
the same GPU (and the same build of owt) count too, so that a stage of tools/gpu_check.sh continues where another ended.
Measurements beyond the limit are skipped and reported.

Prints a table of these cases and of cases with a target, and owt's slowest layers with the times of owt's model. Exit
status: 1 a target was missed or a measurement failed, 77 something could not be measured (no PyTorch, or no time
left), 0 otherwise. Needs Python 3.11.
"""
import argparse
import csv
import dataclasses
import functools
import importlib.util
import json
import math
import multiprocessing
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import typing

from owt_time import CONFIGS
from results import Results

FILES = {name: CONFIGS / "models" / f"{name}.toml" 
         for name in ("alexnet_owt", "vgg16", "cifar10_quick", "resnet18", "resnet50")}
ENGINES = ("owt", "eager", "graphed", "compiled")
PEERS = (*ENGINES[1:], "autotuned")  # autotuned: max-autotune, which follows `compiled` if time is left
TURNS = (("owt", "eager", "graphed"), ("compiled",), ("autotuned",))  # engines that alternate; the slow ones come last
# Against the fastest of PEERS.
RATIO_TARGETS = {("alexnet_owt", 128, "bf16"): 1.3, ("alexnet_owt", 1024, "bf16"): 1.2, ("vgg16", 64, "bf16"): 1.1,
                 ("cifar10_quick", 128, "bf16"): 3.0, ("resnet50", 256, "bf16"): 1.2}
FLOOR_TARGETS = {("alexnet_owt", 1024, "bf16"): 0.5}  # share of the images per second at the roofline limit
COMPILE_SECONDS = 240  # limit for one case; 16 cores had not compiled AlexNet within 105
# Remaining seconds below which no measurement is started.
SHORTEST = {"owt": 10, "eager": 10, "graphed": 20, "compiled": 40, "autotuned": 60}
TOO_LONG = "takes too long on the CPU"
WITH_GPU_ONLY = {"graphed": "needs a GPU", "compiled": TOO_LONG, "autotuned": TOO_LONG}
LEFT_OUT = 77


@functools.cache
def model_of_step(owt, model, batch, precision):
    """owt's model of a step on an H200: "floor_s", and "launches" with the layer and the seconds of each."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "plan.json"
        command = [owt, "plan", str(FILES[model]), "--workers", "1", "--gpu", "H200", "--launches", "--precision", precision,
                   "--set", f"data.batch={batch}", "--json", str(file)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"error: {' '.join(command)}\n{done.stderr}")
        return json.loads(file.read_text())["step"]


@dataclasses.dataclass
class Case:
    model: str
    batch: int
    precision: str
    measured: dict = dataclasses.field(default_factory=dict)  # by engine: the records with "ms"
    owt: typing.ClassVar[str] = ""  # the program, which computes the model of a step

    def __str__(self):
        return f"{self.model} {self.batch} {self.precision}"

    @property
    def key(self):
        return self.model, self.batch, self.precision

    def has_target(self):
        return self.key in RATIO_TARGETS or self.key in FLOOR_TARGETS

    def step(self):
        return model_of_step(self.owt, self.model, self.batch, self.precision)

    def count(self, engine):
        return len(self.measured.get(engine, []))

    def ms(self, engine):
        times = [record["ms"] for record in self.measured.get(engine, [])]
        return statistics.median(times) if times else math.nan

    def rate(self, engine):
        """Images per second."""
        return 1e3 * self.batch / self.ms(engine)

    def floor_share(self):
        return 1e3 * self.step()["floor_s"] / self.ms("owt")

    def ratio(self):
        """owt / the fastest measured PyTorch engine."""
        times = [self.ms(engine) for engine in PEERS if self.count(engine)]
        return min(times, default=math.nan) / self.ms("owt")

    def has_all_peers(self):
        return all(self.count(engine) for engine in ENGINES[1:])

    def verdict(self):
        """'met', 'missed', 'open' (measurements are missing), or '' without a target."""
        if not self.has_target():
            return ""
        if not self.count("owt"):
            return "open"
        if self.ratio() < RATIO_TARGETS.get(self.key, 0) or self.floor_share() < FLOOR_TARGETS.get(self.key, 0):
            return "missed"
        return "met" if self.has_all_peers() else "open"


def target_cases():
    return [Case(*key) for key in RATIO_TARGETS]


class Torch:
    """The process of gpu_torch.py. If it takes too long, it is ended with its children, and a fresh one follows."""

    def __init__(self, log):
        self.log, self.process = log, None

    def ask(self, seconds, **request):
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, theirs = context.Pipe()
            self.process = context.Process(target=serve, args=(theirs, self.log), daemon=False)
            self.process.start()
            theirs.close()
        try:
            self.pipe.send(request)
            if self.pipe.poll(seconds):
                return self.pipe.recv()
        except (EOFError, OSError):
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
        except ProcessLookupError:  # it has ended, or has no process group yet
            self.process.kill()
        self.process.join()
        self.process = None


def serve(pipe, log):
    from gpu_torch import serve as serve_here  # only the other process loads PyTorch
    serve_here(pipe, log)


def owt_times(options, case, seconds, changes=()):
    """{"ms": of a step, "timed_ms": with timers inside, "rows": {name: ms}, slowest first}, or {"error": ...}.
    `changes`: recipe keys with their values, "run.cuda_graph=false", and options."""
    steps = options.steps or max(20, min(5000, round(0.4 / case.step()["floor_s"])))
    with tempfile.TemporaryDirectory() as folder:
        table = pathlib.Path(folder) / "timing.csv"
        command = [options.owt, "time", str(FILES[case.model]), "--device", options.device, "--precision",
                   case.precision, "--steps", str(steps), "--csv", str(table)]
        for change in [f"data.batch={case.batch}", *changes]:
            command += [change] if change.startswith("--") else ["--set", change]
        try:
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                  timeout=seconds)
        except subprocess.TimeoutExpired:
            return {"error": f"not done in {seconds:.0f} s"}
        if done.returncode != 0:
            return {"error": (done.stderr.strip() or f"status {done.returncode}").splitlines()[-1]}
        with open(table, newline="") as file:
            rows = list(csv.DictReader(file))
    times = {row["kind"]: float(row["ms"]) for row in rows}  # one row for each kind: step and, on a GPU, untimed
    parts = [(row["name"], float(row["ms"])) for row in rows if row["kind"] in ("layer", "other", "transfer", "rest")]
    return {"ms": times.get("untimed") or times["step"], "timed_ms": times["step"],
            "rows": dict(sorted(parts, key=lambda part: -part[1]))}


def in_turns(options):
    """(case, engine) in the order of measurement."""
    wanted = [*options.engines, *(["autotuned"] if "compiled" in options.engines else [])]
    for engines in TURNS:
        for turn in range(options.times):
            for case in options.cases:
                for engine in engines:
                    if engine in wanted and case.count(engine) <= turn:
                        yield case, engine


def measured(options, case, engine, torch):
    """The record of one measurement, with "ms", "error", or "left_out"."""
    left = options.deadline - time.monotonic()
    if engine != "owt" and torch is None:
        return {"left_out": "PyTorch is not installed"}
    if engine in WITH_GPU_ONLY and options.device == "cpu":
        return {"left_out": WITH_GPU_ONLY[engine]}
    if left < SHORTEST[engine]:
        return {"left_out": "no time left"}
    if engine == "owt":
        return owt_times(options, case, left)
    compiles = engine in ("compiled", "autotuned")
    seconds = min(left, COMPILE_SECONDS) if compiles else left
    answer = torch.ask(seconds, config=str(FILES[case.model]), batch=case.batch, precision=case.precision,
                       engine=engine, device=options.device, window_seconds=options.window)
    if compiles and "error" in answer:  # an error of PyTorch's compiler is not a failure
        return {"left_out": answer["error"]}
    return answer


def measure(options, torch, results):
    """Measures all cases; returns messages about failed and skipped measurements."""
    problems = {"error": [], "left_out": []}
    for case, engine in in_turns(options):
        begin = time.monotonic()
        result = measured(options, case, engine, torch)
        record = results.add(kind="speed", model=case.model, batch=case.batch, precision=case.precision, engine=engine,
                             machine=options.machine, program=program_of(options, engine), **result,
                             measuring_seconds=round(time.monotonic() - begin, 1))
        keep(record, options, options.cases)
        for problem, found in problems.items():
            if problem in result and engine != "autotuned":  # nothing depends on this one
                found.append(f"{case}, {engine}: {result[problem]}")
        outcome = f"{result['ms']:.3f} ms" if "ms" in result else result.get("error") or result["left_out"]
        print(f"{case}, {engine}: {outcome}", flush=True)
    return problems


def program_of(options, engine):
    return options.version if engine == "owt" else f"PyTorch {torch_version()}"


def keep(record, options, cases):
    """Adds a measurement to its case; measurements of another machine or build are ignored."""
    for case in cases:
        if case.key == (record["model"], record["batch"], record["precision"]) and "ms" in record \
                and (record["machine"], record["program"]) == (options.machine, program_of(options, record["engine"])):
            case.measured.setdefault(record["engine"], []).append(record)


def cell(value, width, decimals=0, mark=""):
    text = "-" if math.isnan(value) else f"{value:.{decimals}f}{mark}"
    return f"{text:>{width}}"


def table(cases):
    lines = [f"{'':<13} {'':>5} {'':>9}  {'owt':>8} {'PyTorch images/s':>39} {'owt /':>8} {'':>6}  {'share of':>8}  "
             f"{'owt':>8}",
             f"{'net':<13} {'batch':>5} {'precision':>9}  {'images/s':>8} "
             f"{' '.join(f'{name:>9}' for name in PEERS)} {'PyTorch':>8} {'target':>6}  {'limit, %':>8}  {'ms/step':>8}"]
    for case in cases:
        lines.append(
            f"{case.model:<13} {case.batch:>5} {case.precision:>9}  {cell(case.rate('owt'), 8)} "
            f"{' '.join(cell(case.rate(engine), 9) for engine in PEERS)} "
            f"{cell(case.ratio(), 8, 2, '' if case.has_all_peers() else '*')} "
            f"{cell(RATIO_TARGETS.get(case.key, math.nan), 6, 1)}  "
            f"{cell(100 * case.floor_share(), 8, 1)}  {cell(case.ms('owt'), 8, 3)}  "
            f"{case.verdict().upper() if case.verdict() == 'missed' else case.verdict()}".rstrip())
    if any(not math.isnan(case.ratio()) and not case.has_all_peers() for case in cases):
        lines.append(f"* not all of {', '.join(ENGINES[1:])} were measured")
    lines += [f"{' '.join(map(str, key))}: wanted at least {100 * share:.0f} % of the roofline limit"
              for key, share in FLOOR_TARGETS.items() if any(case.key == key for case in cases)]
    return "\n".join(lines)


def model_ms(step, row):
    """A row may stand for several layers that ran as one, joined by '+'."""
    return 1e3 * sum(launch["seconds"] for launch in step["launches"] if launch["layer"] in row.split("+"))


def slowest_layers(case, count):
    rows = list(case.measured["owt"][-1]["rows"].items())[:count]
    return f"{case}: " + ", ".join(
        f"{name} {ms:.3f} ms" + (f" (model {model:.3f})" if (model := model_ms(case.step(), name)) > 0 else "")
        for name, ms in rows)


def torch_version():
    """None without PyTorch. Reads the version only: loading PyTorch would use GPU memory."""
    if importlib.util.find_spec("torch") is None:
        return None
    from importlib.metadata import PackageNotFoundError, version
    try:
        return version("torch")
    except PackageNotFoundError:
        return "of unknown version"


def machine_of(options):
    """The output of `owt devices` for the measured device."""
    lines = subprocess.run([options.owt, "devices"], capture_output=True, text=True).stdout.splitlines()
    return next((line for line in lines if line.startswith(options.device)), options.device)


def version_of(options):
    return subprocess.run([options.owt, "--version"], capture_output=True, text=True).stdout.strip()


def read_cases(text):
    cases = []
    for word in text.split(","):
        parts = word.split(":")
        if len(parts) != 3 or parts[0] not in FILES or not parts[1].isdigit() or parts[2] not in ("bf16", "tf32", "fp32"):
            raise argparse.ArgumentTypeError(f"'{word}': wanted MODEL:BATCH:PRECISION, MODEL one of {', '.join(FILES)}, "
                                             "PRECISION one of bf16, tf32, fp32")
        cases.append(Case(parts[0], int(parts[1]), parts[2]))
    return cases


def read_engines(text):
    for word in text.split(","):
        if word not in ENGINES:
            raise argparse.ArgumentTypeError(f"'{word}': wanted some of {', '.join(ENGINES)}")
    return text.split(",")


def read_program(path):
    Case.owt = path
    return path


def parser_of(description):
    """The options of this script and of gpu_variants.py."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--owt", type=read_program, required=True, metavar="PROGRAM")
    parser.add_argument("--cases", type=read_cases, metavar="MODEL:BATCH:PRECISION,...",
                        default=target_cases(), help="default: the cases with a target")
    parser.add_argument("--limit", type=float, default=1800, metavar="SECONDS", help="time limit of the whole run (default: 1800)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", type=int, metavar="N", help="of owt (default: about a second of them)")
    parser.add_argument("--results", metavar="FILE", help="gets a JSON object a line")
    return parser


def read_options():
    parser = parser_of("Training speed of owt against PyTorch on one GPU.")
    parser.add_argument("--engines", type=read_engines, default=ENGINES, metavar="NAME,...")
    parser.add_argument("--times", type=int, default=1, metavar="N")
    parser.add_argument("--window", type=float, default=0.2, metavar="SECONDS", help="of PyTorch's windows")
    parser.add_argument("--layers", type=int, default=5, metavar="N", help="slowest layers to show")
    options = parser.parse_args()
    options.deadline = time.monotonic() + options.limit
    options.machine, options.version = machine_of(options), version_of(options)
    return options


def measure_with_torch(options, results):
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "torch.log"
        torch = Torch(str(log)) if torch_version() else None
        try:
            problems = measure(options, torch, results)
        finally:
            if torch:
                torch.stop()
        if any(", owt: " not in error for error in problems["error"]) and log.exists():
            print("The end of what PyTorch printed:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-20:]))
    return problems


def main():
    options = read_options()
    results = Results(options.results)
    cases = options.cases + [case for case in target_cases() if case.key not in {other.key for other in options.cases}]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the PyTorch process is ended too
    for record in results.of("speed"):
        keep(record, options, cases)
    problems = measure_with_torch(options, results)

    print("\n" + table(cases) + "\n\nSlowest parts of owt's step")
    for case in cases:
        if case.count("owt"):
            print("  " + slowest_layers(case, options.layers))
    verdicts = [case.verdict() for case in cases]
    counts = {word: verdicts.count(word) for word in ("met", "missed", "open")}
    said = [f"targets: {counts['met']} met, {counts['missed']} missed, {counts['open']} open"]
    said += [f"{title}: {', '.join(dict.fromkeys(problems[kind]))}" for kind, title in (("error", "failed"), ("left_out", "left out"))
             if problems[kind]]
    print("\n" + "; ".join(said))
    sys.exit(1 if problems["error"] or counts["missed"] else LEFT_OUT if problems["left_out"] else 0)


if __name__ == "__main__":
    main()
