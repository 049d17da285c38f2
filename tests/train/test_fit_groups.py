"""Rows that carry groups, and rows that carry their numbers, through fit()."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import aucmax
from aucmax.loss import AveragePrecisionLoss, GroupedAUCLoss

OPTIONS = {"method": "adamw", "lr": 0.05, "steps": 120, "progress": False, "device": "cpu"}


def opposite_groups(groups=60, size=20, seed=0):
    """Column 0 tells how frequent positives are in a group, column 1 the order within it.

    Within a group column 0 misleads: a likelihood takes it for what it says between groups.
    """
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), size)
    often = np.repeat(rng.random(groups) < 0.5, size)
    y = rng.random(groups * size) < np.where(often, 0.8, 0.2)
    x = rng.normal(size=(groups * size, 2)) * (0.2, 1.0)
    x += np.stack([2.0 * often - 1.2 * y, 0.8 * y], axis=1)
    return torch.tensor(x).float(), torch.tensor(y).float(), None, group


TRAIN, VALID = opposite_groups(), opposite_groups(seed=1)


def trained(objective, train=TRAIN, valid=VALID, **options):
    torch.manual_seed(0)
    return aucmax.fit(nn.Linear(2, 1), train, valid, objective=objective, **{**OPTIONS, **options})


def test_ranking_within_groups_beats_likelihood():
    scores = {name: trained(name).score for name in ("ce", "auc", "pairwise")}
    assert scores["auc"] > scores["ce"] + 0.05
    assert scores["pairwise"] > scores["ce"] + 0.05


def test_the_metric_is_that_within_groups_unless_another_is_named():
    assert trained("auc", steps=2).metric == "grouped_auc"
    assert trained("auc", steps=2, metric="roc_auc").metric == "roc_auc"
    assert trained("auc", train=TRAIN[:2], valid=VALID[:2], steps=2).metric == "roc_auc"


def test_evaluate_goes_by_groups_as_fit_does():
    result = trained("auc", steps=5)
    assert aucmax.evaluate(result.model, VALID) == result.score
    assert aucmax.evaluate(result.model, VALID, metric="roc_auc") != result.score


def test_groups_of_any_type_are_the_same_groups():
    x, y, _, group = TRAIN
    names = np.array([f"patient {k:02}" for k in group])
    results = [
        trained("pairwise", train=(x, y, None, kind), valid=None, steps=20)
        for kind in (group, torch.tensor(group), names.tolist(), names)
    ]
    for result in results[1:]:
        torch.testing.assert_close(result.model.weight, results[0].model.weight)


def test_the_loss_has_what_the_data_say():
    loss = trained("auc", steps=2).loss
    assert isinstance(loss, GroupedAUCLoss)
    assert loss.a.shape == (60,)


class Numbered(Dataset):
    def __init__(self, x, y):
        self.x, self.targets = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.targets[i]


def test_rows_carry_their_numbers_where_the_loss_asks():
    x, y = TRAIN[:2]
    of_arrays = trained("ap", train=(x, y), valid=None, steps=30)
    of_dataset = trained("ap", train=Numbered(x, y), valid=None, steps=30)
    assert isinstance(of_arrays.loss, AveragePrecisionLoss)
    seen = of_arrays.loss.estimates[0, 0] > 0
    assert 100 < seen.sum() <= y.sum()
    assert bool((y[seen] == 1).all())  # positives alone have estimates
    torch.testing.assert_close(of_dataset.loss.estimates, of_arrays.loss.estimates)
    torch.testing.assert_close(of_dataset.model.weight, of_arrays.model.weight)


def test_average_precision_of_balanced_batches_knows_the_data():
    y = (torch.arange(400) % 10 == 0).float()
    x = torch.randn(400, 2, generator=torch.Generator().manual_seed(1))
    result = trained("ap", train=(x, y), valid=None, positives=0.5, steps=2)
    assert result.loss.priors.tolist() == [pytest.approx(0.1)]


@pytest.mark.parametrize(
    ("objective", "change", "message"),
    [
        ("auc", lambda x, y, w, g: (x, y, w, g[:-1]), "groups"),
        ("pairwise", lambda x, y, w, g: (x, y, w, [None, *g[1:]]), "missing"),
        ("auc", lambda x, y, w, g: (x, y, w, y), "group"),
        ("pairwise", lambda x, y, w, g: (x, y, w, y), "group"),
    ],
)
def test_groups_that_cannot_be(objective, change, message):
    with pytest.raises(ValueError, match=message):
        trained(objective, train=change(*TRAIN), steps=2)


def test_what_does_not_go_with_groups():
    with pytest.raises(ValueError, match="positives must be None"):
        trained("pairwise", positives=0.5)
    with pytest.raises(ValueError, match="groups must go with the objectives 'auc', 'pairwise',"):
        trained("partial")

    class Plain(nn.Module):
        def forward(self, scores, target):
            return (scores[:, 0] - target).square().mean()

    with pytest.raises(ValueError, match="loss must take group=, as rows carry groups"):
        aucmax.fit(nn.Linear(2, 1), TRAIN, loss=Plain(), **OPTIONS)


def test_a_tensor_dataset_and_batches_carry_groups_too():
    x, y, _, group = TRAIN
    parts = (x, y, torch.ones_like(y), torch.tensor(group))
    arrays = trained("pairwise", train=parts, valid=VALID, steps=20)
    dataset = trained("pairwise", train=TensorDataset(*parts), valid=VALID, steps=20)
    assert torch.equal(arrays.model.weight, dataset.model.weight)
    batches = [tuple(part[k : k + 100] for part in parts) for k in range(0, 1200, 100)]
    streamed = trained("pairwise", train=batches, valid=VALID, metric="grouped_auc")
    assert streamed.score > trained("ce").score + 0.05


def test_weights_may_be_a_column():
    x, y, _, group = TRAIN
    weight = torch.rand(len(y), generator=torch.Generator().manual_seed(2))
    for objective in ("auc", "pairwise"):
        flat, column = (
            trained(objective, train=(x, y, w, group), valid=None, steps=5)
            for w in (weight, weight[:, None])
        )
        assert torch.equal(flat.model.weight, column.model.weight)


@pytest.mark.parametrize("part", ["train", "valid"])
def test_a_run_goes_on_with_the_groups_and_weights_it_began_with(tmp_path, part):
    x, y, _, group = TRAIN
    began = (x, y, torch.ones(len(y)), group)
    options = {"steps": 2, "out": tmp_path / "run"}
    trained("pairwise", began, began, **options)
    for other in ((x, y, torch.arange(len(y)) / len(y), group), (x, y, began[2], group // 2)):
        with pytest.raises(ValueError, match=r"hold the same configuration, found .* data "):
            trained("pairwise", **{"train": began, "valid": began, part: other}, **options)
    assert trained("pairwise", began, began, **options).steps == 2


@pytest.mark.parametrize("group", [None, TRAIN[3]], ids=["one list", "groups"])
def test_the_prior_of_balanced_batches_is_that_by_weight(group):
    x, y = TRAIN[:2]
    weight = 1 + 3 * y
    result = trained("auc", (x, y, weight, group), None, steps=2, positives=0.5)
    assert result.loss.prior == pytest.approx(0.8)


def test_rows_without_groups_train_what_is_judged_within_them():
    result = trained("auc", TRAIN[:2], VALID, steps=2)
    assert result.metric == "grouped_auc"
    assert result.score > 0
    assert result.history[-1]["train_grouped_auc_last"] is None


def test_batches_that_do_not_number_their_rows_are_told_of():
    x, y = TRAIN[:2]
    batches = [(x[k : k + 100], y[k : k + 100]) for k in range(0, 1200, 100)]
    options = {**OPTIONS, "steps": 2}
    aucmax.fit(nn.Linear(2, 1), (x, y), loss=AveragePrecisionLoss(0.5, rows=1200), **options)
    with pytest.warns(UserWarning, match="without index: it takes each batch by itself"):
        aucmax.fit(nn.Linear(2, 1), batches, loss=AveragePrecisionLoss(0.5, rows=1200), **options)
