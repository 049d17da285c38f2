"""minmax_groups with every optimizer of torch that knows `maximize`."""

import inspect
import math

import pytest
import torch

from aucmax import (
    AUCLoss,
    MulticlassAUCLoss,
    MultilabelAUCLoss,
    PairwiseAUCLoss,
    minmax_groups,
)
from aucmax.loss import CrossEntropy

OPTIMIZERS = {
    name: optimizer
    for name, optimizer in vars(torch.optim).items()
    if inspect.isclass(optimizer)
    and "maximize" in inspect.signature(optimizer).parameters
    and name != "LBFGS"  # which takes one group alone
}


def variants():
    """Each optimizer in each of its implementations that run on the CPU."""
    for name, optimizer in OPTIMIZERS.items():
        options = inspect.signature(optimizer).parameters
        yield pytest.param(optimizer, {}, id=name)
        for option in ("foreach", "fused"):
            if option in options:
                yield pytest.param(optimizer, {option: True}, id=f"{name}-{option}")


def losses():
    """Each loss with labels for the six rows of make_model."""
    return {
        "binary": (AUCLoss(0.5), 1, torch.tensor([0, 1, 0, 1, 0, 1])),
        "multiclass": (MulticlassAUCLoss([0.5, 0.3, 0.2]), 3, torch.tensor([0, 1, 2, 0, 1, 2])),
        "multilabel": (MultilabelAUCLoss([0.4, 0.5]), 2, torch.arange(12).reshape(6, 2) % 3 == 0),
    }


def make_model(outputs):
    """A model and its inputs, not at a stationary point."""
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Linear(4, outputs)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model, torch.randn(6, 4, generator=generator)


def make_optimizer(optimizer, model, loss, **options):
    if optimizer is torch.optim.ASGD:
        options["lambd"] = 0.0  # a decay of its own, which no group can switch off by weight_decay
    return optimizer(minmax_groups(model, loss), lr=0.01, **options)


def set_gradients(parameters, optimizer, gradients):
    for parameter, gradient in zip(parameters, gradients, strict=True):
        sparse = optimizer is torch.optim.SparseAdam  # takes no other
        parameter.grad = gradient.to_sparse() if sparse else gradient.clone()


def step_and_movement(optimizer, parameters):
    before = [p.detach().clone() for p in parameters]
    optimizer.step()
    return [p.detach() - start for p, start in zip(parameters, before, strict=True)]


@pytest.mark.parametrize(
    ("optimizer", "options", "kind"),
    [
        *[pytest.param(*x.values, "binary", id=x.id) for x in variants()],
        (torch.optim.SGD, {}, "multiclass"),
        (torch.optim.AdamW, {}, "multilabel"),
    ],
)
def test_minmax_groups_maximize_alpha_alone(optimizer, options, kind):
    loss, outputs, target = losses()[kind]
    model, x = make_model(outputs)
    with torch.no_grad():
        for parameter, value in zip(loss.parameters(), (0.2, -0.3, 0.1), strict=True):
            parameter.fill_(value)
    parameters = [*model.parameters(), loss.a, loss.b, loss.alpha]
    gradients = torch.autograd.grad(loss(model(x), target), parameters)
    set_gradients(parameters, optimizer, gradients)
    moves = step_and_movement(make_optimizer(optimizer, model, loss, **options), parameters)
    signs = [-1.0] * (len(parameters) - 1) + [1.0]
    for move, gradient, sign in zip(moves, gradients, signs, strict=True):
        assert gradient.abs().sum() > 0
        assert torch.equal(move.sign(), sign * gradient.sign())


@pytest.mark.parametrize(("optimizer", "options"), list(variants()))
def test_minmax_groups_decay_model_alone(optimizer, options):
    loss, model = AUCLoss(0.5), make_model(1)[0]
    parameters = [model.weight, loss.a, loss.b, loss.alpha]
    with torch.no_grad():
        for parameter in parameters:
            parameter.fill_(2.0)
    decays = "weight_decay" in inspect.signature(optimizer).parameters
    options = {**options, **({"weight_decay": 0.1} if decays else {})}
    optimizer = make_optimizer(optimizer, model, loss, **options)
    set_gradients(parameters, type(optimizer), [torch.zeros_like(p) for p in parameters])
    weight, *saddle = step_and_movement(optimizer, parameters)
    assert (weight < 0).all() if decays else (weight == 0).all()
    assert all(move.item() == 0 for move in saddle)


