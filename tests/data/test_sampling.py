"""BatchSampler: passes through the rows, exact shares, whole groups, epochs and resuming."""

import itertools

import numpy as np
import pytest
import torch
from errors import assert_names
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from aucmax import BatchSampler

LABELS = torch.arange(23) % 5 == 0  # 5 positives among 23
GROUP = ["c", "a", "b", "b", "a", "c", "c", "d", "d"] * 2 + ["a", "b", "c", "d", "e"]
EVERY_KIND = pytest.mark.parametrize(
    "options",
    [
        {},
        {"positives": 0.5},
        {"replacement": True},
        {"positives": 0.3, "replacement": True},
        {"group": GROUP},
    ],
    ids=lambda options: ", ".join(options) or "natural",
)


def drawn(sampler, batches, first=0):
    return [sampler.rows(k).tolist() for k in range(first, first + batches)]


def passes(rows, length):
    """The sequence of rows cut into passes; the last may be short."""
    return [rows[i : i + length] for i in range(0, len(rows), length)]


# ---- Every kind --------------------------------------------------------------------------------


@EVERY_KIND
def test_batches_are_a_function_of_seed_and_number(options):
    in_order = drawn(BatchSampler(LABELS, 7, **options), 30)
    assert {len(rows) for rows in in_order} == {7}
    state = torch.get_rng_state()
    backwards = BatchSampler(LABELS, 7, **options)
    assert [backwards.rows(k).tolist() for k in range(29, -1, -1)] == in_order[::-1]
    assert torch.equal(torch.get_rng_state(), state)
    assert drawn(BatchSampler(LABELS, 7, seed=3, **options), 4) != in_order[:4]
    with_numpy = BatchSampler(LABELS, 7, seed=np.int64(3), **options)
    assert drawn(with_numpy, 4) == drawn(BatchSampler(LABELS, 7, seed=3, **options), 4)


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({}, [15, 18, 4, 20, 16, 13, 3]),
        ({"positives": 0.5}, [10, 20, 5, 15, 17, 7, 22]),
        ({"replacement": True}, [0, 7, 14, 6, 10, 15, 17]),
        ({"positives": 0.3, "replacement": True}, [0, 15, 11, 8, 4, 12, 13]),
        ({"group": GROUP}, [10, 13, 4, 10, 18, 1, 15]),
    ],
)
def test_the_rows_of_a_seed_never_change(options, rows):
    """Runs of version 0.2 are resumed bit for bit."""
    assert BatchSampler(LABELS, 7, seed=3, **options).rows(5).tolist() == rows


