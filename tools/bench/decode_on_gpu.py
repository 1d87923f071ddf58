#!/usr/bin/env python3
"""Decodes JPEG files on a GPU (torchvision with nvJPEG) and on one core of the CPU, in images per second.

  usage: decode_on_gpu.py [--images N] [--batch N] [--device NAME]

The files are drawn: smooth colours with noise, 256 x 341 pixels, quality 90. It answers whether decoding on the GPU
would relieve the loader; compare with `owt bench-data`, which decodes only the part of a file that the crop shows.
Needs PyTorch and torchvision with CUDA. It has not been run on a GPU yet, only with --device cpu.
"""
import argparse
import time

import torch
import torchvision.io as tv


def drawn(number):
    """A JPEG file as a tensor of bytes."""
    random = torch.Generator().manual_seed(number)
    coarse = torch.rand(1, 3, 6, 8, generator=random)
    image = torch.nn.functional.interpolate(coarse, size=(256, 341), mode="bicubic")[0]
    noisy = 255 * image + 12 * torch.randn(image.shape, generator=random)
    return tv.encode_jpeg(noisy.clamp(0, 255).to(torch.uint8), quality=90)


def speed(files, batch, device):
    batches = [files[i:i + batch] for i in range(0, len(files), batch)]

    def decode(some):
        if device == "cpu":
            return [tv.decode_jpeg(file, mode=tv.ImageReadMode.RGB) for file in some]
        return tv.decode_jpeg(some, mode=tv.ImageReadMode.RGB, device=device)  # a list is decoded together

    clock = time.process_time if device == "cpu" else time.perf_counter  # other programs may take cores
    decode(batches[0])
    begin = clock()
    for some in batches:
        decode(some)
    if device != "cpu":
        torch.cuda.synchronize()
    return len(files) / (clock() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--device", default="cuda")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    files = [drawn(number) for number in range(asked.images)]
    size = sum(file.numel() for file in files) / len(files) / 1e3
    print(f"{asked.images} files of {size:.1f} KB on average, images/s:")
    for device in dict.fromkeys(("cpu", asked.device)):
        print(f"  {device}{' (one core)' if device == 'cpu' else ''}: {speed(files, asked.batch, device):.0f}")


if __name__ == "__main__":
    main()
