"""What watches over training with a saddle loss: the guard, and the warnings."""

import copy
import warnings

import pytest
import torch

import aucmax
from aucmax import (
    AUCLoss,
    GroupedAUCLoss,
    MulticlassAUCLoss,
    MultilabelAUCLoss,
    PartialAUCLoss,
    minmax_groups,
)

NOT_MAXIMIZED = "alpha is minimized, but it must be maximized"


# ---- Helpers -----------------------------------------------------------------------------------


def rows_of(kind, n, generator):
    """Inputs, labels that depend on them, and what the loss takes besides."""
    x = torch.randn(n, 5, generator=generator)
    noise = 0.5 * torch.randn(n, 3, generator=generator)
    seen = x[:, :3] + noise
    if kind is MulticlassAUCLoss:
        return x, seen.argmax(1), {}
    labels = (seen > seen.median(0).values).float()
    if kind is MultilabelAUCLoss:
        return x, labels, {}
    y = labels[:, 0]
    more = {"group": torch.arange(n) % 2} if kind is GroupedAUCLoss else {}
    return x, y, more


LOSSES = {
    AUCLoss: lambda **options: AUCLoss(0.5, **options),
    PartialAUCLoss: lambda **options: PartialAUCLoss(0.5, prior=0.5, **options),
    MulticlassAUCLoss: lambda **options: MulticlassAUCLoss([1 / 3] * 3, **options),
    MultilabelAUCLoss: lambda **options: MultilabelAUCLoss([0.5] * 3, **options),
    GroupedAUCLoss: lambda **options: GroupedAUCLoss([250.0] * 2, [250.0] * 2, **options),
}
OPTIMIZERS = {
    "SGD": (torch.optim.SGD, 0.1),
    "AdamW": (torch.optim.AdamW, 1e-3),
    "PPDSG": (aucmax.PPDSG, 0.1),
    "PPDAdaGrad": (aucmax.PPDAdaGrad, 0.1),
}
each_loss = pytest.mark.parametrize("kind", LOSSES, ids=lambda kind: kind.__name__)
each_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS)


def train(kind, optimizer, maximize=True, steps=60, begin=True, batch=64, seed=0, **options):
    """Train a linear model and return the loss, the model and the optimizer."""
    generator = torch.Generator().manual_seed(seed)
    x, y, more = rows_of(kind, 640, generator)
    torch.manual_seed(seed)
    outputs = 3 if kind in (MulticlassAUCLoss, MultilabelAUCLoss) else 1
    model, loss = torch.nn.Linear(5, outputs), LOSSES[kind](**options)
    if begin:
        loss.begin(model(x), y, **more)
    make, lr = OPTIMIZERS[optimizer]
    groups = minmax_groups(model, loss)
    for group in groups:
        group["maximize"] = maximize and group.get("maximize", False)
    stepper = make(groups, lr=lr)
    for _ in range(steps):
        rows = torch.randint(len(x), (batch,), generator=generator)
        stepper.zero_grad()
        loss(model(x[rows]), y[rows], **{name: v[rows] for name, v in more.items()}).backward()
        stepper.step()
    return loss, model, stepper


# ---- Alpha is maximized, or a warning says that it is not --------------------------------------


@each_loss
@each_optimizer
@pytest.mark.parametrize("begin", [True, False])
def test_alpha_that_is_minimized_is_warned_of(kind, optimizer, begin):
    with pytest.warns(UserWarning, match=NOT_MAXIMIZED) as caught:
        train(kind, optimizer, maximize=False, begin=begin)
    assert len(caught) == 1
    assert caught[0].filename == __file__


@each_loss
@each_optimizer
@pytest.mark.parametrize("seed", range(3))
def test_alpha_that_is_maximized_is_not(kind, optimizer, seed):
    train(kind, optimizer, steps=200, seed=seed)  # a warning would be an error


def test_the_usual_mistakes_are_warned_of():
    """An optimizer of all parameters alike, and one that steps every fourth batch."""
    generator = torch.Generator().manual_seed(0)
    x, y, _ = rows_of(AUCLoss, 640, generator)

    def walk(model, loss, optimizer, accumulated):
        for t in range(50 * accumulated):
            rows = torch.randint(len(x), (64,), generator=generator)
            loss(model(x[rows]), y[rows]).backward()
            if t % accumulated == accumulated - 1:
                optimizer.step()
                optimizer.zero_grad()

    for accumulated in (1, 4):
        torch.manual_seed(0)
        model, loss = torch.nn.Linear(5, 1), AUCLoss(0.5)
        loss.begin(model(x), y)
        optimizer = torch.optim.AdamW([*model.parameters(), *loss.parameters()], lr=1e-3)
        with pytest.warns(UserWarning, match=NOT_MAXIMIZED):
            walk(model, loss, optimizer, accumulated)


def test_setting_alpha_starts_over():
    """A move by hand, or by loading, is none of the optimizer's."""
    x, y, _ = rows_of(AUCLoss, 64, torch.Generator().manual_seed(0))
    state = {**AUCLoss(0.5).state_dict(), "alpha": torch.tensor([0.5])}
    for restart in (
        lambda loss: loss.begin(x[:, 0], y),
        lambda loss: loss.reset_dual(x[:, 0], y),
        lambda loss: loss.load_state_dict(state),
    ):
        loss = AUCLoss(0.5)
        for k in range(40):
            loss(x[:, 0], y)
            restart(loss)
            with torch.no_grad():
                loss.alpha.fill_((-0.5) ** k)
        restart(loss)


def test_calls_without_gradients_do_not_count():
    x, y, _ = rows_of(AUCLoss, 64, torch.Generator().manual_seed(0))
    loss = AUCLoss(0.5)
    for _ in range(40):
        with torch.no_grad():
            loss(x[:, 0], y)
            loss.alpha.sub_(0.01)


