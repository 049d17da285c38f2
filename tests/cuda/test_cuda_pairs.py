"""Pairs on a GPU: the numbers of the CPU, the same bits each time, no wait, graphs, training."""

import pytest
import torch
from torch import nn

import aucmax
from aucmax.loss.pairwise import SURROGATES, Surrogate, pair_means

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

OPTIONS = {"margin": 0.75, "scale": 1.5, "q": 0.4}
LOSSES = {name: lambda name=name: aucmax.PairwiseAUCLoss(name) for name in SURROGATES}
LOSSES["partial"] = lambda: aucmax.PairwiseAUCLoss(max_fpr=0.3, min_tpr=0.2)


def rows(columns: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    g = torch.Generator().manual_seed(n)
    scores = torch.randn(columns, n, generator=g).mul(4).round().div(4).to(dtype)
    weight = torch.randint(0, 4, (columns, n), generator=g).to(dtype) / 2
    up = torch.rand(columns, n, generator=g) < 0.3
    return scores, weight * up, weight * ~up, torch.randint(-2, 3, (n,), generator=g)


def batch(n: int = 300, seed: int = 0) -> tuple[torch.Tensor, ...]:
    g = torch.Generator().manual_seed(seed)
    target = (torch.rand(n, generator=g) < 0.2).float()
    weight, group = torch.rand(n, generator=g), torch.randint(0, 3, (n,), generator=g)
    return torch.randn(n, generator=g), target, weight, group


def value_and_gradient(loss, scores, target, weight, group):
    scores = scores.clone().requires_grad_()
    value = loss(scores, target, weight, group=group)
    return value.detach(), torch.autograd.grad(value, scores)[0]


@pytest.mark.parametrize(
    ("columns", "grouped", "dtype"),
    [(1, False, torch.float32), (3, False, torch.float64), (3, True, torch.float32)],
)
@pytest.mark.parametrize("name", SURROGATES)
def test_means_are_those_of_the_cpu(name, columns, grouped, dtype) -> None:
    *given, group = rows(columns, 700, dtype)
    group = group if grouped else None
    surrogate = Surrogate(name, **OPTIONS)
    expected = pair_means(*(x.double() for x in given), group, surrogate, curved=True)
    there = [None if x is None else x.cuda() for x in (*given, group)]
    found, again = (pair_means(*there, surrogate, curved=True) for _ in range(2))
    close = 3e-6 if dtype == torch.float32 else 1e-11
    for x, y, z in zip(found, expected, again, strict=True):
        assert (x.cpu().double() - y).abs().max() <= close * y.abs().max()
        assert torch.equal(x, z)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["32", "16"])
@pytest.mark.parametrize("n", [1, 100, 3000, 20_000])
@pytest.mark.parametrize("weighted", [False, True], ids=["alike", "weighted"])
def test_a_loss_has_the_numbers_of_the_cpu(n, weighted, dtype) -> None:
    scores, *rest = batch(n)
    scores, rest = scores.to(dtype), rest if weighted else [rest[0], None, None]
    expected = value_and_gradient(aucmax.PairwiseAUCLoss(), scores.double(), *rest)
    there = [None if x is None else x.cuda() for x in (scores[:, None], *rest)]
    found = value_and_gradient(aucmax.PairwiseAUCLoss(), *there)
    assert found[1].dtype == dtype
    for x, y in zip(found, expected, strict=True):
        close = 3e-6 if x.dtype == torch.float32 else 4e-3
        assert (x.cpu().double().reshape(y.shape) - y).abs().max() <= close * y.abs().max()


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("n", [100, 1000, 15_000])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_do_not_wait_for_the_device(name: str, n: int) -> None:
    loss, given = LOSSES[name]().cuda(), [x.cuda() for x in batch(n)]
    for mode in ("default", "error"):
        try:
            torch.cuda.set_sync_debug_mode(mode)
            value_and_gradient(loss, *given)
            value_and_gradient(loss, given[0], given[1], None, None)
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("n", [100, 1000, 15_000])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_captured_in_a_graph(name: str, n: int) -> None:
    loss, twin = LOSSES[name]().cuda(), LOSSES[name]().cuda()
    static = [x.cuda() for x in batch(n)]
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        value_and_gradient(LOSSES[name]().cuda(), *static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = value_and_gradient(loss, *static)
    for seed in (1, 2):
        for x, y in zip(static, batch(n, seed), strict=True):
            x.copy_(y)
        graph.replay()
        for x, y in zip(found, value_and_gradient(twin, *static), strict=True):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-7)


def test_a_captured_run_is_an_eager_run(capfd) -> None:
    g = torch.Generator().manual_seed(0)
    y = (torch.rand(4000, generator=g) < 0.15).float()
    x = torch.randn(4000, 12, generator=g) + 0.6 * y[:, None]
    runs = []
    for graph in (None, False):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1)).double()
        runs.append(
            aucmax.fit(
                model,
                (x[1000:], y[1000:]),
                (x[:1000], y[:1000]),
                objective="pairwise",
                steps=120,
                eval_every=60,
                cuda_graph=graph,
                device="cuda",
            )
        )
    assert "not captured" not in capfd.readouterr().err
    assert runs[0].auc > 0.75
    for a, b in zip(*(run.model.state_dict().values() for run in runs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
