#!/usr/bin/env python3
"""Compares the speed of loaders: owt, FFCV, DALI with its CPU operators, WebDataset and torchvision's ImageFolder.

    usage: loaders.py prepare PHOTOS WORK --owt PROGRAM [--short 256] [--copies 40]
           loaders.py measure WORK --owt PROGRAM [--crop 224] [--batch 64] [--cores 1,2] [--turns 7] [--seconds 5]
                              [--loaders 'NAME;...']

PHOTOS is a folder of JPEG files, which may have subfolders. `prepare` shrinks them to a short side of --short pixels as
JPEG of quality 90 (0: leaves them as they are), writes each --copies times in the format of each loader into WORK, and
prints the time and the size. `measure` makes batches of random-resized crops (8 to 100 % of the area, aspect 3/4 to
4/3) of --crop pixels, mirrored with probability 1/2 and normalised, as fp32, on the first --cores cores. A loader
starts once, makes batches until its queues and the page cache are full, and then measures in turns with the others,
which are stopped meanwhile. Prints medians of images per second and per second of processor time, minimum and maximum,
and the median of the turns' ratios. Processor time serves where other programs run.

Runs in an environment with the loaders: pip install torch torchvision webdataset nvidia-dali-cuda120 ffcv. Compiling
FFCV needs g++, pkg-config and the headers of OpenCV and libturbojpeg (Debian: libopencv-dev, libturbojpeg0-dev).
"""
import argparse
import io
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tarfile
import time

CLASSES = 10
AREA, ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


# Preparing


def resized(path, short):
    """The file's bytes, shrunk if its short side is longer than `short`. 0: as it is."""
    from PIL import Image

    image = Image.open(path)
    if short == 0 or min(image.size) <= short:
        return path.read_bytes()
    ratio = short / min(image.size)
    out = io.BytesIO()
    image.convert("RGB").resize([round(ratio * side) for side in image.size], Image.Resampling.BILINEAR).save(
        out, "JPEG", quality=90)
    return out.getvalue()


def write_folder(photos, work, options):
    for i, path in enumerate(photos):
        data = resized(path, options.short)
        for copy in range(options.copies):
            to = work / "folder" / str(i % CLASSES)
            to.mkdir(parents=True, exist_ok=True)
            (to / f"{copy:04}_{i:06}.jpg").write_bytes(data)


def write_tars(photos, work, options):
    """WebDataset shards of the folder's files, in random order."""
    import random

    files = sorted((work / "folder").glob("*/*.jpg"))
    random.Random(1).shuffle(files)
    (work / "tars" / "train").mkdir(parents=True)
    for shard in range(4):
        with tarfile.open(work / "tars" / "train" / f"{shard}.tar", "w") as tar:
            for path in files[shard::4]:
                for suffix, data in (("jpg", path.read_bytes()), ("cls", path.parent.name.encode())):
                    info = tarfile.TarInfo(f"{path.stem}.{suffix}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))


def write_ffcv(mode):
    def write(photos, work, options):
        from ffcv.fields import IntField, RGBImageField
        from ffcv.writer import DatasetWriter
        from torchvision.datasets import ImageFolder

        fields = {"image": RGBImageField(write_mode=mode, jpeg_quality=90), "label": IntField()}
        DatasetWriter(str(work / f"{mode}.beton"), fields).from_indexed_dataset(ImageFolder(str(work / "folder")))
    return write


def write_shards(photos, work, options):
    """Files as they are stay in the WebDataset shards, which get an index."""
    if options.short == 0:
        subprocess.run([options.owt, "prepare", "index", work / "tars", "--quiet"], check=True)
        return
    lines = [f"{path.resolve()} {i % CLASSES}\n" for i, path in enumerate(photos)]
    (work / "list.txt").write_text("".join(lines * options.copies))
    subprocess.run([options.owt, "prepare", "list", work / "list.txt", work / "shards", "--size", str(options.short),
                    "--quiet"], check=True)


FORMATS = {"folder": write_folder, "tars": write_tars, "jpg.beton": write_ffcv("jpg"), "raw.beton": write_ffcv("raw"),
           "shards": write_shards}


def size_of(path):
    return sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())