@EVERY_KIND
def test_a_data_loader_iterates_over_epochs(options):
    x = torch.arange(23.0)
    sampler = BatchSampler(LABELS, 7, **options)
    length = -(-(23 - sampler.left_out) // 7)
    loader = DataLoader(TensorDataset(x, LABELS), batch_sampler=sampler)
    assert len(loader) == len(sampler) == length
    for epoch in range(3):
        batches = list(loader)
        expected = drawn(sampler, length, first=epoch * length)
        assert [x.long().tolist() for x, _ in batches] == expected
        assert [y.tolist() for _, y in batches] == [LABELS[rows].tolist() for rows in expected]


@pytest.mark.filterwarnings("ignore")  # those of Lightning itself
def test_a_trainer_counts_epochs(tmp_path):
    """Lightning trains by max_epochs, and its progress knows the length of an epoch."""
    lightning = pytest.importorskip("lightning")
    seen = []

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(1, 1)

        def training_step(self, batch, _):
            seen.append((self.current_epoch, batch[0].flatten().long().tolist()))
            return self.line(batch[0]).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0)

    sampler = BatchSampler(LABELS, 7)
    data = TensorDataset(torch.arange(23.0)[:, None], LABELS)
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(Model(), DataLoader(data, batch_sampler=sampler))
    assert trainer.num_training_batches == 4
    assert seen == [(k // 4, rows) for k, rows in enumerate(drawn(sampler, 8))]


@EVERY_KIND
def test_a_resumed_sampler_completes_the_epoch(options):
    sampler = BatchSampler(LABELS, 7, **options)
    list(sampler)
    iterator = iter(sampler)
    next(iterator)
    state = sampler.state_dict()
    rest, following = list(iterator), list(sampler)
    other = BatchSampler(LABELS, 7, **options)
    other.load_state_dict(state)
    assert list(other) == rest
    assert list(other) == following
    other.load_state_dict({"batch": len(sampler) + 1})  # counted by the caller
    assert list(other) == rest


def test_an_iteration_that_was_left_does_not_shorten_the_next():
    sampler = BatchSampler(LABELS, 7)
    first = next(iter(sampler))
    assert [first, *sampler] == drawn(sampler, 5)


def test_a_state_at_the_end_of_an_epoch_begins_the_next():
    sampler, other = BatchSampler(LABELS, 7), BatchSampler(LABELS, 7)
    list(sampler)
    other.load_state_dict(sampler.state_dict())
    assert list(other) == list(sampler) == drawn(sampler, 4, first=4)


@EVERY_KIND
def test_an_endless_sampler_has_no_length(options):
    sampler = BatchSampler(LABELS, 7, endless=True, **options)
    assert list(itertools.islice(sampler, 30)) == drawn(sampler, 30)
    with pytest.raises(TypeError, match="endless"):
        len(sampler)
    other = BatchSampler(LABELS, 7, endless=True, **options)
    other.load_state_dict(sampler.state_dict())
    assert next(iter(other)) == sampler.rows(30).tolist()


@pytest.mark.parametrize(
    "labels",
    [
        LABELS.float(),
        LABELS.bfloat16(),
        LABELS.numpy(),
        LABELS.tolist(),
        LABELS.to(torch.uint8),
        LABELS.numpy().astype("int8"),
    ],
    ids=lambda x: f"{type(x).__name__} {getattr(x, 'dtype', '')}",
)
def test_labels_of_any_kind(labels):
    sampler = BatchSampler(labels, 7, positives=0.5)
    assert drawn(sampler, 5) == drawn(BatchSampler(LABELS, 7, positives=0.5), 5)


# ---- Without replacement -----------------------------------------------------------------------


@given(n=st.integers(1, 40), size=st.integers(1, 50), seed=st.integers(0, 2**70))
def test_each_row_occurs_once_before_any_occurs_again(n, size, seed):
    sampler = BatchSampler(torch.zeros(n), size, seed=seed)
    rows = list(itertools.chain(*drawn(sampler, 3 * n // size + 2)))
    for part in passes(rows, n):
        assert len(set(part)) == len(part)
        assert set(part) <= set(range(n))
    assert set(itertools.chain(*sampler)) == set(range(n))  # the first epoch


@given(
    n=st.integers(2, 40),
    ones=st.data(),
    size=st.integers(2, 50),
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 9),
)
def test_with_a_fixed_share_each_class_has_its_own_passes(n, ones, size, share, seed):
    positives = ones.draw(st.integers(1, n - 1))
    labels = np.random.default_rng(seed).permutation(np.arange(n) < positives)
    sampler = BatchSampler(labels, size, positives=share, seed=seed)
    rows = np.concatenate(drawn(sampler, 3 * n // size + 3))
    for value in (True, False):
        own = rows[labels[rows] == value].tolist()
        for part in passes(own, int((labels == value).sum())):
            assert len(set(part)) == len(part)


def test_passes_are_in_different_random_orders():
    first, second = drawn(BatchSampler(torch.zeros(100), 100), 2)
    assert first != sorted(first)
    assert first != second


# ---- With replacement --------------------------------------------------------------------------


def test_rows_with_replacement_are_independent():
    """As many coincidences within a batch as independent draws have, and no repeated batch."""
    n, size, batches = 50, 10, 2000
    sampler = BatchSampler(torch.zeros(n), size, replacement=True)
    rows = np.array(drawn(sampler, batches))
    pairs = sum((rows[:, i] == rows[:, j]).sum() for i in range(size) for j in range(i))
    expected = batches * size * (size - 1) / 2 / n
    assert abs(pairs - expected) < 5 * expected**0.5
    counts = np.bincount(rows.ravel(), minlength=n)
    chi_square = ((counts - rows.size / n) ** 2 / (rows.size / n)).sum()
    assert chi_square < n + 5 * (2 * n) ** 0.5
    assert len({tuple(batch) for batch in rows}) == batches


# ---- The share of positives --------------------------------------------------------------------


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize(
    ("size", "share", "expected"),
    [(8, 0.5, 4), (7, 0.3, 2), (10, 0.25, 2), (128, 0.1, 13), (64, 0.001, 1), (64, 0.999, 63)],
)
def test_each_batch_has_the_exact_share(size, share, expected, replacement):
    sampler = BatchSampler(LABELS, size, positives=share, replacement=replacement)
    for rows in drawn(sampler, 20):
        assert LABELS[rows].sum() == expected
        assert LABELS[rows[:expected]].all()  # positives first
    assert sampler.prior == expected / size
    assert BatchSampler(LABELS, size).prior is None


@pytest.mark.parametrize("replacement", [False, True])
def test_the_two_classes_are_drawn_independently(replacement):
    """With as many of each, the k-th positive does not always come with the k-th negative."""
    labels = torch.arange(200) < 100
    rows = BatchSampler(labels, 100, positives=0.5, replacement=replacement).rows(0)
    assert (rows[:50] == rows[50:] - 100).sum() < 10


# ---- Whole groups ------------------------------------------------------------------------------


@given(
    n=st.integers(2, 40),
    groups=st.integers(1, 8),
    size=st.integers(1, 30),
    seed=st.integers(0, 99),
)
def test_the_rows_of_a_group_follow_each_other(n, groups, size, seed):
    rng = np.random.default_rng(seed)
    group, labels = rng.integers(groups, size=n), rng.integers(2, size=n)
    group[:2], labels[:2] = 0, (0, 1)
    sampler = BatchSampler(labels, size, group=group, seed=seed)
    paired = [g for g in range(groups) if len(set(labels[group == g])) == 2]
    rows = np.flatnonzero(np.isin(group, paired))
    assert sampler.left_out == n - len(rows)
    stream = np.concatenate(drawn(sampler, 3 * n // size + 2))
    for part in passes(stream, len(rows)):
        runs = [g for g, _ in itertools.groupby(group[part])]
        assert len(set(runs)) == len(runs)  # no group comes twice
        if len(part) == len(rows):
            assert set(part) == set(rows)


def test_groups_and_their_rows_are_in_random_order():
    group = np.repeat(np.arange(30), 6)
    sampler = BatchSampler(np.arange(180) % 2, 180, group=group)
    first, second = (np.array(rows) for rows in drawn(sampler, 2))
    for rows in (first, second):
        assert (np.diff(group[rows[::6]]) < 0).sum() > 5
        assert (np.diff(rows.reshape(30, 6)) < 0).sum() > 30
    assert (group[first] != group[second]).any()


def test_groups_without_pairs_are_left_out():
    sampler = BatchSampler([1, 0, 1, 1, 0], 3, group=["a", "a", "b", "b", "c"])
    assert sampler.left_out == 3
    assert set(itertools.chain(*drawn(sampler, 5))) == {0, 1}
    group = [0, 0, 1, 1, 2, 2]
    assert BatchSampler([2, 2, 0, 1, 1, 1], 2, group=group).left_out == 4
    nan = float("nan")
    several = [[0, 1], [0, nan], [1, 1], [1, 0], [nan, nan], [1, nan]]
    assert BatchSampler(several, 2, group=group).left_out == 4


# ---- Bad arguments -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "labels", "options"),
    [
        ("labels", [], {}),
        ("labels", torch.tensor(2), {}),
        ("labels", ["yes", "no"], {}),
        ("labels", [0, 0, 0], {"positives": 0.5}),
        ("labels", [1, 1], {"positives": 0.5}),
        ("labels", [-1, 1], {"positives": 0.5}),
        ("labels", [0, 1, 2], {"positives": 0.5}),
        ("labels", [[0], [1]], {"positives": 0.5}),
        ("batch_size", [0, 1], {"batch_size": 0}),
        ("batch_size", [0, 1], {"batch_size": 2.5}),
        ("batch_size", [0, 1], {"positives": 0.5, "batch_size": 1}),
        ("positives", [0, 1], {"positives": 0.0}),
        ("positives", [0, 1], {"positives": 1.0}),
        ("positives", [0, 1], {"positives": "half"}),
        ("positives", [0, 1], {"group": [0, 0], "positives": 0.5}),
        ("replacement", [0, 1], {"group": [0, 0], "replacement": True}),
        ("group", [0, 1], {"group": [0, 0, 0]}),
        ("group", [0, 1], {"group": [0, None]}),
        ("group", [0, 1], {"group": [0, 1]}),
        ("seed", [0, 1], {"seed": -1}),
    ],
)
def test_bad_arguments_are_named(argument, labels, options):
    assert_names(argument, BatchSampler, labels, **{"batch_size": 2, **options})


@pytest.mark.filterwarnings("error")
def test_labels_may_be_read_only():
    """As those of a data frame are."""
    labels = LABELS.numpy().copy()
    labels.flags.writeable = False
    sampler = BatchSampler(labels, 4, positives=0.5)
    assert drawn(sampler, 9) == drawn(BatchSampler(LABELS, 4, positives=0.5), 9)
