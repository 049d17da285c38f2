"""Networks for tables, and several of them trained side by side."""

import copy

import numpy as np
import pytest
import torch
from errors import assert_names
from rtdl_num_embeddings import PiecewiseLinearEmbeddings
from tabm import LinearBatchEnsemble, TabM
from torch import nn

from aucmax.models import tabm, tabular_mlp
from aucmax.models.tabular import (
    MANY_ROWS,
    ByteDropout,
    EnsembleLinear,
    Separate,
    Stacked,
    quantile_bins,
)
from aucmax.tables.scoring import Rows, score_rows
from aucmax.train.objectives import OBJECTIVES, Known, ModelWithLoss, make_loss

GENERATOR = torch.Generator().manual_seed(0)
NUMERIC = torch.randn(50, 3, generator=GENERATOR)
CODES = torch.randint(0, 4, (50, 2), generator=GENERATOR)
NONE = torch.empty(50, 0), torch.empty(50, 0, dtype=torch.int64)


# ---- TabM and the plain network ----------------------------------------------------------------


@pytest.mark.parametrize("bins", [None, quantile_bins(NUMERIC, 8)], ids=["plain", "embedded"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_tabm_scores_by_each_member_in_training_and_by_their_mean(bins, outputs):
    model = tabm(3, [4, 4], bins=bins, outputs=outputs, members=5, width=16, dropout=0.0)
    each = model.train()((NUMERIC, CODES))
    mean = model.eval()((NUMERIC, CODES))
    assert model.scores_per_row == 5
    assert (each.shape, mean.shape) == ((250, outputs), (50, outputs))
    members = each.reshape(50, 5, outputs)
    torch.testing.assert_close(members.mean(1), mean)
    assert (members[:, 0] - members[:, 1]).abs().max() > 1e-3


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("bins", [None, quantile_bins(NUMERIC, 8)], ids=["plain", "embedded"])
def test_tabm_equals_the_network_of_its_authors(bins, training):
    model = tabm(3, [4, 4], bins=bins, outputs=2, members=5, blocks=3, width=6, dropout=0.0)
    edges = [torch.tensor(edge) for edge in bins or []]
    embeddings = (
        PiecewiseLinearEmbeddings(edges, 8, activation=False, version="B") if bins else None
    )
    original = TabM.make(
        n_num_features=3,
        cat_cardinalities=[4, 4],
        d_out=2,
        n_blocks=3,
        d_block=6,
        dropout=0.0,
        k=5,
        num_embeddings=embeddings,
    )
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=GENERATOR), alpha=0.3)
    state = model.state_dict()
    original.load_state_dict(
        {k.replace("features.embedding", "num_module"): state[k] for k in state}
    )
    expected = original(NUMERIC, CODES)
    found = model.train(training)((NUMERIC, CODES))
    expected = expected.flatten(0, 1) if training else expected.mean(1)
    torch.testing.assert_close(found, expected)


def test_a_plain_network_is_linear_layers_with_relu_between():
    model = tabular_mlp(3, [4, 4], hidden=[5, 7], outputs=2)
    x = torch.cat([NUMERIC, *(nn.functional.one_hot(code, 4) for code in CODES.T)], 1)
    for layer in model.layers[:-1:2]:
        x = (x @ layer.weight.T + layer.bias).relu()
    expected = x @ model.layers[-1].weight.T + model.layers[-1].bias
    torch.testing.assert_close(model((NUMERIC, CODES)), expected)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("rows", [0, 1, MANY_ROWS - 1, MANY_ROWS, 300])
