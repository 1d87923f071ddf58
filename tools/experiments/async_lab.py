#!/usr/bin/python3
"""Gains and costs of asynchronous training on CIFAR-10: experiments with `owt simulate`, as tables.

    usage: async_lab.py --owt PROGRAM --data DIR [--out DIR] [--only NAME,...] [--net NAME] [--workers K,K,...]
                        [--seeds N,N,...] [--steps N] [--loss L] [--jobs J]

Experiments:
  delay       bounded delay from 0 to no bound, with tasks of which a fifth take four times as long
  downpour    single pushes: at the full rate, at rate / K, after a quarter of an epoch of synchronous warm-up, with
              Adagrad; and a synchronous step with K times the learning rate
  warm        the same after a whole epoch of synchronous warm-up; for --steps 700 or more
  depth       the same delays for a net of three convolutions and one of seven, with momentum 0 and 0.9
  filters     push filters: bytes against accuracy
  blocks      delayed block proximal gradient: objective and zeros against the delay
  strategies  time to a loss for strategies with and without servers, over three kinds of links
The net is cifar10_quick, or cifar10_alexnet (a small AlexNet with most of its weights in dense layers), except in
`depth`.

Every run is one simulation with one seed. Runs that are in --out already, from any experiment, are not repeated. A
case whose updates are bit-identical to another case is simulated for its times only, and takes the losses of that
case. Times are simulated. A loss is reached when the mean of five records of ten steps reaches it. Prints tables as
Markdown.
"""
import argparse
import concurrent.futures
import hashlib
import os
import shutil
import sys

import accuracy_runs
from accuracy_runs import lines_of, mean, numbers, percent, table
from commands import end_with_commands, run

# Factor for the learning rates below, which are for cifar10_quick, and changes to cifar10_quick's recipe. The weights
# of cifar10_quick are initialized for pixels up to 255, the weights of the other net as in He et al. 2015.
NETS = {"cifar10_quick": (1, {}),
        "cifar10_alexnet": (10, {"model": "models/cifar10_alexnet.toml", "data.augment.mean": "channel",
                                 "data.augment.std": "channel", "optimizer.decay": 0.0005})}
QUICK = "cifar10_quick"
MOST_STAGES = 8  # stages of a pipeline: cifar10_quick has 7 places for a cut, the other net 9
SECONDS = 3600  # time limit of a run
RECORDS = 5  # number of records whose mean loss counts
COMPUTE_BOUND = ["--bandwidth", "10Gbit", "--straggler", "20%:4"]
PLAIN = {"optimizer.momentum": 0, "optimizer.learning_rate": 0.005}  # the recipe has 0.001 with a momentum of 0.9
ADAGRAD = {"optimizer.type": "adagrad", "optimizer.momentum": "", "optimizer.learning_rate": 0.0003,
           "optimizer.decay": 0}
PROXIMAL = {"optimizer.type": "proximal", "optimizer.momentum": "", "optimizer.decay": 0,
            "optimizer.learning_rate": 0.005}
DELAYS = ["0", "1", "2", "4", "8", "16", "inf"]


class Case:
    """One line of a table: options of owt simulate and recipe keys, for every seed. recipe: used for any --net."""

    def __init__(self, label, words, keys=None, recipe=None, learns_as=None):
        self.label, self.words, self.keys, self.recipe = label, words, keys or {}, recipe
        if learns_as:
            self.words = [*words, "--times-only"]
        self.learns_as = learns_as or self
        self.runs = []  # run folders


def servers(workers):
    return ["--servers", str(workers)]


def bounded(workers, delay, label=None):
    return Case(label or delay, ["--delay", delay, *servers(workers), *COMPUTE_BOUND], PLAIN)


def synchronous(workers):
    return bounded(workers, "0", "synchronous")


def delay_cases(workers):
    return [bounded(workers, delay) for delay in DELAYS]


def eventual(workers):
    return ["--delay", "inf", *servers(workers), *COMPUTE_BOUND]


def at(rate):
    return PLAIN | {"optimizer.learning_rate": rate}


def downpour_cases(workers):
    alone = eventual(workers)
    return [synchronous(workers),
            Case("full rate", [*alone, "--full-rate"], PLAIN),
            Case("full rate, warm-up", [*alone, "--full-rate", "--async-from-epoch", "0.25"], PLAIN),
            Case("rate / K", alone, PLAIN),
            Case("rate / K, warm-up", [*alone, "--async-from-epoch", "0.25"], PLAIN),
            Case("full rate, Adagrad", [*alone, "--full-rate"], ADAGRAD),
            Case("rate / K, 5 tasks a push", [*alone, "--push-every", "5", "--pull-every", "5"], PLAIN),
            Case("synchronous, K x rate", synchronous(workers).words, at(0.005 * workers)),
            Case("0.4 x full rate", [*alone, "--full-rate"], at(0.002))]


