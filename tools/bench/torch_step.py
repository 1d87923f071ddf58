"""One step of the network of an owt recipe in PyTorch, as fast as possible; timed by gpu_torch.py and
compare_pytorch.py.
"""
import inspect

import torch

from recipe import read_recipe
from torch_net import make_net, make_optimizer


def make_fast_sgd(net, recipe):
    """torch_net's optimizer with parameters of equal rate and decay in one group, which one call updates."""
    plain = make_optimizer(net, recipe)
    groups = {}
    for group in plain.param_groups:
        groups.setdefault((group["lr"], group["weight_decay"]), []).extend(group["params"])
    fused = "fused" in inspect.signature(torch.optim.SGD).parameters  # on CPUs five times as fast as foreach
    return torch.optim.SGD([{"params": params, "lr": rate, "weight_decay": decay}
                            for (rate, decay), params in groups.items()],
                           lr=plain.defaults["lr"], momentum=plain.defaults["momentum"],
                           **({"fused": True} if fused else {"foreach": True}))


def make_step(config, batch, precision, compiled, device, evaluation=False):
    """A function that trains one step on a batch in the device's memory (forward, loss, backward, update), or
    evaluates it (forward, loss). Images and activations are channels-last. Weights and the update are fp32; bf16
    is autocast's."""
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = precision != "fp32"
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
    recipe = read_recipe(config)
    model = recipe["model"]
    # The rate does not affect the time; this one keeps generated data from producing infinities.
    recipe["optimizer"] = recipe.get("optimizer", {}) | {"learning_rate": 1e-6}
    net = make_net(model).train(not evaluation).to(device).to(memory_format=torch.channels_last)
    images = (torch.rand(batch, *model["input"]) - 0.5).to(device).to(memory_format=torch.channels_last)
    if precision == "bf16":  # the type that owt's batches have; autocast would convert them in every step
        images = images.to(torch.bfloat16)
    labels = (torch.arange(batch) % model["classes"]).to(device)

    def loss_of(images, labels):
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            return torch.nn.functional.cross_entropy(net(images), labels)

    if compiled:  # on a CPU "max-autotune" only measures products, for minutes
        loss_of = torch.compile(loss_of, mode="max-autotune" if device == "cuda" else None)

    if evaluation:
        return torch.no_grad()(lambda: loss_of(images, labels))
    optimizer = make_fast_sgd(net, recipe)

    def step():
        if compiled:
            torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(images, labels)
        loss.backward()
        optimizer.step()
        return loss

    return step
