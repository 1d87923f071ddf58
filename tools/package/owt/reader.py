"""Reads run folders; docs/files.md describes their files. Needs the standard library only; weights need NumPy."""
import contextlib
import glob
import importlib.util
import json
import operator
import os
import re
from pathlib import Path

BLOCK = 1 << 16  # bytes of metrics.jsonl that are read at once; the values of a block fit into the cache
NUMBER = rb"([0-9.eE+-]+)"
TENSOR_TYPES = {"F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1", "U64": "u8",
                "U32": "u4", "U16": "u2", "U8": "u1", "BOOL": "?", "BF16": "u2"}


class Error(Exception):
    """A run cannot be read. The message says why and what to do."""


def runs(*patterns):
    """The runs of all folders that match one of the patterns, such as "runs/*", sorted by path.

    Folders that hold no run are left out. A pattern without *, ? and [ must be the folder of a run; the name of a
    run's folder may contain these characters."""
    found = {}
    for pattern in map(os.fspath, patterns or ("runs/*",)):
        if glob.has_magic(pattern) and not _holds_run(pattern):
            found.update((path, Run(path)) for path in glob.glob(pattern) if _holds_run(path))
        else:
            found[pattern] = Run(pattern)
    return [found[path] for path in sorted(found)]


class Run:
    """A run folder, which `owt train` or `owt simulate` has written or is writing. Every call reads the files anew."""

    def __init__(self, path):
        self.path = Path(path)
        self.name = Path(os.path.abspath(path)).name
        if not _holds_run(path):
            raise Error(f"{path} is no run folder: it holds neither config.toml nor metrics.jsonl; name the folder "
                        "that --out named")

    def __repr__(self):
        return f"owt.Run({str(self.path)!r})"

    @property
    def config(self):
        """The whole recipe as nested dictionaries. Before Python 3.11 this needs the package tomli."""
        file = self.path / "config.toml"
        try:
            return _toml().loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as e:
            raise Error(f"cannot read {file}: {e}") from None

    @property
    def running(self):
        """Whether a process of this machine trains in the folder."""
        try:
            inode = f":{(self.path / 'log.txt').stat().st_ino}"
            locks = [line.split() for line in Path("/proc/locks").read_text(encoding="utf-8").splitlines()]
        except OSError:
            return False
        # "1: FLOCK  ADVISORY  WRITE 708 fe:00:2097 0 EOF"; lines of waiting processes have "->" before the kind
        return any(words[1] == "FLOCK" and words[5].endswith(inode) for words in locks if len(words) > 5)

    def metrics(self, kind="train", frame=None):
        """The lines of one kind of metrics.jsonl as columns: "train", "eval", "weights", "start" and so on.

        frame: "pandas", "polars", or "dict", a dictionary of lists; without it the first of these that is installed.
        Missing values are None or NaN. A value in an object has both names: "mean/conv1.weight". Lines are in the order
        of steps. If a resumed run has repeated steps, the later lines hold. Incomplete lines are left out."""
        columns = _columns(self.path / "metrics.jsonl", kind)
        if kind in ("train", "eval", "weights"):
            columns = _without_repeated(columns)
        if frame is None:
            frame = next((name for name in ("pandas", "polars") if importlib.util.find_spec(name)), "dict")
        if frame == "dict":
            return columns
        if frame == "pandas":
            return _package("pandas").DataFrame(columns)
        if frame == "polars":
            return _package("polars").DataFrame(columns, strict=False, infer_schema_length=None)
        raise Error(f"frame is {frame!r}, wanted 'pandas', 'polars' or 'dict'")

    def checkpoint(self, which="best"):
        """The folder of a checkpoint: "best" (the one that `owt eval` takes), "latest", or that of a step number."""
        folder = self.path / "checkpoints"
        if hasattr(which, "__index__"):  # also an integer of NumPy or pandas
            which = operator.index(which)
            found = folder / f"step-{which:08}"
            if _is_checkpoint(found):
                return found
            steps = sorted(int(path.name[5:]) for path in folder.glob("step-*[0-9]") if _is_checkpoint(path))
            raise Error(f"{self.path} has no checkpoint of step {which}; it has {steps or 'none'}")
        if which not in ("best", "latest"):
            raise Error(f"checkpoint {which!r}, wanted 'best', 'latest' or a step number")
        latest = self._latest(folder)
        if which == "latest":
            return latest
        state = _state(latest)
        best = folder / f"step-{str(state.get('best_step')):0>8}"
        if best == latest or not _is_checkpoint(best):
            return latest
        then = _state(best)
        return best if all(then.get(key) == state.get(key) for key in ("best_step", "best_top1")) else latest

    def _latest(self, folder):
        with contextlib.suppress(OSError):
            name = (folder / "latest").read_text(encoding="utf-8").strip()
            for path in (folder / name, folder / (name + ".old")):
                if name and _is_checkpoint(path):
                    return path
        found = sorted(path for path in folder.glob("step-*[0-9]") if _is_checkpoint(path))
        if not found:
            raise Error(f"{self.path} has no checkpoint yet")
        return found[-1]

    def weights(self, which="best", file=None):
        """The tensors of a checkpoint (see checkpoint()), or of a safetensors file, as NumPy arrays by their names.

        file: "weights", "ema" or "optimizer"; without it the averaged weights if there are any, as `owt eval` does.
        Arrays of bf16 have the type of the package ml_dtypes if it is installed; else they are widened to float32,
        without loss. Checksums are not compared."""
        if isinstance(which, (str, os.PathLike)) and os.fspath(which).endswith(".safetensors"):
            return read_safetensors(which)
        folder = self.checkpoint(which)
        if file is None:
            file = "ema" if (folder / "ema.safetensors").exists() else "weights"
        return read_safetensors(folder / f"{file}.safetensors")


