"""The stages of tools/gpu_check.sh, which documents them."""
import argparse
import collections
import concurrent.futures
import dataclasses
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import commands
from results import Results

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = ROOT / "tools" / "bench"
GPU_TESTS = "*cuda*:*Cuda*"
SKIPPED = 77  # exit status of a script that could not do everything
LOG_BYTES = 1 << 20  # bytes at the end of a command's output that log.txt keeps
GRACE = 10  # seconds that a terminated process may take to end
# In the order of measurement; the last ones, whose plans take longest to measure, may find no time left.
CASES = ("cifar10_quick:128:bf16,alexnet_owt:128:bf16,alexnet_owt:1024:bf16,vgg16:64:bf16,resnet50:256:bf16,"
         "resnet18:256:bf16")
SMALL = "alexnet_owt:128:bf16,cifar10_quick:128:bf16"  # cases that PyTorch compiles within a minute
ALL_OF_IT = "all of it:"  # replaces the names of failed tests
ON_CPU = "cifar10_quick:16:fp32"
NCCL_TEST = "nccl_processes_test"
SANITIZERS = ("racecheck", "memcheck", "synccheck", "initcheck")
# Tests of owt's kernels that load neither cuDNN nor cuBLAS, whose hundreds of megabytes the tools would patch.
SANITIZED = {
    "layers_test": ":".join(f"*{layer}Test*cuda*" for layer in (
        "Activation", "Dropout", "Local", "Lrn", "Pool", "Prelu", "Relu", "SoftmaxLoss")) + "-*Conv*:*Dense*",
    "data_test": "*DeviceBatches*cuda*",
    "parallel_test": "*OptimizerTest*cuda*:*ShardedSoftmaxLossTest*cuda*",
}


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


@dataclasses.dataclass
class Part:
    name: str
    title: str
    run: object  # takes the Check; returns a note, or raises Failed or Skipped
    least: int  # fewest seconds for which the part is started; earlier parts leave it this much
    most: int    # seconds


@dataclasses.dataclass
class Done:
    status: int | None  # None: ended by the time limit
    text: str

    def last_line(self):
        return next((line for line in reversed(self.text.splitlines()) if line.strip()), "")

    def how_it_ended(self):
        return "not done in its time" if self.status is None else f"status {self.status}"


class Check:
    """The programs, the output folder and the remaining time."""

    def __init__(self, options, work):
        self.options, self.work, self.out = options, work, options.out
        self.on_gpu = not options.cpu_dry_run
        self.device = "cuda" if self.on_gpu else "cpu"
        bundled = (ROOT / "libexec").is_dir()
        self.owt = ROOT / "bin" / "owt" if bundled else options.build / "owt"
        self.test_folder = ROOT / "bin" if bundled else options.build / "tests"
        self.plans = work / "plans"
        self.environment = os.environ | {
            "TMPDIR": str(work), "OWT_SOURCE_DIR": str(ROOT), "OWT_PROGRAM": str(self.owt),
            "OWT_CACHE": str(self.plans / "runs"), "LD_LIBRARY_PATH": library_path()}
        self.results = self.end = None
        self.lock = threading.Lock()

    def test_programs(self):
        return {path.name: path for path in sorted(self.test_folder.glob("*_test")) if os.access(path, os.X_OK)}

    def left(self):
        """Remaining seconds of this part."""
        return self.end - time.monotonic()

    def command(self, name, *words, most=math.inf, **environment):
        """Runs a command until its limit or the part's; stores its output and the plans that it measured."""
        log = self.work / f"{name}.log"
        words = list(map(str, words))
        status = commands.run(words, min(most, self.left()), log, cwd=self.work, env=self.environment | environment)
        done = Done(status, log.read_text(errors="replace"))
        with self.lock:
            with open(self.out / "log.txt", "a") as file:
                file.write(f"== {name}: {' '.join(words)}\n{done.text[-LOG_BYTES:]}\n"
                           f"== {name}: {done.how_it_ended()}\n")
            self.keep_plans()
        return done

    def script(self, name, *words, file):
        """Runs a script of tools/bench; the last line of its output is the note."""
        done = self.command(name, sys.executable, BENCH / file, "--owt", self.owt, "--device", self.device, "--results",
                            self.results.path, *words)
        if done.status == SKIPPED:
            raise Skipped(done.last_line())
        if done.status != 0:
            raise Failed("; ".join(filter(None, [done.last_line()[:300], done.how_it_ended()])))
        return done.last_line()

    def measuring_script(self, name, *words, file):
        """Like script(), for scripts with their own limit and figures to show."""
        try:
            return self.script(name, *words, "--limit", max(1, int(self.left()) - GRACE), file=file)
        finally:
            print(self.figures(name), end="", flush=True)

    def figures(self, name):
        """The output of a script without its last line."""
        return "".join((self.work / f"{name}.log").read_text(errors="replace").splitlines(keepends=True)[:-1])

    def keep_plans(self):
        """Packs the measured plans for the next stage."""
        found = sorted(path for path in self.plans.rglob("*") if path.is_file())
        if found != getattr(self, "kept", []):
            pack(self.plans, self.out / "plans.tar.gz")
            self.kept = found


