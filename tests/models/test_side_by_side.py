"""Networks that are trained in step learn what each would by itself."""

import copy

import pytest
import torch

from aucmax.models.side_by_side import Separate, Stacked
from aucmax.models.tabular import tabm, tabular_mlp
from aucmax.train.objectives import OBJECTIVES, Known, ModelWithLoss, make_loss

ROWS, COUNT = 24, 3
GENERATOR = torch.Generator().manual_seed(0)
INPUTS = (
    torch.randn(ROWS, 2, generator=GENERATOR),
    torch.randint(0, 3, (ROWS, 1), generator=GENERATOR),
)
LABELS = torch.arange(ROWS) % 3
WEIGHT = torch.rand(ROWS, generator=GENERATOR) * (torch.arange(ROWS) % 5 > 0)
CONCERNED = torch.arange(ROWS)[:, None] % 4 != torch.arange(COUNT)


def networks(make, outputs=1):
    generator = torch.Generator().manual_seed(1)
    sizes = {"members": 2, "width": 4, "dropout": 0.0} if make is tabm else {"hidden": [4]}
    return [make(2, [3], outputs=outputs, generator=generator, **sizes) for _ in range(COUNT)]


def gradients(model, loss, *batch):
    """Of the weights, by name; the loss stays as it was."""
    both = ModelWithLoss(copy.deepcopy(model), copy.deepcopy(loss)).train()
    both(*batch[:3], group=batch[3], index=batch[4]).backward()
    return {name: x.grad for name, x in both.model.named_parameters()}


@pytest.mark.parametrize(
    ("objective", "classes", "groups", "make"),
    [
        # The thresholds of "partial" are of all networks, as a, b and alpha are.
        *((name, 2, None, tabm) for name in OBJECTIVES if name != "partial"),
        ("auc+ce", 2, None, tabular_mlp), ("auc+ce", 3, None, tabm), ("pairwise", 3, None, tabm),
        ("auc", 2, 4, tabm), ("pairwise", 2, 4, tabular_mlp), ("ap", 2, 4, tabm),
    ],
)  # fmt: skip
def test_each_learns_from_its_own_rows_as_it_would_alone(objective, classes, groups, make):
    labels = LABELS if classes == 3 else LABELS.clamp(max=1)
    group = None if groups is None else torch.arange(ROWS) // 2 % groups
    counts = None
    if groups is not None:
        counts = tuple(torch.full((groups,), float((labels == k).sum() / groups)) for k in (1, 0))
    each = networks(make, 1 if classes == 2 else classes)
    task, prior = ("binary", 0.6) if classes == 2 else ("multiclass", [0.3, 0.3, 0.4])
    known = Known(task, prior, prior, ROWS, groups=counts, grouped=group is not None)
    members = getattr(each[0], "scores_per_row", 1)
    lone = make_loss(objective, known._replace(columns=members), {})
    loss = make_loss(objective, known._replace(columns=members * COUNT), {})
    compares = OBJECTIVES[objective].compares_rows if objective in OBJECTIVES else False
    batch = (*INPUTS, CONCERNED), labels, WEIGHT, group, torch.arange(ROWS)
    stacked, separate = (gradients(x, loss, *batch) for x in (Stacked(each), Separate(each)))
    names = [name for name, _ in each[0].named_parameters()]
    for k, network in enumerate(each):
        own = CONCERNED[:, k].nonzero()[:, 0]
        alone = gradients(
            network, lone, tuple(x[own] for x in INPUTS), labels[own], WEIGHT[own],
            None if group is None else group[own], own,
        )  # fmt: skip
        # A mean over all networks' rows, or a mean of what each network's rows come to.
        share = WEIGHT[own].sum() / (WEIGHT[:, None] * CONCERNED).sum()
        share = 1 / COUNT if compares else share
        assert sum(x.abs().sum() for x in alone.values()) > 1e-3
        for place, name in enumerate(names):
            wanted = share * alone[name]
            torch.testing.assert_close(stacked[f"weights.{place}"][k], wanted, msg=f"{name} {k}")
            torch.testing.assert_close(separate[f"each.{k}.{name}"], wanted, msg=f"{name} {k}")


@pytest.mark.parametrize("together", [Stacked, Separate])
def test_modes_that_are_set_one_by_one_are_kept(together):
    """As those are that were kept while weights were judged."""
    model = together(networks(tabm)).eval()
    for module in model.modules():
        module.training = True
    assert len(model((*INPUTS, CONCERNED))) == ROWS * model.scores_per_row


@pytest.mark.parametrize("together", [Stacked, Separate])
def test_a_row_is_judged_by_the_mean_of_those_that_it_concerns(together):
    each = [network.eval() for network in networks(tabm)]
    model = together(networks(tabm)).eval()
    alone = torch.stack([network(INPUTS)[:, 0] for network in each], 1)
    wanted = (alone * CONCERNED).sum(1) / CONCERNED.sum(1)
    torch.testing.assert_close(model((*INPUTS, CONCERNED))[:, 0], wanted)
    for network, first in zip(model.networks(), each, strict=True):
        assert all(map(torch.equal, network.parameters(), first.parameters()))
