"""Runs ResNet-20's fused kernels in Triton's interpreter and prints how far from torch's they are.

A process of its own, since Triton chooses between interpreter and GPU when it is imported. The
interpreter has no bfloat16 products, so the kernels work here in float32 or float16. Networks have
few blocks; images are few and small.
"""

import copy
import json
import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import interpreted  # noqa: F401
import torch
from experiments.resnet20.conv import SETTINGS, Setting
from experiments.resnet20.model import FusedResNet20
from experiments.resnet20.step import pooled_features

from aucmax.models import resnet

SMALL = {
    # Several programs, several tiles each, the last one not full.
    "forward": Setting(64, 128, 4, 2),
    "data": Setting(64, 128, 4, 2),
    "weight": Setting(64, 256, 4, 2),
    "stem": Setting(64, 32, 4, 4),
    "pool": Setting(16, 64, 4, 2),
}


def distance(a, b):
    return ((a - b).double().norm() / b.double().norm().clamp(min=1e-9)).item()


def fused_scores(dtype):
    return lambda model, images: model.head(pooled_features(model.network(), images, dtype))


def plain_scores(model, images):
    return model(images)


def autocast_scores(model, images):
    with torch.autocast("cpu", torch.bfloat16):
        return model(images)


def step(scores, model, images, weights):
    """Scores, the gradients of their weighted sum, and the buffers afterwards."""
    model.zero_grad(set_to_none=True)
    y = scores(model, images)
    (y * weights).sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    return y.detach(), gradients, {name: b.clone() for name, b in model.named_buffers()}


def distances(found, expected):
    """The largest of the scores', the gradients' and the buffers'."""
    parts = [[distance(found[0], expected[0])]]
    parts += [
        [distance(a[k], b[k]) for k in b] for a, b in zip(found[1:], expected[1:], strict=True)
    ]
    return [max(part) for part in parts]


def make(seed, channels=3, widths=(16, 32, 32), **options):
    torch.manual_seed(seed)
    resnet.WIDTHS = widths
    model = FusedResNet20.like(resnet.resnet20(channels=channels, **options)).train()
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1:
                p += 0.3 * torch.randn_like(p)
    return model


def two_steps(dtype):
    """Two steps of bytes in one tile; then the scores in evaluation mode, which is torch's."""
    model = make(0, mean=[120.0, 125.0, 130.0], std=64.0)
    other = copy.deepcopy(model)
    images = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8)
    weights = torch.randn(2, 1)
    for _ in range(2):
        found = step(fused_scores(dtype), model, images, weights)
        expected = step(plain_scores, other, images, weights)
    with torch.no_grad():
        evaluated = distance(model.eval()(images), other.eval()(images))
    tracked = sorted({b.item() for n, b in model.named_buffers() if n.endswith("tracked")})
    same_strides = all(p.grad.stride() == q.grad.stride() for p, q in zip_parameters(model, other))
    return {
        "distances": distances(found, expected),
        "evaluated": evaluated,
        "tracked": tracked,
        "same strides": same_strides,
    }


def zip_parameters(model, other):
    return zip(model.parameters(), other.parameters(), strict=True)


def many_tiles():
    """Reals of one channel, channels first, not square, in many small tiles; backward twice.

    The network has a block of each kind.
    """
    for kernel, channels, stride in SETTINGS:
        if kernel in SMALL:
            pixels = SETTINGS[kernel, channels, stride].pixels
            SETTINGS[kernel, channels, stride] = SMALL[kernel]._replace(pixels=pixels)
    model = make(1, channels=1, widths=(16, 16, 32, 32))
    other = copy.deepcopy(model)
    images, weights = torch.randn(3, 1, 8, 12), torch.randn(3, 1)
    expected = step(plain_scores, other, images, weights)
    y = fused_scores(torch.float32)(model, images)
    loss = (y * weights).sum()
    grads = [torch.autograd.grad(loss, list(model.parameters()), retain_graph=True) for _ in "12"]
    names = [name for name, _ in model.named_parameters()]
    found = (y.detach(), dict(zip(names, grads[0], strict=True)), dict(model.named_buffers()))
    again = all(torch.equal(a, b) for a, b in zip(*grads, strict=True))
    return {"distances": distances(found, expected), "again": again}


def half():
    """Float16, beside what autocast to bfloat16 does, which has an eighth of its precision."""
    model = make(2)
    images, weights = torch.randn(4, 3, 8, 8), torch.randn(4, 1)
    ways = (plain_scores, fused_scores(torch.float16), autocast_scores)
    expected, found, plain = (step(way, copy.deepcopy(model), images, weights) for way in ways)
    return {"distances": distances(found, expected), "autocast": distances(plain, expected)}


if __name__ == "__main__":
    SETTINGS["sum", 1, 1] = Setting(8192, 2, 4, 0)  # few programs: each is slow here
    cases = {"two steps": lambda: two_steps(torch.float32), "many tiles": many_tiles, "half": half}
    names = sys.argv[1:] or list(cases)
    print(json.dumps({name: cases[name]() for name in names}))