def pack(folder, archive):
    half = archive.with_suffix(".half")
    packed = subprocess.run(["tar", "-C", folder.parent, "-czf", half, folder.name], stderr=subprocess.PIPE, text=True)
    if packed.returncode <= 1:  # 1: other programs write into the folder
        os.replace(half, archive)
    else:
        print(f"gpu_check: warning: {archive} is not renewed: {packed.stderr.strip()}", file=sys.stderr)


def library_path():
    """The folders with CUDA's libraries, which owt loads by name: the loader's path, packages of this Python, the
    toolkit. PyTorch's libraries come before the toolkit's, so that PyTorch uses its own."""
    folders = [str(path) for folder in sys.path for path in sorted(pathlib.Path(folder or ".").glob("nvidia/*/lib"))]
    return ":".join(filter(None, [os.environ.get("LD_LIBRARY_PATH"), *folders, f"{commands.CUDA}/lib64"]))


# --- stage 1 ---


def devices(check):
    done = check.command("devices", check.owt, "devices", most=60)
    check.results.add(kind="devices", stage=check.options.stage, lines=done.text.splitlines())
    if done.status != 0:
        raise Failed(f"owt devices: {done.how_it_ended()}")
    if check.on_gpu:
        if shutil.which("nvidia-smi"):
            check.command("nvidia-smi", "nvidia-smi", most=30)
        describe_device(check)
    return next((line for line in done.text.splitlines() if line.startswith(check.device)), "")


def describe_device(check):
    """cuDNN's description of the GPU, from which tests without a GPU make their plans."""
    program, description = check.test_programs().get("cudnn_test"), check.out / "device.json"
    if program is None:
        raise Skipped("no cudnn_test, so no device.json")
    done = check.command("device.json", program, "--gtest_filter=CudnnDevice.*", most=60,
                         OWT_DUMP_DEVICE_JSON=str(description))
    if done.status != 0 or not description.exists():
        raise Failed(f"cudnn_test wrote no device.json ({done.how_it_ended()})")


def losses(check, *words):
    if not check.on_gpu:
        words = [*words, "--steps", 2, "--set", "data.batch=32", "--set", "data.train_images=256"]
    return check.script("losses", "--config", ROOT / "configs/quickstart.toml", *words, file="compare_losses.py")


def smoke(check):
    return losses(check, "--steps", 20, "--workers", "")


def speed(check, engines, cases, *words):
    if not check.on_gpu:
        cases, words = ON_CPU, [*words, "--steps", 2, "--window", 0]
    try:
        return check.measuring_script("speed", "--engines", engines, "--cases", cases, *words, file="gpu_compare.py")
    finally:
        if table := check.figures("speed").partition("\n\n")[2]:  # otherwise the table of an earlier stage stays
            (check.out / "table.txt").write_text(table)