@pytest.mark.parametrize(
    "loss", [torch.nn.BCEWithLogitsLoss(), PairwiseAUCLoss() + CrossEntropy(), None]
)
def test_minmax_groups_needs_saddle_loss(loss):
    said = f"saddle variables a, b and alpha, as AUCLoss has, found {type(loss).__name__}"
    with pytest.raises(ValueError, match=said):
        minmax_groups(torch.nn.Linear(1, 1), loss)


def test_minmax_groups_swapped_say_the_order():
    with pytest.raises(ValueError, match=r"found Linear: the order is \(model, loss\)"):
        minmax_groups(AUCLoss(0.5), torch.nn.Linear(1, 1))


def test_minmax_groups_needs_parameters():
    with pytest.raises(ValueError, match="model must have parameters, found none in ReLU"):
        minmax_groups(torch.nn.ReLU(), AUCLoss(0.5))


def test_minmax_groups_of_loss_inside_model():
    model = torch.nn.Linear(2, 1)
    model.loss = AUCLoss(0.5)
    found = minmax_groups(model, model.loss)
    assert [len(group["params"]) for group in found] == [2, 2, 1]
    torch.optim.SGD(found)


def test_step_sizes_are_written_into_the_groups():
    model, loss = torch.nn.Linear(3, 1), AUCLoss(0.4)
    assert all("lr" not in group for group in minmax_groups(model, loss))
    assert [group["lr"] for group in minmax_groups(model, loss, 0.1)] == [0.1] * 3
    optimizer = torch.optim.AdamW(minmax_groups(model, loss, lr=0.01, saddle_lr=0.1))
    assert [group["lr"] for group in optimizer.param_groups] == [0.01, 0.1, 0.1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"saddle_lr": 10.0}, "saddle_lr must go with lr, .* it was a factor, and is a step size"),
        ({"lr": 0.1, "saddle_lr": -1.0}, "saddle_lr must be"),
        ({"lr": 0.0}, "lr must be"),
    ],
)
def test_bad_step_sizes_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        minmax_groups(torch.nn.Linear(3, 1), AUCLoss(0.4), **options)


def test_groups_of_a_sum():
    """The learned scale and shift have a group of their own, without bounds."""
    model, auc = torch.nn.Linear(3, 1), AUCLoss(0.4)
    loss = auc + CrossEntropy()
    groups = minmax_groups(model, loss, lr=0.1, saddle_lr=0.2)
    assert [[id(p) for p in group["params"]] for group in groups] == [
        [id(p) for p in model.parameters()],
        [id(loss.scale), id(loss.shift)],
        [id(auc.a), id(auc.b)],
        [id(auc.alpha)],
    ]
    assert [group.get("maximize", False) for group in groups] == [False, False, False, True]
    assert [group.get("bounds") for group in groups] == [None, None, (0.0, 1.0), (-1.0, 1.0)]
    assert [group["lr"] for group in groups] == [0.1, 0.2, 0.2, 0.2]


@pytest.mark.parametrize(
    ("options", "primal", "dual"),
    [
        ({}, (0.0, 1.0), (-1.0, 1.0)),
        ({"alpha_min": -0.5}, (0.0, 1.0), (-0.5, 1.0)),
        ({"guard": False}, None, None),
        ({"guard": False, "alpha_min": -0.5}, None, (-0.5, math.inf)),
        ({"link": "identity"}, None, None),
        ({"link": "identity", "alpha_min": -1}, None, (-1.0, math.inf)),
    ],
)
def test_bounds_of_the_groups(options, primal, dual):
    groups = minmax_groups(torch.nn.Linear(3, 1), AUCLoss(0.4, **options))
    assert [group["bounds"] for group in groups[1:]] == [primal, dual]