def test_an_ensemble_layer_equals_that_of_tabm(rows, training):
    generator = torch.Generator().manual_seed(1)
    exact = LinearBatchEnsemble(5, 4, k=3, scaling_init="normal").double()
    layer = EnsembleLinear(copy.deepcopy(exact)).train(training)
    x = torch.randn(rows, 3, 5, generator=generator, dtype=torch.float64)
    upstream = torch.randn(rows, 3, 4, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(layer(x), exact(x))
    layer(x).backward(upstream)
    exact(x).backward(upstream)
    for name, p in exact.named_parameters():
        torch.testing.assert_close(layer.get_parameter(name).grad, p.grad)


def test_the_names_of_saved_weights_never_change():
    """Folders of models of version 0.2 hold weights by these names."""
    bins = [[0.0, 1.0, 2.0], [0.0, 1.0]]
    model = tabm(2, [3], bins=bins, members=2, blocks=2, width=4, embedding=3)
    layer = {"weight": (4,), "r": (2,), "s": (2, 4), "bias": (2, 4)}
    shapes = {name: tuple(x.shape) for name, x in model.state_dict().items()}
    embedding = {k: x for k, x in shapes.items() if k.startswith("features.embedding.linear")}
    assert embedding == {
        "features.embedding.linear0.weight": (1, 3),
        "features.embedding.linear0.bias": (1, 3),
        "features.embedding.linear.weight": (1, 2, 3),
    }
    for k, inputs in enumerate((7, 4)):
        sizes = layer | {"weight": (4, inputs), "r": (2, inputs)}
        assert {name: shapes[f"backbone.blocks.{k}.0.{name}"] for name in sizes} == sizes
    assert shapes["output.weight"] == (2, 4, 1)
    assert list(tabular_mlp(2, [3], hidden=[4]).state_dict()) == [
        "layers.0.weight",
        "layers.0.bias",
        "layers.2.weight",
        "layers.2.bias",
    ]


@pytest.mark.parametrize("make", [tabm, tabular_mlp])
def test_numbers_alone_and_categories_alone(make):
    assert make(3)((NUMERIC, NONE[1])).shape[1] == 1
    assert make(0, [4, 4])((NONE[0], CODES)).shape[1] == 1


@pytest.mark.parametrize("make", [tabm, tabular_mlp])
def test_each_code_has_its_own_weights(make):
    model = make(3, [4, 4], generator=torch.Generator().manual_seed(1)).eval()
    one, other = CODES.clone(), CODES.clone()
    one[:, 1], other[:, 1] = 0, 3
    assert (model((NUMERIC, one)) - model((NUMERIC, other))).abs().min() > 1e-6


@pytest.mark.parametrize("make", [tabm, tabular_mlp])
def test_a_generator_leaves_the_global_one_alone(make):
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
def test_columns_of_another_table_raise(columns, message):
    for model in (tabm(3, [4, 4], members=2, width=4), tabular_mlp(3, [4, 4])):
        with pytest.raises(ValueError, match=message):
            model(columns)


def test_bins_hold_equally_many_rows():
    x = torch.linspace(0, 1, 1001)[:, None] ** 2
    (edges,) = quantile_bins(x, 10)
    counts, _ = np.histogram(x.numpy(), edges)
    assert len(edges) == 11
    assert counts.max() - counts.min() <= 1
    (few,) = quantile_bins(torch.tensor([[0.0], [0.0], [1.0]]), 4)
    assert few == [0.0, 0.5, 1.0]


def test_a_score_depends_on_no_other_row():
    torch.manual_seed(0)
    numeric, codes = torch.randn(1100, 5), torch.randint(0, 3, (1100, 1))
    model = tabm(5, [3], bins=quantile_bins(numeric, 8), members=4, width=32)
    classes = np.zeros(1100, np.int64)
    scores = score_rows(model, Rows(numeric, codes, classes, None), torch.device("cpu"))
    exact = copy.deepcopy(model).double().eval()((numeric.double(), codes)).detach().numpy()
    np.testing.assert_allclose(scores, exact, rtol=1e-5, atol=1e-6)
    for rows in (np.arange(7, 8), np.random.default_rng(0).permutation(1100)[:700]):
        some = Rows(numeric, codes, classes, None).select(rows)
        found = score_rows(model, some, torch.device("cpu"))
        np.testing.assert_array_equal(found, scores[rows])


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_byte_dropout_drops_its_share_and_keeps_the_mean(share):
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
    first, second = (torch.manual_seed(seed) and drop.train()(x) for seed in (1, 1))
    assert torch.equal(first, second)


# ---- Side by side --------------------------------------------------------------------------------

ROWS, COUNT = 24, 3
INPUTS = NUMERIC[:ROWS, :2], CODES[:ROWS, :1].clamp(max=2)
LABELS = torch.arange(ROWS) % 3
WEIGHT = torch.rand(ROWS, generator=GENERATOR) * (torch.arange(ROWS) % 5 > 0)
CONCERNED = torch.arange(ROWS)[:, None] % 4 != torch.arange(COUNT)
TOGETHER = pytest.mark.parametrize("together", [Stacked, Separate])


def networks(make, outputs=1):
    generator = torch.Generator().manual_seed(1)
    sizes = {"members": 2, "width": 4, "dropout": 0.0} if make is tabm else {"hidden": [4]}
    return [make(2, [3], outputs=outputs, generator=generator, **sizes) for _ in range(COUNT)]


def gradients(model, loss, *batch):
    """Gradients of the weights, by name; the loss stays as it was."""
    both = ModelWithLoss(copy.deepcopy(model), copy.deepcopy(loss)).train()
    both(*batch[:3], group=batch[3], index=batch[4]).backward()
    return {name: x.grad for name, x in both.model.named_parameters()}


@pytest.mark.parametrize(
    ("objective", "classes", "groups", "make"),
    [
        # The thresholds of "partial" are shared by all networks, as a, b and alpha are.
        *((name, 2, None, tabm) for name in OBJECTIVES if name != "partial"),
        ("auc+ce", 2, None, tabular_mlp),
        ("auc+ce", 3, None, tabm),
        ("pairwise", 3, None, tabm),
        ("auc", 2, 4, tabm),
        ("pairwise", 2, 4, tabular_mlp),
        ("ap", 2, 4, tabm),
    ],
)
def test_each_network_learns_from_its_own_rows_as_it_would_alone(objective, classes, groups, make):
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
            network,
            lone,
            tuple(x[own] for x in INPUTS),
            labels[own],
            WEIGHT[own],
            None if group is None else group[own],
            own,
        )
        # A mean over the rows of all networks, or a mean of the values of each network.
        share = WEIGHT[own].sum() / (WEIGHT[:, None] * CONCERNED).sum()
        share = 1 / COUNT if compares else share
        assert sum(x.abs().sum() for x in alone.values()) > 1e-3
        for place, name in enumerate(names):
            expected = share * alone[name]
            torch.testing.assert_close(stacked[f"weights.{place}"][k], expected, msg=name)
            torch.testing.assert_close(separate[f"each.{k}.{name}"], expected, msg=name)


