"""The PyTorch process of gpu_compare.py: times training steps and keeps PyTorch loaded."""
import functools
import os
import statistics
import sys
import time
import traceback

UNTIMED_STEPS = 10
WINDOWS = 7


def serve(pipe, log):
    """Answers requests until the pipe closes. Output of libraries goes to the file `log`."""
    os.setsid()  # PyTorch's compiler starts processes; all of them end together
    # Products by cuBLAS only: to compile and time others takes minutes. Read when PyTorch is loaded.
    os.environ.setdefault("TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS", "ATEN")
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


@functools.cache  # once for each case
def checked(engine, config, batch, precision, device):
    from torch_step import check_engine
    return check_engine(engine, config, batch, precision, device)


def measure(config, batch, precision, engine, device, window_seconds):
    """Median, minimum and maximum of the milliseconds of a step over several windows; for captured steps also their
    differences from eager ones."""
    import torch
    from torch_step import MODES, make_step

    if engine in MODES and not hasattr(torch, "compile"):
        return {"error": f"PyTorch {torch.__version__} has no torch.compile"}
    check = checked(engine, config, batch, precision, device) if engine == "graphed" else {}
    try:
        step = make_step(config, batch, precision, engine, device)
        window_ms(step, UNTIMED_STEPS if device == "cuda" else 1, device)  # compiles, chooses algorithms, records graphs
        steps = max(1, min(5000, round(1e3 * window_seconds / window_ms(step, 2, device))))
        times = [window_ms(step, steps, device) for _ in range(WINDOWS if window_seconds > 0 else 1)]
    finally:
        step = None
        if hasattr(torch, "compile"):
            torch._dynamo.reset()
        if device == "cuda":
            torch.cuda.empty_cache()
    return {"ms": statistics.median(times), "least_ms": min(times), "most_ms": max(times), **check}
