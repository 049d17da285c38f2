"""On a GPU: the same numbers as on the CPU, no wait for the device, graphs that can be captured."""

import copy
from functools import partial

import pytest
import torch

import aucmax

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Grouped(aucmax.GroupedAUCLoss):
    """One that knows the groups of its batch."""

    def __init__(self) -> None:
        super().__init__([2.0] * 8, [6.0] * 8, alpha_min=-1.0)
        self.register_buffer("group", torch.arange(64) % 8)

    def forward(self, scores, target, weight=None, **more):
        return super().forward(scores, target, weight, group=self.group)


LOSSES = {
    "known prior": (lambda: aucmax.AUCLoss(0.2), 1),
    "unknown prior": (aucmax.AUCLoss, 1),
    "margin": (lambda: aucmax.AUCLoss(0.2, alpha_min=-1.0), 1),
    "multi-class": (lambda: aucmax.MulticlassAUCLoss([0.5, 0.3, 0.2]), 3),
    "multi-label": (lambda: aucmax.MultilabelAUCLoss([0.2, 0.2, 0.2]), 3),
    "grouped": (Grouped, 1),
    "partial": (lambda: aucmax.PartialAUCLoss(0.2, 0.3), 1),
}
OPTIMIZERS = {
    "PPDSG": aucmax.PPDSG,
    "PPDSG fused": partial(aucmax.PPDSG, fused=True),
    "PPDSG momentum": partial(aucmax.PPDSG, momentum=0.9, weight_decay=1e-3),
    "PPDSG momentum fused": partial(aucmax.PPDSG, momentum=0.9, weight_decay=1e-3, fused=True),
    "PPDSG one by one": partial(aucmax.PPDSG, foreach=False),
    "PPDAdaGrad": aucmax.PPDAdaGrad,
    "PPDAdaGrad fused": partial(aucmax.PPDAdaGrad, fused=True),
    "PGA": partial(aucmax.PGA, radius=1.0, dual_radius=0.1),
    "OAUC": aucmax.OAUC,
}


def batch(columns: int, n: int = 64, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, columns, generator=g)
    if columns == 1:
        return scores[:, 0], (torch.rand(n, generator=g) < 0.2).float()
    return scores, torch.randint(0, columns, (n,), generator=g)


def make(name: str, seed: int = 0) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    build, columns = LOSSES[name]
    scores, target = batch(columns, seed=seed)
    if name == "multi-label":
        target = torch.nn.functional.one_hot(target, columns).float()
        target[::5, 0] = torch.nan
    return build(), scores, target


def value_and_gradients(loss, scores, target):
    scores = scores.clone().requires_grad_()
    inputs = [scores, loss.a, loss.b, loss.alpha]
    value = loss(scores, target)
    return [value.detach(), *torch.autograd.grad(value, inputs)]


@pytest.mark.parametrize("name", LOSSES)
def test_losses_give_the_numbers_of_the_cpu(name: str) -> None:
    loss, scores, target = make(name)
    expected = value_and_gradients(copy.deepcopy(loss), scores, target)
    found = value_and_gradients(loss.cuda(), scores.cuda(), target.cuda())
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x.cpu(), y, rtol=1e-5, atol=1e-6)


def test_gradients_of_groups_are_summed_in_a_fixed_order() -> None:
    g = torch.Generator().manual_seed(0)
    scores, target = (x.cuda() for x in batch(1, n=1 << 16))
    group = torch.randint(0, 8, scores.shape, generator=g).cuda()
    loss = aucmax.GroupedAUCLoss([1.0] * 8, [1.0] * 8).cuda()
    runs = []
    for _ in range(20):
        value = loss(scores, target, group=group)
        runs.append([x.tolist() for x in torch.autograd.grad(value, list(loss.parameters()))])
    assert all(run == runs[0] for run in runs)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("name", LOSSES)
