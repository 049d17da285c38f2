"""AveragePrecisionLoss on a GPU: the CPU's numbers, no wait for the device, steps in a graph."""

import copy

import pytest
import torch

from aucmax import AveragePrecisionLoss

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def make_batches(columns, count=4, n=64, rows=100):
    g = torch.Generator().manual_seed(0)
    for _ in range(count):
        index = torch.randint(rows, (n,), generator=g)
        y = torch.stack([(index + c) % 5 == 0 for c in range(columns)], 1).double()
        yield torch.randn(n, columns, generator=g, dtype=torch.float64), y, index


def step(loss, scores, y, index):
    scores = scores.detach().requires_grad_()
    value = loss(scores, y, group=index % 3, index=index)
    return value.detach(), *torch.autograd.grad(value, scores)


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("block", [1 << 24, 1 << 10])
def test_it_gives_the_numbers_of_the_cpu(columns, block, monkeypatch):
    monkeypatch.setattr("aucmax.loss.average_precision.BLOCK_ON_DEVICE", block)
    here = AveragePrecisionLoss(0.1, rows=100, columns=columns)
    there = copy.deepcopy(here).cuda()
    for batch in make_batches(columns):
        wanted = step(here, *batch)
        found = step(there, *(x.cuda() for x in batch))
        for x, y in zip(found, wanted, strict=True):
            torch.testing.assert_close(x.cpu(), y, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(there.estimates.cpu(), here.estimates, rtol=1e-10, atol=1e-12)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_steps_in_a_graph_are_steps_outside_of_it_and_wait_for_nothing():
    batches = [[x.cuda() for x in batch] for batch in make_batches(2)]
    one = AveragePrecisionLoss(0.1, rows=100, columns=2).cuda()
    other, place = copy.deepcopy(one), [x.clone() for x in batches[0]]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step(other, *place)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(other, *place)
    other.load_state_dict(one.state_dict())
    for batch in batches:
        torch.cuda.set_sync_debug_mode("error")
        try:
            wanted = step(one, *batch)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        for x, y in zip(place, batch, strict=True):
            x.copy_(y)
        graph.replay()
        for x, y in zip(captured, wanted, strict=True):
            assert torch.equal(x, y)
        assert torch.equal(one.estimates, other.estimates)
