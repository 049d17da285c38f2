"""The networks for tables."""

import copy

import numpy as np
import pytest
import torch
from errors import assert_names

from aucmax.models import tabm, tabular_mlp
from aucmax.models.tabular import ByteDropout, quantile_bins
from aucmax.tables.scoring import Rows, score_rows

GENERATOR = torch.Generator().manual_seed(0)
NUMERIC = torch.randn(50, 3, generator=GENERATOR)
CODES = torch.randint(0, 4, (50, 2), generator=GENERATOR)
NONE = torch.empty(50, 0), torch.empty(50, 0, dtype=torch.int64)


@pytest.mark.parametrize("bins", [None, quantile_bins(NUMERIC, 8)])
@pytest.mark.parametrize("outputs", [1, 3])
def test_members_while_training_their_mean_afterwards(bins, outputs):
    model = tabm(3, [4, 4], bins=bins, outputs=outputs, members=5, width=16, dropout=0.0)
    each = model.train()((NUMERIC, CODES))
    mean = model.eval()((NUMERIC, CODES))
    assert (each.shape, mean.shape) == ((250, outputs), (50, outputs))
    torch.testing.assert_close(each.reshape(50, 5, outputs).mean(1), mean)
    members = each.reshape(50, 5, outputs)
    assert (members[:, 0] - members[:, 1]).abs().max() > 1e-3


@pytest.mark.parametrize("make", [tabm, tabular_mlp])
def test_numbers_alone_and_categories_alone(make):
    assert make(3)((NUMERIC, NONE[1])).shape[1] == 1
    assert make(0, [4, 4])((NONE[0], CODES)).shape[1] == 1


def test_a_plain_network_sees_every_code():
    model = tabular_mlp(3, [4, 4], hidden=[8], generator=torch.Generator().manual_seed(1))
    assert model.layers[0].in_features == 3 + 8
    one, other = CODES.clone(), CODES.clone()
    one[:, 1], other[:, 1] = 0, 3
    assert (model((NUMERIC, one)) - model((NUMERIC, other))).abs().min() > 1e-6


@pytest.mark.parametrize("make", [tabm, tabular_mlp])
def test_a_generator_leaves_torchs_numbers(make):
    state = torch.get_rng_state()
    made = [make(3, [4], generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(torch.get_rng_state(), state)
    first, same, other = (torch.cat([p.flatten() for p in m.parameters()]) for m in made)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (tabm, {"members": 0}),
        (tabm, {"width": 1.5}),
        (tabm, {"blocks": 0}),
        (tabm, {"outputs": 0}),
        (tabm, {"embedding": 1.5}),
        (tabm, {"dropout": 1}),
        (tabm, {"bins": [[0, 1, 2]]}),
        (tabular_mlp, {"hidden": [8, 0]}),
        (tabular_mlp, {"outputs": 0}),
    ],
)
def test_bad_sizes_are_named(make, options):
    (argument,) = options
    assert_names(argument, make, 3, **options)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((NUMERIC[:, :2], CODES), "3 numeric and 2 of codes, found 2 and 2"),
        ((NUMERIC, CODES[:, :1]), "3 numeric and 2 of codes, found 3 and 1"),
        ((NUMERIC, CODES + 1), r"codes must be below \[4, 4\], found \[4, 4\]"),
        ((NUMERIC, CODES - 1), r"codes must be below"),
    ],
)
def test_columns_of_another_table_are_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        tabm(3, [4, 4], members=2, width=4)(columns)


def test_bins_hold_as_many_rows_each():
    x = torch.linspace(0, 1, 1001)[:, None] ** 2
    (edges,) = quantile_bins(x, 10)
    counts, _ = np.histogram(x.numpy(), edges)
    assert len(edges) == 11
    assert counts.max() - counts.min() <= 1
    (few,) = quantile_bins(torch.tensor([[0.0], [0.0], [1.0]]), 10)
    assert few[0] == 0
    assert few[-1] == 1
    assert few == sorted(set(few))


# ---- Scoring -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("cardinalities", "pieces"), [([], 16), ([3, 2], 16), ([3], None)])
@pytest.mark.parametrize("outputs", [1, 3])
def test_merged_it_scores_the_same(cardinalities, pieces, outputs):
    """Beyond the outermost edges too, and with columns of one, few and many pieces."""
    torch.manual_seed(0)
    numeric = torch.randn(300, 4)
    numeric[:, 1], numeric[:, 2] = (numeric[:, 1] > 0).float(), numeric[:, 2].round()
    bins = None if pieces is None else quantile_bins(numeric, pieces)
    model = tabm(4, cardinalities, bins=bins, outputs=outputs, members=3, width=8, blocks=3)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    codes = torch.stack([torch.randint(0, n, (300,)) for n in cardinalities or [1]], 1)
    columns = 2 * numeric.double(), codes[:, : len(cardinalities)]
    wanted = copy.deepcopy(model).double().eval()(columns)
    torch.testing.assert_close(model.merged()(columns), wanted, rtol=1e-5, atol=1e-6)
    assert wanted.std() > 0.1


def test_merged_it_keeps_its_activations():
    torch.manual_seed(0)
    model = tabm(3, [4, 4], members=2, width=4)
    for block in model.backbone.blocks:
        block[1] = torch.nn.Tanh()
    wanted = copy.deepcopy(model).double().eval()((NUMERIC.double(), CODES))
    torch.testing.assert_close(model.merged()((NUMERIC.double(), CODES)), wanted)
    assert model.merged()((NUMERIC[:0].double(), CODES[:0])).shape == (0, 1)


def test_a_rows_score_depends_on_no_other_row():
    torch.manual_seed(0)
    numeric, codes = torch.randn(1100, 5), torch.randint(0, 3, (1100, 1))
    model = tabm(5, [3], bins=quantile_bins(numeric, 8), members=4, width=32)
    classes = np.zeros(1100, np.int64)
    scores = score_rows(model, Rows(numeric, codes, classes, None), torch.device("cpu"))
    for rows in (np.arange(7, 8), np.random.default_rng(0).permutation(1100)[:700]):
        some = Rows(numeric, codes, classes, None).select(rows)
        found = score_rows(model, some, torch.device("cpu"))
        np.testing.assert_array_equal(found, scores[rows])


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_dropout_leaves_out_its_share_and_keeps_the_mean(share):
    torch.manual_seed(0)
    drop, x = ByteDropout(share), torch.ones(1001, 333, requires_grad=True)
    y = drop(x)
    left = 1 - round(256 * share) / 256
    assert torch.equal(y.unique(), torch.tensor([0.0, 1 / left] if share else [1.0]))
    assert (y == 0).float().mean().item() == pytest.approx(1 - left, abs=0.003)
    for rows in ((y == 0).float().mean(0), (y == 0).float().mean(1)):
        assert (rows - (1 - left)).abs().max() < 0.15
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())
    assert drop.eval()(x) is x


def test_dropout_follows_torchs_seed():
    drop, x = ByteDropout(0.5), torch.ones(40, 3)
    first, second = (torch.manual_seed(seed) and drop(x) for seed in (1, 1))
    assert torch.equal(first, second)
    assert not torch.equal(drop(x), first)