@TOGETHER
def test_a_row_is_scored_by_the_mean_of_the_networks_it_concerns(together):
    each = networks(tabm)
    alone = torch.stack([network.eval()(INPUTS)[:, 0] for network in each], 1)
    model = together(networks(tabm)).eval()
    concerned = CONCERNED.clone()
    concerned[:, 0] = False  # one of the networks has no row
    for which in (CONCERNED, concerned):
        expected = (alone * which).sum(1) / which.sum(1)
        torch.testing.assert_close(model((*INPUTS, which))[:, 0], expected)


@TOGETHER
def test_networks_have_the_trained_weights(together):
    model = together(networks(tabm))
    assert len(model((*INPUTS, CONCERNED))) == ROWS * model.scores_per_row
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(2)
    trained = copy.deepcopy(model).networks()
    for network, first in zip(trained, networks(tabm), strict=True):
        assert not network.training
        for p, before in zip(network.parameters(), first.parameters(), strict=True):
            assert torch.equal(p, 2 * before)


def test_stacked_networks_have_their_weights_once():
    each = networks(tabm)
    model = Stacked(each)
    count = sum(p.numel() for network in each for p in network.parameters())
    assert sum(p.numel() for p in model.parameters()) == count
    assert all(isinstance(p, nn.Parameter) for p in each[0].parameters())