def warm_cases(workers):
    warm = [*eventual(workers), "--async-from-epoch", "1"]
    return [synchronous(workers),
            Case("full rate", [*warm, "--full-rate"], PLAIN),
            Case("0.4 x full rate", [*warm, "--full-rate"], at(0.002)),
            Case("rate / K", warm, PLAIN),
            Case("full rate, Adagrad", [*warm, "--full-rate"], ADAGRAD)]


def depth_cases(workers):
    deep = {"optimizer.decay": 0.0005}
    cases = []
    for net, rate, keys in (("cifar10_quick", 0.005, {}), ("cifar10_vgg", 0.05, deep)):
        for momentum in (0, 0.9):
            for delay in ("0", "4", "16"):
                cases.append(Case(f"{net}, momentum {momentum}, delay {delay}",
                                  ["--delay", delay, *servers(workers), *COMPUTE_BOUND],
                                  keys | {"optimizer.momentum": momentum,
                                          "optimizer.learning_rate": rate * (1 - momentum)}, net))
    return cases


def filter_cases(workers):
    filters = [[], ["bf16"], ["fix16"], ["fix8"], ["coin8"], ["significant:0.5"], ["top:0.1"], ["top:0.01"],
               ["top:0.01", "fix8"], ["skip:0.1"]]
    return [Case(", ".join(each) or "none", [word for name in each for word in ("--filter", name)] + servers(workers),
                 PLAIN, learns_as=None if each else synchronous(workers)) for each in filters]


def block_cases(workers):
    sparse = PROXIMAL | {"optimizer.l1": 0.005}
    whole = [Case("all layers, delay 0", [*servers(workers), *COMPUTE_BOUND], sparse),
             Case("all layers, delay 0, kkt:0.9", ["--filter", "kkt:0.9", *servers(workers), *COMPUTE_BOUND], sparse)]
    blocks = lambda order, delay, *words: ["--blocks", order, "--delay", delay, *words, *servers(workers),
                                           *COMPUTE_BOUND]
    random = [Case(f"random, delay {delay}", blocks("random", delay), sparse) for delay in ("0", "2", "4", "8")]
    slower = [Case(f"random, delay {delay}, rate / (1 + 0.1 delay)", blocks("random", delay, "--rate-by-delay", "0.1"),
                   sparse) for delay in ("4", "8")]
    return [*whole, *random, *slower, Case("given, delay 4", blocks("given", "4"), sparse)]


LINKS = {"10 Gbit/s, stragglers": COMPUTE_BOUND, "1 Gbit/s": ["--bandwidth", "1Gbit"],
         "100 Mbit/s": ["--bandwidth", "100Mbit"]}


# Synchronous strategies have the losses of dp over any links, and local SGD has its own. The cases are ordered by link.
def strategy_cases(workers):
    cases = []
    of_dp, of_local_sgd = synchronous(workers), None
    planned = ["dp", "dp-star", "owt-d"] + (["pipeline"] if workers <= MOST_STAGES else [])
    for words in LINKS.values():
        for strategy in planned:
            cases.append(Case(strategy, ["--strategy", strategy, *words], PLAIN, learns_as=of_dp))
        cases.append(Case("local SGD, 8 steps", ["--strategy", "dp", *words], PLAIN | {"parallel.average_every": 8},
                          learns_as=of_local_sgd))
        of_local_sgd = of_local_sgd or cases[-1]
        for delay in ("0", "4", "16"):
            cases.append(Case(f"ps, delay {delay}", ["--delay", delay, *servers(workers), *words], PLAIN,
                              learns_as=of_dp if delay == "0" else None))
        cases.append(Case("ps, delay 4, top:0.01", ["--delay", "4", "--filter", "top:0.01", *servers(workers), *words],
                          PLAIN))
    return cases


EXPERIMENTS = {"delay": delay_cases, "downpour": downpour_cases, "warm": warm_cases, "depth": depth_cases,
               "filters": filter_cases, "blocks": block_cases, "strategies": strategy_cases}