def prepare(options):
    photos = sorted(path for path in options.photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    options.work.mkdir(parents=True)
    for name, write in FORMATS.items():
        begin = time.monotonic()
        write(photos, options.work, options)
        print(f"{name}: {time.monotonic() - begin:.1f} s, {size_of(options.work / name) / 1e6:.1f} MB", flush=True)


# Loaders: endless generators of batches on the CPU


def image_transform(crop):
    """torchvision's recommended order: bytes are cropped, resized with antialiasing, mirrored, and then normalised."""
    import torch
    from torchvision.transforms import v2

    return v2.Compose([v2.RandomResizedCrop(crop, scale=AREA, ratio=ASPECT, antialias=True),
                       v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32), v2.Normalize(MEAN, STD)])


def decoded(data):
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg

    return decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), mode=ImageReadMode.RGB)


def read_decoded(path):
    return decoded(pathlib.Path(path).read_bytes())


def torchvision_batches(work, crop, cores, batch):
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder

    images = ImageFolder(str(work / "folder"), image_transform(crop), loader=read_decoded)
    loader = DataLoader(images, batch, shuffle=True, num_workers=cores, drop_last=True, persistent_workers=True,
                        prefetch_factor=2)
    while True:
        for x, _ in loader:
            yield x


def webdataset_batches(work, crop, cores, batch):
    import webdataset

    transform = image_transform(crop)
    tars = sorted(map(str, (work / "tars" / "train").glob("*.tar")))
    images = (webdataset.WebDataset(tars, shardshuffle=len(tars)).shuffle(1000).to_tuple("jpg", "cls")
              .map_tuple(lambda data: transform(decoded(data)), int))
    loader = webdataset.WebLoader(images, batch_size=batch, num_workers=cores, drop_last=True, persistent_workers=True,
                                  prefetch_factor=2)
    while True:
        for x, _ in loader:
            yield x


def dali_batches(work, crop, cores, batch):
    import torch
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    @pipeline_def(batch_size=batch, num_threads=cores, device_id=None, prefetch_queue_depth=3)
    def pipeline():
        files, labels = fn.readers.file(file_root=str(work / "folder"), random_shuffle=True, name="reader")
        images = fn.decoders.image_random_crop(files, device="cpu", random_area=AREA, random_aspect_ratio=ASPECT,
                                               use_fast_idct=True)
        images = fn.resize(images, size=(crop, crop), interp_type=types.INTERP_TRIANGULAR)
        return fn.crop_mirror_normalize(images, mirror=fn.random.coin_flip(), mean=MEAN, std=STD, dtype=types.FLOAT,
                                        output_layout="HWC"), labels

    while True:
        for outputs in DALIGenericIterator(pipeline(), ["image", "label"]):
            yield outputs[0]["image"]


def ffcv_batches(mode):
    def make(work, crop, cores, batch):
        import numpy
        from ffcv.fields.basics import IntDecoder
        from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
        from ffcv.loader import Loader, OrderOption
        from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage

        image = [RandomResizedCropRGBImageDecoder((crop, crop), AREA, ASPECT), RandomHorizontalFlip(),
                 NormalizeImage(numpy.array(MEAN), numpy.array(STD), numpy.float32), ToTensor(), ToTorchImage()]
        loader = Loader(str(work / f"{mode}.beton"), batch, cores, os_cache=True, order=OrderOption.RANDOM,
                        pipelines={"image": image, "label": [IntDecoder(), ToTensor()]})
        while True:
            for x, _ in loader:
                yield x
    return make


PEERS = {"FFCV, JPEG": ffcv_batches("jpg"), "FFCV, raw pixels": ffcv_batches("raw"), "DALI": dali_batches,
         "WebDataset": webdataset_batches, "torchvision": torchvision_batches}


# Measuring


def processor_seconds():
    """Of all processes of this group."""
    ticks = 0
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[2]) == os.getpgrp():
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def work_as_peer(options):
    """Answers each line of standard input, the seconds of a turn, with images per second and per processor second."""
    import torch

    batches = PEERS[options.peer](options.work, options.crop, options.cores[0], options.batch)
    values = options.batch * 3 * options.crop ** 2
    for line in sys.stdin:
        for _ in range(8):  # fills the queues again, and at first makes and warms everything
            x = next(batches)
            assert x.dtype == torch.float32 and x.numel() == values, (x.dtype, x.shape)
        images, begin, processor = 0, time.perf_counter(), processor_seconds()
        while time.perf_counter() - begin < float(line):
            images += len(next(batches))
        print(images / (time.perf_counter() - begin), images / (processor_seconds() - processor), flush=True)


