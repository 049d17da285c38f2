"""What holds of every loss: dtypes, shapes, autograd, compilation, state, bad input."""

import copy

import pytest
import torch
from errors import assert_names
from loss_infos import (
    CASES,
    INF,
    INFOS,
    NAN,
    Batch,
    assert_same,
    make,
    state_of,
    through_a_file,
    value_and_gradients,
    value_of,
)
from torch.func import functional_call

from aucmax.checks import MissingClassError

pytestmark = pytest.mark.filterwarnings("ignore:prior=")  # batches repeat rows, or invert labels


def name_of(x):
    return getattr(x, "name", None) or (str(x) if isinstance(x, dict) else None)


each_info = pytest.mark.parametrize("info", INFOS, ids=name_of)
each_case = pytest.mark.parametrize(("info", "options"), CASES, ids=name_of)
each_dual = pytest.mark.parametrize("info", [x for x in INFOS if x.has_dual], ids=name_of)
LOW = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


def methods_of(loss, info):
    """The loss itself and its methods that take a batch."""
    return (loss, loss.reset_dual, loss.reset_primal) if info.has_dual else (loss,)


# ---- Dtypes and devices ------------------------------------------------------------------------


@each_info
@LOW
def test_low_precision_scores_are_computed_in_single(info, dtype):
    for options in info.options:
        low = info.sample().to(dtype)
        results = [
            value_and_gradients(make(info, options, torch.float32), batch)
            for batch in (low, low.to(torch.float32))
        ]
        (value, gradient, *rest), (expected, exact, *wanted) = results
        assert value.dtype == torch.float32
        assert_same(value, expected)
        assert_same(gradient, exact.to(dtype), rtol=torch.finfo(dtype).eps, atol=1e-7)
        assert_same(rest, wanted)


@each_info
def test_dtypes_of_value_and_gradients(info):
    for options in info.options:
        for dtype in (torch.float32, torch.float64):
            batch, loss = info.sample().to(dtype), make(info, options, torch.float32)
            value, gradient, *rest = value_and_gradients(loss, batch)
            assert value.shape == ()
            assert value.dtype == dtype
            assert (gradient.shape, gradient.dtype) == (batch.scores.shape, dtype)
            assert [g.dtype for g in rest] == [torch.float32] * len(rest)


@each_info
@LOW
def test_a_loss_cast_to_low_precision_keeps_its_numbers(info, dtype):
    """Priors, counts and saddle variables do not fit in half precision."""
    for options in info.options:
        loss, batch = info.make(**options), info.sample().to(torch.float32)
        cast = copy.deepcopy(loss).to(dtype)
        for _ in range(2):
            assert_same(value_of(cast, batch), value_of(loss, batch))
        assert_same(state_of(cast), state_of(loss))


@each_info
def test_autocast_does_not_change_the_value(info):
    for options in info.options:
        batch = info.sample().to(torch.bfloat16)
        inside, outside = (make(info, options, torch.float32) for _ in range(2))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = value_of(inside, batch)
        assert_same(value, value_of(outside, batch))


@each_info
def test_the_dtype_of_the_target_does_not_matter(info):
    batch, loss = info.sample(), make(info)
    target = batch.target.nan_to_num()
    expected = value_of(loss, batch._replace(target=target))
    names = ["uint8", "int8", "int32", "int64"]
    if batch.target.is_floating_point():
        names += ["bool", "float16", "bfloat16", "float32"]
    for name in names:
        other = batch._replace(target=target.to(getattr(torch, name)))
        assert_same(value_of(make(info), other), expected)


@each_info
def test_no_number_is_read_from_another_device(info):
    """Tensors on the meta device have no numbers: to read one raises."""
    for options in info.options:
        loss = info.make(**options).to("meta")
        batch = info.sample().to(torch.float32).to("meta")
        value, gradient, *_ = value_and_gradients(loss, batch)
        assert (value.dtype, gradient.shape) == (torch.float32, batch.scores.shape)


