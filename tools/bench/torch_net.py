"""The network of an owt model file in PyTorch, with the same parameter names; and safetensors files.

Used by torch_step.py, torch_check.py, torch_models.py and compare_layers.py; needs only PyTorch and numpy.
"""
import json
import math
import pathlib
import struct
import sys

import numpy
import torch
from torch import nn


def pool(kind, layer):
    more = {} if kind is nn.MaxPool2d else {"count_include_pad": layer.get("count_pad", True)}
    return kind(layer["kernel"], layer.get("stride", layer["kernel"]), layer.get("pad", 0),
                ceil_mode=layer.get("round", "down") == "up", **more)


class ConvRoundedUp(nn.Conv2d):
    """Pads the bottom and right edges with zeros until the last window is whole."""

    def forward(self, x):
        more = []
        for axis in (1, 0):
            reach = (self.kernel_size[axis] - 1) * self.dilation[axis] + 1
            size = x.shape[2 + axis] + 2 * self.padding[axis] - reach
            more += [0, -size % self.stride[axis]]
        return super().forward(nn.functional.pad(x, more))


def add_module(parent, name, module):
    """Registers a module under a name that may have dots, like layer1.0; keeps modules that exist below that name."""
    first, _, rest = name.partition(".")
    if not rest:
        for inner, below in (parent._modules[first]._modules if first in parent._modules else {}).items():
            module.add_module(inner, below)
        return parent.add_module(first, module)
    if first not in parent._modules:
        parent.add_module(first, nn.Module())
    add_module(getattr(parent, first), rest, module)


class Chain(nn.Module):
    """Modules in sequence, (name, module) each."""

    def __init__(self, named):
        super().__init__()
        self.order = [module for _, module in named]
        for name, module in named:
            add_module(self, name, module)

    def forward(self, x):
        for module in self.order:
            x = module(x)
        return x


class Composite(nn.Module):
    """A layer made of branches of layers, which are registered here under their branch's prefix."""

    def __init__(self, branches, shape):
        super().__init__()
        self.branches = []
        for prefix, layers in branches:
            named = make_layers(layers, shape)
            self.branches.append([module for _, module in named])
            for name, module in named:
                add_module(self, prefix + name, module)

    def outputs(self, x):
        for branch in self.branches:
            # An in-place layer must not overwrite x, which the other branches read.
            y = x.clone() if branch and getattr(branch[0], "inplace", False) else x
            for module in branch:
                y = module(y)
            yield y


class Residual(Composite):
    """relu(body(x) + shortcut(x))"""

    def __init__(self, layer, shape):
        super().__init__([("", layer.get(key, [])) for key in ("body", "shortcut")], shape)
        self.relu_of_sum = layer.get("relu", True)

    def forward(self, x):
        body, shortcut = self.outputs(x)
        sum = body + shortcut
        return sum.relu() if self.relu_of_sum else sum


def branches_of(layer):
    """(prefix of names, layers) of each branch of a `branches` layer."""
    return [(branch["name"] + "." if "name" in branch else "", branch.get("layers", []))
            for branch in layer.get("branches", [])]


class Branches(Composite):
    """Concatenates the outputs of the branches as channels or features."""

    def __init__(self, layer, shape):
        super().__init__(branches_of(layer), shape)

    def forward(self, x):
        return torch.cat(list(self.outputs(x)), dim=1)


class Scale(Composite):
    """Every channel, or feature, times the factor that the body computes for it."""

    def __init__(self, layer, shape):
        super().__init__([("", layer["body"])], shape)

    def forward(self, x):
        factors, = self.outputs(x)
        return x * factors.view(*factors.shape[:2], *[1] * (x.dim() - 2))


class LayerNorm(nn.LayerNorm):
    """Over the channels of every position of channels-last images, or over the features of rows."""

    def forward(self, x):
        if x.dim() == 2:
            return super().forward(x)
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class DropPath(nn.Module):
    """torchvision's stochastic_depth with mode = "row"."""

    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        if not self.training or self.rate == 0:
            return x
        kept = torch.empty(len(x), *[1] * (x.dim() - 1), dtype=x.dtype, device=x.device).bernoulli_(1 - self.rate)
        return x * kept.div_(1 - self.rate)


