#!/usr/bin/env python3
"""Disturbs a run with changing workers at random, for as long as wanted, and compares its losses with an undisturbed run.

    usage: elastic_soak.py PROGRAM [--minutes M] [--strategies NAME,...] [--seed N] [--steps N] [--canonical]
                            [--out DIR]

In rounds, under one strategy after the other: owt launch --elastic 1:4 begins with 3 workers, each on its own host. The
hosts are network namespaces of this machine (virtual_hosts.sh); the launcher is on the first one. Events follow at
random:
  kill    a worker gets SIGKILL
  stop    a worker gets SIGSTOP, and SIGCONT after the others have continued
  cut     the link of a worker's host goes down, and comes back after the others have continued: at once, after 5 s, or
          after the worker has ended
  leave   a worker gets SIGUSR2
  join    another worker starts on a free host
After each event the script waits for the next world and for its first step. A worker that was stopped or cut must end by
itself within 60 s, with a line that says why. The script prints, for each event, the seconds from the event to the first
logged step (every fifth), and the steps that were computed again; at the end a table. Exits 1 at once if a run has ended
early or has another curve than one worker: more than 1e-4 in a loss; exits 1 at the end if an event took more than 10 s.
With --canonical (run.canonical) the last weights and optimizer states must be equal bit for bit too.
If namespaces cannot be made, all workers are on this host and no link is cut; a line says so.
"""
import argparse
import json
import os
import random
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from canonical_bits import hash_of

HERE = os.path.dirname(os.path.abspath(__file__))
RECIPE = os.path.join(HERE, "../../tests/support/small_images.toml")
# Smooth layers, so that rounding does not grow.
KEYS = ["run.log_every=5", "run.eval_every_epochs=0", "run.checkpoint_every_epochs=0", "run.checkpoint_every_steps=1000",
        "elastic.mirror_every=50", "optimizer.learning_rate=0.003", "optimizer.momentum=0.9",
        "model.layer.1.type=avg_pool", "model.layer.3.type=activation", "model.layer.3.kind=gelu",
        'data.augment={ mean = "channel", std = "channel" }', "parallel.timeout_s=2"]
EVENTS = KILL, STOP, CUT, LEAVE, JOIN = "kill", "stop", "cut", "leave", "join"
LEAST, WORKERS, MOST = 1, 3, 4
LONGEST = 10  # seconds from an event to the next step
LONGEST_END = 60  # seconds in which a worker ends that was given up; the roster is out of reach after 30
GIVEN_UP = "given this one up|cannot be reached any more"

HOSTS = 16  # workers that end keep theirs
FIRST = "h1"


def enter_hosts(out):
    """Runs this script among virtual hosts instead; returns if they cannot be made."""
    hosts = os.path.join(HERE, "virtual_hosts.sh")
    if subprocess.run(["bash", "-c", 'source "$0" && virtual_hosts_possible', hosts], check=False).returncode != 0:
        print("skipped: cut links", flush=True)
        return
    inside = f'source "$0" && make_hosts {HOSTS} 1gbit && exec python3 "$@"'
    os.execvp("bash", ["bash", "-c", 'source "$0" && enter_virtual_hosts "$@"', hosts, "-c", inside, hosts,
                       os.path.abspath(__file__), *sys.argv[1:], "--out", out])


def command(options, out, steps, strategy):
    line = [options.program, "train", RECIPE, "--out", out, "--parallel", strategy, "--steps", str(steps)]
    for key in KEYS:
        line += ["--set", key]
    return line + (["--set", "run.canonical=true"] if options.canonical else [])


def records(run, kind, most=None):
    """The last records of this kind, at most so many."""
    try:
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
            lines = [line for line in file if f'"kind":"{kind}"' in line and line.endswith("\n")]
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines[-most if most else None:]]


def curve(run):
    return {record["step"]: record["loss"] for record in records(run, "train")}


def last_step(run):
    return max((record["step"] for record in records(run, "train", most=1)), default=0)


def by_address():
    return os.path.join(os.environ["TMPDIR"], "by_address")


def alive(process):
    """Whether a worker's process exists; a zombie does not."""
    return bool(environment_of(process))


