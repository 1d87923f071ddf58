#!/usr/bin/env python3
"""Saves a network of torchvision or timm as ONNX, for `owt import`.

    usage: torch_to_onnx.py NAME FILE.onnx [--side N] [--classes N] [--weights WHICH] [--seed N]

NAME: a classifier of torchvision, such as efficientnet_b0, or timm/NAME. WHICH: a .pth file with the state_dict of
the network; or `published`, the weights that the library downloads; default: random weights. --side: height and width
of the images (default 224).

Networks of GoogLeNet and Inception take images from -1 to 1 (mean and std of 127.5). Batch normalisations stay layers
of their own. ONNX has no layers that do nothing in evaluations, so dropout and stochastic depth are lost: add
`dropout` and `drop_path` layers to the model file. Needs PyTorch, onnx, and torchvision or timm.
"""
import argparse
import warnings

import torch

OPTIONS = {"inception_v3": {"aux_logits": False, "init_weights": False, "transform_input": False},
           "googlenet": {"aux_logits": False, "init_weights": False, "transform_input": False}}


def make(name, classes=1000, weights=None):
    if name.startswith("timm/"):
        import timm
        net = timm.create_model(name[5:], pretrained=weights == "published", num_classes=classes)
    elif weights == "published":
        import torchvision
        net = torchvision.models.get_model(name, weights="DEFAULT")
        if hasattr(net, "transform_input"):  # GoogLeNet and Inception; their heads are for training only
            net.aux_logits = net.transform_input = False
    else:
        import torchvision
        net = torchvision.models.get_model(name, weights=None, num_classes=classes, **OPTIONS.get(name, {}))
    if weights not in (None, "published"):
        state = torch.load(weights, map_location="cpu", weights_only=True)
        net.load_state_dict({name: value for name, value in state.items() if not name.lower().startswith("aux")})
    return net


def save(net, side, path):
    """Writes the network in evaluation mode, with the batch normalisations that the exporter would fold."""
    warnings.filterwarnings("ignore")
    torch.onnx.export(net.eval(), torch.zeros(1, 3, side, side), str(path), dynamo=False, opset_version=17,
                      training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False,
                      input_names=["images"], output_names=["logits"])


def main():
    parser = argparse.ArgumentParser(description="Saves a network of torchvision or timm as ONNX, for owt import.")
    parser.add_argument("name", metavar="NAME", help="torchvision's name of a network, or timm/NAME")
    parser.add_argument("file", metavar="FILE.onnx")
    parser.add_argument("--side", type=int, default=224, metavar="N", help="height and width of the images")
    parser.add_argument("--classes", type=int, default=1000, metavar="N")
    parser.add_argument("--weights", metavar="WHICH", help="a .pth file, or 'published'")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of random weights")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    save(make(options.name, options.classes, options.weights), options.side, options.file)


if __name__ == "__main__":
    main()
