#!/usr/bin/python3
"""Changes and reads files for tools/bench/soak.sh.

    soak.py photos DIR PER_CLASS SEED        draws bitmaps of four classes, DIR/CLASS/*.bmp
    soak.py damage SPLIT COUNT SEED          flips a bit in COUNT JPEGs of a split's shards
    soak.py compare METRICS REFERENCE [whole]
        checks that METRICS has one line for each step from 1 on, in order, and the losses of REFERENCE; prints the
        worst difference and the last step. The last line may be cut off, except with `whole`. Exits 1 with the
        reason.
"""
import json
import operator
import pathlib
import random
import struct
import sys
import tarfile

SIDE, CLASSES = 24, 4
EARLY_STEPS, EARLY, LATER = 100, 1e-4, 1e-2  # largest relative difference of a step's loss: rounding errors grow


def bitmap(pixels):
    """A BMP file of SIDE x SIDE pixels of three bytes."""
    head = struct.pack("<2sIHHI", b"BM", 54 + len(pixels), 0, 0, 54)
    return head + struct.pack("<IiiHHIIiiII", 40, SIDE, SIDE, 1, 24, 0, len(pixels), 0, 0, 0, 0) + pixels


def photos(folder, per_class, seed):
    """Noise on a slope. Classes differ slightly in some colours, so that the loss decreases for a long time."""
    dice = random.Random(seed)
    below_80 = bytes(value * 80 // 256 for value in range(256))
    for label in range(CLASSES):
        part = pathlib.Path(folder) / f"class{label}"
        part.mkdir(parents=True)
        light = [60 + 10 * (label & 1), 60 + 10 * (label >> 1), 60]
        for number in range(per_class):
            slope = dice.randrange(4)
            row = [light[c] + slope * x for x in range(SIDE) for c in range(3)]
            noise = dice.getrandbits(8 * SIDE * len(row)).to_bytes(SIDE * len(row), "little").translate(below_80)
            pixels = bytes(map(operator.add, row * SIDE, noise))
            (part / f"{number:04}.bmp").write_bytes(bitmap(pixels))


def damage(split, count, seed):
    places = []
    for shard in sorted(pathlib.Path(split).glob("*.tar")):
        with tarfile.open(shard) as tar:
            places += [(shard, at.offset_data + at.size // 2) for at in tar if at.name.endswith(".jpg")]
    for shard, place in random.Random(seed).sample(places, count):
        with open(shard, "r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 4]))


def records(path, whole):
    lines = pathlib.Path(path).read_text().split("\n")
    unfinished = lines.pop()
    if unfinished and whole:
        sys.exit(f"{path}: the last line is cut off: {unfinished}")
    for number, line in enumerate(lines, 1):
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            sys.exit(f"{path}: line {number} is no JSON object: {line}")


def losses(path, whole):
    """The loss by step, from step 1. Checks that no evaluation comes twice or before its step."""
    trained, evaluated = [], 0
    for record in records(path, whole):
        step = record["step"]
        if record["kind"] == "train":
            if step != len(trained) + 1:
                sys.exit(f"{path}: step {step} comes after {len(trained)} lines of steps")
            trained.append(record["loss"])
        elif record["kind"] != "eval":
            continue
        elif not evaluated < step <= len(trained):
            sys.exit(f"{path}: evaluation of step {step} after that of step {evaluated} and training step {len(trained)}")
        else:
            evaluated = step
    return trained


def compare(metrics, reference, whole=False):
    run, wanted = losses(metrics, whole), losses(reference, True)
    if len(run) > len(wanted):
        sys.exit(f"{metrics} has {len(run)} steps, the reference {len(wanted)}")
    worst = 0.0
    for step, (found, right) in enumerate(zip(run, wanted), 1):
        difference = abs(found - right) / abs(right)
        if not difference <= (EARLY if step <= EARLY_STEPS else LATER):
            sys.exit(f"{metrics}: the loss of step {step} is {found}, that of the undisturbed run {right}")
        worst = max(worst, difference)
    print(f"{worst:.1e} {len(run)}")


def main(command=None, *words):
    if command == "photos" and len(words) == 3:
        photos(words[0], int(words[1]), int(words[2]))
    elif command == "damage" and len(words) == 3:
        damage(words[0], int(words[1]), int(words[2]))
    elif command == "compare" and (len(words) == 2 or words[2:] == ("whole",)):
        compare(words[0], words[1], len(words) == 3)
    else:
        print(__doc__, file=sys.stderr)
        sys.exit(2)


main(*sys.argv[1:])