def printed(words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def set_link(host, state):
    subprocess.run(["ip", "link", "set", "v" + host[1:], state], check=True)


def environment_of(process):
    """Of a worker; of other processes, and after its end, empty."""
    try:
        with open(f"/proc/{process}/cmdline", "rb") as words:
            if words.read().split(b"\0")[1:2] != [b"train"]:
                return []
        with open(f"/proc/{process}/environ", "rb") as variables:
            return variables.read().decode().split("\0")
    except OSError:
        return []


class RunEnded(RuntimeError):
    """The launcher has ended."""


class Worker:
    """A process that trains. host: None without virtual hosts."""

    def __init__(self, process, virtual):
        self.process = process
        self.host = printed(["ip", "netns", "identify", str(process)]) if virtual else None
        self.rank = int(next(each for each in environment_of(process) if each.startswith("RANK="))[5:])


class Ending:
    """A worker that the others have given up. It has to end by itself."""

    def __init__(self, worker, said_before, link_up_at):
        self.worker, self.said_before, self.begin = worker, said_before, time.monotonic()
        self.link_up_at = link_up_at  # None: the link is up

    def connect(self):
        if self.link_up_at is not None:
            set_link(self.worker.host, "up")
        self.link_up_at = None

    def connect_in_time(self):
        if self.link_up_at is not None and time.monotonic() >= self.link_up_at:
            self.connect()


class Disturbed:
    """A run under owt launch --elastic."""

    def __init__(self, options, folder, strategy):
        self.folder, self.run, self.virtual = folder, os.path.join(folder, "run"), options.virtual
        self.line = command(options, self.run, options.steps, strategy)
        self.program, self.address, self.launchers, self.ending, self.ends = options.program, None, [], [], []
        hosts = ",".join(f"10.99.0.{number + 1}" for number in range(WORKERS))
        where = ["--hosts", hosts, "--ssh", by_address()] if self.virtual else ["--workers", str(WORKERS)]
        self.launch(self.first_host(), [*where, "--elastic", f"{LEAST}:{MOST}"])
        self.until(lambda: last_step(self.run) > 0)
        self.address = re.search(r"--join (\S+) ", self.said(self.first_host())).group(1)
        self.ranks = sorted(self.new_workers(known=[]), key=lambda worker: worker.rank)

    def first_host(self):
        return FIRST if self.virtual else None

    def launch(self, host, words):
        """Starts owt launch on the host."""
        words = [self.program, "launch", *words, *self.line]
        if host:
            words = [by_address(), host.replace("h", "10.99.0."), "exec " + shlex.join(words)]
        with open(self.output_of(None), "a", encoding="utf-8") as output:
            self.launchers.append(subprocess.Popen(words, stdout=output, stderr=output,
                                                   env={**os.environ, "virtual_hosts_output": self.folder}))

    def output_of(self, host):
        return os.path.join(self.folder, host or "output")

    def said(self, host):
        with open(self.output_of(host), encoding="utf-8", errors="replace") as output:
            return output.read()

    def processes(self):
        """Of the workers."""
        mine = f"OWT_ROSTER={self.address}"
        return [int(each) for each in os.listdir("/proc") if each.isdigit() and mine in environment_of(each)]

    def new_workers(self, known):
        return [Worker(process, self.virtual) for process in self.processes() if process not in known]

    def until(self, condition):
        end = time.monotonic() + LONGEST_END
        while not condition():
            if self.launchers[0].poll() is not None:
                raise RunEnded(f"the run has ended with {self.launchers[0].returncode}")
            if time.monotonic() > end:
                raise RuntimeError(f"nothing has happened for {LONGEST_END} s")
            self.look_at_ending()
            time.sleep(0.05)

    def look_at_ending(self):
        for each in list(self.ending):
            each.connect_in_time()
            if alive(each.worker.process):
                if time.monotonic() > each.begin + LONGEST_END:
                    raise RuntimeError(f"{each.worker.host}: process {each.worker.process} has not ended")
                continue
            each.connect()
            said = self.said(each.worker.host)[each.said_before:]
            # The launcher kills a stopped worker of its own host.
            if each.worker.host != self.first_host() and not re.search(GIVEN_UP, said):
                raise RuntimeError(f"{each.worker.host}: process {each.worker.process} has ended without a line")
            self.ends.append(time.monotonic() - each.begin)
            self.ending.remove(each)

    def free_hosts(self):
        if not self.virtual:
            return [None]
        return [host for host in (f"h{number + 1}" for number in range(HOSTS))
                if host not in [each.worker.host for each in self.ending] and not printed(["ip", "netns", "pids", host])]

    def may(self, event):
        """The workers, or the hosts, to which the event may happen."""
        if event == JOIN:
            return self.free_hosts() if len(self.ranks) < MOST else []
        if len(self.ranks) == LEAST:
            return []
        elsewhere = [worker for worker in self.ranks if worker.host != self.first_host()]
        if event == CUT:
            return elsewhere
        if event == STOP:  # a stopped rank 0 on another host keeps the run folder
            return [worker for worker in self.ranks if worker is not self.ranks[0] or worker not in elsewhere]
        return self.ranks

    def disturb(self, event, draw):
        """Returns the seconds until the next world has done a step, and the record of this world."""
        before, known, chosen = len(records(self.run, "world")), self.processes(), draw.choice(self.may(event))
        begin = time.monotonic()
        if event == JOIN:
            self.launch(chosen, ["--join", self.address, "--workers", "1"])
        else:
            said_before = len(self.said(chosen.host))
            self.ranks.remove(chosen)
            if event == CUT:
                set_link(chosen.host, "down")
            else:
                os.kill(chosen.process, {KILL: signal.SIGKILL, STOP: signal.SIGSTOP, LEAVE: signal.SIGUSR2}[event])
        self.until(lambda: len(records(self.run, "world")) > before)
        world = records(self.run, "world")[-1]
        self.until(lambda: last_step(self.run) > world["step"])
        seconds = time.monotonic() - begin
        if event == JOIN:
            self.ranks += self.new_workers(known)
        if event in (STOP, CUT):
            link_up_at = time.monotonic() + draw.choice((0, 5, LONGEST_END)) if event == CUT else None
            self.ending.append(Ending(chosen, said_before, link_up_at))
        if event == STOP and alive(chosen.process):
            os.kill(chosen.process, signal.SIGCONT)
        return seconds, world

    def end(self):
        for each in self.ending:
            each.connect()
        while self.ending:
            self.look_at_ending()
            time.sleep(0.05)
        code = self.launchers[0].wait()
        if code != 0:
            raise RunEnded(f"exit code {code}")
        self.kill()  # a worker that was disturbed after the last step
        if self.virtual:
            for number in range(HOSTS):
                set_link(f"h{number + 1}", "up")

    def kill(self):
        for process in [*self.processes(), *(each.pid for each in self.launchers)]:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass


def one_round(options, folder, strategy, draw, undisturbed, undisturbed_hash, figures):
    """Returns the seconds in which the workers that were given up ended, and the largest difference of a loss."""
    os.makedirs(folder)
    run = Disturbed(options, folder, strategy)
    try:
        while last_step(run.run) < 0.8 * options.steps:
            event = draw.choice([event for event in EVENTS if run.may(event)])
            workers = len(run.ranks)
            try:
                seconds, world = run.disturb(event, draw)
            except RunEnded:
                if run.launchers[0].returncode != 0:
                    raise
                break  # the last step was before the event
            figures.append((event, seconds, world["repeated"]))
            late = f" LATE, load {os.getloadavg()[0]:.1f}" if seconds > LONGEST else ""
            print(f"{strategy}: {event}: {workers} -> {world['workers']} workers, {seconds:.1f} s, "
                  f"{world['repeated']} steps again{late}", flush=True)
            if not world["workers"] == len(run.ranks) == workers + (1 if event == JOIN else -1):
                raise RuntimeError("unexpected")
        run.end()
        ours = curve(run.run)
        if set(ours) != set(undisturbed):
            raise RuntimeError("steps are missing")
        worst = max(abs(ours[step] - undisturbed[step]) for step in ours)
        print(f"{strategy}: largest difference of a loss: {worst:.1e}", flush=True)
        if worst > 1e-4:
            raise RuntimeError("another curve")
        if options.canonical and hash_of(run.run) != undisturbed_hash:
            raise RuntimeError("other bits")
        return run.ends, worst
    except BaseException:
        run.kill()
        print(f"FAILED under {strategy}: see {folder}", file=sys.stderr)
        raise


def main():
    parser = argparse.ArgumentParser(description="Disturbs runs with changing workers at random.")
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("--minutes", type=float, default=5, metavar="M")
    parser.add_argument("--strategies", default="dp,owt-a,owt-c,owt-d,mp,dp-zero", metavar="NAME,...")
    parser.add_argument("--steps", type=int, default=20000, metavar="N", help="of a round")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--canonical", action="store_true", help="compare bits")
    parser.add_argument("--out", metavar="DIR", help="of the runs (default: a new folder)")
    options = parser.parse_args()
    options.program = os.path.abspath(options.program)
    options.virtual = "inside_virtual_hosts" in os.environ
    out = os.path.abspath(options.out or tempfile.mkdtemp(prefix="elastic_soak-"))
    if not options.virtual:
        enter_hosts(out)

    os.environ["OMP_NUM_THREADS"] = "1"
    alone = os.path.join(out, "undisturbed")
    subprocess.run([*command(options, alone, options.steps, "dp"), "--workers", "1"], check=True, capture_output=True)
    undisturbed, figures, ends, worst, draw = curve(alone), [], [], 0, random.Random(options.seed)
    end, number = time.monotonic() + 60 * options.minutes, 0
    names = options.strategies.split(",")
    while time.monotonic() < end:
        folder = os.path.join(out, f"round-{number}")
        more_ends, difference = one_round(options, folder, names[number % len(names)], draw, undisturbed,
                                          hash_of(alone), figures)
        ends, worst, number = ends + more_ends, max(worst, difference), number + 1
    print(f"\n{number} rounds, {len(figures)} events, largest difference of a loss {worst:.1e}")
    if ends:
        print(f"{len(ends)} workers that were given up ended after {statistics.median(ends):.0f} s, "
              f"at most {max(ends):.0f} s")
    print("\n| event | number | median s | longest s | most steps again |\n|---|---|---|---|---|")
    for event in EVENTS:
        of_event = [figure for figure in figures if figure[0] == event]
        if of_event:
            seconds = [figure[1] for figure in of_event]
            print(f"| {event} | {len(of_event)} | {statistics.median(seconds):.1f} | {max(seconds):.1f} "
                  f"| {max(figure[2] for figure in of_event)} |")
    late = sum(seconds > LONGEST for _, seconds, _ in figures)
    if late > 0:
        sys.exit(f"{late} events took more than {LONGEST} s")


if __name__ == "__main__":
    main()
