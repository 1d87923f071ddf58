#!/usr/bin/python3
"""Table and checks of slow_network.sh, from the folder with its measurements.

    usage: slow_network.py FOLDER

FOLDER/counters has a line for each point: net, hosts, rate, strategy (dp/8: with parallel.average_every = 8), steps
between the two runs; then for the short run and for the long run the bytes sent by all interfaces, without and with
all headers. NET-HOSTS-RATE-STRATEGY.csv (dp_8) is the table of `owt time` for the long run. NET-HOSTS-RATE.json
(NET-HOSTS-RATE-every8.json) is the prediction of `owt plan`. NET-HOSTS-RATE-auto.csv.log is the log of auto with its
choice. A missing file is an error; a strategy without a prediction is skipped.
"""
import csv
import json
import pathlib
import re
import sys

DATA_PARALLEL = ("dp", "dp-zero", "dp-star")


class NotPredicted(Exception):
    pass


class Point:
    def __init__(self, folder, line):
        words = line.split()
        self.net, self.hosts, self.rate, self.strategy = words[0], int(words[1]), words[2], words[3]
        steps, short, short_wire, long, long_wire = map(int, words[4:])
        self.bytes = (long - short) / steps / self.hosts
        self.wire = (long_wire - short_wire) / steps / self.hosts
        stem = f"{self.net}-{self.hosts}-{self.rate}"
        with open(folder / f"{stem}-{self.strategy.replace('/', '_')}.csv", newline="") as file:
            self.ms = next(float(row["ms"]) for row in csv.DictReader(file) if row["kind"] == "step")
        name, _, self.every = self.strategy.partition("/")
        stem += f"-every{self.every}" if self.every else ""
        plan = json.loads((folder / f"{stem}.json").read_text())
        self.best = plan["best"]  # the prediction
        name = self.chosen(folder / f"{stem}-auto.csv.log") if name == "auto" else name
        self.ran = name
        found = [one for one in plan["strategies"] if one["name"] == name]
        if not found:
            raise NotPredicted(f"left out, {stem}.json predicts nothing for it: {self.place()}, {self.strategy}")
        self.planned = found[0]["bytes"]
        self.predicted_ms = 1e3 * found[0]["step_s"]
        self.exposed = found[0]["exposed_s"] / found[0]["step_s"]

    def chosen(self, log):
        """The strategy that auto chose in the timed run."""
        for text in log.read_text().splitlines():
            found = re.match(r"strategy auto: ([a-z0-9 -]+): ", text)
            if found:
                return found[1]
        raise SystemExit(f"slow_network: error: {log} does not say what auto chose")

    def group(self):
        return self.net, self.hosts, self.rate

    def name(self):
        return f"auto = {self.ran}" if self.strategy == "auto" else self.strategy

    def place(self):
        return f"{self.net}, {self.hosts} hosts, {self.rate}"

    def byte_error(self):
        return self.bytes / self.planned - 1

    def time_error(self):
        return self.predicted_ms / self.ms - 1


def line(point, baseline):
    return (f"{point.name():<18} {point.ms:>9.1f} {point.predicted_ms:>10.1f} {100 * point.time_error():>+7.0f} % "
            f"{100 * point.exposed:>7.0f} % {point.bytes / 1e6:>9.3f} {point.planned / 1e6:>9.3f} "
            f"{100 * point.byte_error():>+6.1f} % {100 * (point.wire / point.planned - 1):>+6.1f} % "
            + (f"{baseline.ms / point.ms:>8.2f}x" if baseline else ""))


def table(groups):
    for points in groups.values():
        print(f"\n{points[0].place()}")
        print(f"{'':<18} {'ms/step':>9} {'predicted':>10} {'error':>9} {'waiting':>9} {'MB sent':>9} {'planned':>9} "
              f"{'more':>8} {'on wire':>8} {'against dp':>9}")
        baseline = next((point for point in points if point.strategy == "dp"), None)
        for point in points:
            print(line(point, baseline))


def fastest(points):
    return min(points, key=lambda point: point.ms)


