"""`owt log-to`: sends runs to the local folders of Weights & Biases, MLflow or TensorBoard, with their own packages."""
import argparse
import contextlib
import datetime
import hashlib
import math
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

from owt.reader import Error, blocks_of, record_of, runs

POLL = 1.0  # seconds


def values_of(record):
    """{name: value} of a line of metrics.jsonl, with the names of owt's own TensorBoard files (docs/report.md)."""
    kind = record.get("kind")
    if kind == "train":
        names = {"loss": "loss/train", "top1": "top1/train"}
        return {names.get(key, key): _number(value) for key, value in record.items()
                if key not in ("kind", "step", "seconds") and not isinstance(value, (str, dict, list))}
    if kind == "eval":
        split = {"val": "validation"}.get(record.get("split"), record.get("split"))
        return {f"{key}/{split}": _number(record[key]) for key in ("loss", "top1", "top5", "penalty", "zeros")
                if key in record}
    if kind == "weights":
        values, changes = {}, record.get("change", {})
        for name, mean in record.get("mean", {}).items():
            values[f"weight_mean/{name}"] = mean = _number(mean)
            if name in changes:
                values[f"weight_change/{name}"] = change = _number(changes[name])
                values[f"weight_ratio/{name}"] = change / mean if mean else math.nan
        return values
    if kind == "world":
        return {"workers": _number(record.get("workers"))}
    return {}


def _number(value):
    return math.nan if value is None else float(value)  # owt writes NaN and infinity as null


def _flat(config, prefix=""):
    """The settings of a recipe without lists of tables, such as the layers of the model."""
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif not (isinstance(value, list) and value and isinstance(value[0], dict)):
            yield prefix + key, value


class TensorBoard:
    """An event file in OUT/tensorboard/NAME."""
    hint = "tensorboard --logdir {out}/tensorboard"

    def __init__(self, run, name, options, facts):
        from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
        self.event, self.summary, self.tensor = event_pb2.Event, summary_pb2, tensor_pb2.TensorProto
        folder = Path(options.out, "tensorboard", name)
        for old in folder.glob("events.out.tfevents.*.owt-log-to"):
            old.unlink()
        self.writer = EventFileWriter(str(folder), filename_suffix=".owt-log-to")
        self.place = folder
        self._text("recipe", _recipe(run))
        self._text("start", "\n".join(f"{name}: {value}" for name, value in facts.items()))

    def _add(self, step, seconds, values):
        summary = self.summary.Summary(value=values)
        self.writer.add_event(self.event(wall_time=seconds, step=step, summary=summary))

    def _text(self, tag, text):
        indented = "".join(f"    {line}\n" for line in text.splitlines())  # Markdown keeps such lines as they are
        metadata = self.summary.SummaryMetadata(plugin_data={"plugin_name": "text"}, data_class=2)  # tensors
        self._add(0, time.time(), [self.summary.Summary.Value(
            tag=tag, tensor=self.tensor(dtype=7, string_val=[indented.encode()]), metadata=metadata)])  # strings

    def take(self, step, seconds, values):
        self._add(step, seconds, [self.summary.Summary.Value(tag=name, simple_value=value)
                                  for name, value in values.items()])

    def flush(self):
        self.writer.flush()

    def close(self, state):
        self.writer.close()