def read_safetensors(path):
    """The tensors of a safetensors file as NumPy arrays by their names; see Run.weights() for bf16."""
    numpy = _package("numpy")
    try:
        content = numpy.fromfile(path, numpy.uint8)
        length = int.from_bytes(content[:8].tobytes(), "little")
        header = json.loads(content[8:8 + length].tobytes())
        header.pop("__metadata__", None)
        data = content[8 + length:]
        return {name: _tensor(numpy, data, entry) for name, entry in header.items()}
    except OSError as e:
        raise Error(f"cannot read {path}: {e.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as e:
        raise Error(f"{path} is damaged, or no safetensors file: {e}") from None


def _tensor(numpy, data, entry):
    begin, end = entry["data_offsets"]
    if not 0 <= begin <= end <= data.size:
        raise ValueError(f"it ends before byte {end} of its tensors")
    kind = entry["dtype"]
    if kind not in TENSOR_TYPES:
        raise ValueError(f"tensors of type {kind} are not known")
    array = numpy.frombuffer(data[begin:end].tobytes(), "<" + TENSOR_TYPES[kind]).reshape(entry["shape"])
    if kind != "BF16":
        return array.copy()  # frombuffer() makes arrays that cannot be written to
    if importlib.util.find_spec("ml_dtypes"):
        return array.view(importlib.import_module("ml_dtypes").bfloat16).copy()
    return (array.astype("<u4") << 16).view("<f4")


def _holds_run(path):
    return any(os.path.isfile(os.path.join(path, name)) for name in ("config.toml", "metrics.jsonl"))


def _is_checkpoint(path):
    return (path / "state.json").is_file()


def _state(checkpoint):
    file = checkpoint / "state.json"
    try:
        state = record_of(file.read_bytes())
    except OSError as e:
        raise Error(f"cannot read {file}: {e.strerror}") from None
    if state is None:
        raise Error(f"{file} is damaged; name another checkpoint by its step")
    return state


def _package(name):
    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise Error(f"this needs the package {name}: {e}; pip install {name}") from None


def _toml():
    with contextlib.suppress(ImportError):
        return importlib.import_module("tomllib")  # from Python 3.11 on
    return _package("tomli")


def record_of(line):
    """A line of metrics.jsonl as a dictionary; None if it is damaged."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def blocks_of(file):
    """The rest of a file in blocks of whole lines. A last line without an end is still being written."""
    rest = []
    for content in iter(lambda: file.read(BLOCK), b""):
        lines, end, begun = content.rpartition(b"\n")
        if end:
            yield b"".join([*rest, lines, end])
            rest = []
        rest.append(begun)


def _columns(path, kind):
    """{key: list of values} of all lines of a kind; None where a line lacks a key."""
    columns, rows = {}, 0
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:  # missing: no step is logged yet
        for block in blocks_of(file):
            parts = _alike(block, kind)
            for part in _each(block, kind) if parts is None else parts:
                count = len(next(iter(part.values())))
                for key in part:
                    if key not in columns:
                        columns[key] = [None] * rows
                for key, column in columns.items():
                    column.extend(part.get(key) or [None] * count)
                rows += count
    columns.pop("kind", None)
    return columns


def _each(block, kind):
    """Columns of one row for each line of the block that has this kind."""
    for line in block.splitlines():
        record = record_of(line) if b'"kind"' in line else None
        if record and record.get("kind") == kind:
            yield {key: [value] for key, value in _flat(record)}


def _flat(record, prefix=""):
    for key, value in record.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}/")
        else:
            yield prefix + key, value


def _alike(block, kind):
    """The columns of all lines of the block that have this kind, if these have the same keys, and numbers as values.
    Else None. A regular expression takes half as long as JSON."""
    block, begin = b"\n" + block, b'\n{"kind":"%s",' % kind.encode()
    found, columns, at = [], [], block.find(begin)
    if at >= 0:
        record = record_of(block[at:block.index(b"\n", at + 1)])
        if not record or any(type(value) not in (int, float) for key, value in record.items() if key != "kind"):
            return None
        del record["kind"]
        fields = b",".join(b'"%s":%s' % (re.escape(key).encode(), NUMBER) for key in record)
        found = re.findall(begin + fields + b"}(?=\n)", block)
        try:
            columns = zip(*found) if len(record) > 1 else [found]
            columns = [{key: list(map(type(value), column)) for (key, value), column in zip(record.items(), columns)}]
        except ValueError:  # an integer that is a fraction in another line
            return None
    lines = block.count(b"\n") - 1
    others = len(found) < lines and (len(found) < block.count(begin) or block.count(b'\n{"kind":"') < lines)
    return None if others else columns


def _without_repeated(columns):
    """Leaves out lines whose step a later line reaches again, after a resume from an earlier checkpoint. Each split of
    evaluations is looked at for itself."""
    steps = columns.get("step", [])
    with contextlib.suppress(TypeError):  # None
        if all(map(operator.lt, steps, steps[1:])):
            return columns
    splits = columns.get("split", [None] * len(steps))
    ends, kept = {}, []
    for row in range(len(steps) - 1, -1, -1):
        if isinstance(steps[row], (int, float)) and steps[row] < ends.get(splits[row], float("inf")):
            ends[splits[row]] = steps[row]
            kept.append(row)
    if len(kept) == len(steps):
        return columns
    kept.reverse()
    return {key: [column[row] for row in kept] for key, column in columns.items()}