@each_info
def test_the_value_is_where_the_scores_are(info):
    batch, loss = info.sample(), make(info)
    with torch.device("meta"):
        assert value_of(loss, batch).is_cpu


# ---- Shapes ------------------------------------------------------------------------------------


@each_info
def test_columns_and_strides(info):
    """One score per row may be a column; memory need not be contiguous."""
    for options in info.options:
        batch = info.sample()
        expected, gradient, *_ = value_and_gradients(make(info, options), batch)
        wide = torch.stack([batch.scores.detach(), torch.full_like(batch.scores, 7.0)], -1)
        strided = Batch(
            wide[..., 0].requires_grad_(),
            torch.stack([batch.target, batch.target], -1)[..., 0],
            torch.stack([batch.weight, batch.weight], -1)[..., 0],
            batch.more,
        )
        given = [strided]
        if batch.scores.ndim == 1:
            column = batch.scores.detach()[:, None].requires_grad_()
            given.append(batch._replace(scores=column))
            given.append(Batch(column, batch.target[:, None], batch.weight[:, None], batch.more))
        for other in given:
            found, other_gradient, *_ = value_and_gradients(make(info, options), other)
            assert_same(found, expected, rtol=1e-14)
            assert other_gradient.shape == other.scores.shape
            assert_same(other_gradient.reshape(gradient.shape), gradient, rtol=1e-12, atol=1e-16)


# ---- Weights -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("info", "options"), [case for case in CASES if case[0].repeats], ids=name_of
)
def test_a_weight_repeats_a_row(info, options):
    """Three times, once, or not at all."""
    batch = info.sample()
    times = torch.arange(len(batch.target)) % 4
    repeated = batch.rows(torch.arange(len(times)).repeat_interleave(times))._replace(weight=None)
    weighted = batch._replace(weight=times.double())
    if options.get("prior", 0) is None:
        options = {name: x for name, x in options.items() if name != "prior"}
    found = value_and_gradients(make(info, options), weighted)
    expected = value_and_gradients(make(info, options), repeated)
    assert_same(found[0], expected[0], rtol=1e-11)
    summed = torch.zeros_like(found[1])
    summed.index_add_(0, torch.arange(len(times)).repeat_interleave(times), expected[1])
    assert_same(found[1], summed, rtol=1e-9, atol=1e-12)
    assert_same(found[2:], expected[2:], rtol=1e-9, atol=1e-12)


# ---- Autograd ----------------------------------------------------------------------------------


def as_function(info, options, batch):
    """The loss as a function of scores and parameters, with the state it is made with."""
    loss = make(info, options)
    names = [name for name, _ in loss.named_parameters()]

    def function(scores, *values):
        given = (scores, batch.target, batch.weight)
        parameters = dict(zip(names, values, strict=True))
        return functional_call(copy.deepcopy(loss), parameters, given, batch.more)

    return function, [batch.scores, *(p.detach().requires_grad_() for p in loss.parameters())]


@pytest.mark.parametrize(
    ("info", "options"),
    [case for case in CASES if case[0].smooth and "alpha_min" not in case[1]],
    ids=name_of,
)
def test_gradcheck(info, options):
    function, inputs = as_function(info, options, info.sample(8))
    assert torch.autograd.gradcheck(function, inputs)
    if info.differentiable == 2:
        small, point = as_function(info, options, info.sample(6))
        assert torch.autograd.gradgradcheck(small, point)


@pytest.mark.parametrize("info", [x for x in INFOS if x.differentiable == 1], ids=name_of)
def test_a_second_derivative_that_is_not_there_raises(info):
    batch = info.sample()
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(value_of(make(info), batch), batch.scores, create_graph=True)