class Peer:
    """A loader in a process group of its own, which is stopped between its turns."""

    def __init__(self, name, cores, options):
        words = [sys.executable, __file__, "peer", options.work, "--peer", name, "--crop", options.crop, "--cores",
                 cores, "--batch", options.batch]
        self.process = subprocess.Popen(["taskset", "-c", f"0-{cores - 1}", *map(str, words)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, start_new_session=True)

    def turn(self, seconds):
        os.killpg(self.process.pid, signal.SIGCONT)
        print(seconds, file=self.process.stdin, flush=True)
        rates = [float(word) for word in self.process.stdout.readline().split()]
        os.killpg(self.process.pid, signal.SIGSTOP)
        return rates

    def end(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


RECIPE = """
[model]
name = "loaders"
input = [3, {crop}, {crop}]
classes = 10
layer = [{{ name = "fc", type = "dense", out = 10, init = {{ type = "gaussian", std = 0.01 }} }}]

[data]
format = "shards"
batch = {batch}
augment = {{ crop = {crop}, area = {area}, aspect = {aspect}, mirror = true, mean = {mean}, std = {std} }}

[optimizer]
learning_rate = 0.1

[schedule]
epochs = 1
"""


class Owt:
    def __init__(self, cores, options):
        shards, recipe = options.work / "shards", options.work / "recipe.toml"
        recipe.write_text(RECIPE.format(crop=options.crop, batch=options.batch, area=list(AREA), aspect=list(ASPECT),
                                        mean=list(MEAN), std=list(STD)))
        words = [options.owt, "bench-data", shards if shards.exists() else options.work / "tars", "--recipe", recipe,
                 "--threads", cores, "--json"]
        self.words = ["taskset", "-c", f"0-{cores - 1}", *map(str, words)]

    def turn(self, seconds):
        answer = subprocess.run([*self.words, "--seconds", str(seconds)], check=True, capture_output=True).stdout
        speed = json.loads(answer)["speeds"][0]
        return speed["images_per_second"], speed["images_per_core_second"]

    def end(self):
        pass


def measure(options):
    print("| cores | loader | images/s | owt / loader | images per processor second | owt / loader |", flush=True)
    print("|---|---|---|---|---|---|", flush=True)
    for cores in options.cores:
        loaders = {"owt": Owt(cores, options)} | {name: Peer(name, cores, options) for name in options.loaders}
        try:
            for loader in loaders.values():
                loader.turn(1)
            turns = [{name: loader.turn(options.seconds) for name, loader in loaders.items()}
                     for _ in range(options.turns)]
        finally:
            for loader in loaders.values():
                loader.end()
        for name in loaders:
            cells = [cores, name]
            for kind in range(2):
                rates = [turn[name][kind] for turn in turns]
                ratio = statistics.median(turn["owt"][kind] / turn[name][kind] for turn in turns)
                cells += [f"{statistics.median(rates):.0f} ({min(rates):.0f} to {max(rates):.0f})", f"{ratio:.2f}"]
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Speed of loaders.")
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("prepare")
    first.add_argument("photos", type=pathlib.Path)
    first.add_argument("work", type=pathlib.Path)
    first.add_argument("--owt", required=True)
    first.add_argument("--short", type=int, default=256)
    first.add_argument("--copies", type=int, default=40)
    for name in ("measure", "peer"):
        command = commands.add_parser(name)
        command.add_argument("work", type=pathlib.Path)
        command.add_argument("--crop", type=int, default=224)
        command.add_argument("--batch", type=int, default=64)
        command.add_argument("--cores", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2])
    command.add_argument("--peer")
    command = commands.choices["measure"]
    command.add_argument("--owt", required=True)
    command.add_argument("--turns", type=int, default=7)
    command.add_argument("--seconds", type=float, default=5)
    command.add_argument("--loaders", type=lambda text: text.split(";"), default=list(PEERS))
    options = parser.parse_args()
    {"prepare": prepare, "measure": measure, "peer": work_as_peer}[options.command](options)


if __name__ == "__main__":
    main()
