#!/usr/bin/env python3
"""Runs every command of owt with every option and checks the folder in which it works.

  usage: commands.py OWT [COMMAND...]

OWT is the program; COMMAND limits the test to some commands, e.g. 'eval' or 'prepare folder'. It checks that
  * the table COMMANDS below has every command and every option that --help names,
  * a bad value of an option is refused and changes no file,
  * each option affects the output or the files of the command, or the table gives the reason if it cannot,
  * a command writes only what it is asked to write (below new/), or what its row lists,
  * a command that fails, however late, prints one error line and leaves every file unchanged (FAILURES),
  * no command leaves an incomplete file if writing fails.
"""

import os
import queue
import random
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor


class Shows:
    """Words of an option; the command's output or files differ from those without the words.

    base: words of both command lines, in addition to the command's plain ones; arguments in it replace theirs."""

    def __init__(self, words, base=None):
        self.words, self.base = words, base


class Unseen(Shows):
    """Accepted, without an effect on the output: `why`."""

    def __init__(self, words, why, base=None):
        super().__init__(words, base)
        self.why = why


class Unread(Unseen):
    """The value is ignored, and a line reports that."""


class Refused(Shows):
    """Fails with an error that contains `text`."""

    def __init__(self, words, text, base=None):
        super().__init__(words, base)
        self.text = text


class Command:
    """plain: words that succeed; None: not run here. options: a row for each. writes: files written outside new/."""

    def __init__(self, plain, options, writes=()):
        self.plain, self.options, self.writes = plain, options, writes


AT_ONCE = 2
NOWHERE = "/proc/nowhere/file"
OUTPUTS = ("roc", "similarities", "out", "json", "csv", "trace", "onnx", "labels", "predictions", "confusion", "draw", "sheet")
FASTER = "only the time differs"
NO_GPU = Refused("--device cuda", "owt: error:")
SAME_IMAGES = "every number of workers gives the same outputs"
SAME_RESULT = "every number of workers and every strategy gives the same figures"
DEVICES = {
    "device": NO_GPU,
    "precision": Shows("--precision bf16"),
    "threads": Unseen("--threads 2", FASTER),
    "set": Refused("--set run.nonsense=1", "no key 'nonsense'"),
}
STRATEGY = {
    "workers": Unseen("--workers 2", SAME_RESULT),
    "parallel": Unseen("--workers 2 --parallel mp", SAME_RESULT),
    "shares": Unseen("--workers 2 --shares 2,1", SAME_RESULT),
}
PLANNED = {
    "set": Refused("--set run.nonsense=1", "no key 'nonsense'"),
    "workers": Shows("--workers 2"),
    "parallel": Shows("--workers 2 --parallel mp", base="--workers 2"),
    "shares": Shows("--workers 2 --shares 3,1", base="--workers 2"),
}
TRAINED = {
    "weights": Shows("--weights other.safetensors"),
    "data": Shows("--data more-shards"),
}
PREPARED = {
    "size": Shows("--size 20"),
    "quality": Shows("--quality 20"),
    "grey": Shows("--grey"),
    "shard-images": Shows("--shard-images 5"),
    "seed": Shows("--seed 7"),
    "no-shuffle": Shows("--no-shuffle"),
    "max-skipped": Refused("--max-skipped 0", "cannot be used", base="broken-photos new/data --size 32"),
    "names": Shows("--names names.txt"),
    "threads": Unseen("--threads 2", FASTER),
    "force": Unseen("--force", "there is nothing to replace"),
}

TARS = [f"tars/{name}" for name in ("classes.txt", "prepare.lock", "train/0.index", "train/dataset.json",
                                    "train/shards.txt", "train/skipped.txt", "train/stats.json")]

