#!/usr/bin/python3
"""Compares the speed of single layers of owt and PyTorch on the CPU: same layer, shape, precision and threads.

    usage: compare_layers.py --program build/layer_speed [--layer NAME;...] [--precision fp32,bf16] [--threads T]
                             [--repeats R] [--seconds S] [--python PROGRAM]

Forward is forward in training; backward is the gradients of input and weights. In each turn owt computes all layers,
in a process each, and then PyTorch in one process. A turn reports the least time of its passes, because other
programs may run on the machine. PyTorch gets channels-last images and bf16 values without autocast. Prints a Markdown
table: medians over all turns in milliseconds, and the median of the turns' ratios.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib

import torch

import torch_net

ELEMENTS = ([64, 56, 56], 16)  # channels, height, width; rows: 12.8 MB in f32, like a layer of ResNet
FIRE = """type = "branches"
branches = [{ name = "expand1x1", layers = [{ name = "conv", type = "conv", out = 64, kernel = 1 }] },
            { name = "expand3x3", layers = [{ name = "conv", type = "conv", out = 64, kernel = 3, pad = 1 }] }]"""

EXCITATION = """type = "scale"
body = [{ name = "pool", type = "global_avg_pool" }, { name = "fc1", type = "dense", out = 16 },
        { name = "relu", type = "relu" }, { name = "fc2", type = "dense", out = 64 },
        { name = "gate", type = "activation", kind = "hard_sigmoid" }]"""


def depthwise(channels, size, stride, rows):
    return ([channels, size, size], rows, f'type = "conv"\nout = {channels}\nkernel = 3\nstride = {stride}\npad = 1\n'
            f"groups = {channels}\nbias = false")


LAYERS = {
    **{f"activation {kind}": (*ELEMENTS, f'type = "activation"\nkind = "{kind}"')
       for kind in ("sigmoid", "tanh", "gelu", "silu", "leaky", "prelu", "relu6", "softplus", "abs", "square",
                    "hard_sigmoid", "hard_swish")},
    "local 3x3": ([64, 8, 8], 128, 'type = "local"\nout = 32\nkernel = 3\npad = 1'),
    "lrn within": ([32, 16, 16], 128, 'type = "lrn"\nsize = 3\nalpha = 5e-5\nwithin = true'),
    "branches (fire)": ([16, 55, 55], 16, FIRE),
    "scale": (*ELEMENTS, EXCITATION),
    "layer_norm 64": (*ELEMENTS, 'type = "layer_norm"'),
    "layer_norm 384": ([384, 14, 14], 32, 'type = "layer_norm"'),
    "drop_path": (*ELEMENTS, 'type = "drop_path"\nrate = 0.2'),
    "avg_pool 3x3": (*ELEMENTS, 'type = "avg_pool"\nkernel = 3\nstride = 1\npad = 1\ncount_pad = false'),
    "conv 3x3, dilation 2": ([64, 28, 28], 16, 'type = "conv"\nout = 64\nkernel = 3\npad = 2\ndilation = 2'),
    # MobileNet version 1 and 2 at 224 pixels, and a network for 32 pixels.
    "depthwise 32, 112": depthwise(32, 112, 1, 16),
    "depthwise 64, 112 /2": depthwise(64, 112, 2, 16),
    "depthwise 96, 112 /2": depthwise(96, 112, 2, 16),
    "depthwise 128, 56": depthwise(128, 56, 1, 16),
    "depthwise 144, 56": depthwise(144, 56, 1, 16),
    "depthwise 128, 56 /2": depthwise(128, 56, 2, 16),
    "depthwise 256, 28": depthwise(256, 28, 1, 16),
    "depthwise 192, 28 /2": depthwise(192, 28, 2, 16),
    "depthwise 512, 14": depthwise(512, 14, 1, 16),
    "depthwise 384, 14": depthwise(384, 14, 1, 16),
    "depthwise 576, 14 /2": depthwise(576, 14, 2, 16),
    "depthwise 1024, 7": depthwise(1024, 7, 1, 16),
    "depthwise 960, 7": depthwise(960, 7, 1, 32),
    "depthwise 64, 32": depthwise(64, 32, 1, 32),
    "depthwise 128, 16": depthwise(128, 16, 1, 32),
    "depthwise 256, 8": depthwise(256, 8, 1, 32),
}


def measure_torch(model, rows, precision, threads, seconds):
    """The least milliseconds of forward and of backward, in this process."""
    model = tomllib.loads(model)
    torch.set_num_threads(threads)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    net = torch_net.make_net(model).train().to(dtype).to(memory_format=torch.channels_last)
    for module in net.modules():
        if hasattr(module, "inplace"):
            module.inplace = False  # the input must not be overwritten
    x = torch.randn(rows, *model["input"]).to(dtype).to(memory_format=torch.channels_last).requires_grad_()
    wanted = [x, *net.parameters()]
    dy = torch.randn_like(net(x))
    forward, backward, end = [], [], time.perf_counter() + seconds
    while len(forward) < 6 or time.perf_counter() < end:
        begin = time.perf_counter()
        y = net(x)
        between = time.perf_counter()
        torch.autograd.grad(y, wanted, dy)
        forward.append(1e3 * (between - begin))
        backward.append(1e3 * (time.perf_counter() - between))
    return min(forward[3:]), min(backward[3:])


def torch_turn(python, cases):
    # Keeps glibc from returning the memory of large tensors to the system after every pass.
    keeping = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(1 << 25), "MALLOC_TRIM_THRESHOLD_": str(1 << 32)}
    return json.loads(subprocess.run([python, __file__, "--torch-only", json.dumps(cases)], check=True,
                                     capture_output=True, text=True, env=keeping).stdout)


def owt_turn(program, model, *case):
    """The same for owt. layer_speed needs the number of output values, which PyTorch has reported."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(model)
        file.flush()
        words = [program, file.name, *map(str, case)]
        return list(map(float, subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()))


