"""MultilabelAUCLoss against one AUCLoss per label on the rows where that label is known."""

import copy
import io

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import functional_call

from aucmax import AUCLoss, MultilabelAUCLoss

NAN, INF = float("nan"), float("inf")
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
def test_the_loss_is_the_mean_of_binary_losses_on_known_rows(
    seed, n, missing, weights, link, normalize, margin
):
    scores, target, weight = make_batch(n, missing, seed=seed)
    weight = {None: None, "rows": weight[:, 0], "entries": weight}[weights]
    loss = make_loss(seed=seed, link=link, normalize=normalize, margin=margin)
    assert_equals_binary_losses(loss, scores, target, weight)


def test_a_label_that_no_row_knows_adds_nothing():
    loss, (scores, target, weight) = make_loss(), make_batch()
    target[:, 1] = NAN
    for w in (None, weight):
        assert_equals_binary_losses(loss, scores, target, w)
        found = gradients(loss(scores, target, w), loss, scores)
        assert all(g.isfinite().all() for g in found)
        assert found[0][:, 1].abs().sum() == 0
        assert [g[1].item() for g in found[1:]] == [0.0, 0.0, 0.0]


def test_a_batch_that_knows_nothing_is_zero():
    loss, (scores, target, _) = make_loss(), make_batch()
    value = loss(scores, torch.full_like(target, NAN))
    assert value.item() == 0.0
    assert all(g.abs().sum() == 0 for g in gradients(value, loss, scores))


def test_a_label_whose_known_rows_weigh_nothing_adds_nothing():
    loss, (scores, target, weight) = make_loss(), make_batch()
    unknown = target.clone()
    unknown[:, 1] = NAN
    weight[:, 1] = 0.0
    found, wanted = loss(scores, target, weight), loss(scores, unknown, weight)
    assert_same(found, wanted)
    assert_same(gradients(found, loss, scores), gradients(wanted, loss, scores))


def test_one_class_of_a_label_is_what_the_formula_says():
    loss, (scores, target, _) = make_loss(), make_batch()
    target[:, 0], target[:, 2] = 0.0, 1.0
    assert_equals_binary_losses(loss, scores, target)


@pytest.mark.parametrize("link", ["sigmoid", "identity"])
def test_derivatives_pass_gradcheck_twice(link):
    loss, (scores, target, weight) = make_loss(link=link, margin=0.7), make_batch(6)
    target[:, 1] = NAN

    def objective(scores, a, b, alpha):
        parameters = {"a": a, "b": b, "alpha": alpha}
        return functional_call(loss, parameters, (scores, target, weight))

    inputs = (scores, *(p.detach().requires_grad_() for p in loss.parameters()))
    assert torch.autograd.gradcheck(objective, inputs)
    assert torch.autograd.gradgradcheck(objective, inputs)


@pytest.mark.parametrize("weights", [None, "rows", "entries"])
def test_reset_sets_each_label_as_its_binary_loss_does(weights):
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


def test_alpha_min_projects_every_label():
    loss, limited = make_loss(), make_loss(alpha_min=0.0)
    scores, target, _ = make_batch()
    assert (limited.alpha < 0).any()
    with torch.no_grad():
        loss.alpha.clamp_(min=0.0)
    assert_same(limited(scores, target), loss(scores, target))
    assert_same(limited.alpha, loss.alpha)