@each_info
def test_backward_scales_and_accumulates(info):
    for options in info.options:
        batch = info.sample()
        unit = value_and_gradients(make(info, options), batch)[1:]
        for factor in (-2.5, 0.0, 1024.0):
            loss = make(info, options)
            inputs = [batch.scores, *loss.parameters()]
            scaled = torch.autograd.grad(factor * value_of(loss, batch), inputs)
            assert_same(scaled, tuple(factor * g for g in unit), rtol=1e-12, atol=1e-14)
        loss = make(info, options)
        inputs = [batch.scores, *loss.parameters()]
        value = value_of(loss, batch)
        first = torch.autograd.grad(value, inputs, retain_graph=True)
        for gradient in first:
            gradient.zero_()  # which the next backward must not see
        assert_same(torch.autograd.grad(value, inputs), unit, rtol=1e-12, atol=1e-14)


@each_info
def test_frozen_parts_get_no_gradient(info):
    for options in info.options:
        batch = info.sample()
        gradient, *of_parameters = value_and_gradients(make(info, options), batch)[1:]
        frozen = make(info, options).requires_grad_(False)
        assert_same(torch.autograd.grad(value_of(frozen, batch), batch.scores)[0], gradient)
        loss, constant = make(info, options), batch._replace(scores=batch.scores.detach())
        if of_parameters:
            found = torch.autograd.grad(value_of(loss, constant), [*loss.parameters()])
            assert_same(found, tuple(of_parameters), rtol=1e-13, atol=1e-15)
        assert not value_of(make(info, options).requires_grad_(False), constant).requires_grad
        with torch.no_grad():
            assert not value_of(make(info, options), batch).requires_grad


@each_case
def test_function_transforms_give_the_same_gradients(info, options):
    batch, loss, other = info.sample(), make(info, options), make(info, options)
    expected = value_and_gradients(loss, batch)
    parameters = {name: p.detach() for name, p in other.named_parameters()}
    buffers = {name: x.clone() for name, x in other.named_buffers()}

    def function(scores, parameters, buffers):
        given = (scores, batch.target, batch.weight)
        return functional_call(other, {**parameters, **buffers}, given, batch.more)

    gradients, value = torch.func.grad_and_value(function, argnums=(0, 1))(
        batch.scores.detach(), parameters, buffers
    )
    found = (value, gradients[0], *gradients[1].values())
    assert_same(found, expected, rtol=1e-11, atol=1e-12)
    assert_same(buffers, dict(loss.named_buffers()), rtol=1e-12)


# ---- torch.compile -----------------------------------------------------------------------------


@pytest.mark.parametrize("info", [x for x in INFOS if x.compiled], ids=name_of)
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_equals_eager(info):
    """Two training batches: a compiled backward may read counts again (pytorch/pytorch#197039)."""
    loss = make(info, info.options[:3][-1])
    compiled = torch.compile(copy.deepcopy(loss), backend="aot_eager", fullgraph=True)
    for seed in range(2):
        batch = info.sample(seed=seed)
        found, expected = (value_and_gradients(x, batch) for x in (compiled, loss))
        assert_same(found, expected, rtol=1e-11, atol=1e-12)
    state = {name.removeprefix("_orig_mod."): x for name, x in compiled.state_dict().items()}
    assert_same(state, state_of(loss), rtol=1e-12)


# ---- As a module -------------------------------------------------------------------------------


@each_info
def test_a_deep_copy_is_independent(info):
    for options in info.options:
        loss = make(info, options)
        value_of(loss, info.sample())
        before, copied = state_of(loss), copy.deepcopy(loss)
        with torch.no_grad():
            for parameter in copied.parameters():
                parameter.add_(1.0)
        value_of(copied, info.sample(seed=2))
        assert_same(state_of(loss), before)


@each_info
def test_a_loaded_state_resumes_bit_for_bit(info):
    for options in info.options:
        batches = [info.sample(seed=seed) for seed in range(4)]
        loss, loaded = make(info, options), make(info, options, seed=1)
        for batch in batches[:2]:
            value_of(loss, batch)
        loaded.load_state_dict(through_a_file(loss.state_dict()))
        for batch in batches[2:]:
            assert_same(value_and_gradients(loaded, batch), value_and_gradients(loss, batch))
        assert_same(state_of(loaded), state_of(loss))


