"""On a GPU: ResNet-20's fused training step against torch's operations."""

import copy

import pytest
import torch

from aucmax.models import resnet20

FusedResNet20 = pytest.importorskip(
    "experiments.resnet20.model", reason="an sdist has none"
).FusedResNet20

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def make(fused):
    model = resnet20(mean=127.5, std=64.0, generator=torch.Generator().manual_seed(0))
    model = FusedResNet20.like(model) if fused else model
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1:
                p += 0.2 * torch.randn(p.shape, generator=g)
    return model.cuda()


def batch(n=128, side=32):
    g = torch.Generator().manual_seed(2)
    images = torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=g)
    return images.cuda().contiguous(memory_format=torch.channels_last), torch.randn(
        n, 1, generator=g
    ).cuda()


def step(model, images, weights, amp=True):
    model.zero_grad(set_to_none=True)
    with torch.autocast("cuda", torch.bfloat16, enabled=amp):
        scores = model(images)
    (scores * weights).sum().backward()
    return [scores.detach(), *(p.grad.clone() for p in model.parameters())]


def distances(found, expected):
    pairs = zip(found, expected, strict=True)
    return torch.stack([(a - b).norm() / b.norm().clamp(min=1e-6) for a, b in pairs])


@pytest.fixture
def exact():
    """Float32 products without TF32."""
    kept = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = kept


@pytest.mark.parametrize(("n", "side"), [(128, 32), (37, 12)])
def test_the_fused_step_is_as_exact_as_torchs_in_bfloat16(exact, n, side):
    images, weights = batch(n, side)
    model, plain = make(True), make(False)
    reference = copy.deepcopy(plain)
    expected = step(reference, images, weights, amp=False)
    found = distances(step(model, images, weights), expected)
    torchs = distances(step(plain, images, weights), expected)
    assert found.median() < 1.2 * torchs.median()
    assert found.max() < 1.5 * torchs.max()
    for (name, a), (_, b) in zip(model.named_buffers(), reference.named_buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2, msg=name)


def test_the_fused_step_gives_the_same_bits_twice():
    images, weights = batch()
    first, second = make(True), make(True)
    for a, b in zip(step(first, images, weights), step(second, images, weights), strict=True):
        assert torch.equal(a, b)


def test_the_fused_step_can_be_captured():
    images, weights = batch()
    model = make(True)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        expected = step(model, images, weights)
    torch.cuda.current_stream().wait_stream(stream)
    model.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with torch.autocast("cuda", torch.bfloat16):
            scores = model(images)
        (scores * weights).sum().backward()
    for _ in range(2):
        graph.replay()
        found = [scores, *(p.grad for p in model.parameters())]
        for a, b in zip(found, expected, strict=True):  # the head is torch's, with its own choices
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3 * b.abs().max().item())
    assert {b.item() for n, b in model.named_buffers() if n.endswith("tracked")} == {3}


def test_fused_steps_are_taken_where_they_can_be():
    images, _ = batch(4)
    model = make(True)
    with torch.autocast("cuda", torch.bfloat16):
        assert model.why_not(images) is None
    assert model.why_not(images) == "autocast to bfloat16 is off"