@dataclasses.dataclass
class TestReport:
    passed: list
    failed: list
    unfinished: list  # tests that were running when the program ended


def read_tests(text):
    """The results in the output of a GoogleTest program."""
    def named(mark):
        return list(dict.fromkeys(re.findall(rf"\[{mark}\] ([\w/]+\.[\w/]+)", text)))
    passed, failed = named("       OK ") + named("  SKIPPED "), named("  FAILED  ")
    return TestReport(passed, failed, [name for name in named(" RUN      ") if name not in {*passed, *failed}])


def without(tests, chosen):
    """A GoogleTest filter that excludes tests."""
    return f"{chosen}{':' if '-' in chosen else '-'}{':'.join(tests)}" if tests else chosen


def run_tests(check, name, program, chosen):
    """Runs the tests of a filter. If a test ends the program, the remaining tests run without it."""
    passed, failed, ended, begin = 0, [], [], time.monotonic()
    while True:
        done = check.command(f"{name}-{program.name}", program, f"--gtest_filter={without(ended, chosen)}",
                             OWT_CACHE=str(check.plans / "tests"), OMP_WAIT_POLICY="PASSIVE")
        report = read_tests(done.text)
        passed += len(report.passed)
        failed += report.failed + report.unfinished
        if done.status is None or set(report.unfinished) <= set(ended):
            break
        ended += report.passed + report.failed + report.unfinished
    if done.status != 0 and not failed:
        failed = [f"{ALL_OF_IT} {done.how_it_ended()}"]
    return check.results.add(kind="tests", stage=check.options.stage, program=program.name, filter=chosen,
                             passed=passed, failed=failed, reached=done.status is not None,
                             result="FAIL" if failed else "PASS", seconds=round(time.monotonic() - begin, 1))


def run_all_tests(check, name, chosen_by_program):
    """Runs several programs at a time; returns a note of how they ended."""
    at_once = max(1, len(chosen_by_program) if check.on_gpu else (os.cpu_count() or 1))
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        records = list(pool.map(lambda item: run_tests(check, name, *item), chosen_by_program.items()))
    passed = sum(record["passed"] for record in records)
    bad = [f"{record['program']} {'' if record['reached'] else '(not done in its time) '}{', '.join(record['failed'])}"
           for record in records if record["failed"]]
    if bad or not passed:
        raise Failed("; ".join([f"{passed} tests passed", *bad]))
    return f"{passed} tests passed"


def tests(check, chosen):
    programs = check.test_programs()
    programs.pop(NCCL_TEST, None)  # a part of its own
    if not check.on_gpu:  # the CPU build may have no cuDNN
        chosen = "*Shape*:*Relu*"
        programs.pop("cudnn_test", None)
    if not programs:
        raise Skipped("no test programs; build them, or bundle a build that has them")
    return run_all_tests(check, "tests", {path: chosen for path in programs.values()})


# --- stage 2 ---


def failed_tests(check):
    """Repeats the tests that failed in the last run of each program, and those not reached."""
    last = {record["program"]: record for record in check.results.of("tests")}
    if not last:
        raise Skipped(f"no tests in {check.results.path}; run stage 1 with the same --out")
    programs, again = check.test_programs(), {}
    for name, record in last.items():
        if name in programs and record["failed"]:
            whole = not record["reached"] or record["failed"][0].startswith(ALL_OF_IT)
            again[programs[name]] = record["filter"] if whole else ":".join(record["failed"])
    return run_all_tests(check, "again", again) if again else "none had failed"


def nccl(check):
    program = check.test_programs().get(NCCL_TEST)
    if not check.on_gpu:
        raise Skipped("wants a GPU")
    if program is None:
        raise Skipped(f"no {NCCL_TEST}; build it, or bundle a build that has it")
    return run_all_tests(check, "nccl", {program: "*"})


