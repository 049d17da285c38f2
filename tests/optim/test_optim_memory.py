"""How many copies of the parameters each optimizer keeps, and what a step needs besides."""

from functools import partial

import pytest
import torch
from optim_helpers import make_batch, make_params, make_task, train_step, walk
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from aucmax import OAUC, PGA, PPDSG, PPDAdaGrad
from aucmax.optim import staged

LARGE = 1 << 20
FLOAT = 4  # bytes
SCALARS = 4096  # bytes that numbers of one element may take

OPTIMIZERS = {
    "PPDSG": partial(PPDSG, gamma=3.0),
    "PPDSG-momentum": partial(PPDSG, gamma=3.0, momentum=0.9, weight_decay=0.1),
    "PPDAdaGrad": partial(PPDAdaGrad, gamma=3.0),
    "PGA": partial(PGA, gamma=3.0, radius=2.0),
    "OAUC": OAUC,
}
each_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)
FOREACH = pytest.mark.parametrize("foreach", [None, False], ids=["foreach", "single"])


# ---- Copies kept -------------------------------------------------------------------------------


def copies(optimizer, parameters):
    """Elements of state for each element of these parameters."""
    states = [optimizer.state[p] for p in parameters]
    kept = sum(x.numel() for state in states for x in state.values() if x.ndim)
    return kept / sum(p.numel() for p in parameters)


@pytest.mark.parametrize(
    ("name", "primal", "dual"),
    [
        ("PPDSG", 2, 0),  # reference, average
        ("PPDSG-momentum", 3, 1),
        ("PPDAdaGrad", 4, 3),  # two sums more; the dual has the sums and its centre
        ("PGA", 2, 2),
        ("OAUC", 1, 1),
    ],
)
def test_state_size(name, primal, dual):
    task = make_task()
    optimizer = OPTIMIZERS[name](task.groups())
    for t in range(3):
        train_step(task, optimizer, make_batch(t))
    assert copies(optimizer, task.primal()) == primal
    assert copies(optimizer, [task.loss.alpha]) == dual


@pytest.mark.parametrize(
    ("name", "restart", "expected"),
    [
        ("PPDSG", "average", 2),
        ("PPDSG", "last", 2),
        ("PPDSG-momentum", "last", 3),
        ("PPDAdaGrad", "average", 4),
        ("PPDAdaGrad", "last", 5),  # the centre parts from the reference
        ("PGA", "average", 3),  # the drawn average
        ("OAUC", "average", 1),
    ],
)
def test_state_size_in_later_stages(name, restart, expected):
    params = make_params((5, 5), (5,))
    optimizer = OPTIMIZERS[name](params)
    for stage in range(3):
        walk(optimizer, params, 2, first=2 * stage)
        optimizer.end_stage(restart)
    walk(optimizer, params, 1)
    assert copies(optimizer, params) == expected


def test_centre_is_freed_by_restart_from_average():
    params = make_params((5, 5))
    optimizer = PPDAdaGrad(params)
    for restart, expected in [("last", 4), ("average", 5), ("average", 4)]:
        walk(optimizer, params, 2)
        assert copies(optimizer, params) == expected
        optimizer.end_stage(restart)


# ---- Temporaries -------------------------------------------------------------------------------


def peak_bytes(setup, action):
    """The most bytes that torch's CPU allocator held during action(setup()) beyond those before.

    The setup is profiled too: the profiler counts a release only of what it saw allocated.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        prepared = setup()
        with record_function("measured"):
            action(prepared)
    events = profiled.profiler.kineto_results.events()
    (start,) = [e.start_ns() for e in events if e.name() == "measured"]
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    held = peak = sum(change for moment, change in changes if moment < start)
    assert held > 0, "the profiler saw no allocation at all"
    before = held
    for moment, change in changes:
        if moment >= start:
            held += change
            peak = max(peak, held)
    return peak - before


def stepped(name, shapes, dtype=torch.float32, **options):
    """An optimizer after its first step, where its states begin, with gradients for the next."""
    params = [nn.Parameter(torch.ones(shape, dtype=dtype)) for shape in shapes]
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer = OPTIMIZERS[name](params, **options)
    optimizer.step()
    return optimizer


def peak_of_a_step(*args, **options):
    return peak_bytes(lambda: stepped(*args, **options), lambda optimizer: optimizer.step())


@each_optimizer
@FOREACH
def test_step_memory_is_one_tensor(name, foreach):
    shapes = [(1 << 10, 1 << 10)] * 3 + [(7,)]
    assert peak_of_a_step(name, shapes, foreach=foreach) <= LARGE * FLOAT + SCALARS


@each_optimizer
def test_foreach_step_memory_is_one_block(name):
    assert peak_of_a_step(name, [(LARGE,)] * 3) <= staged.BLOCK * FLOAT + SCALARS


@each_optimizer
def test_foreach_step_memory_of_small_tensors(name, monkeypatch):
    monkeypatch.setattr(staged, "BLOCK", 1 << 14)
    tensors = 256
    norms = tensors * FLOAT  # PGA: one number for each tensor
    peak = peak_of_a_step(name, [(1 << 9,)] * tensors)  # eight blocks
    assert peak <= 2 * (1 << 14) * FLOAT + 2 * norms + SCALARS


@each_optimizer
@pytest.mark.parametrize("tensors", [1, 4])
def test_half_precision_step_memory(name, tensors):
    """Of the parameter, its gradient and the direction."""
    peak = peak_of_a_step(name, [(LARGE,)] * tensors, dtype=torch.bfloat16)
    assert peak <= 3 * LARGE * FLOAT + SCALARS


@each_optimizer
@pytest.mark.parametrize("stages", [1, 3])
def test_end_stage_memory(name, stages):
    kept = []

    def setup():
        optimizer = stepped(name, [(LARGE,)] * 3)
        for _ in range(stages - 1):
            optimizer.end_stage()
            optimizer.step()
        kept.append(kept_bytes(optimizer))
        return optimizer

    def action(optimizer):
        optimizer.end_stage()
        kept.append(kept_bytes(optimizer))

    peak = peak_bytes(setup, action)
    before, after = kept
    assert peak <= max(0, after - before) + LARGE * FLOAT + SCALARS


def kept_bytes(optimizer):
    return sum(x.nbytes for state in optimizer.state.values() for x in state.values())


def test_should_stop_memory():
    needed = peak_bytes(
        lambda: stepped("PPDAdaGrad", [(LARGE,)] * 4),
        lambda optimizer: optimizer.should_stop(M=1.0, lipschitz=1.0),
    )
    assert needed <= LARGE * FLOAT + SCALARS