def test_losses_do_not_wait_for_the_device(name: str) -> None:
    loss, scores, target = make(name)
    loss, scores, target = loss.cuda(), scores.cuda().requires_grad_(), target.cuda()
    for _ in range(2):  # the first batches are looked at
        loss(scores, target).backward()
    try:
        torch.cuda.set_sync_debug_mode("error")
        loss(scores, target).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_captured_in_a_graph(name: str) -> None:
    loss, scores, target = make(name)
    loss, static_scores, static_target = loss.cuda(), scores.cuda().requires_grad_(), target.cuda()
    twin = copy.deepcopy(loss)
    parameters = [static_scores, loss.a, loss.b, loss.alpha]
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.autograd.grad(copy.deepcopy(loss)(static_scores, static_target), static_scores)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_value = loss(static_scores, static_target)
        static_gradients = torch.autograd.grad(static_value, parameters)
    for seed in (1, 2):
        _, scores, target = make(name, seed)
        with torch.no_grad():
            static_scores.copy_(scores)
        static_target.copy_(target)
        graph.replay()
        expected = value_and_gradients(twin, scores.cuda(), target.cuda())
        for x, y in zip([static_value, *static_gradients], expected, strict=True):
            torch.testing.assert_close(x.detach(), y, rtol=1e-5, atol=1e-6)
    for x, y in zip(loss.buffers(), twin.buffers(), strict=True):
        assert torch.equal(x, y)  # the running prior counted the replays


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_losses_work_under_autocast(name: str, dtype: torch.dtype) -> None:
    loss, scores, target = make(name)
    loss, target = loss.cuda(), target.cuda()
    columns = scores.shape[1] if scores.ndim == 2 else 1
    model = torch.nn.Linear(4, columns).cuda()
    with torch.autocast("cuda", dtype=dtype):
        output = model(torch.randn(len(scores), 4, device="cuda"))
        value = loss(output, target)
    value.backward()
    assert output.dtype == dtype
    assert value.dtype == torch.float32
    assert model.weight.grad.isfinite().all()


@pytest.mark.filterwarnings("ignore")  # the compiler's own, about how it reduces
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", LOSSES)
def test_losses_compile_whole(name: str) -> None:
    loss, scores, target = make(name)
    loss, scores, target = loss.cuda(), scores.cuda(), target.cuda()
    expected = value_and_gradients(copy.deepcopy(loss), scores, target)
    compiled = torch.compile(loss, fullgraph=True)
    found = value_and_gradients(compiled, scores, target)
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)


def test_bad_values_raise_at_the_first_batch_and_when_asked() -> None:
    scores, target = torch.randn(4, device="cuda"), torch.tensor([1.0, -1.0, 1.0, -1.0]).cuda()
    loss = aucmax.AUCLoss(0.5).cuda()
    with pytest.raises(ValueError, match=r"-1/\+1"):
        loss(scores, target)
    loss = aucmax.AUCLoss(0.5).cuda()
    for labels in (target.abs() - 0.5 * (target + 1), (target + 1) / 2, target):
        loss(scores, labels)
    with pytest.raises(ValueError, match=r"target must hold 0 and 1 only.* in batch 3 of 3"):
        loss.check()