@each_info
def test_evaluation_changes_no_state(info):
    for options in info.options:
        loss = make(info, options)
        value_of(loss, info.sample())
        loss.eval()
        before = state_of(loss)
        first = value_of(loss, info.sample(seed=1))
        assert_same(value_of(loss, info.sample(seed=1)), first)
        assert_same(state_of(loss), before)


@each_info
def test_the_representation_shows_the_options(info):
    for options in info.options:
        text = repr(info.make(**options))
        for name, value in options.items():
            shown = {
                ("prior", None): "p=0.5",
                ("weight", 0.5): "weights=(1.0, 0.5)",
            }
            assert shown.get((name, value), f"{name}={value!r}") in text


@each_info
def test_shared_memory_holds_all_of_it(info):
    loss = info.make()
    loss.share_memory()
    assert all(x.is_shared() for x in (*loss.parameters(), *loss.buffers()))


# ---- Saddle variables --------------------------------------------------------------------------


@each_dual
def test_saddle_variables_begin_at_zero(info):
    for options in info.options:
        loss = info.make(**options)
        assert loss.a.shape == loss.b.shape == loss.alpha.shape
        assert loss.a.ndim >= 1  # FSDP2 takes no parameter without dimensions
        assert not any(p.any() for p in loss.parameters())


@each_dual
def test_alpha_min_projects_every_entry(info):
    """Before the value is computed, and not in the graph: the gradient leads back up."""
    for options in info.options:
        batch = info.sample()
        limit = {**options, "alpha_min": -0.1}
        limited, loss = make(info, limit), make(info, {**options, "alpha_min": None})
        with torch.no_grad():
            limited.alpha.sub_(0.5)
            loss.alpha.copy_(limited.alpha.clamp(min=-0.1))
        assert (limited.alpha < -0.1).any()
        found, expected = value_and_gradients(limited, batch), value_and_gradients(loss, batch)
        assert_same(limited.alpha, loss.alpha)
        assert_same(found, expected, rtol=1e-13, atol=1e-15)


@each_dual
@pytest.mark.parametrize(("alpha_min", "begins_at"), [(-3.0, -1.0), (-0.1, -0.1)])
def test_training_begins_at_the_optimum_or_without_pressure(info, alpha_min, begins_at):
    for options in info.options:
        options = {k: v for k, v in options.items() if k not in ("alpha_min", "margin")}
        scores, target, weight, more = info.sample()
        wanted, best = (info.make(**options).double() for _ in range(2))
        best.begin(scores, target, weight, **more)
        wanted.reset_primal(scores, target, weight, **more)
        wanted.reset_dual(scores, target, weight, **more)
        assert_same([*best.parameters()], [*wanted.parameters()])
        level = info.make(**options, alpha_min=alpha_min).double()
        level.begin(scores, target, weight, **more)
        assert (level.alpha == begins_at).all()
        assert_same([level.a, level.b], [(best.a + best.b) / 2] * 2)
        level.begin(scores, target, weight, **more, trained=True)
        assert_same([level.a, level.b], [best.a, best.b])
        assert_same(level.alpha, best.alpha.clamp(min=alpha_min))


@each_dual
@pytest.mark.parametrize("only", [0, 1])
def test_resets_need_every_class_and_count_no_label(info, only):
    for options in info.options:
        loss, (scores, target, weight, more) = make(info, options), info.sample()
        before = state_of(loss)
        one_class = torch.full_like(target, only)
        without = torch.where(target.reshape(len(target), -1)[:, 0] == 1 - only, 0.0, weight)
        for method in (loss.reset_dual, loss.reset_primal):
            for given in ((scores, one_class, weight), (scores, target, without)):
                with pytest.raises(MissingClassError, match="target must"):
                    method(*given, **more)
        assert_same(state_of(loss), before)
        loss.reset_dual(scores, target, weight, **more)
        after = state_of(loss)
        counts = [name for name in after if name.startswith("prior")]
        assert_same([after[name] for name in counts], [before[name] for name in counts])