def command(options, case, workers, seed):
    times, of_net = NETS[QUICK if case.recipe else options.net]
    keys = {"data.batch": 128, "run.seed": seed, "run.log_every": 10, "run.eval_every_epochs": 0,
            "run.checkpoint_every_epochs": 0, "run.equality_every": 0} | of_net | case.keys
    keys["optimizer.learning_rate"] *= times
    data = [] if "--times-only" in case.words else ["--data", options.data]
    line = [options.owt, "simulate", accuracy_runs.config(case.recipe or QUICK), *data, "--threads", "1", "--workers",
            str(workers), "--steps", str(options.steps), *case.words]
    for key, value in keys.items():
        line += ["--set", f"{key}={value}"]
    return line


def is_done(folder, words):
    """Whether the folder holds a complete run of this command, by any program."""
    if not os.path.exists(os.path.join(folder, "metrics.jsonl")):
        return False
    starts = lines_of(folder, "start")
    if not starts or starts[-1]["facts"]["command"].split()[1:] != words[1:]:
        return False
    return any(end["state"] in ("finished", "diverged") for end in lines_of(folder, "end"))


def simulate(options, case, workers, seed, folder):
    """Runs that diverge are results too: they exit with status 1 and record it in their metrics."""
    words = [*command(options, case, workers, seed), "--out", folder]
    if is_done(folder, words):
        return
    shutil.rmtree(folder, ignore_errors=True)  # a simulation cannot be resumed
    status = run(words, SECONDS, folder + ".log")
    if not is_done(folder, words):
        sys.exit(f"{folder}: exit status {status}, see {folder}.log")


def folder_of(options, case, workers, seed):
    of_command = hashlib.sha256(" ".join(command(options, case, workers, seed)[1:]).encode()).hexdigest()
    return os.path.join(options.out, f"k{workers}-seed{seed}-{of_command[:16]}")


def simulate_all(options, name, workers, cases):
    pool = concurrent.futures.ThreadPoolExecutor(options.jobs)
    jobs = {}  # by folder, because cases may share runs
    try:
        for seed in options.seeds:
            for case in dict.fromkeys(each for case in cases for each in (case.learns_as, case)):
                folder = folder_of(options, case, workers, seed)
                case.runs.append(folder)
                if folder not in jobs:
                    jobs[folder] = pool.submit(simulate, options, case, workers, seed, folder)
        for done, job in enumerate(concurrent.futures.as_completed(jobs.values()), 1):
            job.result()
            print(f"{name}, {workers} workers: {done} of {len(jobs)} runs", file=sys.stderr, flush=True)
    finally:
        pool.shutdown(cancel_futures=True)  # if this process is terminated, runs that have not begun are cancelled


def reached(learnt, timed, loss):
    """Step and virtual seconds at which the loss was reached, or None. learnt, timed: folders with losses and with
    times."""
    records = lines_of(learnt, "train")
    seconds = {record["step"]: record["seconds"] for record in lines_of(timed, "train")}
    for end in range(RECORDS, len(records) + 1):
        losses = [record["loss"] for record in records[end - RECORDS:end]]
        if None not in losses and mean(losses) <= loss:
            return records[end - 1]["step"], seconds[records[end - 1]["step"]]
    return None


def shown(values, digits):
    """Mean and deviation of the values that exist, and how many are missing."""
    there = [value for value in values if value is not None]
    if not there:
        return "never"
    spread = (sum((value - mean(there)) ** 2 for value in there) / max(len(there) - 1, 1)) ** 0.5
    lacking = f" ({len(values) - len(there)} never)" if len(there) < len(values) else ""
    return f"{mean(there):.{digits}f} +- {spread:.{digits}f}{lacking}"


def finished(folder):
    return lines_of(folder, "end")[-1]["state"] == "finished"


def idle_and_staleness(folder):
    if not finished(folder):
        return None, None
    record = lines_of(folder, "simulation")[-1]
    workers = record["workers"]
    idle = 100 * max(0, mean([1 - worker["computing"] - worker["on_the_way"] for worker in workers]))
    gradients = sum(record["staleness"].values())
    return idle, sum(int(updates) * count for updates, count in record["staleness"].items()) / gradients


def megabytes(folder):
    if not finished(folder):
        return None
    record = lines_of(folder, "simulation")[-1]
    sent = record.get("bytes_between_workers", 0) or record.get("bytes_to_servers", 0)
    return sent / record["step"] / 1e6


def evaluation(folder, key):
    return lines_of(folder, "eval")[-1].get(key) if finished(folder) else None