def variants(check):
    words = ["--cases", CASES] if check.on_gpu else ["--cases", ON_CPU, "--steps", 2, "--times", 1]
    return check.measuring_script("variants", *words, file="gpu_variants.py")


def profile(check):
    words = ["--cases", CASES] if check.on_gpu else ["--cases", ON_CPU, "--steps", 2]
    try:
        return check.measuring_script("profile", *words, "--out", check.work / "profile", file="gpu_profile.py")
    finally:
        if (check.work / "profile").is_dir():
            pack(check.work / "profile", check.out / "profile.tar.gz")


# --- stage 3 ---


def ranks(check):
    return losses(check, *([] if check.on_gpu else ["--workers", "2", "--strategies", "dp,owt-c"]))


def top1(done):
    return float(re.findall(r"top-1 ([\d.]+) %", done.text)[-1])


def train(check, precision, config, data):
    """Top-1 on the test images; `owt eval` must give the same."""
    out = check.work / f"accuracy-{precision}"
    how = ["--data", data, "--device", check.device, "--precision", precision, "--workers", 1]
    trained = check.command(f"train-{precision}", check.owt, "train", config, *how, "--out", out,
                            *([] if check.on_gpu else ["--steps", 8, "--set", "data.batch=16"]))
    if trained.status != 0:
        raise Failed(f"training in {precision}: {trained.how_it_ended()}: {trained.last_line()}")
    weights = sorted(out.glob("checkpoints/*/weights.safetensors"))[-1]
    again = check.command(f"eval-{precision}", check.owt, "eval", config, *how, "--weights", weights)
    if again.status != 0 or abs(top1(again) - top1(trained)) > 0.2:
        raise Failed(f"owt eval in {precision} after {top1(trained)} % in training: {again.last_line()}")
    return top1(trained)


def accuracy(check):
    if check.options.data:
        config, data, wanted = ROOT / "configs/cifar10_quick.toml", check.options.data, 75
    else:
        config, data, wanted = ROOT / "configs/quickstart.toml", check.work / "data", 99.9
        check.command("prepare", check.owt, "prepare", "synthetic", data,
                      *([] if check.on_gpu else ["--train", 200, "--test", 100]))
    notes, low = [], []
    for precision in ("fp32", "bf16") if check.on_gpu else ("fp32",):
        reached = train(check, precision, config, data)
        good = reached >= wanted or not check.on_gpu  # on the CPU there are too few steps
        check.results.add(kind="accuracy", precision=precision, config=config.name, top1=reached, wanted=wanted,
                          result="PASS" if good else "FAIL")
        notes.append(f"{precision} {reached} %")
        low += [] if good else [precision]
    if low:
        raise Failed(f"{', '.join(notes)}, wanted {wanted} %")
    return ", ".join(notes)


def sanitizers(check):
    tool = commands.find_tool("compute-sanitizer")
    programs = {path: SANITIZED[name] for name, path in check.test_programs().items() if name in SANITIZED}
    if not check.on_gpu:
        raise Skipped("wants a GPU")
    if tool is None or not programs:
        raise Skipped("compute-sanitizer is not installed" if tool is None else "no test programs")
    (check.out / "sanitizers.txt").unlink(missing_ok=True)
    records = [sanitize(check, tool, name, *item) for name in SANITIZERS for item in programs.items()]
    texts = {name: dict.fromkeys(record["text"] for record in records if record["tool"] == name) for name in SANITIZERS}
    note = "; ".join(f"{name} {', '.join(texts[name])}" for name in SANITIZERS)
    bad_tests = [f"{record['program']} {test}" for record in records for test in record["failed_tests"]]
    if bad_tests:
        note += f"; tests that failed under these tools: {', '.join(dict.fromkeys(bad_tests))}"
    results = [record["result"] for record in records]
    if "FAIL" in results or bad_tests:
        raise Failed(note)
    if "SKIP" in results:
        raise Skipped(note)
    return note


