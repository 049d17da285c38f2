"""The average in place of the iterate, batch norm estimated anew, everything restored."""

import copy

import pytest
import torch
from optim_helpers import (
    as_tensors,
    assert_same,
    average_of,
    everything,
    make_batch,
    make_params,
    make_task,
    train_step,
    walk,
)
from torch import nn

from aucmax import OAUC, PGA, PPDSG, PPDAdaGrad, averaged, update_batch_norm

ALL = pytest.mark.parametrize("cls", [PPDSG, PPDAdaGrad, PGA, OAUC])


# ---- Helpers -----------------------------------------------------------------------------------


def with_batch_norm(dropout=0.5):
    return nn.Sequential(
        nn.Linear(4, 6),
        nn.BatchNorm1d(6),
        nn.Tanh(),
        nn.Dropout(dropout),
        nn.Linear(6, 3),
        nn.BatchNorm1d(3, momentum=0.3),
        nn.Linear(3, 1),
    )


def trained(cls=PPDSG, model=None, steps=5, **options):
    """A task and its optimizer, some way into the first stage."""
    task = make_task(model=model)
    optimizer = cls(task.groups(), lr=0.3, **options)
    for t in range(steps):
        train_step(task, optimizer, make_batch(t))
    return task, optimizer


def inputs(*seeds, n=12):
    return [as_tensors(make_batch(seed, n))[0] for seed in seeds]


def snapshot(task):
    """Parameters, buffers and training flags, of the model and of the loss."""
    modules = nn.ModuleList([task.model, task.loss])
    values = {name: value.clone() for name, value in modules.state_dict().items()}
    flags = {name: torch.tensor(module.training) for name, module in modules.named_modules()}
    momenta = {f"{n}.momentum": m.momentum for n, m in modules.named_modules() if is_norm(m)}
    return values | flags | {name: torch.tensor(value) for name, value in momenta.items()}


def is_norm(module):
    return isinstance(module, nn.BatchNorm1d)


def assert_shows(parameters, averages):
    for p in parameters:
        assert torch.equal(p.detach(), averages[p])


# ---- In and out --------------------------------------------------------------------------------


@ALL
def test_averaged_shows_average_and_restores(cls):
    task, optimizer = trained(cls)
    averages = {p: average.clone() for p, average in optimizer.averages()}
    before = snapshot(task)
    with averaged(task.model, optimizer) as model:
        assert model is task.model
        assert_shows(task.primal(), averages)
        assert not any(torch.equal(value, before[k]) for k, value in params_by_name(task).items())
    assert_same(snapshot(task), before)


def params_by_name(task):
    """The primal's parameters under the names of a snapshot."""
    modules = nn.ModuleList([task.model, task.loss])
    return {k: v.detach() for k, v in modules.named_parameters() if not k.endswith("alpha")}


@ALL
def test_averaged_before_first_step(cls):
    task, optimizer = trained(cls, steps=0)
    before = snapshot(task)
    with averaged(task.model, optimizer):
        assert_same(snapshot(task), before)
    assert_same(snapshot(task), before)


@pytest.mark.parametrize("cls", [PPDSG, PPDAdaGrad])
def test_averaged_right_after_stage(cls):
    task, optimizer = trained(cls)
    optimizer.end_stage()
    before = snapshot(task)
    with averaged(task.model, optimizer):
        assert_same(snapshot(task), before)


@ALL
def test_dual_is_averaged_by_pga_and_oauc_only(cls):
    task, optimizer = trained(cls)
    alpha = task.loss.alpha.detach().clone()
    with averaged(task.model, optimizer):
        assert torch.equal(task.loss.alpha.detach(), alpha) == (cls in (PPDSG, PPDAdaGrad))
    assert torch.equal(task.loss.alpha.detach(), alpha)


def test_averaged_in_half_precision():
    params = make_params((50,), dtype=torch.bfloat16)
    optimizer = PPDSG(params, lr=0.3)
    walk(optimizer, params, 4)
    before = everything(optimizer)
    with averaged(nn.ParameterList(params), optimizer):
        average = average_of(optimizer, params[0])
        assert torch.equal(params[0].detach(), average.to(torch.bfloat16))
    assert_same(everything(optimizer), before)


# ---- Restored whatever happens -----------------------------------------------------------------


@ALL
@pytest.mark.parametrize("training", [True, False])
def test_averaged_restores_batch_norm(cls, training):
    task, optimizer = trained(cls, with_batch_norm())
    task.model.train(training)
    task.model[1].train(not training)  # a layer that differs from the rest
    before, held = snapshot(task), everything(optimizer)
    with averaged(task.model, optimizer, inputs(50, 51)):
        during = snapshot(task)
        task.model.train(not training)
    assert_same(snapshot(task), before)
    assert_same(everything(optimizer), held)
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        assert not torch.equal(during[f"0.1.{name}"], before[f"0.1.{name}"])


def test_averaged_restores_when_block_raises():
    task, optimizer = trained(model=with_batch_norm())
    before = snapshot(task)

    def fail():
        with averaged(task.model, optimizer, inputs(50)):
            with torch.no_grad():
                task.model[0].weight.zero_()
            task.model.eval()
            raise KeyError("evaluation failed")

    with pytest.raises(KeyError, match="evaluation failed"):
        fail()
    assert_same(snapshot(task), before)


def failing_batches():
    yield from inputs(50)
    raise OSError("the disk is gone")


@pytest.mark.parametrize(
    ("batches", "error"),
    [(failing_batches, OSError), (list, ValueError), (lambda: [torch.ones(2, 3)], RuntimeError)],
    ids=["broken stream", "no batch", "wrong shape"],
)
def test_averaged_restores_when_batches_fail(batches, error):
    task, optimizer = trained(model=with_batch_norm())
    before = snapshot(task)
    with pytest.raises(error), averaged(task.model, optimizer, batches()):
        pytest.fail("the block must not be reached")
    assert_same(snapshot(task), before)