# ---- Precision, dtypes, devices ----------------------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_raw_scores_far_from_zero_keep_their_differences(offset):
    """At 1e4 neighbouring float32 numbers are 1e-3 apart; squares of raw scores would be 8 off."""
    n = 1000
    scores, _, _ = make_batch(n, dtype=torch.float32)
    scores = (scores + offset).detach()
    target = (torch.arange(n)[:, None] % 10 < torch.tensor([1, 3, 7])).float()
    base = MultilabelAUCLoss(PRIORS, link="identity")
    base.reset_primal(scores, target)
    base.reset_dual(scores, target)
    results = []
    for dtype in (torch.float32, torch.float64):
        loss, x = copy.deepcopy(base).to(dtype), scores.to(dtype, copy=True).requires_grad_()
        value = loss(x, target)
        d_scores, *rest = gradients(value, loss, x)
        results.append([g.double() for g in (value, n * d_scores, *rest)])
    tolerance = 2e-2 if offset else 5e-6
    assert_same(*results, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_low_precision_scores_are_computed_in_single(dtype):
    low, target, weight = make_batch(dtype=dtype)
    single = low.detach().float().requires_grad_()
    loss = make_loss(dtype=torch.float32)
    found, wanted = loss(low, target.to(dtype), weight), loss(single, target, weight)
    assert_same(found, wanted)
    d_low, *rest_low = gradients(found, loss, low)
    d_single, *rest_single = gradients(wanted, loss, single)
    assert_same(d_low, d_single.to(dtype))
    assert_same(rest_low, rest_single)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_low_precision_parameters_leave_the_priors_alone(dtype):
    scores, target, _ = make_batch(dtype=dtype)
    found = MultilabelAUCLoss(PRIORS).to(dtype)(scores, target)
    assert_same(found, MultilabelAUCLoss(PRIORS)(scores, target))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float32"])
def test_the_targets_dtype_does_not_matter(dtype):
    loss, (scores, target, _) = make_loss(), make_batch(missing=0.0)
    assert_same(loss(scores, target.to(getattr(torch, dtype))), loss(scores, target))


def test_under_autocast_the_loss_stays_in_single_precision():
    scores, target, weight = make_batch(dtype=torch.bfloat16)
    loss = make_loss(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(scores, target, weight)
    assert_same(value, loss(scores, target, weight))
    assert value.dtype == torch.float32


def test_no_number_is_read_back_from_another_device():
    loss = MultilabelAUCLoss(PRIORS, alpha_min=-1.0).to("meta")
    scores = torch.zeros(8, 3, device="meta", requires_grad=True)
    value = loss(scores, torch.zeros(8, 3, device="meta"), torch.ones(8, device="meta"))
    value.backward()
    assert value.dtype == torch.float32
    assert loss.alpha.grad.shape == (3,)


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_equals_eager():
    loss, (scores, target, weight) = make_loss(alpha_min=-0.5), make_batch()
    compiled = torch.compile(copy.deepcopy(loss), backend="aot_eager", fullgraph=True)
    found, wanted = compiled(scores, target, weight), loss(scores, target, weight)
    assert_same(found, wanted, rtol=1e-12)
    found, wanted = gradients(found, compiled, scores), gradients(wanted, loss, scores)
    assert_same(found, wanted, rtol=1e-12, atol=1e-13)


# ---- As a module -------------------------------------------------------------------------------


def test_a_deep_copy_goes_its_own_way():
    loss, (scores, target, _) = make_loss(), make_batch()
    copied = copy.deepcopy(loss)
    assert_same(copied(scores, target), loss(scores, target))
    copied.alpha.data += 1.0
    assert not torch.equal(copied.alpha, loss.alpha)


def test_the_state_is_saved_and_loaded_without_pickle():
    loss, (scores, target, _) = make_loss(), make_batch()
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    loaded = make_loss(seed=1)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    assert_same(loaded(scores, target), loss(scores, target))


def test_parameters_are_vectors_that_begin_at_zero():
    for parameter in MultilabelAUCLoss(PRIORS).parameters():
        assert parameter.tolist() == [0.0, 0.0, 0.0]


def test_the_representation_shows_the_options():
    text = repr(MultilabelAUCLoss(PRIORS, margin=2, alpha_min=-2))
    for part in ("labels=3", "margin=2", "'sigmoid'", "normalize=True", "alpha_min=-2"):
        assert part in text


# ---- Bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priors": []}, r"priors must be a sequence of shares .*found \[\]"),
        ({"priors": [0.5, 1.0]}, r"priors\[1\] must be a share .*found 1\.0"),
        ({"priors": [0.5, NAN]}, r"priors\[1\] must be a share .*found nan"),
        ({"priors": [0.5, "x"]}, r"priors\[1\] must be a share .*found 'x'"),
        ({"priors": 0.5}, r"priors must .*found 0\.5"),
        ({"link": "softmax"}, r"link must be one of 'sigmoid', 'identity', found 'softmax'"),
        ({"margin": -1}, r"margin must be .*> 0.*found -1"),
    ],
    ids=str,
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        MultilabelAUCLoss(**{"priors": PRIORS, **options})


def replaced(x, value):
    x = x.detach().clone()
    x.view(-1)[0] = value
    return x


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((replaced, "scores", NAN), r"scores must be finite, found 1 NaN and 0 infinite of 60"),
        ((torch.Tensor.long, "scores"), r"scores must be floating point .*found torch\.int64"),
        ((torch.flatten, "scores"), r"scores must .*\(N, 3\), N >= 1, found .*\(60,\)"),
        ((lambda x: x[:, :1], "scores"), r"scores must .*\(N, 3\), N >= 1, found .*\(20, 1\)"),
        ((lambda x: x[:0], "scores"), r"scores must .*\(N, 3\), N >= 1, found .*\(0, 3\)"),
        ((lambda x: x[:, 0], "target"), r"shape of scores, \(20, 3\), found \(20,\)"),
        ((lambda x: x[:, :1], "target"), r"shape of scores, \(20, 3\), found \(20, 1\)"),
        ((replaced, "target", 2.0), r"target must hold 0 and 1 only, found 0, 1, 2$"),
        ((replaced, "target", INF), r"target must hold 0 and 1 only, found 0, 1, inf$"),
        ((replaced, "weight", -1.0), r"weight must be non-negative"),
        ((replaced, "weight", NAN), r"weight must be finite, found 1 NaN"),
        ((torch.zeros_like, "weight"), r"weight must be non-negative with a positive sum"),
        ((lambda x: x[:, :1], "weight"), r"weight must have shape \(20,\) or \(20, 3\)"),
        ((lambda x: x[:3, 0], "weight"), r"weight must have shape \(20,\) or .*found \(3,\)"),
    ],
)
def test_bad_values_are_named(change, message):
    function, name, *arguments = change
    batch = dict(zip(("scores", "target", "weight"), make_batch(), strict=True))
    batch[name] = function(batch[name].detach(), *arguments)
    loss = MultilabelAUCLoss(PRIORS)
    for method in (loss, loss.reset_dual, loss.reset_primal):
        with pytest.raises(ValueError, match=message):
            method(**batch)


def test_labels_of_minus_one_are_named_beside_missing_ones():
    target = torch.tensor([[-1.0, 1.0], [NAN, -1.0]])
    with pytest.raises(ValueError, match=r"found -1, 1; .*-1/\+1"):
        MultilabelAUCLoss([0.5, 0.5])(torch.zeros(2, 2), target)


def test_resetting_needs_both_classes_of_each_label():
    loss, (scores, target, _) = make_loss(), make_batch()
    before = copy.deepcopy(loss.state_dict())
    lacking = target.clone()
    lacking[:, 1] = torch.where(target[:, 1] == 1, NAN, target[:, 1])
    for method in (loss.reset_dual, loss.reset_primal):
        with pytest.raises(ValueError, match="both classes among the examples of each label"):
            method(scores, lacking)
    assert_same(dict(loss.state_dict()), dict(before))