def text_of(name):
    shape, _, layer = LAYERS[name]
    model = f'name = "one"\ninput = {shape}\n[[layer]]\nname = "layer"\n{layer}\n'
    with torch.no_grad():
        outputs = torch_net.make_net(tomllib.loads(model)).eval()(torch.zeros(1, *shape)).numel()
    return f"classes = {outputs}\n{model}"


def compare(options, names):
    """{(name, precision): [((forward, backward), theirs) for each turn]}, in milliseconds."""
    cases = [(text_of(name), LAYERS[name][1], precision, options.threads, options.seconds)
             for name in names for precision in options.precision]
    turns = []
    for _ in range(options.repeats):
        ours = [owt_turn(options.program, *case) for case in cases]
        turns.append(list(zip(ours, torch_turn(options.python, cases))))
    rows = [(name, precision) for name in names for precision in options.precision]
    return {row: [turn[i] for turn in turns] for i, row in enumerate(rows)}


def cells(pairs):
    ours, theirs = (statistics.median(pair[i] for pair in pairs) for i in range(2))
    return f"{ours:.3f}", f"{theirs:.3f}", f"{statistics.median(theirs / ours for ours, theirs in pairs):.2f}"


def main():
    several = lambda text: text.split(",")
    parser = argparse.ArgumentParser(description="Speed of single layers of owt against PyTorch on the CPU.")
    parser.add_argument("--program", required=True, help="cmake --build build --target layer_speed")
    parser.add_argument("--python", default=sys.executable, help="that has PyTorch; default: this one")
    parser.add_argument("--layer", type=lambda text: text.split(";"), metavar="NAME;...", default=list(LAYERS),
                        help="beginnings of names; default: all")
    parser.add_argument("--precision", type=several, default=["fp32", "bf16"], metavar="NAME,...")
    parser.add_argument("--threads", type=int, default=2, metavar="T")
    parser.add_argument("--repeats", type=int, default=5, metavar="R", help="turns of each")
    parser.add_argument("--seconds", type=float, default=0.3, metavar="S", help="of a turn, at least")
    options = parser.parse_args()
    head = ("layer", "precision", "owt forward", "PyTorch", "ratio", "owt backward", "PyTorch", "ratio")
    line = lambda words: print("| " + " | ".join(words) + " |", flush=True)
    line(head)
    line(["---"] * len(head))
    names = [name for name in LAYERS if any(name.startswith(beginning) for beginning in options.layer)]
    for row, turns in compare(options, names).items():
        pairs = [[(ours[i], theirs[i]) for ours, theirs in turns] for i in range(2)]
        line((*row, *cells(pairs[0]), *cells(pairs[1])))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--torch-only"]:
        print(json.dumps([measure_torch(*case) for case in json.loads(sys.argv[2])]))
    else:
        main()
