"""The fused step does what the lists do; on the CPU by Triton's interpreter."""

import itertools
from functools import partial

import pytest
import torch
from interpreted import DEVICE, by_turns, with_kernels  # noqa: F401

import aucmax
from aucmax.kernels import packed

CLOSE = {torch.float32: 3e-6, torch.float64: 1e-13, torch.bfloat16: 2e-2, torch.float16: 3e-3}
OPTIMIZERS = {
    "PPDSG": partial(aucmax.PPDSG, lr=0.1, gamma=5, fused=True),
    "PPDSG, no prox": partial(aucmax.PPDSG, lr=0.1, gamma=torch.inf, fused=True),
    "PPDSG, momentum": partial(
        aucmax.PPDSG, lr=0.1, gamma=5, momentum=0.9, weight_decay=0.01, fused=True
    ),
    "PPDAdaGrad": partial(aucmax.PPDAdaGrad, lr=0.1, gamma=5, fused=True),
}


def difference(found, expected):
    """The largest, relative to the largest entry of each tensor."""
    gaps = [
        ((x.double() - y.double()).abs().max() / y.double().abs().max().clamp(min=1e-3)).item()
        for x, y in zip(found, expected, strict=True)
    ]
    return max(gaps)


def parameters(dtype):
    """More than a block, less than one, images' order, a view that begins between two words."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(packed.BLOCK + 77,), (4, 5, 3, 3), (6, 2, 1, 1), (1,), (7,), (0,)]
    made = [torch.randn(shape, generator=generator).to(DEVICE, dtype) for shape in shapes]
    made[1] = made[1].to(memory_format=torch.channels_last)
    made[4] = torch.randn(8, generator=generator).to(DEVICE, dtype)[1:]
    return [p.requires_grad_() for p in made]


def walk(build, dtype, restart="average", steps=3, load=False):
    """Two stages and what they end with; one parameter has no gradient after a while."""
    ps = parameters(dtype)
    groups = [{"params": ps[:3]}, {"params": ps[3:4], "maximize": True}]
    optimizer = build([*groups, {"params": ps[4:], "lr": 0.3, "bounds": (-0.5, 0.5)}])
    generator = torch.Generator().manual_seed(1)
    for stage, step in itertools.product(range(2), range(steps)):
        for p in ps:
            p.grad = torch.randn(p.shape, generator=generator).to(DEVICE, dtype)
        if stage and step:
            ps[4].grad = None
        optimizer.step()
        if load and step == 1:  # states come back in another order in memory
            saved = optimizer.state_dict()
            for state in saved["state"].values():
                state.update({k: x.contiguous() for k, x in state.items() if x.ndim})
            optimizer.load_state_dict(saved)
        if stage == 0 and step + 1 == steps:
            optimizer.end_stage(restart=restart)
    states = [x for state in optimizer.state.values() for x in state.values()]
    averages = [x.clone() for pair in optimizer.averages() for x in pair]
    assert len(averages) == 10  # five of the primal's, each with its average
    return [x.detach() for x in (*ps, *states, *averages) if x.numel()]


@pytest.mark.parametrize(
    ("name", "dtype", "restart"),
    [
        ("PPDSG", torch.float32, "last"),
        ("PPDSG, no prox", torch.float32, "average"),
        ("PPDSG, momentum", torch.float64, "last"),
        ("PPDAdaGrad", torch.float32, "average"),
        ("PPDAdaGrad", torch.float64, "last"),
    ],
)
def test_fused_step_equals_plain_step(name, dtype, restart):
    found, expected = by_turns(lambda: walk(OPTIMIZERS[name], dtype, restart))
    assert difference(found, expected) < CLOSE[dtype]


@pytest.mark.parametrize("name", ["PPDSG, momentum", "PPDAdaGrad"])
def test_loaded_states_are_put_in_order(name):
    found, expected = by_turns(lambda: walk(OPTIMIZERS[name], torch.float32, load=True))
    assert difference(found, expected) < CLOSE[torch.float32]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["PPDSG, momentum", "PPDAdaGrad"])
def test_half_precision_keeps_its_state_in_single(name, dtype):
    def one_step():
        ps = parameters(dtype)
        optimizer = OPTIMIZERS[name]([{"params": ps}])
        for p in ps:
            p.grad = torch.full_like(p, 0.25)
        optimizer.step()
        state = [x for state in optimizer.state.values() for x in state.values() if x.ndim]
        assert {x.dtype for x in state} == {torch.float32}
        return [x.detach() for x in (*ps, *state) if x.numel()]

    found, expected = by_turns(one_step)
    assert difference(found, expected) < CLOSE[dtype]


def test_gradients_in_another_order_are_put_in_the_parameters():
    def one_step():
        p = parameters(torch.float32)[1]
        optimizer = aucmax.PPDSG([p], lr=0.1, fused=True)
        p.grad = torch.arange(p.numel(), dtype=p.dtype, device=DEVICE).reshape(p.shape)
        optimizer.step()
        return [p.detach()]

    found, expected = by_turns(one_step)
    assert difference(found, expected) < CLOSE[torch.float32]


@pytest.mark.usefixtures("with_kernels")
def test_a_new_momentum_begins_in_the_middle_of_a_stage():
    p = torch.ones(3, device=DEVICE, requires_grad=True)
    optimizer = aucmax.PPDSG([p], lr=0.1, fused=True)
    p.grad = torch.ones_like(p)
    optimizer.step()
    optimizer.param_groups[0]["momentum"] = 0.9
    optimizer.step()
    torch.testing.assert_close(optimizer.state[p]["momentum_buffer"], p.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("with_kernels")
def test_a_sparse_gradient_is_refused_after_none_too():
    ps = [torch.ones(3, device=DEVICE, requires_grad=True) for _ in range(2)]
    optimizer = aucmax.PPDAdaGrad(ps, lr=0.1, fused=True)
    ps[0].grad = torch.ones_like(ps[0])
    optimizer.step()
    ps[1].grad = torch.ones_like(ps[1]).to_sparse()
    with pytest.raises(ValueError, match="gradients must be dense"):
        optimizer.step()


@pytest.mark.usefixtures("with_kernels")
@pytest.mark.parametrize("how", [{}, {"foreach": True}, {"foreach": False}])
def test_kernel_is_used_on_request_only(how):
    p = torch.ones(3, device=DEVICE, requires_grad=True)
    optimizer = aucmax.PPDSG([p], lr=0.1, **how)
    p.grad = torch.ones_like(p)
    optimizer.step()
    assert optimizer._fused is None
    assert p[0].item() == pytest.approx(0.9)


@pytest.mark.usefixtures("with_kernels")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_nan_is_not_hidden_by_bounds(name):
    p = torch.ones(3, device=DEVICE, requires_grad=True)
    optimizer = OPTIMIZERS[name]([{"params": [p], "bounds": (0.0, 1.0)}])
    p.grad = torch.tensor([torch.nan, 3.0, -3.0], device=DEVICE)
    optimizer.step()
    assert optimizer._fused is not None
    assert p[0].isnan()


class Sharded(torch.Tensor):
    """A shard of a parameter, whose memory is not the parameter's own."""

    def data_ptr(self):
        raise RuntimeError("no storage")

    def to_local(self):
        return self.as_subclass(torch.Tensor)


@pytest.mark.usefixtures("with_kernels")
def test_lists_are_used_if_any_parameter_is_sharded():
    ps = [torch.ones(3, device=DEVICE, requires_grad=True), torch.ones(3, device=DEVICE)]
    ps[1] = ps[1].as_subclass(Sharded).requires_grad_()
    optimizer = aucmax.PPDSG(ps, lr=0.1, fused=True)
    for p in ps:
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert [p[0].item() for p in ps] == pytest.approx([0.9, 0.9])


@pytest.mark.usefixtures("with_kernels")
def test_kernel_is_used_if_all_groups_ask_for_it():
    ps = parameters(torch.float32)
    optimizer = aucmax.PPDSG([{"params": ps[:3], "fused": True}, {"params": ps[3:]}], lr=0.1)
    for p in ps:
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert optimizer._fused is None