COMMANDS = {
    "train": Command("small.toml --data shards --out new/run", {
        **DEVICES, **STRATEGY,
        "data": Shows("--data more-shards"),
        "out": Shows("--out new/elsewhere"),
        "epochs": Shows("--epochs 3"),
        "steps": Shows("--steps 3"),
        "lr": Shows("--lr 0.5"),
        "batch": Shows("--batch 2"),
        "seed": Shows("--seed 7"),
        "json": Shows("--json new/e.json"),
        "weights": Shows("--weights other.safetensors"),
        "except": Shows("--weights other.safetensors --except fc2", base="--weights other.safetensors"),
        "except-mismatched": Shows("--weights wide.safetensors --except-mismatched"),
        "resume": Shows("--resume runs/small --out new/run --epochs 3"),
        "classes": Shows("--classes data", base="--data other-classes --set data.classes=number"),
        "other-data": Shows("--other-data", base="--resume runs/small --out new/run --epochs 3"),
        "tolerate-loss": Refused("--tolerate-loss", "--tolerate-loss needs a parameter server"),
        "timing": Shows("--timing"),
    }),
    "eval": Command("runs/small", {
        **DEVICES, **STRATEGY, **TRAINED,
        "split": Shows("--split train"),
        "views": Shows("--views 2"),
        "classes": Unseen("--classes number", "the same classes"),
        "predictions": Shows("--predictions new/p.csv"),
        "confusion": Shows("--confusion new/c.csv"),
        "per-class": Shows("--per-class"),
        "json": Shows("--json new/e.json"),
    }),
    "predict": Command("runs/small noise.bmp --json", {
        **DEVICES,
        "weights": Shows("--weights other.safetensors"),
        "data": Unread("--data more-shards", "the run knows its own data"),
        "views": Shows("--views 2"),
        "top": Shows("--top 1"),
        "workers": Unseen("--workers 2", SAME_IMAGES),
        "json": Shows("--json", base="runs/small noise.bmp"),
    }),
    "extract": Command("runs/small --layer fc2 --out new/x.npy", {
        **DEVICES, **TRAINED,
        "layer": Shows("--layer fc1"),
        "out": Shows("--out new/y.npy"),
        "labels": Shows("--labels new/l.npy"),
        "workers": Unseen("--workers 2", SAME_IMAGES),
        "classes": Unseen("--classes number", "the same classes"),
        "split": Shows("--split train"),
    }),
    "verify": Command("runs/small pairs.txt", {
        **DEVICES, **TRAINED,
        "layer": Shows("--layer fc1"),
        "flip": Shows("--flip"),
        "far": Shows("--far 0.5"),
        "roc": Shows("--roc new/r.csv"),
        "similarities": Shows("--similarities new/s.csv"),
        "json": Shows("--json new/v.json"),
        "split": Shows("--split train"),
    }, writes=("runs/small/verification", "runs/small/verification/pairs.json")),
    "time": Command("small.toml --steps 3", {
        **DEVICES, **PLANNED,
        "batch": Shows("--batch 2"),
        "evaluation": Shows("--evaluation"),
        "keep-gradients": Unseen("--keep-gradients", "backward and update share the same time otherwise"),
        "steps": Unseen("--steps 4", "the medians of more steps"),
        "csv": Shows("--csv new/t.csv"),
        "trace": Shows("--trace new/t.json"),
        "what-if": Shows("--what-if"),
        # a valid value would change the bytes and the times
        "shares": Refused("--workers 2 --shares 3,1,1", "'shares' has 3 numbers, wanted 2"),
        "links": Unseen("--workers 2 --links links.json", "only where a transfer takes most of a step",
                        base="--workers 2"),
    }),
    "check": Command("small.toml", {
        **DEVICES, **STRATEGY,
        "rows": Shows("--rows 8"),
        "samples": Shows("--samples 2"),
        "json": Shows("--json"),
    }),
    "simulate": Command("small.toml --data shards --out new/run --workers 2 --steps 4", {
        **DEVICES,
        "data": Shows("--data more-shards"),
        "out": Shows("--out new/elsewhere"),
        "workers": Shows("--workers 4"),
        "epochs": Shows("--epochs 1"),
        "steps": Shows("--steps 3"),
        "lr": Shows("--lr 0.5"),
        "batch": Shows("--batch 2"),
        "seed": Shows("--seed 7"),
        "weights": Shows("--weights other.safetensors"),
        "strategy": Shows("--strategy owt-a"),
        "servers": Shows("--servers 2"),
        "delay": Shows("--delay 2 --straggler 1:4", base="--straggler 1:4"),
        "pushes": Shows("--delay 1 --pushes 2", base="--delay 1"),
        "backup": Shows("--backup 1"),
        "pull-every": Shows("--delay 1 --pull-every 2", base="--delay 1"),
        "push-every": Shows("--delay 1 --push-every 2", base="--delay 1"),
        "filter": Shows("--filter fix8"),
        "blocks": Shows("--blocks random"),
        "rate-by-delay": Shows("--delay 2 --rate-by-delay 1", base="--delay 2"),
        "async-from-epoch": Shows("--delay 2 --straggler 1:4 --async-from-epoch 1", base="--delay 2 --straggler 1:4"),
        "full-rate": Shows("--full-rate --delay 1", base="--delay 1"),
        "rate-by-staleness": Shows("--rate-by-staleness --delay 4", base="--delay 4"),
        "straggler": Shows("--straggler 1:4"),
        "bandwidth": Shows("--bandwidth 1MB/s"),
        "latency": Shows("--latency 5ms"),
        "message-work": Shows("--message-work 5ms"),
        "gpu": Shows("--gpu H100"),
        "images-per-second": Shows("--images-per-second 10"),
        "times-only": Shows("--times-only", base="small.toml --workers 2 --steps 4 --out new/run"),
        "measure": Shows("--measure"),
        "classes": Unseen("--classes number", "the same classes"),
    }),
    # Without photographs, because a plan for a GPU measures their loading for half a second; one row does so.
    "plan": Command("without-photos.toml", {
        **PLANNED,
        "device": Unseen("--device cuda", "this net is too small for its memory to show"),
        "precision": Shows("--precision bf16", base="alexnet_owt --workers 2"),
        "threads": Unseen("--workers 2 --measure --threads 2", FASTER, base="--workers 2 --measure"),
        "batch": Shows("--workers 2 --batch 2", base="--workers 2"),
        "model-ranks": Shows("--workers 4 --model-ranks 2", base="--workers 4"),
        "speeds": Shows("--workers 2 --gpu H100 --bandwidth 1Gbit --speeds 0.5,1",
                        base="--workers 2 --gpu H100 --bandwidth 1Gbit"),
        "links": Shows("--workers 2 --gpu H100 --links links.json", base="--workers 2 --gpu H100"),
        "bandwidth": Shows("--workers 2 --gpu H100 --bandwidth 1Gbit", base="--workers 2 --gpu H100"),
        "latency": Shows("--workers 2 --gpu H100 --bandwidth 1Gbit --latency 5ms",
                         base="--workers 2 --gpu H100 --bandwidth 1Gbit"),
        "hosts": Shows("--workers 2 --gpu H100 --bandwidth 1Gbit --hosts 2",
                       base="--workers 2 --gpu H100 --bandwidth 1Gbit"),
        "local-bandwidth": Shows("--workers 4 --gpu H100 --bandwidth 1Gbit --hosts 2 --local-bandwidth 1MB/s",
                                 base="--workers 4 --gpu H100 --bandwidth 1Gbit --hosts 2"),
        "local-latency": Shows("--workers 4 --gpu H100 --bandwidth 1Gbit --hosts 2 --local-latency 9ms",
                               base="--workers 4 --gpu H100 --bandwidth 1Gbit --hosts 2"),
        "gpu": Shows("small.toml --workers 2 --gpu H100", base="small.toml --workers 2"),
        "images-per-second": Shows("--workers 2 --gpu H100 --images-per-second 10", base="--workers 2 --gpu H100"),
        "machine": Shows("--workers 2 --machine k20x8", base="--workers 2"),
        "elastic": Shows("--workers 2 --elastic", base="--workers 2"),
        "launches": Shows("--gpu H100 --launches", base="--gpu H100"),
        "times": Shows("--workers 2 --bandwidth 1Gbit --times times.csv", base="--workers 2"),
        "measure": Shows("--workers 2 --measure --bandwidth 1Gbit", base="--workers 2"),
        "ranks-here": Unseen("--workers 2 --measure --bandwidth 1Gbit --ranks-here 1", FASTER,
                             base="--workers 2 --measure --bandwidth 1Gbit"),
        "json": Shows("--workers 2 --gpu H100 --bandwidth 1Gbit --json new/p.json",
                      base="--workers 2 --gpu H100 --bandwidth 1Gbit"),
        "compare": Shows("--workers 2 --gpu H100 --bandwidth 1Gbit --compare",
                         base="--workers 2 --gpu H100 --bandwidth 1Gbit"),
        "ascii": Shows("--workers 2 --gpu H100 --bandwidth 1Gbit --compare --ascii",
                       base="--workers 2 --gpu H100 --bandwidth 1Gbit --compare"),
        "steps": Shows("--steps"),
        "draw": Shows("--workers 2 --gpu H100 --bandwidth 1Gbit --draw new/p.svg",
                      base="--workers 2 --gpu H100 --bandwidth 1Gbit"),
    }),
    "bench-comm": Command("--sizes 4K --seconds 1", {
        "workers": Shows("--workers 3"),
        "device": Refused("--device cuda", "owt: error:"),
        "threads": Unseen("--threads 2", FASTER),
        "sizes": Shows("--sizes 16K", base="--seconds 1"),
        "collective": Shows("--collective all_reduce"),
        "seconds": Unseen("--seconds 2", "more repetitions of the same measurements", base="--sizes 4K"),
        "json": Shows("--json new/links.json"),
    }),
    "bench-data": Command("shards --recipe small.toml --seconds 0.1", {
        "recipe": Shows("--recipe runs/small"),
        "workers": Shows("--workers 2"),
        "device": NO_GPU,
        "precision": Unseen("--precision bf16", FASTER),
        "set": Refused("--set run.nonsense=1", "no key 'nonsense'"),
        "threads": Shows("--threads 1,2"),
        "seconds": Unseen("--seconds 0.2", "more images of the same data set"),
        "cold": Shows("--cold"),
        "json": Shows("--json"),
    }),
    "report": Command("runs/small --out new/r.html", {
        "out": Shows("--out new/s.html"),
        "layer": Shows("--layer fc1"),
        "data": Shows("--data shards"),
        "device": Refused("--device cuda", "owt: error:", base="--data shards"),
        "threads": Unseen("--threads 2", FASTER, base="--data shards"),
        "classes": Unseen("--classes number", "the same classes", base="--data shards"),
    }),
    "watch": Command(None, {name: None for name in ("port", "host", "name", "layer")}),  # serves: tests/tools/watch_test.sh
    "ask": Command(None, {"workers": None}),  # needs a run that changes: tests/tools/elastic_test.sh
    "launch": Command(None, {name: None for name in (  # starts processes: tests/tools/launch_test.sh
        "workers", "hosts", "host", "port", "ssh", "elastic", "join", "enable-recovery",
        "share-gpu")}),
    "prepare imagenet": Command("imagenet new/data --size 32", {
        **PREPARED,
        "val-labels": Shows("--val-labels other-labels.txt",
                            base="flat-imagenet new/data --size 32 --val-labels val-labels.txt"),
        "max-skipped": Unseen("--max-skipped 0", "all images are whole"),
    }),
    "prepare folder": Command("photos new/data --size 32", {
        **PREPARED,
        "split": Shows("--split val"),
        "validation": Shows("--validation 0.3"),
        "classes": Shows("--classes more-names.txt"),
    }),
    "prepare list": Command("list.txt new/data --size 32", {
        **PREPARED,
        "split": Shows("--split val"),
        "validation": Shows("--validation 0.3"),
        "root": Shows("--root more-photos", base="inner.txt new/data --size 32 --root photos"),
        "classes": Shows("--classes names-of-labels.txt"),
        "max-skipped": Refused("--max-skipped 0", "cannot be used", base="broken.txt new/data --size 32"),
    }),
    "prepare recordio": Command("faces.rec new/data", {
        **PREPARED,
        "split": Shows("--split val"),
        "validation": Shows("--validation 0.3"),
        "classes": Shows("--classes names-of-labels.txt"),
        "max-skipped": Refused("--max-skipped 0", "cannot be used", base="broken.rec new/data"),
    }),
    "prepare index": Command("tars", {
        "classes": Shows("--classes names-of-labels.txt"),
        "max-skipped": Unseen("--max-skipped 0", "all images are whole"),
        "threads": Unseen("--threads 2", FASTER),
    }, writes=TARS),
    "prepare stats": Command("without-stats", {"threads": Unseen("--threads 2", FASTER)},
                             writes=("without-stats/train/stats.json",)),
    "prepare synthetic": Command("new/drawn --train 30 --test 10", {
        "photos": Shows("--photos"),
        "train": Shows("--train 20"),
        "test": Shows("--test 20"),
        "classes": Shows("--photos --classes 3", base="new/drawn --train 30 --test 10 --photos"),
        "seed": Shows("--seed 7"),
        "force": Unseen("--force", "there is nothing to replace"),
    }),
    "prepare cifar": Command(None, {}),  # accepts only the official archives: tests/tools/prepare_test.cpp
    "average": Command("runs/small --out new/a.safetensors", {
        "last": Shows("--last 1"),
        "out": Shows("--out new/b.safetensors"),
        "force": Shows("--out other.safetensors --force"),
    }, writes=("other.safetensors",)),
    "export": Command("runs/small --onnx new/x.onnx", {
        "weights": Shows("--weights other.safetensors"),
        "data": Unread("--data more-shards", "the run knows its own data"),
        "onnx": Shows("--onnx new/y.onnx"),
        "batch": Shows("--batch 2"),
        "opset": Shows("--opset 11"),
        "softmax": Shows("--softmax"),
        "head": Unseen("--head", "the last layer is no cosine layer, so it is exported anyway"),
        "raw": Shows("--raw"),
        "int8": Shows("--int8"),
        "calibrate": Shows("--int8 --calibrate 1", base="--int8"),
        "calibration": Shows("--int8 --calibration percentile", base="--int8"),
        "set": Refused("--set run.nonsense=1", "no key 'nonsense'"),
    }),
    "import": Command("net.onnx --out new/m.toml", {
        "out": Shows("--out new/n.toml"),
        "weights": Shows("--weights new/w.safetensors"),
        "size": Refused("--size 33x40", "takes rows of"),
        "output": Refused("--output nothing", "no node computes the value 'nothing'"),
        "force": Unseen("--force", "there is nothing to replace"),
    }),
    "devices": Command("", {"json": Shows("--json")}),
    "recipes": Command("", {"json": Shows("--json")}),
    "completion": Command("bash", {}),
    "inspect": Command("small.toml", {
        **PLANNED,
        "workers": Shows("--workers 2", base="alexnet_owt"),
        "parallel": Shows("--workers 2 --parallel mp", base="alexnet_owt --workers 2"),
        "shares": Shows("--workers 2 --shares 3,1", base="alexnet_owt --workers 2"),
        "device": Shows("--device cuda", base="alexnet_owt"),
        "precision": Shows("--precision bf16", base="alexnet_owt"),
        "batch": Shows("--batch 4", base="alexnet_owt"),
        "json": Shows("--json"),
        "sheet": Shows("--sheet new/s.png", base="shards"),
        "recipe": Shows("--sheet new/s.png --recipe small.toml", base="shards --sheet new/s.png"),
        "samples": Shows("--sheet new/s.png --samples 4", base="shards --sheet new/s.png"),
        "seed": Shows("--sheet new/s.png --seed 7", base="shards --sheet new/s.png"),
        "draw": Shows("--draw new/n.svg"),
        "classes": Unseen("--classes", "there are few classes", base="shards"),
    }),
}

