#!/usr/bin/env python3
"""Converts weights of torchvision's networks, or InsightFace's IResNets, to the names in owt's model files.

    usage: torchvision_weights.py --model MODEL FROM TO

FROM: a state_dict, .safetensors or .pth (needs PyTorch); MODEL: a model file or a recipe; TO: the file for
`owt train --weights TO` and `owt eval --weights TO`.

If FROM has the model's names, as for ResNets, the script only converts a .pth file to safetensors. FROM may lack the
last layer, as InsightFace's IResNets do. Otherwise the layers of FROM, in the order of their numbers (layers of
`classifier` last), become the model's layers with weights, in order. There must be equally many; convolutions must
match convolutions and dense layers dense layers, with as many outputs. Only the last layer may have other outputs: a
head that owt initializes (--except-mismatched). owt checks every shape when it reads TO. Exits 1 if FROM and MODEL do
not match.

Needs Python 3.11.
"""
import argparse
import json
import pathlib
import struct
import sys

from bench.recipe import read_recipe

DIMENSIONS = {"conv": 4, "dense": 2, "batch_norm": 1}  # number of dimensions of a weight


def read_safetensors(path):
    """Shapes and bytes of float32 tensors, by name."""
    content = pathlib.Path(path).read_bytes()
    data = 8 + struct.unpack("<Q", content[:8])[0]
    tensors = {}
    for name, entry in json.loads(content[8:data]).items():
        if name == "__metadata__" or name.endswith(".num_batches_tracked"):
            continue
        if entry["dtype"] != "F32":
            sys.exit(f"error: {path}: {name} is {entry['dtype']}, wanted F32")
        begin, end = entry["data_offsets"]
        tensors[name] = entry["shape"], content[data + begin:data + end]
    return tensors


def read_pth(path):
    import torch
    state = torch.load(path, map_location="cpu", weights_only=True)
    return {name: (list(tensor.shape), tensor.float().contiguous().numpy().astype("<f4").tobytes())
            for name, tensor in state.items() if not name.endswith(".num_batches_tracked")}


def write_safetensors(path, tensors):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, data in tensors.values():
            file.write(data)


def layers_with_weights(tables, prefix=""):
    """Names and tables, in the model's order; layers inside a composite layer are named LAYER.NAME."""
    for table in tables:
        name = prefix + table["name"]
        if table["type"] == "residual":
            yield from layers_with_weights(table["body"] + table.get("shortcut", []), name + ".")
        elif table["type"] == "branches":
            for branch in table["branches"]:
                inner = f"{name}.{branch['name']}." if "name" in branch else name + "."
                yield from layers_with_weights(branch.get("layers", []), inner)
        elif table["type"] in DIMENSIONS or table.get("kind") == "prelu":
            yield name, table


def place_in_torchvision(layer):
    """Sort key: `features.10` comes after `features.3`, and `classifier.1` after both."""
    return layer.startswith("classifier"), [int(part) if part.isdigit() else part for part in layer.split(".")]


def check(name, shape, layer, table, last):
    kind, outputs = len(shape) == DIMENSIONS.get(table["type"], 1), "out" not in table or shape[0] == table["out"]
    if not kind or not (outputs or last):
        sys.exit(f"error: {name}.weight is {shape}, and the model's layer '{layer}' is a {table['type']} of {table.get('out')} outputs; "
                 "they belong to different models")


def rename(tensors, model):
    layers = list(layers_with_weights(model["layer"]))
    found = sorted({name.rsplit(".", 1)[0] for name in tensors}, key=place_in_torchvision)
    names = {layer for layer, _ in layers}
    if set(found) in (names, names - {layers[-1][0]}):
        return tensors
    if len(found) != len(layers):
        sys.exit(f"error: the file has {len(found)} layers with weights, {', '.join(found)}; the model '{model['name']}' has "
                 f"{len(layers)}, {', '.join(layer for layer, _ in layers)}")
    renamed = {}
    for name, (layer, table) in zip(found, layers):
        check(name, tensors[name + ".weight"][0], layer, table, layer == layers[-1][0])
        for tensor, content in tensors.items():
            if tensor.rsplit(".", 1)[0] == name:
                renamed[layer + tensor[len(name):]] = content
    return renamed


def main():
    parser = argparse.ArgumentParser(description="Writes torchvision's weights with the names of owt's models.")
    parser.add_argument("--model", required=True, metavar="MODEL", help="a model file, or a recipe")
    parser.add_argument("source", metavar="FROM", help="a state_dict: .safetensors or .pth")
    parser.add_argument("to", metavar="TO", help="the .safetensors file to write")
    options = parser.parse_args()
    read = read_safetensors if options.source.endswith(".safetensors") else read_pth
    write_safetensors(options.to, rename(read(options.source), read_recipe(options.model)["model"]))


if __name__ == "__main__":
    main()
