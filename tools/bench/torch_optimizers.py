#!/usr/bin/python3
"""Prints the reference figures in tests/parallel/optimizer_test.cpp and tests/train/gradient_norms_test.cpp: weights after
four updates at changing rates, in double precision.

    usage: torch_optimizers.py

The rules come from torch.optim, and clipping from clip_grad_norm_. PyTorch has no LARS: `lars` is equation 6 and
algorithm 1 of You, Gitman and Ginsburg 2017 (arXiv:1708.03888), written from the paper, where the velocity includes
the rate. While the rate is constant, it is compared with torch.optim.SGD on gradients that are changed as in NVIDIA's
LARC (apex, clip = False). Needs PyTorch.
"""
import torch

RATES = [0.1, 0.1, 0.025, 0.05]

# For optimizer_test.cpp: recipe keys, PyTorch's class and its arguments.
FIRST = [1, -0.5, 0.25, 2]
GRADIENTS = [[0.5, -1, 0.25, 0.125], [-0.25, 0.5, 1.5, -2], [1, 0, -0.75, 0.375], [0.125, 2, -0.5, 0.25]]
RULES = [
    ("momentum_correction, decay = 0.01", torch.optim.SGD, dict(momentum=0.9, weight_decay=0.01)),
    ("the same, nesterov", torch.optim.SGD, dict(momentum=0.9, weight_decay=0.01, nesterov=True)),
    ("adamw", torch.optim.AdamW, {}),
    ("adamw, beta1 = 0.5, beta2 = 0.75, eps = 0.01, decay = 0.5", torch.optim.AdamW,
     dict(betas=(0.5, 0.75), eps=0.01, weight_decay=0.5)),
    ("rmsprop, decay = 0.01", torch.optim.RMSprop, dict(weight_decay=0.01)),
    ("rmsprop, alpha = 0.9, eps = 0.001, decay = 0.01, momentum = 0.5", torch.optim.RMSprop,
     dict(alpha=0.9, eps=0.001, weight_decay=0.01, momentum=0.5)),
    ("adagrad, decay = 0.01", torch.optim.Adagrad, dict(weight_decay=0.01)),
]

# For torch.optim.Muon, whose parameters are matrices: recipe keys and arguments.
MATRICES = [(2, 4), (4, 2)]
MUON = [
    ("muon", {}),
    ("muon, momentum = 0.6, nesterov = false, ns_steps = 3, decay = 0.5, match_rms_adamw",
     dict(momentum=0.6, nesterov=False, ns_steps=3, weight_decay=0.5, adjust_lr_fn="match_rms_adamw")),
]

# For gradient_norms_test.cpp: the parameters of a network, in order, and a factor for the decay of each. The figures
# are for the first elements of each parameter.
SHAPES = [((3, 3), 1), ((3,), 1), ((10, 3), 1), ((10,), 0)]
SHOWN = 3


def value(param, element):
    return (((7 * element + 3 * param) % 11) - 5) / 8


def gradient(update, param, element):
    """Larger and smaller gradients, with norms 1.70, 6.74, 0.54 and 3.33; for one parameter zero in one update."""
    scale = 0.0 if (update, param) == (2, 2) else [1, 4, 0.5, 2][update]
    return scale * (((5 * element + 3 * param + 2 * update) % 13) - 6) / 16


def tensors(of):
    made = []
    for number, (shape, _) in enumerate(SHAPES):
        count = torch.Size(shape).numel()
        made.append(torch.tensor([of(number, i) for i in range(count)], dtype=torch.float64).reshape(shape))
    return made


def matrix_of(shape, of):
    return torch.tensor([of(i) for i in range(torch.Size(shape).numel())], dtype=torch.float64).reshape(shape)


def show(name, weights):
    print(f"  {name}\n    {{{', '.join(f'{w:.9f}' for w in weights)}}}")


def figures(rule, rates=RATES):
    """The weights after updates by rule(parameters, gradients, rate), which changes both."""
    params = tensors(value)
    for update, rate in enumerate(rates):
        rule(params, tensors(lambda param, element: gradient(update, param, element)), rate)
    return [w.item() for param in params for w in param.flatten()[:SHOWN]]


def by_torch(make, before):
    """PyTorch's rule, applied to the gradients and `weight_decay` after before(parameters)."""
    state = {}

    def update(params, gradients, rate):
        if not state:
            weights = [torch.nn.Parameter(param) for param in params]  # they share memory
            state["optimizer"] = make([dict(params=[weight]) for weight in weights])
        groups = state["optimizer"].param_groups
        for group, grad, (_, factor) in zip(groups, gradients, SHAPES):
            group["params"][0].grad = grad
            group.update(lr=rate, weight_decay=0.5 * factor)
        before(groups)
        state["optimizer"].step()

    return update