def train(build, device: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model, loss = torch.nn.Linear(5, 1).to(device), aucmax.AUCLoss(0.2).to(device)
    optimizer = build(aucmax.minmax_groups(model, loss), lr=0.1)
    g = torch.Generator().manual_seed(1)
    for _ in range(2):
        for _ in range(6):
            x, y = torch.randn(64, 5, generator=g), torch.rand(64, generator=g) < 0.2
            optimizer.zero_grad()
            loss(model(x.to(device)), y.to(device)).backward()
            optimizer.step()
        optimizer.end_stage()
        loss.reset_dual(model(x.to(device)), y.to(device))
    with aucmax.averaged(model, optimizer):
        return [p.detach().cpu().clone() for p in (*model.parameters(), *loss.parameters())]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_walk_as_on_the_cpu(name: str) -> None:
    for x, y in zip(train(OPTIMIZERS[name], "cuda"), train(OPTIMIZERS[name], "cpu"), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_that_counts_on_the_host_refuses_to_be_captured(name: str) -> None:
    p = torch.zeros(3, device="cuda", requires_grad=True)
    p.grad = torch.ones_like(p)
    optimizer = OPTIMIZERS[name]([p], lr=0.1)
    optimizer.step()
    with pytest.raises(RuntimeError, match="captured"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        optimizer.step()


@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("kind", [aucmax.PPDSG, aucmax.PPDAdaGrad])
def test_compiled_form_walks_as_the_lists(kind) -> None:
    """With half precision left to the plain form, bounds, and a new step size."""
    ends = []
    for form in (None, "compiled"):
        g = torch.Generator().manual_seed(0)
        ps = [torch.randn(n, generator=g).cuda().requires_grad_() for n in (4000, 3, 5)]
        ps[1].data = ps[1].data.bfloat16()
        groups = [{"params": ps[:1]}, {"params": ps[1:2]}, {"params": ps[2:], "maximize": True}]
        groups[2]["bounds"] = (-0.5, 0.5)
        optimizer = kind(groups, gamma=5.0, fused=form is not None)
        optimizer.fused_form = form or "kernel"
        for lr in (0.1, 0.3):
            for group in optimizer.param_groups:
                group["lr"] = lr
            for p in ps:
                p.grad = torch.randn(p.shape, generator=g).cuda().to(p.dtype)
            optimizer.step()
        ends.append([*ps, *(average for _, average in optimizer.averages())])
    torch.testing.assert_close(*ends, rtol=1e-5, atol=1e-6)


def walk(build, steps: int, captured: bool) -> list[torch.Tensor]:
    """The averages after steps with equal gradients, taken one by one or replayed."""
    torch.manual_seed(0)
    ps = [torch.randn(40, 3, device="cuda", requires_grad=True) for _ in range(3)]
    for p in ps:
        p.grad = torch.randn_like(p)
    groups = [{"params": ps[:2]}, {"params": ps[2:], "maximize": True}]
    optimizer = build(groups, lr=0.05, capturable=captured)
    for _ in range(3):
        optimizer.step()
    if captured:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            optimizer.step()
    for _ in range(steps):
        graph.replay() if captured else optimizer.step()
    return [x.clone() for pair in optimizer.averages() for x in pair]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_captured_step_walks_and_averages_as_an_eager_one(name: str) -> None:
    found, expected = (walk(OPTIMIZERS[name], 20, captured) for captured in (True, False))
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("decimals", [1, 7])
def test_metrics_on_the_device_equal_the_host(decimals: int) -> None:
    scores, target = batch(1, n=10_001)
    scores = scores.round(decimals=decimals)  # with ties, and without
    other, weight = scores.roll(1) + scores, torch.rand(len(scores))
    here, there = (
        (scores, other, target, weight),
        (x.cuda() for x in (scores, other, target, weight)),
    )

    def measures(a, b, y, w):
        found = [aucmax.metrics.roc_auc(a, y), aucmax.metrics.roc_auc(a, y, w)]
        found += [*aucmax.metrics.roc_auc_interval(a, y), *aucmax.metrics.delong_test(a, b, y)]
        return found

    assert measures(*there) == pytest.approx(measures(*here), rel=1e-9)


def test_wrong_rows_on_the_device_are_named() -> None:
    scores, target = (x.cuda() for x in batch(1, n=100))
    with pytest.raises(ValueError, match="scores must be finite"):
        aucmax.metrics.roc_auc(scores.log(), target)
    with pytest.raises(ValueError, match="target must hold 0 and 1"):
        aucmax.metrics.roc_auc(scores, target + 1)
    with pytest.raises(ValueError, match="weight must be"):
        aucmax.metrics.roc_auc(scores, target, -torch.ones_like(target))
    with pytest.warns(UserWarning, match="0 positives"):
        assert aucmax.metrics.roc_auc(scores, 0 * target) != 0
