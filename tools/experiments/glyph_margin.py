#!/usr/bin/python3
"""Margin against plain softmax on glyphs: are two characters the same, also characters that training has not seen?

    usage: glyph_margin.py WORK --owt PROGRAM [--classes N] [--unseen N] [--epochs E] [--seeds N,N,...] [--out DIR]
                           [--different N] [--threads T] [--set KEY=VALUE]... [--variant NAME [KEY=VALUE...]]...

WORK is the folder of tools/glyphs.sh for all classes. --classes N are trained on. They and further --unseen N classes
are drawn by a hash of their names, first from the classes with an image in both test faces. A variant is the recipe
glyphs_41k_margin with other keys. The default variants are `softmax`, the same network with a dense last layer and no
margin, and `margin`, the recipe itself. --variant names others instead, such as `--variant sampled loss.sample=0.1`.
--set changes a key of all variants.

For each variant and seed owt trains on the training faces, and owt eval classifies the images of the test faces. owt
verify then compares the two images of each character in the test faces, and --different N random pairs of images of
different characters there, from any of the faces: once for the classes of training (`seen`), once for the unseen ones.
Runs in DIR/NAME-SEED that are complete are not repeated. Prints a line for each run, and means and standard deviations
over the seeds as a Markdown table.
"""
import argparse
import collections
import hashlib
import json
import os
import random
import subprocess

from accuracy_runs import config, numbers, percent, table, train
from commands import end_with_commands

LAST_LAYER = 21  # in glyphs_41k_margin
VARIANTS = [["softmax", f"model.layer.{LAST_LAYER}.type=dense", "loss.margin="], ["margin"]]
FARS = "1e-3,1e-4,1e-5"


def read_list(path):
    """The paths of each class's images."""
    images = collections.defaultdict(list)
    with open(path, encoding="utf-8") as lines:
        for path, label in map(str.split, lines):
            images[int(label)].append(path)
    return images


def write_lines(path, lines):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)


def choose_classes(names, tests, options):
    """The labels of the classes of training and of the unseen ones."""
    def rank(label):
        return (-len(tests[label]), hashlib.blake2b(names[label].encode()).digest())
    order = sorted(range(len(names)), key=rank)
    return sorted(order[:options.classes]), sorted(order[options.classes:options.classes + options.unseen])


def write_pairs(path, images, different):
    """All pairs of two images of a class, and random pairs of images of different classes."""
    lines = [f"images/{a} images/{b} 1" for a, b in (images[label] for label in images if len(images[label]) == 2)]
    every = [(label, image) for label in images for image in images[label]]
    drawn = random.Random(1)
    while different > 0:
        (label_a, a), (label_b, b) = drawn.choice(every), drawn.choice(every)
        if label_a != label_b:
            lines.append(f"images/{a} images/{b} 0")
            different -= 1
    drawn.shuffle(lines)  # the folds of the accuracy are consecutive pairs
    write_lines(path, lines)


def make_data(options):
    """Prepares OUT/shards (training and validation images) and OUT/test; writes OUT/{seen,unseen}.txt, the pairs."""
    out, images = options.out, os.path.join(options.out, "images")
    done = os.path.join(out, "ready")
    if os.path.exists(done):
        return
    if not os.path.islink(images):
        os.symlink(os.path.abspath(os.path.join(options.work, "images")), images)
    with open(os.path.join(options.work, "classes.txt"), encoding="utf-8") as lines:
        names = lines.read().splitlines()
    lists = {split: read_list(os.path.join(options.work, split + ".txt")) for split in ("train", "val", "test")}
    seen, unseen = choose_classes(names, lists["test"], options)
    classes = os.path.join(out, "classes.txt")
    write_lines(classes, [names[label] for label in seen])
    for split, folder, as_split in (("train", "shards", "train"), ("val", "shards", "val"), ("test", "test", "val")):
        path = os.path.join(out, split + ".txt")
        write_lines(path, [f"{image} {i}" for i, label in enumerate(seen) for image in lists[split][label]])
        subprocess.run([options.owt, "prepare", "list", path, os.path.join(out, folder), "--split", as_split, "--root",
                        images, "--classes", classes, "--size", "0", "--grey"], check=True)
    for name, labels in (("seen", seen), ("unseen", unseen)):
        if labels:
            write_pairs(os.path.join(out, name + ".txt"), {label: lists["test"][label] for label in labels},
                        options.different)
    write_lines(done, [])


def json_of(options, *words):
    line = [options.owt, *words, "--threads", str(options.threads), "--json", "-"]
    return json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)


def results(options, variant, seed):
    """Fractions by name of the figure."""
    name, *keys = variant
    folder = os.path.join(options.out, f"{name}-{seed}")
    line = [options.owt, "train", config("glyphs_41k_margin"), "--data", os.path.join(options.out, "shards"),
            "--classes", "data", "--epochs", str(options.epochs), "--seed", str(seed),
            "--threads", str(options.threads)]
    for key in [*options.set, *keys]:
        line += ["--set", key]
    evaluations = train(folder, line, options.epochs)
    found = {"validation face, top-1": evaluations[-1]["top1"],
             "test faces, top-1": json_of(options, "eval", folder, "--data", os.path.join(options.out, "test"))["top1"]}
    for pairs in ("seen", "unseen"):
        path = os.path.join(options.out, pairs + ".txt")
        if os.path.exists(path):
            verified = json_of(options, "verify", folder, path, "--far", FARS)
            found |= {f"{pairs}, TAR at FAR {each['far']:g}": each["tar"] for each in verified["at_far"]}
            found |= {f"{pairs}, EER": verified["equal_error_rate"]}
    print(f"{name}, seed {seed}: " + "; ".join(f"{figure} {100 * each:.2f} %" for figure, each in found.items()),
          flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description="Margin against plain softmax on glyphs.")
    parser.add_argument("work", metavar="WORK", help="folder of tools/glyphs.sh")
    parser.add_argument("--owt", required=True, metavar="PROGRAM")
    parser.add_argument("--classes", type=int, default=5000, metavar="N", help="of training")
    parser.add_argument("--unseen", type=int, default=5000, metavar="N", help="further classes, for pairs")
    parser.add_argument("--epochs", type=int, default=1, metavar="E")
    parser.add_argument("--seeds", type=numbers, default=[1, 2, 3], metavar="N,N,...")
    parser.add_argument("--out", default="glyph_margin", metavar="DIR", help="of the data and the runs")
    parser.add_argument("--different", type=int, default=2000000, metavar="N", help="pairs of different characters")
    parser.add_argument("--threads", type=int, default=0, metavar="T")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--variant", action="append", nargs="+", metavar=("NAME", "KEY=VALUE"))
    options = parser.parse_args()

    end_with_commands()
    os.makedirs(options.out, exist_ok=True)
    make_data(options)
    variants = options.variant or VARIANTS
    runs = [[results(options, variant, seed) for seed in options.seeds] for variant in variants]
    print(table(["%", *(variant[0] for variant in variants)],
                [[figure, *(percent([run[figure] for run in of_variant]) for of_variant in runs)]
                 for figure in runs[0][0]]))


if __name__ == "__main__":
    main()