@pytest.mark.parametrize("info", [x for x in INFOS if x.offset is not None], ids=name_of)
@pytest.mark.parametrize("offset", [0.0, 4096.0])
def test_single_precision_is_accurate_far_from_zero(info, offset):
    """Squares of raw scores at 4096 would be off by more than the differences."""
    batch = info.sample(1200).to(torch.float32)
    near = (batch.scores.detach() * 256).round() / 256  # to which the offset adds exactly
    exact = batch.to(torch.float64)._replace(scores=(near.double() + offset).requires_grad_())
    single = batch._replace(scores=(near + offset).requires_grad_())
    loss = info.make(**info.offset).double()
    if info.has_dual:
        loss.begin(exact.scores, exact.target, exact.weight, **exact.more)
        with torch.no_grad():
            loss.alpha.add_(0.25)
            for parameter in loss.parameters():
                parameter.copy_(parameter.float())
    found = value_and_gradients(copy.deepcopy(loss).float(), single)
    expected = value_and_gradients(loss, exact)
    tolerance = 1e-3 if offset else 2e-5
    assert_same(found[0].double(), expected[0], rtol=tolerance, atol=tolerance)
    n = len(near)
    assert_same(n * found[1].double(), n * expected[1], rtol=tolerance, atol=2 * tolerance)
    for x, y in zip(found[2:], expected[2:], strict=True):
        assert_same(x.double(), y, rtol=tolerance, atol=2 * tolerance)


# ---- Bad input ---------------------------------------------------------------------------------


@each_info
def test_bad_options_are_named(info):
    for options, argument in info.bad_options:
        assert_names(argument, info.make, **options)


def with_entry(name, value):
    """The batch with one entry changed."""

    def change(batch):
        x = getattr(batch, name).detach().clone()
        x.view(-1)[0] = value
        return batch._replace(**{name: x})

    return change


def with_part(name, part):
    return lambda batch: batch._replace(**{name: part(getattr(batch, name).detach())})


BAD_BATCHES = {
    "NaN scores": ("scores", with_entry("scores", NAN)),
    "infinite scores": ("scores", with_entry("scores", -INF)),
    "integer scores": ("scores", with_part("scores", torch.Tensor.long)),
    "an array": ("target", with_part("target", torch.Tensor.numpy)),
    "no rows": ("scores", with_part("scores", lambda x: x[:0])),
    "three dimensions": ("scores", with_part("scores", lambda x: x.reshape(2, -1, 1, 1))),
    "target of other rows": ("target", with_part("target", lambda x: x[:7])),
    "target transposed": ("target", with_part("target", lambda x: x.reshape(1, -1))),
    "target of signs": ("target", with_entry("target", -1)),
    "target beyond": ("target", with_entry("target", 3)),
    "negative weight": ("weight", with_entry("weight", -1.0)),
    "NaN weight": ("weight", with_entry("weight", NAN)),
    "infinite weight": ("weight", with_entry("weight", INF)),
    "weight of other rows": ("weight", with_part("weight", lambda x: x[:1])),
    "weight transposed": ("weight", with_part("weight", lambda x: x[None])),
    "no weight at all": ("weight", with_part("weight", torch.zeros_like)),
}


@each_info
def test_bad_batches_are_named_and_change_nothing(info):
    loss = info.make(**info.options[min(1, len(info.options) - 1)])
    before = state_of(loss)
    for name, (argument, change) in BAD_BATCHES.items():
        batch = change(info.sample())
        if name == "no weight at all" and getattr(loss, "compares_rows", False):
            assert value_of(copy.deepcopy(loss), batch) == 0  # no pair is no error
            continue
        for method in methods_of(loss, info):
            assert_names(argument, method, batch.scores, batch.target, batch.weight, **batch.more)
    assert_same(state_of(loss), before)


@each_info
def test_bad_groups_and_row_numbers_are_named(info):
    scores, target, weight, _ = info.sample()
    for more, argument in info.bad_more:
        loss = info.make(**info.options[1])
        assert_names(argument, loss, scores, target, weight, **more)