# Command lines that fail after their words were read, in the folder that make_folder() makes.
FAILURES = """
train small.toml --data shards --out runs/small
train small.toml --data shards --out runs/small --set model.classes=4 --resume auto
train wide.toml --data shards --out runs/small --resume auto
train wide.toml --data shards --resume runs/small
train small.toml --data shards --out runs/small --resume auto --set optimizer.type=adamw
train small.toml --data nowhere --out runs/small --resume auto
train small.toml --data drawn --out runs/small --resume auto
train small.toml --data other-classes --out runs/small --resume auto --epochs 3
train small.toml --data shards --out runs/damaged --resume runs/damaged/checkpoints/step-00000006
train small.toml --data other-classes --out new/run --resume runs/small --epochs 3
train small.toml --data shards --out new/run --weights wide.safetensors
train small.toml --data shards --out new/run --weights damaged.safetensors
train small.toml --data shards --out new/run --weights runs/nowhere
train small.toml --data shards --out new/run --weights other.safetensors --except conv9
train small.toml --data shards --out new/run --set data.batch=100000000
train small.toml --data shards --out new/run --set model.classes=2
train small.toml --data nowhere --out new/run
train small.toml --data drawn --out new/run
train small.toml --data shards --out small.toml
train small.toml --data shards --out new/run --device cuda
simulate small.toml --data shards --out runs/small --workers 2
simulate small.toml --data nowhere --out new/run --workers 2
simulate small.toml --data shards --out new/run --workers 2 --weights wide.safetensors
eval runs/small --data nowhere
eval runs/small --data other-classes
eval runs/small --weights wide.safetensors
eval runs/small --weights damaged.safetensors
eval runs/damaged
eval runs/small --split val
eval runs/small --predictions nowhere/p.csv
eval runs/small --confusion new
eval small.toml
predict runs/small list.txt
predict runs/small nowhere.jpg
predict runs/small photos
extract runs/small --layer conv9 --out new/x.npy
extract runs/small --layer fc2 --out nowhere/x.npy
extract runs/small --layer fc2 --out new/x.npy --labels new/x.npy
extract runs/small --layer fc2 --out new/x.npy --data nowhere
verify runs/small names.txt
verify runs/small nowhere.txt
verify runs/small two-pairs.txt
verify runs/small far-pairs.txt
verify runs/small photo-pairs.txt --split test
verify runs/small photo-pairs.txt --roc nowhere/r.csv
verify runs/small pairs.txt --far 1.5
verify runs/small pairs.txt --layer conv9
verify runs/small pairs.txt --data nowhere
export runs/small --onnx nowhere/x.onnx
export runs/small --onnx new/x.onnx --weights wide.safetensors
export runs/small --onnx new/x.onnx --int8 --data nowhere
export small.toml --onnx new/x.onnx
import nowhere.onnx --out new/m.toml
import small.toml --out new/m.toml
import net.onnx --out small.toml
import net.onnx --out new/m.toml --weights other.safetensors
import net.onnx --out new/m.toml --size 0
import net.onnx --out nowhere/m.toml
average runs/small --out other.safetensors
average runs/nowhere
average runs/small --out nowhere/a.safetensors
ask runs/small
ask runs/small --workers 2
ask runs/nowhere
ask photos
ask localhost:1
report runs/nowhere --out new/r.html
report runs/small --out nowhere/r.html
report runs/small --layer conv9 --out new/r.html
report runs/small --data nowhere --out new/r.html
inspect runs/nowhere
inspect photos/cat/00.bmp
inspect shards --draw new/n.svg
inspect small.toml --sheet new/s.png
inspect shards --sheet nowhere/s.png
plan small.toml --workers 2 --gpu H100 --bandwidth 1Gbit --draw nowhere/p.svg
plan small.toml --workers 2 --bandwidth 1Gbit --times links.json
plan small.toml --workers 2 --links times.csv
plan small.toml --workers 2 --elastic --parallel dp --parallel ps
plan small.toml --workers 2 --elastic --model-ranks 1
time small.toml --csv nowhere/t.csv
time small.toml --links times.csv
bench-comm --json nowhere/l.json
bench-data nowhere
bench-data photos
bench-data drawn --cold
check small.toml --workers 2 --parallel nowhere
prepare folder other-photos shards --size 32
prepare folder nowhere new/data
prepare folder names.txt new/data
prepare folder photos names.txt
prepare folder empty new/data
prepare folder photos new/data --names list.txt
prepare list names.txt new/data
prepare list list.txt new/data --classes small.toml
prepare recordio list.txt new/data
prepare recordio nowhere.rec new/data
prepare recordio cut.rec new/data
prepare recordio faces.rec new/data --classes two-names.txt
prepare stats photos
prepare stats nowhere
prepare cifar list.txt new/data
prepare cifar nowhere.tar.gz new/data
prepare imagenet photos new/data
prepare imagenet flat-imagenet new/data
prepare synthetic small.toml
prepare index photos
prepare index beside --classes two-names.txt
""".strip().splitlines()