def least_ms(points):
    return min(point.ms for point in points if point.strategy != "auto" and not point.every)


def check(wanted, points, fails, describe):
    """One line: the number of points that are as wanted, and the other points. No line without points."""
    if not points:
        return
    missed = [point for point in points if fails(point)]
    print(f"{'miss' if missed else 'pass'}: {wanted}: {len(points) - len(missed)} of {len(points)}")
    for point in missed:
        print(f"        {point.place()}, {describe(point)}")


def checks(points, groups):
    print()
    # Before training, auto measures the network for a fixed time, which sends an unknown number of bytes. The plan of a
    # pipeline of several stages gives the bytes of the stage that sends most.
    check("the interfaces counted the plan's bytes to 5 %",
          [point for point in points if point.strategy not in ("auto", "pipeline")],
          lambda point: abs(point.byte_error()) > 0.05,
          lambda point: f"{point.name()}: {100 * point.byte_error():+.1f} %")
    check("the step time was predicted to 25 % where more than half of it is waiting for the network",
          [point for point in points if point.exposed > 0.5], lambda point: abs(point.time_error()) > 0.25,
          lambda point: f"{point.name()}: {100 * point.time_error():+.0f} %")
    # auto's choice used its own measurement, and local SGD makes other updates; neither is a candidate here.
    chosen = [point for group in groups.values() for point in group if point.strategy == point.best]
    check("the strategy predicted to be the fastest was, or took 5 % longer at most", chosen,
          lambda point: point.ms > 1.05 * least_ms(groups[point.group()]),
          lambda point: f"{point.name()}: {100 * (point.ms / least_ms(groups[point.group()]) - 1):+.0f} %")
    for group in groups.values():
        by_name = {point.strategy: point for point in group}
        plain = [by_name[name] for name in DATA_PARALLEL if name in by_name]
        split = [point for name, point in by_name.items()
                 if name not in DATA_PARALLEL + ("auto",) and not point.every]
        if not plain or not split:
            continue
        best, other = fastest(split), fastest(plain)
        if group[0].net == "alexnet_small" and group[0].rate == "1gbit" and "dp" in by_name:
            check(f"large dense layers, {group[0].hosts} hosts at 1 Gbit/s: {best.strategy} is at least three times as fast"
                  f" as dp ({by_name['dp'].ms / best.ms:.2f} times; {other.ms / best.ms:.2f} times as {other.strategy})",
                  [best], lambda point: by_name["dp"].ms < 3 * point.ms,
                  lambda point: f"{point.strategy}: {point.ms:.1f} ms against {by_name['dp'].ms:.1f} ms")
        if group[0].net == "cifar10_quick":
            check(f"no large dense layer, {group[0].hosts} hosts at {group[0].rate}: data parallelism is fastest"
                  f" ({other.strategy} {other.ms:.1f} ms, {best.strategy} {best.ms:.1f} ms), and the planner's choice",
                  [other], lambda point: point.ms > best.ms or point.best not in DATA_PARALLEL,
                  lambda point: f"fastest: {fastest([each for each in group if not each.every]).name()}; "
                                f"the planner chose {point.best}")


def main():
    if len(sys.argv) != 2:
        raise SystemExit("usage: slow_network.py FOLDER")
    folder = pathlib.Path(sys.argv[1])
    points, groups = [], {}
    for text in (folder / "counters").read_text().splitlines():
        try:
            points.append(Point(folder, text))
        except NotPredicted as left_out:
            print(left_out)
    for point in points:
        groups.setdefault(point.group(), []).append(point)
    if not points:
        raise SystemExit("slow_network: error: nothing was measured")
    print("waiting: predicted share of the step that is neither computed nor hidden. MB sent: per host and step, by the\n"
          "counters of the interfaces, which see one set of headers for several frames sent as one; on wire: with the\n"
          "headers of every frame (Ethernet, IP, TCP), against the plan.")
    table(groups)
    checks(points, groups)


if __name__ == "__main__":
    main()