class MLflow:
    """A run in the data base OUT/mlflow.db. MLflow 3.7 and newer refuse to write folders of files."""
    hint = "mlflow ui --backend-store-uri sqlite:///{out}/mlflow.db"
    most = 1000  # values of a call

    def __init__(self, run, name, options, facts):
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient
        self.metric, self.waiting = Metric, []
        out = Path(options.out).absolute()
        out.mkdir(parents=True, exist_ok=True)
        self.client = MlflowClient(tracking_uri=f"sqlite:///{out}/mlflow.db")
        found = self.client.get_experiment_by_name(options.project)
        experiment = found.experiment_id if found else self.client.create_experiment(
            options.project, artifact_location=(out / "mlartifacts").as_uri())
        for old in self.client.search_runs([experiment], f"tags.`owt.identity` = '{_identity(run)}'"):
            self.client.delete_run(old.info.run_id)
        made = self.client.create_run(experiment, run_name=name, start_time=_milliseconds(_started(facts)), tags={
            "owt.run": str(run.path.absolute()), "owt.identity": _identity(run),
            **{f"owt.{key}": str(value)[:5000] for key, value in facts.items()}})
        self.id, self.place = made.info.run_id, out / "mlflow.db"
        params = [Param(key, str(value)[:500]) for key, value in _flat(_config(run))]
        for begin in range(0, len(params), 100):
            self.client.log_batch(self.id, params=params[begin:begin + 100])
        self.client.log_text(self.id, _recipe(run), "config.toml")
        self.seconds = 0

    def take(self, step, seconds, values):
        self.seconds = seconds
        self.waiting += [self.metric(re.sub(r"[^\w.:/ -]", "_", name), value, _milliseconds(seconds), step)
                         for name, value in values.items()]  # MLflow accepts no other characters
        if len(self.waiting) >= self.most:
            self.flush()

    def flush(self):
        for begin in range(0, len(self.waiting), self.most):
            self.client.log_batch(self.id, metrics=self.waiting[begin:begin + self.most])
        self.waiting = []

    def close(self, state):
        self.flush()
        status = {"finished": "FINISHED", "stopped": "KILLED", "diverged": "FAILED"}.get(state)
        if status:  # else the run may continue
            self.client.set_terminated(self.id, status, _milliseconds(self.seconds))


def _milliseconds(seconds):
    return int(seconds * 1000)


class WandB:
    """A folder OUT/wandb/offline-run-*, for `wandb sync`."""
    hint = "wandb sync {place}"

    def __init__(self, run, name, options, facts):
        # None of this is about the run, but about the machine and folder of this command.
        for variable in ("WANDB_SILENT", "WANDB_DISABLE_GIT", "WANDB_DISABLE_CODE", "WANDB_X_DISABLE_STATS"):
            os.environ.setdefault(variable, "true")
        os.environ.setdefault("WANDB_CONSOLE", "off")
        import wandb
        out = Path(options.out).absolute()
        out.mkdir(parents=True, exist_ok=True)
        for old in out.glob(f"wandb/offline-run-*-{_identity(run)}"):
            shutil.rmtree(old)
        self.run = wandb.init(project=options.project, name=name, id=_identity(run), dir=str(out), mode="offline",
                              config={**_config(run), "facts": facts}, reinit="create_new")
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")
        self.place = Path(self.run.dir).parent

    def take(self, step, seconds, values):
        self.run.log({"step": step, "_timestamp": seconds, **values})

    def flush(self):
        pass

    def close(self, state):
        self.run.finish(exit_code=1 if state == "diverged" else 0)


TARGETS = {"wandb": WandB, "mlflow": MLflow, "tensorboard": TensorBoard}


def _identity(run):
    """The same for the same folder, without characters that need quoting."""
    return "owt-" + hashlib.sha256(os.fsencode(run.path.absolute())).hexdigest()[:12]


def _recipe(run):
    try:
        return (run.path / "config.toml").read_text(encoding="utf-8")
    except OSError:
        return ""


def _config(run):
    return run.config if (run.path / "config.toml").exists() else {}


def _started(facts):
    """The time of the fact `started` in seconds since 1970."""
    try:
        return datetime.datetime.strptime(facts["started"], "%Y-%m-%d %H:%M:%S %z").timestamp()
    except (KeyError, TypeError, ValueError):
        return 0.0