def group_sizes(rows, size):
    """The groups of src/core/row_groups.h."""
    count = max(rows // size + (2 * (rows % size) >= size), 1)
    return [size] * (count - 1) + [rows - size * (count - 1)]


class InGroups:
    """Wraps a batch norm of PyTorch: statistics over groups of rows (batch_norm's `rows`). The running averages get the
    mean over the groups, weighted by their rows."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        parts = torch.split(x, group_sizes(len(x), self.rows))
        mean, variance = torch.zeros_like(self.running_mean), torch.zeros_like(self.running_var)
        normalised = []
        for part in parts:
            of_part = torch.zeros_like(mean), torch.zeros_like(variance)
            normalised.append(nn.functional.batch_norm(part, *of_part, self.weight, self.bias, True, 1.0, self.eps))
            mean += of_part[0] * (len(part) / len(x))
            variance += of_part[1] * (len(part) / len(x))
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance, self.momentum)
        return torch.cat(normalised)


class BatchNorm1dInGroups(InGroups, nn.BatchNorm1d):
    pass


class BatchNorm2dInGroups(InGroups, nn.BatchNorm2d):
    pass


def make_batch_norm(layer, shape):
    rows = layer.get("rows", 0)
    rows = 0 if rows == "step" else rows  # there is one process
    plain, in_groups = ((nn.BatchNorm2d, BatchNorm2dInGroups) if len(shape) == 3 else
                        (nn.BatchNorm1d, BatchNorm1dInGroups))
    norm = (in_groups if rows else plain)(shape[0], eps=layer.get("eps", 1e-5), momentum=layer.get("momentum", 0.1))
    norm.rows = rows
    return norm


class Square(nn.Module):
    def forward(self, x):
        return x * x


class Abs(nn.Module):
    def forward(self, x):
        return x.abs()


class Local(nn.Module):
    """local (layers/local.h), with its weights in owt's order."""

    def __init__(self, layer, shape):
        super().__init__()
        assert layer.get("round", "down") == "down", "windows rounded up have no module here"
        kernel, stride, pad = (tuple(value) if isinstance(value, list) else (value, value)
                               for value in (layer["kernel"], layer.get("stride", 1), layer.get("pad", 0)))
        self.unfold = nn.Unfold(kernel, stride=stride, padding=pad)
        self.out = [(shape[i + 1] + 2 * pad[i] - kernel[i]) // stride[i] + 1 for i in range(2)]
        positions, area = self.out[0] * self.out[1], kernel[0] * kernel[1]
        bound = (6 / (area * (shape[0] + layer["out"]))) ** 0.5
        self.weight = nn.Parameter(torch.empty(layer["out"], positions, area * shape[0]).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(layer["out"], positions)) if layer.get("bias", True) is not False else None

    def forward(self, x):
        seen = self.unfold(x).unflatten(1, (x.shape[1], -1)).transpose(1, 2).flatten(1, 2)  # rows, (u, v, c), positions
        y = torch.einsum("nkp,opk->nop", seen, self.weight)
        return (y if self.bias is None else y + self.bias).unflatten(2, self.out)


class LrnWithin(nn.Module):
    """lrn with within = true (layers/lrn.h)."""

    def __init__(self, layer):
        super().__init__()
        self.size, self.alpha = layer.get("size", 5), layer.get("alpha", 1e-4)
        self.beta, self.k = layer.get("beta", 0.75), layer.get("k", 1.0)

    def forward(self, x):
        before, after = self.size // 2, (self.size - 1) // 2
        squares = nn.functional.pad(x * x, (before, after, before, after))
        return x * (self.k + self.alpha * nn.functional.avg_pool2d(squares, self.size, 1)) ** -self.beta


def make_activation(layer, shape):
    return {
        "abs": Abs,
        "gelu": lambda: nn.GELU(approximate=layer.get("approximate", "none")),
        "hard_sigmoid": nn.Hardsigmoid,
        "hard_swish": nn.Hardswish,
        "leaky": lambda: nn.LeakyReLU(layer.get("slope", 0.01), inplace=True),
        "prelu": lambda: nn.PReLU(1 if layer.get("shared", False) else shape[0]),
        "relu6": lambda: nn.ReLU6(inplace=True),
        "sigmoid": nn.Sigmoid,
        "silu": nn.SiLU,
        "softplus": nn.Softplus,
        "square": Square,
        "tanh": nn.Tanh,
    }[layer["kind"]]()


COMPOSITES = {"residual": Residual, "branches": Branches, "scale": Scale}


class Cosine(nn.Module):
    """Cosines between rows of features and rows of the weight."""

    def __init__(self, features, out):
        super().__init__()
        self.weight = nn.Parameter(0.01 * torch.randn(out, features))

    def forward(self, x):
        return self.cosines(x, self.weight)

    def of_sample(self, x, labels, rate):
        """The cosines of this fraction of the classes, drawn at random with all labels among them, and the labels'
        numbers in the sample: Partial FC (An et al. 2022, arXiv:2203.15565), whose public code draws and indexes like
        this."""
        labelled = labels.unique()
        order = torch.rand(len(self.weight), device=x.device)
        order[labelled] = 2
        count = max(int(rate * len(self.weight)), len(labelled))
        index = order.topk(count).indices.sort().values
        return self.cosines(x, self.weight[index]), torch.searchsorted(index, labels)

    @staticmethod
    def cosines(x, weight):
        return nn.functional.linear(nn.functional.normalize(x), nn.functional.normalize(weight))


def with_margin(cosines, labels, margin):
    """The logits of owt's `[loss] margin`. For angles beyond pi - m2 they are ArcFace's; m1 must be 1."""
    own = {"arcface": {"m2": margin.get("m", 0.5)}, "cosface": {"m3": margin.get("m", 0.35)}, "combined": margin}
    m1, m2, m3 = (own[margin["type"]].get(key, default) for key, default in (("m1", 1.0), ("m2", 0.0), ("m3", 0.0)))
    assert m1 == 1, "a factor of the angle has no logits here"
    at = labels[:, None]
    cosine = cosines.gather(1, at).float()
    moved = cosine
    if m2 > 0:
        angle = cosine.clamp(-1 + 1e-7, 1 - 1e-7).acos()
        moved = torch.where(angle + m2 > math.pi, cosine - m2 * math.sin(m2), (angle + m2).cos())
    return margin.get("scale", 64.0) * cosines.scatter(1, at, (moved - m3).to(cosines.dtype))


def make_layer(layer, shape):
    """The module of a [[layer]] table for inputs of `shape` (without the batch)."""
    bias = layer.get("bias", True) is not False
    kind = layer["type"]
    if kind == "conv":
        conv = ConvRoundedUp if layer.get("round", "down") == "up" else nn.Conv2d
        return conv(shape[0], layer["out"], layer["kernel"], layer.get("stride", 1), layer.get("pad", 0),
                    dilation=layer.get("dilation", 1), groups=layer.get("groups", 1), bias=bias)
    if kind == "dense":
        return nn.Linear(shape[0], layer["out"], bias=bias)
    if kind == "cosine":
        return Cosine(shape[0], layer["out"])
    if kind == "batch_norm":
        return make_batch_norm(layer, shape)
    if kind in COMPOSITES:
        return COMPOSITES[kind](layer, shape)
    if kind == "local":
        return Local(layer, shape)
    if kind == "activation":
        return make_activation(layer, shape)
    simple = {
        "relu": lambda: nn.ReLU(inplace=True),
        "dropout": lambda: nn.Dropout(layer["rate"]),
        "drop_path": lambda: DropPath(layer["rate"]),
        "layer_norm": lambda: LayerNorm(shape[0], layer.get("eps", 1e-5)),
        "max_pool": lambda: pool(nn.MaxPool2d, layer),
        "avg_pool": lambda: pool(nn.AvgPool2d, layer),
        "global_avg_pool": lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        "lrn": lambda: LrnWithin(layer) if layer.get("within", False) else nn.LocalResponseNorm(layer.get("size", 5), layer.get("alpha", 1e-4), layer.get("beta", 0.75),
                                            layer.get("k", 1.0)),
    }
    if kind not in simple:
        sys.exit(f"torch_net: error: PyTorch has no module here for layer '{layer['name']}' of type '{kind}'; "
                 "give make_layer in tools/bench/torch_net.py one")
    return simple[kind]()


def make_layers(layers, shape):
    """(name, module) of layer tables, for inputs of `shape` (without the batch)."""
    named = []
    values = torch.zeros(1, *shape)
    for layer in layers:
        if layer["type"] in ("dense", "cosine") and values.dim() == 4:
            named.append((layer["name"] + "_flatten", nn.Flatten()))
            values = values.flatten(1)
        module = make_layer(layer, values.shape[1:])
        with torch.no_grad():
            values = module.eval()(values)
        named.append((layer["name"], module))
    return named


def make_net(model):
    """The [[layer]] tables in sequence under their names; images are N x C x H x W."""
    return Chain(make_layers(model["layer"], model["input"]))


def all_layers(layers, prefix=""):
    """{full name: table}, including the layers inside composite ones."""
    found = {}
    for layer in layers:
        name = prefix + layer["name"]
        found[name] = layer
        found |= all_layers(layer.get("body", []) + layer.get("shortcut", []), name + ".")
        for inner, layers in branches_of(layer):
            found |= all_layers(layers, name + "." + inner)
    return found


def make_optimizer(net, recipe):
    """owt's plain SGD at the base rate: one group for each parameter, with the multipliers of the model file."""
    settings = recipe["optimizer"]
    if settings.get("type", "sgd") != "sgd":
        raise SystemExit(f"PyTorch's side knows optimizer type sgd only, not {settings['type']}; "
                         "--set optimizer.type=sgd")
    layers = all_layers(recipe["model"]["layer"])
    groups = []
    for name, parameter in net.named_parameters():
        layer_name, kind = name.rsplit(".", 1)
        layer = layers[layer_name]
        own_table = layer["type"] in ("batch_norm", "layer_norm", "activation")
        table = layer if kind == "weight" and not own_table else layer.get(kind, {})
        table = table if isinstance(table, dict) else {}
        decay = 0.0 if layer["type"] == "activation" else 1.0
        groups.append({"params": [parameter], "lr": settings["learning_rate"] * table.get("lr", 1.0),
                       "weight_decay": settings.get("decay", 5e-4) * table.get("decay", decay)})
    return torch.optim.SGD(groups, lr=settings["learning_rate"], momentum=settings.get("momentum", 0.9),
                           nesterov=settings.get("nesterov", False))


def save_safetensors(path, state):
    header, data = {}, b""
    for name, tensor in state.items():
        values = tensor.detach().to(torch.float32).contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def load_safetensors(path):
    content = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    state = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32", f"{path}: {name} is {entry['dtype']}, wanted F32"
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        state[name] = torch.from_numpy(numpy.frombuffer(content[begin:end], "<f4").reshape(entry["shape"]).copy())
    return state