def test_alpha_that_is_held_fixed_is_not_minimized():
    generator = torch.Generator().manual_seed(0)
    x, y, _ = rows_of(AUCLoss, 640, generator)
    torch.manual_seed(0)
    model, loss = torch.nn.Linear(5, 1), AUCLoss(0.5, alpha_min=-1.0)
    loss.begin(model(x), y)  # alpha is at its limit, and its gradient leads back
    loss.alpha.requires_grad_(False)
    optimizer = torch.optim.SGD([*model.parameters(), loss.a, loss.b], lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()


# ---- No optimizer has a, b and alpha -----------------------------------------------------------


@pytest.mark.parametrize("begin", [True, False])
def test_variables_that_nobody_trains_are_warned_of_once(begin):
    x, y, _ = rows_of(AUCLoss, 64, torch.Generator().manual_seed(0))
    model, loss = torch.nn.Linear(5, 1), AUCLoss(0.5)
    if begin:
        loss.begin(model(x), y)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def walk(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()

    walk(499)
    with pytest.warns(UserWarning, match=r"have not moved in 500 batches.*minmax_groups") as caught:
        walk(600)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_variables_that_are_only_looked_at_are_not_warned_of():
    loss, scores = AUCLoss(0.5), torch.tensor([0.0, 1.0])
    for _ in range(600):
        loss(scores, torch.tensor([0.0, 1.0]))


# ---- The guard ---------------------------------------------------------------------------------


def move_out(loss):
    with torch.no_grad():
        for p, value in ((loss.a, 3.0), (loss.b, -2.0), (loss.alpha, -5.0)):
            p.fill_(value)


@each_loss
def test_the_loss_projects_in_training_alone(kind):
    x, y, more = rows_of(kind, 40, torch.Generator().manual_seed(0))
    scores = x[:, :3] if kind in (MulticlassAUCLoss, MultilabelAUCLoss) else x[:, 0]

    def under_a_transform(loss):
        def value(s, buffers):
            return torch.func.functional_call(loss, buffers, (s, y), more)

        torch.func.grad(value)(scores, {name: b.clone() for name, b in loss.named_buffers()})

    for call, projects in (
        (lambda loss: loss(scores, y, **more), True),
        (lambda loss: loss.project(), True),
        (lambda loss: torch.no_grad()(loss)(scores, y, **more), False),
        (lambda loss: loss.eval()(scores, y, **more), False),
        (under_a_transform, False),
    ):
        loss = LOSSES[kind]()
        move_out(loss)
        call(loss)
        wanted = (1.0, 0.0, -1.0) if projects else (3.0, -2.0, -5.0)
        for p, value in zip((loss.a, loss.b, loss.alpha), wanted, strict=True):
            assert (p == value).all()


@each_loss
@pytest.mark.parametrize("options", [{"guard": False}, {"link": "identity"}])
def test_without_a_guard_nothing_is_projected(kind, options):
    loss = LOSSES[kind](**options)
    move_out(loss)
    loss.project()
    assert (loss.a == 3.0).all()
    assert (loss.alpha == -5.0).all()
    loss = LOSSES[kind](alpha_min=-0.5, **options)
    move_out(loss)
    loss.project()
    assert (loss.b == -2.0).all()
    assert (loss.alpha == -0.5).all()


@each_loss
@each_optimizer
def test_iterates_in_range_are_those_without_the_guard(kind, optimizer):
    """Bit for bit: nothing is clamped, and nothing else differs."""
    small = {"steps": 10, "batch": 320}
    guarded, model, _ = train(kind, optimizer, **small)
    free, other, _ = train(kind, optimizer, **small, guard=False)
    inside = [
        low <= p.min() and p.max() <= high
        for p, (low, high) in zip(free.parameters(), ((0, 1), (0, 1), (-1, 1)), strict=True)
    ]
    assert all(inside)
    for p, q in zip(
        [*guarded.parameters(), *model.parameters()],
        [*free.parameters(), *other.parameters()],
        strict=True,
    ):
        assert torch.equal(p, q)


@pytest.mark.parametrize("optimizer", ["SGD", "PPDSG", "PPDAdaGrad"])
def test_rare_positives_do_not_explode(optimizer):
    """A single positive has the curvature 2 / (p B) in a: unguarded, a ends beyond 1e6."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4000, 5, generator=generator)
    y = torch.zeros(4000)
    y[torch.topk(x[:, 0], 4).indices] = 1
    torch.manual_seed(0)
    model, loss = torch.nn.Linear(5, 1), AUCLoss(1e-3)
    loss.begin(model(x), y)
    make, lr = OPTIMIZERS[optimizer]
    stepper = make(minmax_groups(model, loss), lr=lr)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(300):
            rows = torch.randint(len(x), (32,), generator=generator)
            stepper.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            stepper.step()
    loss.project()
    for p, (low, high) in zip(loss.parameters(), ((0, 1), (0, 1), (-1, 1)), strict=True):
        assert low <= p.item() <= high
    assert all(p.isfinite().all() for p in model.parameters())


def test_scores_that_diverge_with_raw_scores_name_balanced_batches():
    loss = AUCLoss(0.01, link="identity")
    with pytest.raises(aucmax.checks.NotFiniteError, match="BatchSampler"):
        loss(torch.tensor([0.0, float("inf")]), torch.tensor([0, 1]))


def test_a_copy_watches_for_itself():
    loss, *_ = train(AUCLoss, "SGD", steps=10)
    copied = copy.deepcopy(loss)
    move_out(copied)
    copied.project()
    assert loss.a.item() < 1.0