class Sending:
    """A run on its way to one of the targets."""

    def __init__(self, run, name, options):
        self.run, self.name, self.options = run, name, options
        self.sink, self.lines = None, 0
        self.began, self.newest = 0.0, 0.0  # seconds since 1970: start of the latest process, time of the latest line
        self.inode, self.at = None, 0  # the identity of metrics.jsonl, and bytes read
        self.state, self.done, self.result = "", False, ""

    def _new_records(self):
        """What was appended to metrics.jsonl. When a run resumes, a shorter file replaces it: then all lines, for a new
        sink, since no target can take back values."""
        with contextlib.suppress(FileNotFoundError), open(self.run.path / "metrics.jsonl", "rb") as file:
            facts = os.fstat(file.fileno())
            if facts.st_ino != self.inode or facts.st_size < self.at:
                self.close()
                self.inode, self.at, self.lines, self.newest = facts.st_ino, 0, 0, 0.0
            file.seek(self.at)
            for block in blocks_of(file):
                self.at += len(block)
                yield from filter(None, map(record_of, block.splitlines()))

    def send(self):
        """Sends new lines. The run is done when its process has ended and has said so in the last line."""
        running = self.run.running  # asked first: a process that ends now has written its lines then
        for record in self._new_records():
            if record.get("kind") == "start":
                facts = record.get("facts", {})
                self.began, self.state = _started(facts), ""
            if self.sink is None:
                self._open(record.get("facts", {}))
            if record.get("kind") == "end":
                self.state = record.get("state", "")
            values = values_of(record)
            if values:
                self.newest = max(self.newest, self.began + (record.get("seconds") or 0))
                self.sink.take(int(record.get("step", 0)), self.newest, values)
                self.lines += 1
        if self.sink:
            self.sink.flush()
        self.done = bool(self.state) and not running

    def _open(self, facts):
        target = self.options.target
        try:
            self.sink = TARGETS[target](self.run, self.name, self.options, facts)
        except ImportError as e:
            raise Error(f"log-to {target} needs the package {target}: {e}; pip install {target}") from None
        except Error:
            raise
        except Exception as e:  # whatever the package raises, such as for a data base of another version
            raise Error(f"{target} cannot write to {self.options.out}: {e}") from e

    def close(self):
        if self.sink:
            self.sink.close(self.state)
            hint = self.sink.hint.format(out=self.options.out, place=self.sink.place)
            self.result = f"{self.run.path}: {self.lines} lines are in {self.sink.place}; to show them: {hint}"
            self.sink = None


def _names(found):
    """The shortest ends of the paths that differ."""
    parts = [Path(os.path.abspath(run.path)).parts for run in found]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-count:]).lstrip("/") for each in parts]
        if len(set(names)) == len(names):
            return names
    raise Error("a run is named twice; name each once")


def _options(words):
    class Parser(argparse.ArgumentParser):
        def error(self, message):
            print(f"owt: error: log-to: {message}; 'owt log-to --help' lists the options", file=sys.stderr)
            sys.exit(2)

    parser = Parser(prog="owt log-to", formatter_class=argparse.RawDescriptionHelpFormatter, description="""\
Writes the content of metrics.jsonl and config.toml of runs for another program to show, with its own package from PyPI.
It needs no account and no network. Repeated for the same run, the command replaces what it wrote before.

  wandb         DIR/wandb/offline-run-*         wandb sync DIR/wandb/offline-run-* sends it to a server
  mlflow        DIR/mlflow.db                   mlflow ui --backend-store-uri sqlite:///DIR/mlflow.db
  tensorboard   DIR/tensorboard/NAME            tensorboard --logdir DIR/tensorboard""")
    parser.add_argument("target", choices=TARGETS, metavar="wandb|mlflow|tensorboard", help="for which program")
    parser.add_argument("run", nargs="+", metavar="RUN", help="run folder, or a pattern such as 'runs/*'")
    parser.add_argument("--out", default=".", metavar="DIR", help="folder to write to (default: the current folder)")
    parser.add_argument("--project", metavar="NAME", help="project of wandb, experiment of mlflow (default: owt)")
    parser.add_argument("--follow", action="store_true", help="send lines as a training writes them, until it ends")
    options = parser.parse_args(words)
    if options.project and options.target == "tensorboard":
        parser.error("--project has no effect on tensorboard")
    options.project = options.project or "owt"
    return options


def _send(options):
    found = runs(*options.run)
    if not found:
        raise Error(f"no run folder matches {' '.join(options.run)}; name the folder that --out named")
    sendings = [Sending(run, name, options) for run, name in zip(found, _names(found))]

    def stop(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        for each in sendings:
            each.send()
            if not options.follow:
                each.close()
        while options.follow and not all(each.done for each in sendings):
            time.sleep(POLL)
            for each in sendings:
                each.send()
    except KeyboardInterrupt:
        if not options.follow:
            raise
    finally:
        for each in sendings:
            each.close()
    for each in sendings:
        print(each.result or f"{each.run.path}: no step is logged yet")


def main(words):
    """Returns the exit code."""
    try:
        _send(_options(words))
        return 0
    except KeyboardInterrupt:
        return 130
    except (Error, OSError) as e:
        print(f"owt: error: {e}", file=sys.stderr)
        return 1
