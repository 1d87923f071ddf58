"""PyTorch's side of gpu_compare.py: the time of a training step, in a process of its own that keeps PyTorch loaded."""
import inspect
import os
import statistics
import sys
import time
import traceback

UNTIMED_STEPS = 10
WINDOWS = 7


def serve(pipe, log):
    """Answers requests until the pipe closes. Whatever libraries print goes to the file `log`."""
    os.setsid()  # PyTorch's compiler starts processes; all of them end together
    with open(log, "w") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            return
        try:
            answer = measure(**request)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:200]}
        pipe.send(answer)


def make_fast_sgd(net, recipe, device):
    """torch_net's optimizer with parameters of the same rate and decay in one group, which one launch updates."""
    import torch
    from torch_net import make_optimizer

    plain = make_optimizer(net, recipe)
    groups = {}
    for group in plain.param_groups:
        groups.setdefault((group["lr"], group["weight_decay"]), []).extend(group["params"])
    fused = device == "cuda" and "fused" in inspect.signature(torch.optim.SGD).parameters
    return torch.optim.SGD([{"params": params, "lr": rate, "weight_decay": decay}
                            for (rate, decay), params in groups.items()],
                           lr=plain.defaults["lr"], momentum=plain.defaults["momentum"],
                           **({"fused": True} if fused else {"foreach": True}))


def make_step(config, batch, precision, compiled, device):
    """One training step on a batch that lies in the device's memory: forward, loss, backward, update."""
    import torch
    from recipe import read_recipe
    from torch_net import make_net

    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = precision != "fp32"
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
    recipe = read_recipe(config)
    model = recipe["model"]
    # The rate does not change the time; this one keeps made-up data from ending in infinities.
    recipe["optimizer"] = recipe.get("optimizer", {}) | {"learning_rate": 1e-6}
    net = make_net(model).train().to(device).to(memory_format=torch.channels_last)
    optimizer = make_fast_sgd(net, recipe, device)
    images = (torch.rand(batch, *model["input"]) - 0.5).to(device).to(memory_format=torch.channels_last)
    if precision == "bf16":  # as owt gets them; autocast would convert them in every step
        images = images.to(torch.bfloat16)
    labels = (torch.arange(batch) % model["classes"]).to(device)

    def loss_of(images, labels):
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            return torch.nn.functional.cross_entropy(net(images), labels)

    if compiled:
        loss_of = torch.compile(loss_of, mode="max-autotune")

    def step():
        if compiled:
            torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        loss_of(images, labels).backward()
        optimizer.step()

    return step


def window_ms(step, steps, device):
    """Milliseconds per step."""
    import torch

    if device == "cpu":
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        return 1e3 * (time.perf_counter() - begin) / steps
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(steps):
        step()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / steps


def measure(config, batch, precision, compiled, device, window_seconds):
    """Median, least and most of the milliseconds of a step over several windows."""
    import torch

    if compiled and not hasattr(torch, "compile"):
        return {"error": f"PyTorch {torch.__version__} has no torch.compile"}
    try:
        step = make_step(config, batch, precision, compiled, device)
        window_ms(step, UNTIMED_STEPS if device == "cuda" else 1, device)  # compiles, chooses algorithms, records graphs
        steps = max(1, min(5000, round(1e3 * window_seconds / window_ms(step, 2, device))))
        times = [window_ms(step, steps, device) for _ in range(WINDOWS if window_seconds > 0 else 1)]
    finally:
        step = None
        if hasattr(torch, "compile"):
            torch._dynamo.reset()
        if device == "cuda":
            torch.cuda.empty_cache()
    return {"ms": statistics.median(times), "least_ms": min(times), "most_ms": max(times)}