def seconds_to(case, loss):
    found = [reached(*folders, loss) for folders in zip(case.learns_as.runs, case.runs)]
    return shown([each and each[1] for each in found], 2)


def steps_to(case, loss):
    found = [reached(folder, folder, loss) for folder in case.learns_as.runs]
    return shown([each and each[0] for each in found], 0)


def top1(case):
    values = [evaluation(folder, "top1") for folder in case.learns_as.runs]
    alive = [value for value in values if value is not None]
    diverged = f" ({len(values) - len(alive)} diverged)" if len(alive) < len(values) else ""
    return ((percent(alive) if alive else "") + diverged).strip()


def pushed(case):
    return shown([megabytes(folder) for folder in case.runs], 2)


def table_of_cases(options, name, cases):
    head = [name, f"steps to a loss of {options.loss:g}", "simulated seconds", "idle, %", "staleness, updates",
            "MB pushed per step", f"top-1 after {options.steps} steps"]
    rows = []
    for case in cases:
        idle, stale = zip(*map(idle_and_staleness, case.runs))
        rows.append([case.label, steps_to(case, options.loss), seconds_to(case, options.loss), shown(idle, 1),
                     shown(stale, 1), pushed(case), top1(case)])
    return head, rows


def table_of_blocks(options, name, cases):
    head = [name, f"simulated seconds for {options.steps} steps", "MB pushed per step", "idle, %", "objective",
            "zeros, %", "top-1"]
    rows = []
    for case in cases:
        of_all = [lines_of(folder, "end")[-1]["seconds"] if finished(folder) else None for folder in case.runs]
        idle, _ = zip(*map(idle_and_staleness, case.runs))
        objective = [None if evaluation(folder, "loss") is None
                     else evaluation(folder, "loss") + evaluation(folder, "penalty") for folder in case.runs]
        zeros = [evaluation(folder, "zeros") for folder in case.runs]
        rows.append([case.label, shown(of_all, 2), pushed(case), shown(idle, 1), shown(objective, 3),
                     shown([zero and 100 * zero for zero in zeros], 1), top1(case)])
    return head, rows


def table_of_strategies(options, name, cases):
    """A line for every strategy, whatever the links; of several accuracies the first is that of the first links."""
    head = [name, "MB pushed per step", *(f"{links}, s" for links in LINKS), f"top-1 after {options.steps} steps"]
    each = len(cases) // len(LINKS)
    rows = []
    for first in range(each):
        alike = cases[first::each]
        rows.append([alike[0].label, pushed(alike[0]), *(seconds_to(case, options.loss) for case in alike),
                     "; ".join(dict.fromkeys(map(top1, alike)))])
    return head, rows


def main():
    parser = argparse.ArgumentParser(description="Experiments of owt simulate on CIFAR-10, as tables.")
    parser.add_argument("--owt", required=True, metavar="PROGRAM")
    parser.add_argument("--data", required=True, metavar="DIR", help="of CIFAR-10")
    parser.add_argument("--out", default="async_lab", metavar="DIR", help="of the runs")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(EXPERIMENTS), metavar="NAME,...")
    parser.add_argument("--net", choices=list(NETS), default=QUICK)
    parser.add_argument("--workers", type=numbers, default=[8], metavar="K,K,...")
    parser.add_argument("--seeds", type=numbers, default=[1, 2, 3, 4, 5], metavar="N,N,...")
    parser.add_argument("--steps", type=int, default=300, metavar="N", help="of 128 images; 391 are an epoch")
    parser.add_argument("--loss", type=float, default=1.6, metavar="L", help="to be reached")
    parser.add_argument("--jobs", type=int, default=2, metavar="J", help="runs at a time")
    options = parser.parse_args()
    if unknown := set(options.only) - set(EXPERIMENTS):
        parser.error(f"no experiment '{unknown.pop()}'; there are {', '.join(EXPERIMENTS)}")

    end_with_commands()
    os.makedirs(options.out, exist_ok=True)
    tables = {"blocks": table_of_blocks, "strategies": table_of_strategies}
    for name in options.only:
        head, rows = [], []
        for workers in options.workers:
            cases = EXPERIMENTS[name](workers)
            simulate_all(options, name, workers, cases)
            head, more = tables.get(name, table_of_cases)(options, name, cases)
            rows += [[str(workers), *row] for row in more]
        print("\n" + table(["workers", *head], rows), flush=True)


if __name__ == "__main__":
    main()