def sanitize(check, tool, name, program, chosen):
    """Runs the tests under one of compute-sanitizer's tools. What the tool finds is apart from tests that fail."""
    log = check.work / f"{name}-{program.name}.sanitizer"
    # owt's kernels only: kernels of cuDNN and cuBLAS are slow to check and not part of owt.
    done = check.command(f"{name}-{program.name}", tool, "--tool", name, "--target-processes", "all", "--kernel-name",
                         "kns=owt", "--check-exit-code", "no", "--report-api-errors", "no", "--log-file", log,
                         *(["--racecheck-report", "all"] if name == "racecheck" else []), program,
                         f"--gtest_filter={chosen}", most=60, OWT_CACHE=str(check.plans / "tests"))
    said = log.read_text(errors="replace") if log.exists() else ""
    with open(check.out / "sanitizers.txt", "a") as file:
        file.write(f"== {name}, {program.name}: {done.how_it_ended()}\n{said}")
    said += "".join(re.findall(r"^=========.*\n?", done.text, re.M))  # a tool that does not start has no log
    counts, tests = re.findall(r"SUMMARY: (\d+)", said), read_tests(done.text)
    refused = re.search(r"(?:not supported|nsupported|ERR_NVGPUCTRPERM|Unable to|ailed to initialize).*", said)
    found = list(dict.fromkeys(re.findall(r"^=+ (?!.*SUMMARY)(?=.*(?:[Ee]rror|[Ww]arning|Invalid|[Hh]azard))(.*)", said,
                                          re.M)))
    if any(map(int, counts)):
        result, text = "FAIL", f"found {sum(map(int, counts))} in {program.name}: {' | '.join(found[:4])}"
    elif done.status is None:
        result, text = "SKIP", f"{program.name} {done.how_it_ended()}"
    elif counts:
        ran = tests.passed or tests.failed or tests.unfinished
        result, text = ("PASS", "clean") if ran else ("FAIL", f"ran no test of {program.name}")
    elif refused:
        result, text = "SKIP", found[0] if found else refused.group()
    else:
        result, text = "FAIL", f"gave no summary of {program.name} ({done.how_it_ended()}): {done.last_line()}"
    return check.results.add(kind="sanitizer", tool=name, program=program.name, result=result, text=text,
                             failed_tests=tests.failed + tests.unfinished)


STAGES = {
    1: [Part("devices", "what is there", devices, 5, 90),
        Part("smoke", "20 steps, graphs on and off, two precisions", smoke, 10, 90),
        Part("owt", "the speed of owt", lambda check: speed(check, "owt", CASES), 20, 200),
        Part("tests", "the tests on the GPU", lambda check: tests(check, GPU_TESTS), 20, 240),
        Part("eager", "PyTorch, eager and captured", lambda check: speed(check, "eager,graphed", CASES), 30, 160),
        Part("compiled", "PyTorch, compiled, two cases", lambda check: speed(check, "compiled", SMALL), 60, 300)],
    2: [Part("again", "the failed tests once more", failed_tests, 20, 120),
        Part("nccl", "two processes on one GPU through NCCL", nccl, 20, 100),
        Part("variants", "owt with one thing switched", variants, 20, 200),
        Part("profile", "kernels of a step", profile, 30, 180),
        Part("compiled", "PyTorch, compiled", lambda check: speed(check, "compiled", CASES), 60, 500)],
    3: [Part("ranks", "the same losses with 1, 2 and 4 ranks", ranks, 20, 180),
        Part("accuracy", "accuracy", accuracy, 20, 120),
        Part("sanitizers", "compute-sanitizer", sanitizers, 20, 240),
        Part("speed", "speed, every case three times",
             lambda check: speed(check, "owt,eager,graphed", CASES, "--times", 3), 40, 260),
        Part("others", "the other tests", lambda check: tests(check, f"-{GPU_TESTS}"), 20, 500)],
}