def clip_to(most):
    return lambda groups: torch.nn.utils.clip_grad_norm_([weight for group in groups for weight in group["params"]],
                                                         most)


def larc(trust, eps):
    def before(groups):
        for group in groups:
            weight, decay = group["params"][0], group["weight_decay"]
            norm, grad_norm = weight.data.norm(), weight.grad.norm()
            if norm != 0 and grad_norm != 0:
                weight.grad = trust * norm / (grad_norm + norm * decay + eps) * (weight.grad + decay * weight.data)
            group["weight_decay"] = 0

    return before


def lars(trust, decay, momentum, clip=None, nesterov=False, adapt_all=False, eps=1e-9):
    velocities = tensors(lambda param, element: 0.0)

    def update(params, gradients, rate):
        if clip is not None:
            norm = sum((grad ** 2).sum() for grad in gradients) ** 0.5
            gradients = [grad * min(1.0, clip / (norm.item() + 1e-6)) for grad in gradients]
        for w, g, v, (shape, factor) in zip(params, gradients, velocities, SHAPES):
            local, norm_w, norm_g = 1.0, (w ** 2).sum().sqrt(), (g ** 2).sum().sqrt()
            if (adapt_all or len(shape) > 1) and norm_w > 0 and norm_g > 0:
                local = trust * norm_w / (norm_g + decay * factor * norm_w + eps)
            change = rate * local * (g + decay * factor * w)
            v.mul_(momentum).sub_(change)
            w.add_(momentum * v - change if nesterov else v)

    return update


def muon(shape, arguments):
    """The iteration is in double precision instead of bf16."""
    to = torch.Tensor.to
    torch.Tensor.to = lambda self, *rest, dtype=None, **more: to(self, *rest, dtype=torch.float64, **more)
    weight = torch.nn.Parameter(matrix_of(shape, lambda i: (7 * i % 11 - 5) / 8))
    optimizer = torch.optim.Muon([weight], **arguments)
    for update, rate in enumerate(RATES):
        optimizer.param_groups[0]["lr"] = rate
        weight.grad = matrix_of(shape, lambda i: ((5 * i + 2 * update) % 13 - 6) / 16)
        optimizer.step()
    torch.Tensor.to = to
    return weight.flatten().tolist()


def main():
    print(f"PyTorch {torch.__version__}\noptimizer_test.cpp")
    for name, kind, arguments in RULES:
        weight = torch.nn.Parameter(torch.tensor(FIRST, dtype=torch.float64))
        optimizer = kind([weight], lr=RATES[0], **arguments)
        for rate, grad in zip(RATES, GRADIENTS):
            optimizer.param_groups[0]["lr"] = rate
            weight.grad = torch.tensor(grad, dtype=torch.float64)
            optimizer.step()
        show(name, weight.tolist())
    for shape in MATRICES:
        for name, arguments in MUON:
            show(f"{name}, {shape[0]} x {shape[1]}", muon(shape, arguments))
    print("gradient_norms_test.cpp")
    sgd = lambda groups: torch.optim.SGD(groups, momentum=0.9)
    nesterov = lambda groups: torch.optim.SGD(groups, momentum=0.9, nesterov=True)
    adamw = lambda groups: torch.optim.AdamW(groups, eps=0.01)
    show("momentum_correction, decay = 0.5, clip = 2", figures(by_torch(sgd, clip_to(2))))
    show("the same, nesterov, clip = 0.25", figures(by_torch(nesterov, clip_to(0.25))))
    show("adamw, eps = 0.01, decay = 0.5, clip = 2", figures(by_torch(adamw, clip_to(2))))
    show("lars, trust = 0.5, decay = 0.5", figures(lars(0.5, 0.5, 0.9)))
    show("the same, nesterov, adapt_all, clip = 2",
         figures(lars(0.5, 0.5, 0.9, clip=2, nesterov=True, adapt_all=True)))
    constant = RATES[:2]  # in the third update a gradient is zero, to which LARC applies no decay
    ours = figures(lars(0.5, 0.5, 0.9, adapt_all=True), constant)
    theirs = figures(by_torch(sgd, larc(0.5, 1e-9)), constant)
    print(f"lars and LARC differ by {max(abs(a - b) for a, b in zip(ours, theirs)):.1e}")


if __name__ == "__main__":
    main()