RECIPE = """
[model]
name = "{name}"
input = [3, 24, 24]
classes = 3
layer = [
  {{ name = "conv1", type = "conv", out = 4, kernel = 5, stride = 2 }},
  {{ name = "relu1", type = "relu" }},
  {{ name = "fc1", type = "dense", out = {width} }},
  {{ name = "relu2", type = "relu" }},
  {{ name = "fc2", type = "dense", out = 3 }},
]
[data]
format = "shards"
dir = "shards"
batch = 4
augment = {{ crop = 24, mirror = true, mean = "channel", std = "channel" }}
[optimizer]
learning_rate = 0.01
[schedule]
epochs = 2
[run]
checkpoint_every_epochs = 1
log_every = 1
"""


def write(path, data):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


def bitmap(side, pixels):
    return b"BM" + struct.pack("<IHHIIiiHHIIiiII", 54 + len(pixels), 0, 0, 54, 40, side, side, 1, 24, 0, len(pixels),
                               0, 0, 0, 0) + pixels


def picture(colour, shade, side=36):
    """A BMP of one colour with a darker stripe at a position given by the shade."""
    rows = []
    for y in range(side):
        dark = 60 if (y // 6) % 6 == shade % 6 else 0
        rows.append(bytes(max(0, c - dark) for c in reversed(colour)) * side)
    return bitmap(side, b"".join(rows))


def pictures(folder, classes, count, shade=0):
    colours = {"bird": (200, 60, 60), "cat": (60, 200, 60), "dog": (60, 60, 200), "emu": (200, 200, 60)}
    for name in classes:
        for i in range(count):
            write(f"{folder}/{name}/{i:02}.bmp", picture(colours[name], i + shade))


def records(images):
    """A RecordIO file of (label, bytes)."""
    whole = b""
    for key, (label, image) in enumerate(images, 1):
        content = struct.pack("<IfQQ", 0, label, key, 0) + image
        whole += struct.pack("<II", 0xced7230a, len(content)) + content + bytes(-len(content) % 4)
    return whole


def make_folder(owt):
    """Fills the current folder with data sets, weights, a run and the small files that the rows name."""
    def do(words):
        done = subprocess.run([owt, *words.split()], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            sys.exit(f"FAILED: owt {words}: {done.stderr}")

    three = ("bird", "cat", "dog")
    pictures("photos", three, 4)
    pictures("val-photos", three, 2)
    pictures("more-photos", three, 6, 1)
    pictures("imagenet/train", three, 2)
    pictures("imagenet/val", three, 1)
    pictures("flat-imagenet/train", three, 1)
    pictures("broken-photos", three, 2)
    pictures("other-photos", ("bird", "cat", "emu"), 4)
    write("broken-photos/cat/99.jpg", "no image")
    write("noise.bmp", bitmap(60, random.Random(1).randbytes(60 * 60 * 3)))
    os.makedirs("empty")
    for i in range(3):
        write(f"flat-imagenet/val/{i}.bmp", picture((60 * i, 60, 60), i))
    write("val-labels.txt", "".join(f"{i}.bmp {i}\n" for i in range(3)))
    write("names.txt", "bird a bird\ncat a cat\ndog a dog\n0 a bird\n1 a cat\n2 a dog\n")
    write("names-of-labels.txt", "bird\ncat\ndog\n")
    write("more-names.txt", "ant\nbird\ncat\ndog\n")
    write("other-labels.txt", "".join(f"{i}.bmp {2 - i}\n" for i in range(3)))
    names = [f"{name}/{i:02}.bmp {label}" for label, name in enumerate(three) for i in range(4)]
    write("inner.txt", "".join(f"{line}\n" for line in names))
    write("list.txt", "".join(f"photos/{line}\n" for line in names))
    write("broken.txt", "".join(f"photos/{line}\n" for line in names) + "broken-photos/cat/99.jpg 1\n")
    pairs = [f"{i} {(i + step) % 6} {int(i % 3 == (i + step) % 6 % 3)}\n" for step in (1, 3) for i in range(6)]
    write("pairs.txt", "".join(pairs))
    write("two-pairs.txt", "".join(pairs[:2]))
    write("far-pairs.txt", "".join(pairs) + "0 6 1\n")
    write("photo-pairs.txt", "noise.bmp photos/cat/00.bmp 0\n")
    faces = [(label, picture((60 * label, 60, 200), i)) for label in range(3) for i in range(4)]
    write("faces.rec", records(faces))
    write("broken.rec", records(faces + [(1, b"no image")]))
    write("cut.rec", records(faces)[:-100])
    write("small.toml", RECIPE.format(name="small", width=6))
    write("without-photos.toml", RECIPE.format(name="small", width=6).replace('dir = "shards"', 'dir = "nowhere"'))
    write("wide.toml", RECIPE.format(name="wide", width=8))
    for photos, val, shards in (("photos", "val-photos", "shards"), ("more-photos", "more-photos", "more-shards"),
                                ("other-photos", "other-photos", "other-classes"),
                                ("photos", "val-photos", "without-stats")):
        do(f"prepare folder {photos} {shards} --size 32")
        do(f"prepare folder {val} {shards} --size 32 --split val")
        if shards != "without-stats":
            do(f"prepare stats {shards}")
    os.makedirs("tars/train")
    shutil.copy("shards/train/000000.tar", "tars/train/0.tar")
    os.makedirs("beside")
    shutil.copy("shards/train/000000.tar", "beside/0.tar")
    write("two-names.txt", "bird\ncat\n")
    do("prepare synthetic drawn --train 20 --test 10")
    do("train small.toml --data shards")
    do("train wide.toml --data shards --out runs/wide")
    do("train small.toml --data more-shards --out runs/other --seed 9 --steps 2")
    for run, file in (("other", "other"), ("wide", "wide")):
        step = [name for name in sorted(os.listdir(f"runs/{run}/checkpoints")) if name.startswith("step-")][-1]
        shutil.copy(f"runs/{run}/checkpoints/{step}/weights.safetensors", f"{file}.safetensors")
    shutil.rmtree("runs/wide")
    shutil.rmtree("runs/other")
    shutil.copytree("runs/small", "runs/damaged")
    for step in os.listdir("runs/damaged/checkpoints"):
        path = f"runs/damaged/checkpoints/{step}/weights.safetensors"
        if os.path.exists(path):
            with open(path, "r+b") as file:
                file.seek(-5, os.SEEK_END)
                file.write(b"?")
    write("damaged.safetensors", open("other.safetensors", "rb").read()[:-40])
    do("export runs/small --onnx net.onnx")
    do("bench-comm --sizes 4K --seconds 1 --json links.json")
    do("time small.toml --steps 3 --keep-gradients --csv times.csv")
    os.makedirs("new")


def stamps(folder, below=""):
    """Every file and folder below the path, with data that reveals a write."""
    found = {}
    for entry in os.scandir(os.path.join(folder, below)):
        path = below + entry.name
        if entry.is_dir():
            found[path] = None
            if not entry.is_symlink():
                found.update(stamps(folder, path + "/"))
        else:
            state = entry.stat(follow_symlinks=False)
            found[path] = (state.st_ino, state.st_size, state.st_mtime_ns)
    return found


def masked(line):
    return re.sub(r"[-+.0-9einf]*[0-9][-+.0-9e]*", "#", line)


class Folder:
    """A copy of make_folder()'s folder, in which one command runs at a time."""

    def __init__(self, original, path):
        self.original, self.path = original, path
        shutil.copytree(original, path, symlinks=True)
        self.before = stamps(path)

    def contents(self, path):
        """The bytes of a file; empty if it is a folder or was removed."""
        whole = os.path.join(self.path, path)
        return open(whole, "rb").read() if os.path.isfile(whole) else b""

    def changes(self):
        """{path: bytes} of all changed files, which it restores."""
        now = stamps(self.path)
        touched = sorted(path for path in now.keys() | self.before.keys()
                         if now.get(path, 0) != self.before.get(path, 0))
        changed = {path: self.contents(path) for path in touched if not self.same(path)}
        if touched:
            self.restore(touched, now)
        return changed

    def same(self, path):
        """Whether the file was written with its old bytes."""
        first, now = os.path.join(self.original, path), os.path.join(self.path, path)
        return os.path.isfile(first) and os.path.isfile(now) and open(first, "rb").read() == open(now, "rb").read()

    def restore(self, touched, now):
        for path in sorted(now.keys() - self.before.keys(), reverse=True):
            whole = os.path.join(self.path, path)
            (os.rmdir if now[path] is None else os.remove)(whole)
        old = [path for path in touched if path in self.before]
        for path in old:
            if self.before[path] is None:
                os.makedirs(os.path.join(self.path, path), exist_ok=True)
        for path in old:
            if self.before[path] is not None:
                shutil.copy2(os.path.join(self.original, path), os.path.join(self.path, path))
        self.before = stamps(self.path)


class Outcome:
    """The outcome of a command: exit code, messages, and changed files."""

    def __init__(self, owt, folder, words, limit=None):
        def limited():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        environment = {name: value for name, value in os.environ.items() if not name.startswith(("OWT_", "OMP_"))}
        # Kernels for a few steps, which are generated in the shortest time, and one thread unless --threads says more.
        environment.update(HOME=folder.path + ".home", OMP_WAIT_POLICY="PASSIVE", OMP_NUM_THREADS="1",
                           ONEDNN_MAX_CPU_ISA="SSE41")
        # With the limit no file can be written, not even for messages, so messages go through pipes. Without it there
        # is no function, because a process starts faster then.
        done = subprocess.run([owt, *words.split()], cwd=folder.path, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, env=environment, preexec_fn=None if limit is None else limited)
        self.words, self.code, self.out, self.err = words, done.returncode, done.stdout, done.stderr
        self.files = folder.changes()

    def errors(self):
        return [line for line in self.err.splitlines() if line.startswith("owt: error:")]

    def lines(self):
        """The visible output, line by line; config.toml repeats the options and is left out."""
        seen = [f"code {self.code}"] + [f"out {line}" for line in self.out.splitlines()]
        seen += [f"err {line}" for line in self.err.splitlines()]
        for path, data in self.files.items():
            if path.endswith("config.toml"):
                continue
            try:
                seen += [f"{path} {line}" for line in data.decode().splitlines() or [""]]
            except UnicodeDecodeError:
                seen.append(f"{path} {hash(data)}")
        return seen


def differs(plain, again, other):
    """Whether `other` shows something that two runs of the plain command do not show."""
    steady = set(plain.lines()) & set(again.lines())
    if steady - set(other.lines()):
        return True
    first, second, now = ({masked(line) for line in outcome.lines()} for outcome in (plain, again, other))
    return bool(now - first - second) or bool((first & second) - now)


class Tester:
    def __init__(self, owt, scratch):
        self.owt, self.failures, self.plain, self.lock = owt, [], {}, threading.Lock()
        original = os.path.join(scratch, "original")
        os.makedirs(original)
        os.chdir(original)
        make_folder(owt)
        self.folders = queue.SimpleQueue()
        for i in range(AT_ONCE):
            self.folders.put(Folder(original, os.path.join(scratch, str(i))))

    def fail(self, words, what):
        self.failures.append(f"owt {words}: {what}")

    def run(self, words, limit=None):
        folder = self.folders.get()
        try:
            return Outcome(self.owt, folder, words, limit)
        finally:
            self.folders.put(folder)

    def plain_run(self, words, number):
        """The outcome of the plain command, the first or the second time; each is run once."""
        with self.lock:
            lock, outcomes = self.plain.setdefault((words, number), (threading.Lock(), []))
        with lock:
            if not outcomes:
                outcomes.append(self.run(words))
            return outcomes[0]

    def check_written(self, outcome, writes):
        for path in outcome.files:
            if not path.startswith("new/") and path not in writes:
                self.fail(outcome.words, f"changed {path}")

    def check_refused(self, outcome):
        """One error line, and every file unchanged."""
        if outcome.code not in (1, 2):
            self.fail(outcome.words, f"exit code {outcome.code}, wanted 1 or 2: {outcome.err[-300:]}")
        elif len(outcome.errors()) != 1:
            self.fail(outcome.words, f"{len(outcome.errors())} error lines: {outcome.err[-300:]}")
        # Intermediate results of owt prepare are kept for the same command with another limit.
        if outcome.files and "--max-skipped allows" not in outcome.err:
            self.fail(outcome.words, f"failed and changed {', '.join(list(outcome.files)[:5])}")

    def check_option(self, name, command, option, row):
        outcome = self.run(f"{name} {merged(command.plain, row.base, row.words)}")
        if isinstance(row, Refused):
            self.check_refused(outcome)
            if row.text not in outcome.err:
                self.fail(outcome.words, f"wanted an error with '{row.text}': {outcome.err[-300:]}")
            return
        words = f"{name} {merged(command.plain, row.base)}"
        plain = self.plain_run(words, 1)
        for each in (plain, outcome):
            if each.code != 0:
                self.fail(each.words, f"exit code {each.code}: {each.err[-300:]}")
            self.check_written(each, command.writes)
        if not isinstance(row, Unseen) and not differs(plain, self.plain_run(words, 2), outcome):
            self.fail(outcome.words, f"--{option} is accepted and shows in nothing")

    def check_bad_value(self, name, command, option, row):
        value = NOWHERE if option in OUTPUTS or (name, option) == ("import", "weights") else "?!"
        self.check_refused(self.run(f"{name} {merged(command.plain, row.base, row.words, f'--{option} {value}')}"))

    def check_full_disk(self, name, command):
        """No file can be written: one error line, and no incomplete file."""
        outcome = self.run(f"{name} {command.plain}", limit=0)
        if "new/" in command.plain and outcome.code != 1:
            self.fail(outcome.words, f"exit code {outcome.code} where nothing can be written: {outcome.err[-300:]}")
        if outcome.code != 0 and len(outcome.errors()) != 1:
            self.fail(outcome.words, f"{len(outcome.errors())} error lines: {outcome.err[-300:]}")
        for path, data in outcome.files.items():
            if ".tmp" in path or not path.startswith("new"):
                self.fail(outcome.words, f"left {path} where nothing can be written")

    def options_of(self, name):
        """{option: whether it takes a value}, from --help."""
        text = self.run(f"{name} --help").out
        found = re.findall(r"^  --([a-z0-9-]+) ( ?)", text, re.M)
        return {option: space == "" for option, space in found if option != "help"}

    def commands(self):
        names = [name for name in re.findall(r"^  ([a-z-]+) {2,}", self.run("--help").out, re.M) if name != "prepare"]
        return names + [f"prepare {kind}" for kind in re.findall(r"owt prepare ([a-z]+)", self.run("prepare --help").out)]

    def tasks(self, wanted):
        known = self.commands()
        for name in sorted(set(known) ^ set(COMMANDS)):
            self.fail(name, "is not both a command and a row of COMMANDS")
        for name in known:
            command = COMMANDS.get(name)
            if command is None or (wanted and name not in wanted):
                continue
            options = self.options_of(name)
            for option in sorted(set(options) ^ set(command.options)):
                self.fail(name, f"--{option} is not both an option and a row of the table")
            if command.plain is None:
                continue
            yield (self.check_full_disk, name, command)
            for option, row in command.options.items():
                if option in options:
                    yield (self.check_option, name, command, option, row)
                    if options[option] and not isinstance(row, Unread):
                        yield (self.check_bad_value, name, command, option, row)
        for words in FAILURES:
            if not wanted or any(words.startswith(name + " ") for name in wanted):
                yield (lambda line: self.check_refused(self.run(line)), words)


def merged(*parts):
    """The words of a command line; if an option is given twice, the later one counts; later arguments replace earlier
    ones."""
    positional, options = [], {}
    for part in parts:
        words = (part or "").split()
        at = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
        if at:
            positional, options = words[:at], {}
        for word in words[at:]:
            if word.startswith("--"):
                last = options[word] = []
            else:
                last.append(word)
    return " ".join(positional + [word for option, values in options.items() for word in (option, *values)])


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="owt_commands_") as scratch:
        tester = Tester(os.path.realpath(sys.argv[1]), scratch)
        tasks = list(tester.tasks(sys.argv[2:]))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for done in [pool.submit(*task) for task in tasks]:
                done.result()
        for failure in tester.failures:
            print(f"FAILED: {failure}", file=sys.stderr)
        if tester.failures:
            sys.exit(1)
        print(f"passed: {len(tasks)} command lines did what they were asked, and nothing else")


if __name__ == "__main__":
    main()