def run_part(check, part, seconds):
    """Runs the part; prints and records its result."""
    begin = time.monotonic()
    check.end = begin + seconds
    try:
        if seconds < part.least:
            raise Skipped(f"{max(seconds, 0):.0f} s are left of --limit {check.options.limit}, too little")
        result, note = "PASS", part.run(check)
    except Skipped as skipped:
        result, note = "SKIP", str(skipped)
    except Failed as failed:
        result, note = "FAIL", str(failed)
    except Exception as error:  # an error in this script must not prevent later parts
        result, note = "FAIL", f"{type(error).__name__}: {error}"
    taken = time.monotonic() - begin
    check.results.add(kind="part", stage=check.options.stage, part=part.name, title=part.title, result=result,
                      seconds=round(taken, 1), note=note)
    print(f"{result}  {part.name:<10} {taken:4.0f} s  {part.title}{': ' if note else ''}{note}", flush=True)
    return result


def run_stage(check, parts):
    end = time.monotonic() + check.options.limit
    results = collections.Counter()
    for i, part in enumerate(parts):
        later = sum(other.least + GRACE for other in parts[i + 1:])
        results[run_part(check, part, min(part.most, end - time.monotonic() - later))] += 1
    return results


def read_options():
    parser = argparse.ArgumentParser(prog="gpu_check", description="See tools/gpu_check.sh --help.")
    parser.add_argument("stage", type=int, choices=sorted(STAGES))
    parser.add_argument("--parts", type=lambda text: text.split(","))
    parser.add_argument("--limit", type=int, default=550)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu-check"))
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--cpu-dry-run", action="store_true")
    options = parser.parse_args()
    names = [part.name for part in STAGES[options.stage]]
    for name in options.parts or []:
        if name not in names:
            parser.error(f"no part '{name}' in stage {options.stage}; there are {', '.join(names)}")
    for name in ("out", "build", "data"):
        if getattr(options, name):
            setattr(options, name, getattr(options, name).absolute())
    return options


def stop(message):
    sys.exit(f"gpu_check: error: {message}")


def check_devices(check):
    if not os.access(check.owt, os.X_OK):
        stop(f"no program {check.owt}; build first, or name the build with --build")
    try:
        found = subprocess.run([check.owt, "devices"], capture_output=True, text=True, env=check.environment,
                               timeout=60)
    except subprocess.TimeoutExpired:
        stop(f"{check.owt} devices did not end in a minute; does nvidia-smi?")
    if found.returncode != 0:
        stop(f"{check.owt} does not start: {(found.stderr.strip() or f'status {found.returncode}').splitlines()[0]}")
    if check.on_gpu and "cuda:0" not in found.stdout:
        said = next((line for line in found.stdout.splitlines() if line.startswith("cuda")), "owt devices lists none")
        stop(f"no GPU: {said}; --cpu-dry-run tries this script on the CPU")


def open_output(check):
    try:
        check.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        stop(f"cannot make the folder {check.out} ({error.strerror}); choose another --out")
    check.results = Results(check.out / "results.jsonl")
    kept = check.out / "plans.tar.gz"
    if kept.exists() and subprocess.run(["tar", "-C", check.work, "-xzf", kept]).returncode != 0:
        print(f"gpu_check: warning: {kept} is damaged; plans are measured anew", file=sys.stderr)


def main():
    options = read_options()
    with tempfile.TemporaryDirectory() as work:
        check = Check(options, pathlib.Path(work))
        check_devices(check)
        open_output(check)
        commands.end_with_commands(lambda: setattr(check, "end", -math.inf))
        parts = [part for part in STAGES[options.stage] if part.name in (options.parts or [part.name])]
        begin = time.monotonic()
        results = run_stage(check, parts)
    print(f"stage {options.stage}: {results['PASS']} passed, {results['FAIL']} failed, {results['SKIP']} skipped, "
          f"{time.monotonic() - begin:.0f} s; all of it is in {options.out}")
    sys.exit(1 if results["FAIL"] else 0)


if __name__ == "__main__":
    main()
