"""Tests of tools/package/owt.   usage: python_package.py RUNS [OPTION OF unittest]...

RUNS holds the run `one` of python_test.sh. Tests that need a package which is not installed are skipped.
"""
import fcntl
import importlib.util
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

PACKAGE = Path(__file__).resolve().parents[2] / "tools/package"
sys.path.insert(0, str(PACKAGE))
import owt  # noqa: E402
from owt import log_to, reader  # noqa: E402

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(PACKAGE)}
RUNS = Path(sys.argv.pop(1))
ONE = RUNS / "one"


def needs(package):
    return unittest.skipUnless(importlib.util.find_spec(package), f"{package} is not installed")


def has_toml():
    return importlib.util.find_spec("tomllib") or importlib.util.find_spec("tomli")


def lines_of(path, kind=None):
    lines = (path / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if not kind or record["kind"] == kind]


def train_line(number, **more):
    return {"kind": "train", "step": number, "epoch": number // 4, "loss": 1 / (number + 1), **more}


def line_of(record):
    return json.dumps(record, separators=(",", ":")) + "\n"


def command(*words, python=("-m", "owt")):
    return subprocess.run([sys.executable, "-B", *python, *map(str, words)], env=ENVIRONMENT, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True)


class FolderTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def run_with(self, *lines, name="run"):
        """A run folder with these lines of metrics.jsonl: records, or text as it stands."""
        (self.folder / name).mkdir(exist_ok=True)
        text = "".join(line if isinstance(line, str) else line_of(line) for line in lines)
        (self.folder / name / "metrics.jsonl").write_text(text)
        return owt.Run(self.folder / name)


class Runs(FolderTest):
    def test_a_pattern_finds_run_folders_only(self):
        for name in ("b", "a"):
            self.run_with(train_line(1), name=name)
        (self.folder / "no_run").mkdir()
        self.assertEqual([run.name for run in owt.runs(f"{self.folder}/*")], ["a", "b"])
        self.assertEqual(owt.runs(f"{self.folder}/c*"), [])
        self.assertEqual(owt.runs(self.run_with(name="lr[0.1]").path)[0].name, "lr[0.1]")

    def test_a_folder_that_is_no_run_is_an_error(self):
        with self.assertRaisesRegex(owt.Error, "holds neither config.toml nor metrics.jsonl; name the folder"):
            owt.runs(self.folder)

    def test_a_run_is_running_while_its_log_is_locked(self):
        run = self.run_with()
        self.assertFalse(run.running)
        with open(run.path / "log.txt", "w") as log:
            self.assertFalse(run.running)
            fcntl.flock(log, fcntl.LOCK_EX)
            self.assertTrue(run.running)

    def test_importing_the_package_imports_no_other(self):
        code = "import sys, owt; print(sorted({'numpy', 'pandas', 'polars', 'tensorboard'} & set(sys.modules)))"
        self.assertEqual(command(python=("-c", code)).stdout, "[]\n")

    @unittest.skipUnless(has_toml(), "neither tomllib nor tomli is there")
    def test_the_recipe_is_in_nested_dictionaries(self):
        config = owt.Run(ONE).config
        self.assertEqual(config["optimizer"]["ema"], 0.9)
        self.assertEqual(config["model"]["layer"][0]["name"], "conv1")

    def test_without_a_reader_of_toml_the_recipe_names_a_package(self):
        with mock.patch.dict(sys.modules, tomllib=None, tomli=None):
            with self.assertRaisesRegex(owt.Error, "pip install tomli"):
                owt.Run(ONE).config


class Metrics(FolderTest):
    def test_columns_are_the_lines_of_the_program(self):
        for kind in ("train", "eval"):
            lines, columns = lines_of(ONE, kind), owt.Run(ONE).metrics(kind, "dict")
            self.assertGreater(len(lines), 2)
            self.assertEqual(columns, {key: [line[key] for line in lines] for key in lines[0] if key != "kind"})
        self.assertEqual(owt.Run(ONE).metrics(frame="dict")["step"], list(range(1, 15)))

    def test_objects_have_a_column_for_each_value(self):
        lines, columns = lines_of(ONE, "weights"), owt.Run(ONE).metrics("weights", "dict")
        self.assertEqual(columns["mean/conv1.weight"], [line["mean"]["conv1.weight"] for line in lines])
        self.assertEqual(len(owt.Run(ONE).metrics("start", "dict")["facts/host"]), 2)

    def test_other_lines_change_nothing(self):
        run = self.run_with({"kind": "start", "step": 0, "facts": {"command": 'say {"kind":"train",'}}, train_line(1),
                            "\n", {"kind": "eval", "split": "test", "step": 1, "loss": 2.0}, "no JSON\n", "[1]\n",
                            train_line(2))
        self.assertEqual(run.metrics(frame="dict"), {"step": [1, 2], "epoch": [0, 0], "loss": [1 / 2, 1 / 3]})
        self.assertEqual(run.metrics("eval", "dict"), {"split": ["test"], "step": [1], "loss": [2.0]})
        self.assertEqual(run.metrics("end", "dict"), {})

    def test_a_line_without_an_end_or_with_a_gap_is_left_out(self):
        run = self.run_with(train_line(1), '{"kind":"train","step":2,"lo' + line_of(train_line(3)), train_line(4),
                            line_of(train_line(5)).rstrip("\n"))
        self.assertEqual(run.metrics(frame="dict")["step"], [1, 4])

    def test_no_file_has_no_columns(self):
        (self.folder / "config.toml").touch()
        self.assertEqual(owt.Run(self.folder).metrics(frame="dict"), {})

    def test_a_value_that_a_line_lacks_is_none(self):
        run = self.run_with(train_line(1), train_line(2, gradient_norm=4.5), train_line(3, loss=None))
        columns = run.metrics(frame="dict")
        self.assertEqual(columns["gradient_norm"], [None, 4.5, None])
        self.assertEqual(columns["loss"], [1 / 2, 1 / 3, None])

    def test_lines_written_in_another_way_are_read_as_well(self):
        run = self.run_with(train_line(1), '{ "step": 2, "loss": 0.25, "epoch": 0, "kind": "train" }\n')
        self.assertEqual(run.metrics(frame="dict"), {"step": [1, 2], "epoch": [0, 0], "loss": [0.5, 0.25]})

    def test_integers_and_fractions_of_one_key_keep_their_values(self):
        run = self.run_with(train_line(1, loss=2), train_line(2, loss=0.5), train_line(3, loss=-1e-7))
        self.assertEqual(run.metrics(frame="dict")["loss"], [2, 0.5, -1e-7])

    def test_of_repeated_steps_the_later_lines_hold(self):
        def evaluation(step, split, loss):
            return {"kind": "eval", "split": split, "step": step, "loss": loss}
        run = self.run_with(train_line(1), train_line(2), evaluation(2, "test", 3.0), evaluation(2, "val", 4.0),
                            train_line(3, loss=9), train_line(4), evaluation(4, "test", 5.0), train_line(3, loss=7),
                            evaluation(3, "test", 6.0))
        self.assertEqual(run.metrics(frame="dict")["step"], [1, 2, 3])
        self.assertEqual(run.metrics(frame="dict")["loss"], [1 / 2, 1 / 3, 7])
        self.assertEqual(run.metrics("eval", "dict"), {"split": ["test", "val", "test"], "step": [2, 2, 3],
                                                       "loss": [3.0, 4.0, 6.0]})

    def test_a_file_of_many_blocks_has_every_line_once(self):
        lines = [train_line(step, **({"gradient_norm": step / 8} if step > 500 else {})) for step in range(1, 1001)]
        for bytes_at_once in (1, 100, 5000):
            with mock.patch.object(reader, "BLOCK", bytes_at_once):
                columns = self.run_with(*lines).metrics(frame="dict")
            self.assertEqual(columns["step"], list(range(1, 1001)))
            self.assertEqual(columns["gradient_norm"], [line.get("gradient_norm") for line in lines])

    def test_lines_of_the_program_need_no_json_each(self):
        with mock.patch.object(reader, "_each", side_effect=AssertionError("line by line")):
            self.assertEqual(len(owt.Run(ONE).metrics(frame="dict")["loss"]), 14)

    def test_damaged_and_unusual_lines_are_left_out_or_read(self):
        run = self.run_with('{"kind":"train","step":' + "[" * 100000 + "\n", "\0\0\n", train_line(1, step="1"),
                            train_line(1, step=None),
                            train_line(2, **{'a.b*("\\/ö': 1.5}), '{"kind":"train","step":3,"loss":' + "9" * 5000 + "x}\n")
        self.assertEqual(run.metrics(frame="dict"), {"step": [2], "epoch": [0], "loss": [1 / 3], 'a.b*("\\/ö': [1.5]})

    def test_lines_may_end_as_on_windows(self):
        run = self.run_with(*(line_of(train_line(step)).replace("\n", "\r\n") for step in (1, 2)))
        self.assertEqual(run.metrics(frame="dict"), {"step": [1, 2], "epoch": [0, 0], "loss": [1 / 2, 1 / 3]})

    def test_a_wrong_frame_is_an_error(self):
        with self.assertRaisesRegex(owt.Error, "'numpy', wanted 'pandas', 'polars' or 'dict'"):
            owt.Run(ONE).metrics(frame="numpy")

    @needs("pandas")
    def test_pandas_gets_numbers(self):
        frame = self.run_with(train_line(1), train_line(2, loss=None)).metrics()
        self.assertEqual(list(map(str, frame.dtypes)), ["int64", "int64", "float64"])
        self.assertTrue(math.isnan(frame.loss[1]))

    @needs("polars")
    def test_polars_gets_numbers(self):
        frame = self.run_with(train_line(1), train_line(2, loss=None)).metrics(frame="polars")
        self.assertEqual(frame.rows(), [(1, 0, 0.5), (2, 0, None)])


def write_safetensors(path, **tensors):
    """tensors: name = (type, shape, bytes)"""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (kind, shape, content) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Checkpoints(FolderTest):
    def checkpoint(self, step, latest=False, **state):
        folder = self.folder / "checkpoints" / f"step-{step:08}"
        folder.mkdir(parents=True)
        (folder / "state.json").write_text(json.dumps({"step": step, **state}))
        if latest:
            (self.folder / "checkpoints/latest").write_text(folder.name + "\n")
        return folder

    def setUp(self):
        super().setUp()
        (self.folder / "config.toml").touch()
        self.run_ = owt.Run(self.folder)

    def test_the_best_one_is_the_one_that_the_latest_knows(self):
        best = self.checkpoint(4, best_step=4, best_top1=0.75)
        latest = self.checkpoint(8, best_step=4, best_top1=0.75, latest=True)
        abandoned = self.checkpoint(12, best_step=12, best_top1=0.875)
        self.assertEqual(self.run_.checkpoint(), best)
        self.assertEqual(self.run_.checkpoint("latest"), latest)
        self.assertEqual(self.run_.checkpoint(12), abandoned)
        self.assertEqual(self.run_.checkpoint(mock.Mock(__index__=lambda _: 12)), abandoned)  # NumPy's integers have it
        with self.assertRaisesRegex(owt.Error, r"no checkpoint of step 5; it has \[4, 8, 12\]"):
            self.run_.checkpoint(5)
        with self.assertRaisesRegex(owt.Error, "'newest', wanted 'best', 'latest' or a step"):
            self.run_.checkpoint("newest")

    def test_without_an_evaluation_the_latest_one_is_the_best(self):
        latest = self.checkpoint(8, best_step=-1, best_top1=-1, latest=True)
        self.assertEqual(self.run_.checkpoint(), latest)

    def test_a_best_one_of_another_branch_does_not_count(self):
        self.checkpoint(4, best_step=4, best_top1=0.5)
        latest = self.checkpoint(8, best_step=4, best_top1=0.75, latest=True)
        self.assertEqual(self.run_.checkpoint(), latest)

    def test_one_that_is_being_replaced_is_found(self):
        folder = self.checkpoint(8, latest=True)
        folder.rename(f"{folder}.old")
        self.assertEqual(self.run_.checkpoint("latest"), Path(f"{folder}.old"))

    def test_a_damaged_state_is_an_error(self):
        (self.checkpoint(8, latest=True) / "state.json").write_text("[]")
        with self.assertRaisesRegex(owt.Error, "state.json is damaged; name another checkpoint by its step"):
            self.run_.checkpoint()

    def test_none_is_an_error(self):
        with self.assertRaisesRegex(owt.Error, "has no checkpoint yet"):
            self.run_.weights()

    def test_without_numpy_weights_name_the_package(self):
        self.checkpoint(8, latest=True)
        with mock.patch.dict(sys.modules, numpy=None):
            with self.assertRaisesRegex(owt.Error, "pip install numpy"):
                self.run_.weights()

    @needs("numpy")
    def test_weights_are_the_averages_that_eval_takes(self):
        run = owt.Run(ONE)
        self.assertEqual(run.weights("latest").keys(), run.weights("latest", file="weights").keys())
        content = (run.checkpoint("latest") / "ema.safetensors").read_bytes()
        length, = struct.unpack("<Q", content[:8])
        entry = json.loads(content[8:8 + length])["fc2.bias"]
        begin, end = entry["data_offsets"]
        numbers = struct.unpack("<10f", content[8 + length:][begin:end])
        self.assertEqual(run.weights("latest")["fc2.bias"].tolist(), list(numbers))
        self.assertNotEqual(run.weights("latest", file="weights")["fc2.bias"].tolist(), list(numbers))
        self.assertEqual(run.weights("latest")["conv1.weight"].shape, (32, 3, 3, 3))

    @needs("numpy")
    def test_every_type_of_numbers_is_read(self):
        import numpy
        path = self.folder / "a.safetensors"
        write_safetensors(path, half=("F16", [2], struct.pack("<2e", 1.5, -2)), none=("F32", [0, 3], b""),
                          whole=("I64", [1, 2], struct.pack("<2q", -1, 2 ** 40)),
                          one=("F64", [], struct.pack("<d", 0.1)))
        tensors = self.run_.weights(path)
        self.assertEqual({name: tensor.tolist() for name, tensor in tensors.items()},
                         {"half": [1.5, -2], "none": [], "whole": [[-1, 2 ** 40]], "one": 0.1})
        self.assertEqual(tensors["none"].shape, (0, 3))
        tensors["half"][0] = numpy.float16(3)  # arrays can be written to

    @needs("numpy")
    def test_bf16_is_widened_without_ml_dtypes(self):
        path = self.folder / "a.safetensors"
        write_safetensors(path, x=("BF16", [3], struct.pack("<3H", 0x3f80, 0xc020, 0x7f80)))
        with mock.patch.object(importlib.util, "find_spec", return_value=None):
            x = owt.read_safetensors(path)["x"]
        self.assertEqual((str(x.dtype), x.tolist()), ("float32", [1.0, -2.5, math.inf]))
        if importlib.util.find_spec("ml_dtypes"):
            x = owt.read_safetensors(path)["x"]
            self.assertEqual((str(x.dtype), x.astype("f4").tolist()), ("bfloat16", [1.0, -2.5, math.inf]))

    @needs("numpy")
    def test_a_damaged_file_is_an_error(self):
        path = self.folder / "a.safetensors"
        write_safetensors(path, x=("F32", [4], bytes(16)))
        path.write_bytes(path.read_bytes()[:-1])
        with self.assertRaisesRegex(owt.Error, "a.safetensors is damaged.* ends before byte 16"):
            owt.read_safetensors(path)
        write_safetensors(path, x=("F32", [5], bytes(16)))
        write_safetensors(path.with_name("shape"), x=("F32", [2 ** 70], bytes(16)))
        for content in (path.read_bytes(), path.with_name("shape").read_bytes(), b"", b"\x02\0\0\0\0\0\0\0[]",
                        b"\xff" * 9, struct.pack("<Q", 100000) + b"[" * 100000):
            path.write_bytes(content)
            with self.assertRaisesRegex(owt.Error, "a.safetensors is damaged"):
                owt.read_safetensors(path)
        with self.assertRaisesRegex(owt.Error, "cannot read .*: No such file"):
            owt.read_safetensors(self.folder / "b.safetensors")


START = {"kind": "start", "step": 0, "facts": {"started": "2026-01-02 03:04:05 +0000", "host": "h"}}
END = {"kind": "end", "step": 2, "state": "finished", "seconds": 2}
STARTED = 1767323045


def log_records(content):
    """The records of LevelDB's log format, after the 7 bytes of Weights & Biases' header. Blocks have 32 KiB."""
    at, record = 7, b""
    while at < len(content):
        left = 32768 - at % 32768
        if left < 7:  # no room for a header
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        record += content[at + 7:at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or its last part
            yield record
            record = b""


class Recorded:
    """A target that keeps what it gets."""
    hint = ""
    all = []

    def __init__(self, run, name, options, facts):
        self.place, self.facts, self.taken, self.state = name, facts, [], None
        Recorded.all.append(self)

    def take(self, step, seconds, values):
        self.taken.append((step, seconds - STARTED, values))

    def flush(self):
        pass

    def close(self, state):
        self.state = state


class LogTo(FolderTest):
    def setUp(self):
        super().setUp()
        Recorded.all = []
        patch = mock.patch.dict(log_to.TARGETS, recorded=Recorded)
        patch.start()
        self.addCleanup(patch.stop)

    def sending(self, run):
        return log_to.Sending(run, run.name, mock.Mock(target="recorded", out="."))

    def test_values_have_the_names_of_event_files(self):
        self.assertEqual({**log_to.values_of(train_line(3, top1=0.5, lr=None, seconds=1)), "lr": 0},
                         {"epoch": 0, "loss/train": 0.25, "top1/train": 0.5, "lr": 0})
        self.assertEqual(log_to.values_of({"kind": "eval", "split": "val", "step": 1, "loss": 2, "top1": 0.5}),
                         {"loss/validation": 2, "top1/validation": 0.5})
        self.assertEqual(log_to.values_of({"kind": "weights", "mean": {"a": 0.5, "b": 1}, "change": {"a": 0.25}}),
                         {"weight_mean/a": 0.5, "weight_change/a": 0.25, "weight_ratio/a": 0.5, "weight_mean/b": 1})
        self.assertEqual(log_to.values_of({"kind": "world", "step": 1, "workers": 3, "text": "lost"}), {"workers": 3})
        self.assertEqual(log_to.values_of(END), {})

    def test_values_that_are_not_finite_stay_so(self):
        self.assertTrue(math.isnan(log_to.values_of(train_line(1, loss=None))["loss/train"]))

    def test_a_growing_run_is_sent_line_by_line_until_it_ends(self):
        first = line_of(train_line(2, seconds=1.5))
        run = self.run_with(START, train_line(1, seconds=0.5), first[:20])
        with open(run.path / "log.txt", "w") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            sending = self.sending(run)
            sending.send()
            self.assertEqual([step for step, *_ in Recorded.all[0].taken], [1])
            with open(run.path / "metrics.jsonl", "a") as file:
                file.write(first[20:] + line_of(END))
            sending.send()
            self.assertEqual([(step, seconds) for step, seconds, _ in Recorded.all[0].taken], [(1, 0.5), (2, 1.5)])
            self.assertFalse(sending.done)  # the process may still write its bottleneck
        sending.send()
        self.assertTrue(sending.done)
        sending.close()
        self.assertEqual(Recorded.all[0].state, "finished")
        self.assertEqual(len(Recorded.all[0].taken), 2)

    def test_a_run_that_a_resume_shortens_is_sent_anew(self):
        run = self.run_with(START, train_line(1), train_line(2), END)
        sending = self.sending(run)
        sending.send()
        again = self.run_with(START, train_line(1), {**START, "step": 1}, train_line(2, loss=7), name="again")
        os.replace(again.path / "metrics.jsonl", run.path / "metrics.jsonl")
        sending.send()
        self.assertEqual(len(Recorded.all), 2)
        self.assertEqual([values["loss/train"] for _, _, values in Recorded.all[1].taken], [0.5, 7])
        self.assertFalse(sending.done)

    def test_times_never_go_back(self):
        run = self.run_with(START, train_line(1, seconds=5.5), {**START, "step": 1}, train_line(2, seconds=0.5),
                            train_line(3, seconds=6.5))
        self.sending(run).send()
        self.assertEqual([seconds for _, seconds, _ in Recorded.all[0].taken], [5.5, 5.5, 6.5])

    def test_runs_of_one_name_are_told_apart(self):
        runs = [self.run_with(name=name) for name in ("a", "b") if not (self.folder / name).mkdir()]
        runs = [owt.Run(shutil.move(str(run.path), str(self.folder / f"of_{run.name}" / "x"))) for run in runs]
        self.assertEqual(log_to._names(runs), ["of_a/x", "of_b/x"])
        self.assertEqual(log_to._names(runs[:1]), ["x"])
        with self.assertRaisesRegex(owt.Error, "named twice"):
            log_to._names([runs[0], owt.Run(f"{runs[0].path}/../x")])

    def test_errors_are_one_line(self):
        for words, code, text in ((["tensorboard", self.folder / "none"], 1, "is no run folder"),
                                  (["tensorboard", f"{self.folder}/*"], 1, "no run folder matches"),
                                  (["tensorboard"], 2, "RUN"),
                                  (["board", ONE], 2, "choose from"),
                                  (["tensorboard", ONE, "--project", "p"], 2, "no effect")):
            got = command("log-to", *words)
            self.assertEqual((got.returncode, got.stdout), (code, ""), got.stderr)
            self.assertRegex(got.stderr, f"^owt: error: .*{text}.*\n$")

    def test_a_missing_package_is_named(self):
        for target in ("wandb", "mlflow", "tensorboard"):
            hidden = f"import sys; sys.modules['{target}'] = None; from owt import main; sys.argv[0] = 'owt'; main()"
            got = command("log-to", target, ONE, "--out", self.folder, python=("-c", hidden))
            self.assertEqual(got.returncode, 1)
            self.assertRegex(got.stderr, f"^owt: error: log-to {target} needs .*; pip install {target}\n$")

    def test_help_is_that_of_the_command(self):
        for words in (["log-to", "--help"], ["help", "log-to"]):
            self.assertIn("--follow", command(*words).stdout)

    # What a target must have of the run `one`: {name: [(step, value)]}.
    def wanted(self):
        wanted = {}
        for record in lines_of(ONE):
            for name, value in log_to.values_of(record).items():
                wanted.setdefault(name, []).append((record["step"], value))
        self.assertEqual([step for step, _ in wanted["loss/train"]], list(range(1, 15)))
        self.assertIn("top5/test", wanted)
        return wanted

    def send_twice(self, target, run=ONE):
        for _ in range(2):
            got = command("log-to", target, run, "--out", self.folder)
            self.assertEqual(got.returncode, 0, got.stderr)
            self.assertIn("lines are in", got.stdout)

    def assert_read(self, read):
        wanted = self.wanted()
        self.assertEqual(sorted(read), sorted(wanted))
        for name, points in wanted.items():
            self.assertEqual([step for step, _ in read[name]], [step for step, _ in points], name)
            for (_, a), (_, b) in zip(read[name], points):
                self.assertTrue(math.isclose(a, b, rel_tol=1e-6), (name, a, b))

    def read_tensorboard(self, folder):
        from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
        from tensorboard.util.tensor_util import make_ndarray
        events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
        events.Reload()
        return {tag: [(event.step, make_ndarray(event.tensor_proto).item()) for event in events.Tensors(tag)]
                for tag in events.Tags()["tensors"]}

    @needs("tensorboard")
    def test_tensorboard_reads_what_was_sent(self):
        self.send_twice("tensorboard")
        read = self.read_tensorboard(self.folder / "tensorboard/one")
        self.assertIn(b"ema = 0.9", read.pop("recipe")[0][1])
        self.assertIn(b"    host: ", read.pop("start")[0][1])
        self.assert_read(read)

    @needs("tensorboard")
    def test_a_run_is_followed_to_its_end(self):
        run = self.run_with(START, train_line(1))
        with open(run.path / "log.txt", "w") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            follower = subprocess.Popen([sys.executable, "-B", "-m", "owt", "log-to", "tensorboard", str(run.path),
                                         "--follow", "--out", str(self.folder)], env=ENVIRONMENT)
            self.addCleanup(follower.kill)
            folder = self.folder / "tensorboard/run"
            while "loss/train" not in (self.read_tensorboard(folder) if folder.exists() else {}):
                self.assertIsNone(follower.poll())
                time.sleep(0.1)
            with open(run.path / "metrics.jsonl", "a") as file:
                file.write(line_of(train_line(2)) + line_of(END))
        self.assertEqual(follower.wait(), 0)
        self.assertEqual([step for step, _ in self.read_tensorboard(folder)["loss/train"]], [1, 2])

    @needs("mlflow")
    @unittest.skipUnless(has_toml(), "neither tomllib nor tomli is there")
    def test_mlflow_reads_what_was_sent(self):
        (self.folder / "it's one").symlink_to(ONE)  # a quotation mark must not end a text in a query
        self.send_twice("mlflow", self.folder / "it's one")
        from mlflow.tracking import MlflowClient
        client = MlflowClient(tracking_uri=f"sqlite:///{self.folder}/mlflow.db")
        run, = client.search_runs([client.get_experiment_by_name("owt").experiment_id])
        self.assertEqual((run.info.run_name, run.info.status), ("it's one", "FINISHED"))
        self.assertEqual(run.data.params["optimizer.ema"], "0.9")
        self.assertEqual(run.data.tags["owt.workers"], "2")
        artifact = client.download_artifacts(run.info.run_id, "config.toml", str(self.folder))
        self.assertEqual(Path(artifact).read_text(), (ONE / "config.toml").read_text())
        self.assert_read({name: [(metric.step, metric.value)
                                 for metric in client.get_metric_history(run.info.run_id, name)]
                          for name in run.data.metrics})

    @needs("wandb")
    @unittest.skipUnless(has_toml(), "neither tomllib nor tomli is there")
    def test_wandb_reads_what_was_sent(self):
        self.send_twice("wandb")
        from wandb.proto.wandb_internal_pb2 import Record
        file, = self.folder.glob("wandb/offline-run-*/*.wandb")
        read, config, exits = {}, {}, []
        for data in log_records(file.read_bytes()):
            record = Record()
            record.ParseFromString(data)
            values = {"/".join(item.nested_key) or item.key: json.loads(item.value_json)
                      for item in record.history.item}
            for name, value in values.items():
                if name != "step" and not name.startswith("_"):
                    read.setdefault(name, []).append((values["step"], value))
            if record.HasField("run"):
                config.update({item.key: json.loads(item.value_json) for item in record.run.config.update})
                self.assertEqual((record.run.display_name, record.run.project), ("one", "owt"))
            if record.HasField("exit"):
                exits.append(record.exit.exit_code)
        self.assertEqual(config["optimizer"]["ema"], 0.9)
        self.assertEqual(config["facts"]["workers"], "2")
        self.assertEqual(exits, [0])
        self.assert_read(read)


if __name__ == "__main__":
    unittest.main()
