#!/usr/bin/python3
"""Training speed of owt against PyTorch on the CPU: same network, batch, threads and arithmetic (fp32).

    usage: compare_pytorch.py --owt PROGRAM [--model cifar10_quick|alexnet] [--batch N] [--threads T] [--repeats R]

The two take turns, each in a fresh process; PyTorch has its faster layout, channels-last. A measurement is the median
step of a process after three steps that do not count; a step is forward, loss, backward and update on one batch that
lies in memory. Prints the median of each over all turns, least and most, and the ratio of images per second (median of
the ratios of the turns). Needs Debian's python3-torch with libopenblas0-pthread.
"""
import argparse
import statistics
import subprocess
import sys
import time

from owt_time import MODELS, line, owt_step_ms, thread_environment

UNTIMED_STEPS = 3


def torch_step_ms(config, batch, steps, threads):
    """Median milliseconds of a training step, measured in this process."""
    import torch
    from recipe import read_recipe
    from torch_net import make_net, make_optimizer

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    recipe = read_recipe(config)
    model = recipe["model"]
    # The rate does not change the time; this one keeps made-up data from ending in infinities.
    recipe["optimizer"] = recipe.get("optimizer", {}) | {"learning_rate": 1e-6}
    net = make_net(model).train().to(memory_format=torch.channels_last)
    optimizer = make_optimizer(net, recipe)
    images = (torch.rand(batch, *model["input"]) - 0.5).to(memory_format=torch.channels_last)
    labels = torch.arange(batch) % model["classes"]
    times = []
    for step in range(UNTIMED_STEPS + steps):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        loss.item()
        if step >= UNTIMED_STEPS:
            times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def torch_step_ms_elsewhere(config, batch, steps, threads):
    command = [sys.executable, __file__, "--torch-only", str(config), str(batch), str(steps), str(threads)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=thread_environment(threads))
    return float(done.stdout)


def main():
    parser = argparse.ArgumentParser(description="Training speed of owt against PyTorch on the CPU.")
    parser.add_argument("--owt", required=True, metavar="PROGRAM")
    parser.add_argument("--model", choices=sorted(MODELS), default="cifar10_quick")
    parser.add_argument("--batch", type=int, metavar="N", help="rows of a step (default: 128, AlexNet 64, ResNet 32)")
    parser.add_argument("--threads", type=int, metavar="T", default=2)
    parser.add_argument("--repeats", type=int, metavar="R", default=7, help="turns of each")
    options = parser.parse_args()

    config, batch, steps = MODELS[options.model]
    batch = options.batch or batch
    owt, torch = [], []
    for _ in range(options.repeats):
        owt.append(owt_step_ms(options.owt, config, batch, steps, options.threads))
        torch.append(torch_step_ms_elsewhere(config, batch, steps, options.threads))
    print(f"{options.model}, batch {batch}, {options.threads} threads, fp32, {options.repeats} turns of {steps} steps")
    for name, times in (("owt    ", owt), ("PyTorch", torch)):
        print(line("  " + name, times, "ms per step"), f"= {1e3 * batch / statistics.median(times):.1f} images/s")
    ratios = [theirs / ours for ours, theirs in zip(owt, torch)]
    print(line("  owt / PyTorch", ratios, "x images/s", 3))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--torch-only"]:
        print(torch_step_ms(sys.argv[2], *map(int, sys.argv[3:6])))
    else:
        main()
