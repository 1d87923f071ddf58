"""One step of the network of an owt recipe in PyTorch, as fast as possible; timed by gpu_torch.py and
compare_pytorch.py.

ENGINES are the ways to run it: eager; eager, captured in a CUDA graph; and two modes of PyTorch's compiler.
"""
import inspect

import torch

from recipe import read_recipe
from torch_net import all_layers, make_net, make_optimizer, with_margin


ENGINES = ("eager", "graphed", "compiled", "autotuned")
MODES = {"compiled": "reduce-overhead", "autotuned": "max-autotune"}  # torch.compile uses CUDA graphs in both
UNCAPTURED_STEPS = 3  # these choose algorithms and make the optimizer's states, which a capture must not do
# The check of captured steps. Its rate is large enough to change the weights, and small enough to stay finite.
CHECKED_STEPS, CHECK_RATE = 4, 1e-3
LOSS_TOLERANCE, MOVE_TOLERANCE = 0.01, 0.1  # relative; bf16 kernels may add up in any order


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


def capture(step, forget_gradients):
    """A function that replays a CUDA graph of the step, with the same tensors each time; it returns the loss, which the
    next replay overwrites."""
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(UNCAPTURED_STEPS):
            step()
    torch.cuda.current_stream().wait_stream(beside)
    forget_gradients()  # so that the captured backward pass puts new ones into the graph's memory
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay():
        graph.replay()
        return loss

    return replay


def make_step(config, batch, precision, engine, device, evaluation=False):
    """A function that trains one step on a batch in the device's memory (forward, loss, backward, update), or
    evaluates it (forward, loss). Images and activations are channels-last. Weights and the update are fp32; bf16
    is autocast's. Batch norm uses statistics of the whole batch."""
    # The rate does not affect the time; this one keeps generated data from producing infinities.
    return make_net_and_step(config, batch, precision, engine, device, evaluation, rate=1e-6)[1]


def make_net_and_step(config, batch, precision, engine, device, evaluation, rate, drops=True):
    """The network with its step; without `drops`, dropout is switched off."""
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = precision != "fp32"
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
    recipe = read_recipe(config)
    model = recipe["model"]
    for layer in all_layers(model["layer"]).values():
        if layer["type"] == "batch_norm":  # statistics of groups of rows would take PyTorch many more launches
            layer.pop("rows", None)
    recipe["optimizer"] = recipe.get("optimizer", {}) | {"learning_rate": rate}
    net = make_net(model).train(not evaluation).to(device).to(memory_format=torch.channels_last)
    images = (torch.rand(batch, *model["input"]) - 0.5).to(device).to(memory_format=torch.channels_last)
    for module in net.modules() if not drops else ():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    if precision == "bf16":  # the type that owt's batches have; autocast would convert them in every step
        images = images.to(torch.bfloat16)
    labels = (torch.arange(batch) % model["classes"]).to(device)

    loss_settings = recipe.get("loss", {})

    def logits_of(images, labels):
        """The logits, and the labels' numbers among them."""
        if (rate := loss_settings.get("sample", 1)) < 1 and not evaluation:
            *before, head = net.order
            for module in before:
                images = module(images)
            logits, labels = head.of_sample(images, labels, rate)
        else:
            logits = net(images)
        margin = loss_settings.get("margin")
        return with_margin(logits, labels, margin) if margin else logits, labels

    def loss_of(images, labels):
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            return torch.nn.functional.cross_entropy(*logits_of(images, labels))

    if engine in MODES:  # on a CPU "max-autotune" only measures products, for minutes
        loss_of = torch.compile(loss_of, mode=MODES[engine] if device == "cuda" else None)

    if evaluation:
        return net, torch.no_grad()(lambda: loss_of(images, labels))
    optimizer = make_fast_sgd(net, recipe)

    def step():
        if engine in MODES:
            torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(images, labels)
        loss.backward()
        optimizer.step()
        return loss

    if engine == "graphed":
        return net, capture(step, lambda: optimizer.zero_grad(set_to_none=True))
    return net, step


def differences(engine, config, batch, precision, device, peer="eager"):
    """The largest relative difference of a loss of the engine's steps from the peer's, and that of the distance that
    all weights have moved. Dropout is off, since the engines need not draw alike. Capturing trains the first
    UNCAPTURED_STEPS steps; the eager engine makes them here."""
    before = {"graphed": UNCAPTURED_STEPS}
    steps = UNCAPTURED_STEPS + CHECKED_STEPS
    begin, losses, moves = None, [], []
    for each in (peer, engine):
        net, step = make_net_and_step(config, batch, precision, each, device, False, CHECK_RATE, drops=False)
        begin = begin or [parameter.detach().clone() for parameter in net.parameters()]
        losses.append([step().item() for _ in range(steps - before.get(each, 0))][-CHECKED_STEPS:])
        moves.append([parameter.detach() - first for parameter, first in zip(net.parameters(), begin, strict=True)])
        net = step = None  # frees the memory of the device
    length = lambda tensors: sum(tensor.double().square().sum() for tensor in tensors).sqrt().item()
    apart = length([a - b for a, b in zip(*moves, strict=True)])
    return max(abs(a - b) / abs(b) for b, a in zip(*losses, strict=True)), apart / length(moves[0])


def check_engine(engine, config, batch, precision, device, peer="eager"):
    """Raises ArithmeticError if the engine does not train as the peer does; returns the differences."""
    loss, move = differences(engine, config, batch, precision, device, peer)
    if not (loss <= LOSS_TOLERANCE and move <= MOVE_TOLERANCE):
        raise ArithmeticError(f"{engine} steps differ from {peer} ones: losses by {loss:.1e}, moves of weights by "
                              f"{move:.1e}; allowed: {LOSS_TOLERANCE}, {MOVE_TOLERANCE}")
    return {"loss_difference": loss, "move_difference": move}