@ALL
def test_averaged_does_not_change_training(cls):
    """With batch norm, and with dropout, which draws from torch's global generator."""
    looked_at, left_alone = (trained(cls, with_batch_norm(), steps=0) for _ in range(2))
    results = []
    for (task, optimizer), looking in [(looked_at, True), (left_alone, False)]:
        torch.manual_seed(0)
        for t in range(8):
            train_step(task, optimizer, make_batch(t))
            if looking:
                with averaged(task.model, optimizer, inputs(50, 51)) as model, torch.no_grad():
                    model.eval()(inputs(60)[0])
            if t == 4:
                optimizer.end_stage()
        results.append(snapshot(task) | everything(optimizer))
    assert_same(*results)


# ---- Batch norm --------------------------------------------------------------------------------


def test_averaged_needs_batches_for_batch_norm():
    task, optimizer = trained(model=with_batch_norm())
    before = snapshot(task)
    with (
        pytest.raises(ValueError, match="batches must be given: the model has 2 batch-norm layers"),
        averaged(task.model, optimizer),
    ):
        pytest.fail("the block must not be reached")
    assert_same(snapshot(task), before)


def test_batch_norm_without_running_statistics():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False))
    task, optimizer = trained(model=nn.Sequential(model, nn.Linear(3, 1)))
    with averaged(task.model, optimizer):
        assert_shows(task.primal(), dict(optimizer.averages()))


@pytest.mark.parametrize("seeds", [(50,), (50, 51, 52)], ids=["one batch", "three batches"])
def test_batch_norm_statistics_at_averaged_weights(seeds):
    task, optimizer = trained(model=with_batch_norm())
    weight, bias = (dict(optimizer.averages())[p].clone() for p in task.model[0].parameters())
    outputs = [x @ weight.T + bias for x in inputs(*seeds)]
    mean = torch.stack([z.mean(0) for z in outputs]).mean(0)
    variance = torch.stack([z.var(0, unbiased=True) for z in outputs]).mean(0)
    with averaged(task.model, optimizer, inputs(*seeds)) as model:
        torch.testing.assert_close(model[1].running_mean, mean, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(model[1].running_var, variance, rtol=1e-10, atol=1e-12)
        assert model[1].num_batches_tracked == len(seeds)


def test_batch_norm_statistics_of_deeper_layer():
    """In a single batch the first layer normalizes by that batch's own statistics."""
    task, optimizer = trained(model=with_batch_norm())
    (x,) = inputs(50)
    with averaged(task.model, optimizer, [x]) as model:
        below = copy.deepcopy(model[:5])
        below.eval()
        below[1].train()
        with torch.no_grad():
            z = below(x)
        torch.testing.assert_close(model[5].running_mean, z.mean(0), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(model[5].running_var, z.var(0), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("wrap", [tuple, list, lambda pair: pair[0]], ids=["tuple", "list", "bare"])
def test_batches_are_inputs_or_tuples(wrap):
    task, _ = trained(model=with_batch_norm())
    expected = copy.deepcopy(task.model)
    update_batch_norm(expected, inputs(50, 51))
    update_batch_norm(task.model, (wrap(as_tensors(make_batch(seed))) for seed in (50, 51)))
    assert_same(dict(task.model.state_dict()), dict(expected.state_dict()))


def test_update_batch_norm_restores_when_batches_fail():
    model = with_batch_norm().double().eval()
    with pytest.raises(OSError, match="disk"):
        update_batch_norm(model, failing_batches())
    assert (model[1].momentum, model[5].momentum) == (0.1, 0.3)
    assert not any(module.training for module in model.modules())


def test_update_batch_norm_ignores_dropout():
    task, optimizer = trained(model=with_batch_norm(dropout=0.5))
    state = torch.get_rng_state()
    with averaged(task.model, optimizer, inputs(50, 51)) as model:
        assert torch.equal(torch.get_rng_state(), state)
        with_dropout = model[5].running_var.clone()
        model[3].p = 0.0
        update_batch_norm(model, inputs(50, 51))
        assert torch.equal(model[5].running_var, with_dropout)


def test_model_without_batch_norm_reads_no_batches():
    task, optimizer = trained()
    unread = iter(inputs(50))
    before = dict(task.model.state_dict())
    update_batch_norm(task.model, unread)
    assert_same(dict(task.model.state_dict()), before)
    with averaged(task.model, optimizer, unread):
        assert_shows(task.primal(), dict(optimizer.averages()))
    assert len(list(unread)) == 1


def test_update_batch_norm_of_images_and_instance_norm():
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.InstanceNorm2d(2, track_running_stats=True)
    ).double()
    x = torch.randn(5, 1, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        z = model[0](x)
        normalized = nn.functional.batch_norm(z, None, None, training=True)
    update_batch_norm(model, [x])
    torch.testing.assert_close(model[1].running_mean, z.mean((0, 2, 3)))
    torch.testing.assert_close(model[1].running_var, z.var((0, 2, 3)))
    torch.testing.assert_close(model[2].running_mean, normalized.mean((0, 2, 3)))


# ---- Other optimizers --------------------------------------------------------------------------


def test_averaged_needs_aucmax_optimizer():
    model = nn.Linear(2, 1)
    with (
        pytest.raises(ValueError, match="optimizer must be one of aucmax's, found SGD"),
        averaged(model, torch.optim.SGD(model.parameters(), lr=0.1)),
    ):
        pytest.fail("the block must not be reached")
