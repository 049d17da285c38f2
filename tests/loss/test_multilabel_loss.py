"""MultilabelAUCLoss against one AUCLoss per label on the rows where that label is known."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aucmax import AUCLoss, MultilabelAUCLoss

NAN = float("nan")
PRIORS = [0.1, 0.3, 0.7]  # not representable in binary: their rounding to float32 would show
pytestmark = pytest.mark.filterwarnings("ignore:prior=")  # the binary losses see small batches


# ---- Helpers -----------------------------------------------------------------------------------


def make_loss(priors=PRIORS, seed=0, dtype=torch.float64, **options):
    """A loss at a random point."""
    loss = MultilabelAUCLoss(priors, **options).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return loss


def make_batch(n=20, missing=0.3, dtype=torch.float64, seed=0):
    """Scores, targets with NaN for the missing labels, and a weight for every entry."""
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, 3, generator=g, dtype=torch.float64)
    target = (torch.rand(n, 3, generator=g) < 0.5).to(torch.float64)
    target[torch.rand(n, 3, generator=g) < missing] = NAN
    weight = 0.2 + torch.rand(n, 3, generator=g, dtype=torch.float64)
    return scores.to(dtype).requires_grad_(), target, weight.to(dtype)


def gradients(value, loss, scores):
    return torch.autograd.grad(value, [scores, loss.a, loss.b, loss.alpha])


def label_by_label(loss, scores, target, weight=None):
    """The mean over labels of AUCLoss on the known rows, with its gradients."""
    value, d_scores = torch.zeros((), dtype=scores.dtype), torch.zeros_like(scores)
    d_saddle = [torch.zeros_like(p) for p in (loss.a, loss.b, loss.alpha)]
    for i, prior in enumerate(PRIORS):
        known = ~target[:, i].isnan()
        if not known.any():
            continue
        binary = AUCLoss(prior, margin=loss.margin, link=loss.link, normalize=loss.normalize)
        binary.load_state_dict({k: getattr(loss, k)[i : i + 1] for k in ("a", "b", "alpha")})
        binary.to(loss.a.dtype).eval()  # in training it would warn of an odd alpha
        x = scores[known, i].detach().requires_grad_()
        w = None if weight is None else (weight[:, i] if weight.ndim == 2 else weight)[known]
        one = binary(x, target[known, i], w) / len(PRIORS)
        value = value + one.detach()
        d_x, *rest = gradients(one, binary, x)
        d_scores[known, i] = d_x
        for total, d in zip(d_saddle, rest, strict=True):
            total[i] = d.item()
    return value, (d_scores, *d_saddle)


def assert_same(found, wanted, rtol=0.0, atol=0.0):
    torch.testing.assert_close(found, wanted, rtol=rtol, atol=atol)


def assert_equals_binary_losses(loss, scores, target, weight=None, tolerance=1e-11):
    value = loss(scores, target, weight)
    wanted, wanted_gradients = label_by_label(loss, scores, target, weight)
    assert_same(value.detach(), wanted, rtol=tolerance, atol=tolerance)
    found = gradients(value, loss, scores)
    assert_same(found, wanted_gradients, rtol=tolerance, atol=tolerance)


# ---- The mathematics ---------------------------------------------------------------------------


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 12),
    missing=st.sampled_from([0.0, 0.3, 0.9]),
    weights=st.sampled_from([None, "rows", "entries"]),
    link=st.sampled_from(["sigmoid", "identity"]),
    normalize=st.booleans(),
    margin=st.floats(0.1, 3),
)
def test_multilabel_loss_is_mean_of_binary_losses(
    seed, n, missing, weights, link, normalize, margin
):
    scores, target, weight = make_batch(n, missing, seed=seed)
    weight = {None: None, "rows": weight[:, 0], "entries": weight}[weights]
    loss = make_loss(seed=seed, link=link, normalize=normalize, margin=margin)
    assert_equals_binary_losses(loss, scores, target, weight)


def test_label_unknown_in_all_rows():
    loss, (scores, target, weight) = make_loss(), make_batch()
    target[:, 1] = NAN
    for w in (None, weight):
        assert_equals_binary_losses(loss, scores, target, w)
        found = gradients(loss(scores, target, w), loss, scores)
        assert all(g.isfinite().all() for g in found)
        assert found[0][:, 1].abs().sum() == 0
        assert [g[1].item() for g in found[1:]] == [0.0, 0.0, 0.0]


def test_batch_without_known_labels_is_zero():
    loss, (scores, target, _) = make_loss(), make_batch()
    value = loss(scores, torch.full_like(target, NAN))
    assert value.item() == 0.0
    assert all(g.abs().sum() == 0 for g in gradients(value, loss, scores))


def test_label_without_weight():
    loss, (scores, target, weight) = make_loss(), make_batch()
    unknown = target.clone()
    unknown[:, 1] = NAN
    weight[:, 1] = 0.0
    found, wanted = loss(scores, target, weight), loss(scores, unknown, weight)
    assert_same(found, wanted)
    assert_same(gradients(found, loss, scores), gradients(wanted, loss, scores))


def test_label_of_one_class():
    loss, (scores, target, _) = make_loss(), make_batch()
    target[:, 0], target[:, 2] = 0.0, 1.0
    assert_equals_binary_losses(loss, scores, target)


@pytest.mark.parametrize("weights", [None, "rows", "entries"])
def test_multilabel_reset_equals_binary_resets(weights):
    scores, target, weight = make_batch()
    weight = {None: None, "rows": weight[:, 0], "entries": weight}[weights]
    loss = MultilabelAUCLoss(PRIORS, alpha_min=-0.1).double()
    loss.reset_primal(scores, target, weight)
    loss.reset_dual(scores, target, weight)
    for i, prior in enumerate(PRIORS):
        known = ~target[:, i].isnan()
        w = None if weight is None else (weight[:, i] if weight.ndim == 2 else weight)[known]
        binary = AUCLoss(prior, alpha_min=-0.1).double()
        binary.reset_primal(scores[known, i], target[known, i], w)
        binary.reset_dual(scores[known, i], target[known, i], w)
        for name in ("a", "b", "alpha"):
            found, wanted = getattr(loss, name)[i].item(), getattr(binary, name).item()
            assert found == pytest.approx(wanted, rel=1e-12)
