"""Batches: the same rows train to the same bits whatever holds them."""

import itertools
import multiprocessing

import numpy as np
import pytest
import torch
from fit_data import (
    assert_same_weights,
    binary,
    fit,
    hidden,
    linear,
    multiclass,
    multilabel,
    one_thread,  # noqa: F401
    scores_of,
    seeded,
)
from scipy.special import softmax
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import aucmax
from aucmax import StreamingPrior
from aucmax.data.batches import (
    ArraySource,
    Batch,
    BatchFormat,
    IterableSource,
    as_batch,
    as_data,
    has_groups,
)

X, Y = binary()
VALID = binary(seed=1)
FORM = BatchFormat(torch.device("cpu"), torch.float32, "binary")
OPTIONS = {"steps": 30, "batch_size": 32, "eval_every": 10, "probe": 64}


def run(train, valid=VALID, model=None, **options):
    return fit(model or hidden(), train, valid, **{**OPTIONS, **options})


@pytest.fixture(scope="module")
def of_tensors():
    return run((X, Y))


def assert_same_run(result, expected):
    assert_same_weights(result.model, expected.model)
    assert (result.auc, result.step, result.iterate) == (
        expected.auc,
        expected.step,
        expected.iterate,
    )


class Rows(Dataset):
    """A map-style Dataset of tuples."""

    def __init__(self, *columns, **attributes):
        self.columns = columns
        self.__dict__.update(attributes)

    def __len__(self):
        return len(self.columns[0])

    def __getitem__(self, i):
        return tuple(column[i] for column in self.columns)


class Frame:
    """What this package needs of a data frame."""

    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return self.values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)

    def __len__(self):
        return len(self.values)


def read_only(array):
    array = np.array(array)
    array.setflags(write=False)
    return array


# ---- Arrays ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "labels"),
    [
        (lambda x: x.numpy(), lambda y: y.numpy()),
        (lambda x: x.double().numpy(), lambda y: y.numpy().astype(np.int8)),
        (lambda x: x.double(), lambda y: y.double()),
        (lambda x: x.tolist(), lambda y: y.int().tolist()),
        (lambda x: np.asfortranarray(x.numpy()), lambda y: y.bool().numpy()),
        (lambda x: x.numpy()[::-1].copy()[::-1], lambda y: y[:, None]),  # a negative stride
        (lambda x: read_only(x.numpy()), lambda y: read_only(y.numpy())),
        (lambda x: Frame(x.double().numpy()), lambda y: Frame(y.numpy())),
        (lambda x: x.clone().requires_grad_(), lambda y: y.bool()),
        (lambda x: x, lambda y: y.long()),
    ],
    ids=[
        "float32 arrays",
        "float64 and int8 array",
        "float64 tensors",
        "lists",
        "Fortran order and bool array",
        "backwards and column",
        "read-only arrays",
        "data frames",
        "tensor with gradient and bool tensor",
        "int64 tensor",
    ],
)
def test_arrays_of_every_kind_train_alike(inputs, labels, of_tensors):
    train, valid = ((inputs(x), labels(y)) for x, y in ((X, Y), VALID))
    assert_same_run(run(train, valid), of_tensors)


def test_arrays_may_carry_weights_and_groups():
    wards = ["b", "a"] * 200
    batch = as_data("train", (X, Y[:, None], Y[:, None] + 1, wards))
    assert torch.equal(batch.weight, Y + 1)
    assert torch.equal(batch.group, 1 - torch.arange(400) % 2)
    picked = batch.pick(torch.tensor([3, 0]))
    assert torch.equal(picked.x, X[[3, 0]])
    assert (picked.group.tolist(), picked.weight.tolist()) == ([0, 1], (Y[[3, 0]] + 1).tolist())
    assert has_groups((X, Y, None, wards))
    assert not any(map(has_groups, ((X, Y, Y), (X, Y, None, None), TensorDataset(X, Y), [(X, Y)])))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "found int"),
        ([], "must have rows, found none"),
        ((X,), "found 1 parts"),
        ((X, Y, Y, Y, Y), "found 5 parts"),
        ((X, None), "one label per row"),
        ((X, Y[:-1]), r"one label per row, found lengths \[399, 400\]"),
        ((X, Y, Y[:-1]), r"found lengths \[399, 400\]"),
        ((X, Y, None, [1, 2]), "train's groups must have a value for each of 400 rows, found 2"),
        ((["a"], [1]), "train's inputs must hold numbers"),
    ],
)
def test_bad_data_is_named(data, message):
    with pytest.raises(ValueError, match=message) as caught:
        as_data("train", data)
    assert str(caught.value).startswith("train")


@pytest.mark.parametrize(
    ("item", "message"), [((X,), "found 1 parts"), (X, "found Tensor"), ({"x": X}, "found dict")]
)
def test_bad_batches_are_named(item, message):
    with pytest.raises(ValueError, match=f"batches must be .*{message}"):
        as_batch(item)


def test_inputs_take_the_precision_of_the_model():
    x, y = X.double().numpy() + 1e-12, Y
    result = run((x, y), model=hidden().double())
    assert {p.dtype for p in result.model.parameters()} == {torch.float64}
    single = run((x.astype(np.float32), y), model=hidden().double())
    assert not torch.equal(single.model[0].weight, result.model[0].weight)


def test_a_tensor_dataset_is_arrays(of_tensors):
    assert_same_run(run(TensorDataset(X, Y), TensorDataset(*VALID)), of_tensors)


class TwoInputs(nn.Module):
    """Scores of two inputs, in a tuple or in a dict, one of them whole numbers."""

    def __init__(self):
        super().__init__()
        self.table, self.line = nn.Embedding(3, 1), nn.Linear(4, 1)

    def forward(self, inputs):
        x, kind = (inputs["x"], inputs["kind"]) if isinstance(inputs, dict) else inputs
        assert (x.dtype, kind.dtype) == (torch.float32, torch.int64)
        return self.line(x) + self.table(kind)


@pytest.mark.parametrize(
    "convert",
    [
        lambda x, kind: (x, kind),
        lambda x, kind: {"x": x.double().numpy(), "kind": kind.numpy()},
    ],
    ids=["tuple", "dict of arrays"],
)
def test_several_inputs(convert):
    model = seeded(TwoInputs(), 0)
    kind = torch.arange(len(X)) % 3
    noisy = X + 0.5 * (kind[:, None] == 1)
    result = run(
        (convert(noisy, kind), Y),
        (convert(noisy, kind), Y),
        model=model,
        steps=100,
        lr=1.0,
        eval_every=50,
    )
    assert result.auc > 0.9
    assert aucmax.evaluate(model, (convert(noisy, kind), Y)) == result.auc


# ---- Datasets ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "workers"), [("targets", 0), ("labels", 1)])
def test_a_dataset_trains_as_its_arrays(name, workers, of_tensors):
    data, valid = Rows(X, Y, **{name: Y}), Rows(*VALID)
    assert_same_run(run(data, valid, workers=workers), of_tensors)


def test_labels_may_be_passed_beside_a_dataset():
    result = run(Rows(X, Y), labels=Y.tolist(), positives=0.5)
    expected = run((X, Y), positives=0.5)
    assert_same_run(result, expected)
    assert result.loss.prior == 0.5


def test_unknown_labels_make_the_prior_a_running_one():
    result = run(Subset(Rows(X, Y, targets=Y), range(400)))
    assert isinstance(result.loss.prior, StreamingPrior)
    assert result.loss.prior.p.item() == pytest.approx(0.25, abs=0.05)


class Noisy(Rows):
    """A transform that draws random numbers of all three kinds."""

    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        return x + 0.1 * torch.randn(4) + 0.1 * float(np.random.normal()), y  # noqa: NPY002


def test_random_transforms_do_not_depend_on_the_workers():
    short = {"steps": 10, "eval_every": 10}
    first, second = (run(Noisy(X, Y, targets=Y), workers=workers, **short) for workers in (0, 2))
    assert_same_run(first, second)
    other = run(Noisy(X, Y, targets=Y), seed=1, **short)
    assert not torch.equal(other.model[0].weight, first.model[0].weight)


class Fetching(Rows):
    """A Dataset that loads whole batches."""

    fetched = 0

    def __getitems__(self, rows):
        type(self).fetched += 1
        return [self[i] for i in rows]


def test_getitems_of_a_dataset_is_used(of_tensors):
    assert_same_run(run(Fetching(X, Y, targets=Y)), of_tensors)
    assert Fetching.fetched > 30


def test_workers_end_with_the_run():
    run(Rows(X, Y, targets=Y), steps=5, workers=1)
    assert multiprocessing.active_children() == []


# ---- Loaders and streams -----------------------------------------------------------------------


def test_a_data_loader_trains_as_in_a_plain_loop():
    """Round after round, its last batch as small as it is."""
    loader = DataLoader(TensorDataset(X, Y), batch_size=60)
    result = fit(linear(), loader, method="sgd", steps=20, eval_every=20, probe=0)
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = itertools.cycle(zip(X.split(60), Y.split(60), strict=True))
    for step, (x, y) in enumerate(itertools.islice(batches, 20)):
        optimizer.param_groups[0]["lr"] = 0.1 / 10 ** ((step >= 10) + (step >= 15))
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y).backward()
        optimizer.step()
    torch.testing.assert_close(result.model.state_dict(), model.state_dict())


def test_a_shuffling_loader_follows_the_seed():
    def trained(seed, callers):
        torch.manual_seed(callers)
        loader = DataLoader(TensorDataset(X, Y), batch_size=60, shuffle=True)
        return run(loader, seed=seed).model

    first = trained(0, callers=1)
    assert_same_weights(first, trained(0, callers=2))
    assert not torch.equal(first[0].weight, trained(1, callers=1)[0].weight)


def test_a_loader_with_workers():
    loader = DataLoader(TensorDataset(X, Y), batch_size=60, num_workers=1)
    plain = DataLoader(TensorDataset(X, Y), batch_size=60)
    assert_same_weights(run(loader, steps=10).model, run(plain, steps=10).model)
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    "convert",
    [lambda x, y: (x, y), lambda x, y: [x.double().numpy(), y.numpy()]],
    ids=["tensors", "arrays"],
)
def test_a_list_of_batches_is_iterated_again(convert):
    batches = [convert(x, y) for x, y in zip(X.split(50), Y.split(50), strict=True)]
    result = run(batches, [convert(*VALID)])
    expected = run(DataLoader(TensorDataset(X, Y), batch_size=50))
    assert_same_weights(result.model, expected.model)
    assert result.auc == expected.auc


def endless(share, seed=0, size=32):
    rng = np.random.default_rng(seed)
    while True:
        y = rng.uniform(size=size) < share
        x = rng.normal(size=(size, 4)) + 1.5 * y[:, None]
        yield torch.tensor(x, dtype=torch.float32), torch.tensor(y)


@pytest.mark.parametrize("share", [0.05, 0.4])
def test_the_prior_of_a_stream_is_estimated(share):
    result = run(endless(share), steps=200, eval_every=100)
    assert result.steps == 200
    sigma = (share * (1 - share) / (200 * 32)) ** 0.5
    assert result.loss.prior.p.item() == pytest.approx(share, abs=4 * sigma + 1e-3)
    assert result.auc > 0.95


class Counted:
    """A stream that knows what it has given."""

    def __init__(self, batches, share=0.3):
        self.left, self.source, self.given = batches, endless(share), 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.given == self.left:
            raise StopIteration
        self.given += 1
        return next(self.source)


@pytest.mark.parametrize(
    ("method", "valid", "probe"),
    [("ppd-sg", VALID, 0), ("pga", None, 64), ("adamw", VALID, 0)],
)
def test_training_ends_with_the_stream(method, valid, probe):
    stream = Counted(45)
    result = run(stream, valid, method=method, steps=1000, probe=probe)
    assert stream.given == 45
    assert result.reason == "the data came to an end"
    assert 0 < result.steps <= 45
    assert result.history[-1]["step"] == result.steps
    assert result.steps == 45 if not probe and method != "ppd-sg" else result.steps >= 20


def test_a_stream_that_ends_and_batch_norm():
    layers = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1)
    result = run(Counted(60), model=seeded(nn.Sequential(*layers), 0), steps=1000)
    assert result.reason == "the data came to an end"
    assert result.auc == aucmax.evaluate(result.model, VALID)


def test_a_generator_is_a_stream():
    batches = (batch for batch in itertools.islice(endless(0.3), 25))
    result = run(batches, steps=1000, probe=0, method="oauc")
    assert (result.steps, result.reason) == (25, "the data came to an end")


def test_an_iterable_dataset_in_a_loader():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(zip(X, Y, strict=True))

    result = run(DataLoader(Stream(), batch_size=50))
    assert_same_weights(result.model, run(DataLoader(TensorDataset(X, Y), batch_size=50)).model)


def test_a_loader_without_positives_raises():
    class Bounded:
        given = 0

        def __iter__(self):
            for _ in range(50):
                self.given += 1
                assert self.given < 20_000, "it searches for ever"
                yield X[:32], torch.zeros(32)

    with pytest.raises(ValueError, match=r"both classes|0 positives|0\.0"):
        run(Bounded(), None, model=linear())


# ---- Validation data ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "valid",
    [
        (VALID[0].numpy(), VALID[1].numpy()),
        TensorDataset(*VALID),
        Rows(*VALID),
        DataLoader(TensorDataset(*VALID), batch_size=33),
        DataLoader(TensorDataset(*VALID), batch_size=400, shuffle=True),
        list(zip(VALID[0].split(70), VALID[1].split(70), strict=True)),
    ],
    ids=["arrays", "TensorDataset", "Dataset", "DataLoader", "shuffled", "list"],
)
def test_validation_data_of_every_kind(valid, of_tensors):
    """fit evaluates as evaluate does, also on shuffled batches."""
    assert aucmax.evaluate(of_tensors.model, valid) == of_tensors.auc
    if isinstance(valid, DataLoader) and valid.batch_size == 400:
        assert_same_run(run((X, Y), valid), of_tensors)


# ---- Weights -----------------------------------------------------------------------------------


def weighted_data(seed=0):
    x, y = binary(60, seed=seed)
    times = torch.tensor(np.random.default_rng(seed).integers(1, 4, size=60))
    return (x, y, times), (x.repeat_interleave(times, 0), y.repeat_interleave(times))


@pytest.mark.parametrize("method", ["ppd-sg", "ppd-adagrad", "pga", "oauc", "sgd"])
def test_integer_weights_equal_repeated_rows(method):
    """Where every batch is the whole data, the two are the same mathematics."""
    weighted, repeated = weighted_data()
    options = {"method": method, "steps": 20, "eval_every": 10, "probe": 0}
    first = fit(hidden().double(), weighted, batch_size=60, **options)
    second = fit(hidden().double(), repeated, batch_size=len(repeated[1]), **options)
    if method != "sgd":
        assert first.loss.prior == pytest.approx(second.loss.prior, rel=1e-12)
    torch.testing.assert_close(
        first.model.state_dict(), second.model.state_dict(), rtol=1e-6, atol=1e-7
    )


def test_weights_count_in_the_validation_auc():
    weighted, repeated = weighted_data(seed=1)
    result = run((X, Y), weighted)
    scores = scores_of(result.model, weighted[0])
    expected = roc_auc_score(weighted[1], scores, sample_weight=weighted[2])
    assert result.auc == pytest.approx(expected, rel=1e-12)
    assert aucmax.evaluate(result.model, repeated) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_weights_count_in_the_validation_auc_of_every_task(task):
    x, y = multiclass(60, shift=1.0) if task == "multiclass" else multilabel(60, shift=1.0)
    times = torch.arange(60) % 3 + 1
    model = linear(3, 3).eval()
    repeated = x.repeat_interleave(times, 0), y.repeat_interleave(times, 0)
    expected = aucmax.evaluate(model, repeated)
    assert aucmax.evaluate(model, (x, y, times)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("positives", [None, 0.5])
def test_weights_of_a_dataset_equal_those_of_arrays(positives):
    (x, y, times), _ = weighted_data()
    expected = run((x, y, times), positives=positives, loss=aucmax.AUCLoss())
    rows = Rows(x, y, times.double(), targets=y)
    assert_same_run(run(rows, positives=positives, loss=aucmax.AUCLoss()), expected)
    share = run(rows, positives=positives).loss.prior  # nobody knows the weights ahead
    assert isinstance(share, aucmax.StreamingPrior)
    assert share.p.item() == pytest.approx(expected.loss.prior.p.item(), abs=0.05)


# ---- Tasks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["ppd-sg", "adamw"])
def test_several_classes_are_learned(method):
    train, (x, y) = multiclass(), multiclass(seed=1)
    result = fit(linear(3, 3), train, (x, y), method=method, steps=120, eval_every=60, lr=1.0)
    assert result.auc > 0.97
    shares = softmax(scores_of(result.model, x).astype(float), axis=1)
    expected = roc_auc_score(y, shares, multi_class="ovo", average="macro")
    assert result.auc == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("method", ["ppd-adagrad", "sgd"])
def test_several_labels_are_learned_though_some_are_missing(method):
    train, (x, y) = multilabel(missing=0.2), multilabel(seed=1, missing=0.2)
    result = fit(linear(3, 3), train, (x, y), method=method, steps=120, eval_every=60, lr=1.0)
    assert result.auc > 0.95
    scores, known = scores_of(result.model, x), ~y.isnan().numpy()
    each = [roc_auc_score(y[k, j], scores[k, j]) for j, k in enumerate(known.T)]
    assert result.auc == pytest.approx(np.mean(each), rel=1e-12)


@pytest.mark.parametrize(
    ("labels", "outputs", "loss"),
    [
        (torch.tensor([0.0, 1.0] * 3), 1, aucmax.AUCLoss),
        (torch.tensor([0, 1, 2] * 2), 3, aucmax.MulticlassAUCLoss),
        (torch.tensor([[0, 1], [1, 0], [0, 0]] * 2), 2, aucmax.MultilabelAUCLoss),
    ],
)
def test_the_loss_follows_the_task(labels, outputs, loss):
    assert type(fit(linear(2, outputs), (X[:6, :2], labels), steps=1).loss) is loss


def test_priors_of_classes_and_labels_are_their_shares():
    x, y = multiclass(90)
    counts = fit(linear(3, 3), (x[:80], y[:80]), steps=1).loss.priors
    assert counts.tolist() == pytest.approx((y[:80].bincount() / 80).tolist())
    x, y = multilabel(missing=0.2)
    expected = [column[~column.isnan()].mean().item() for column in y.T]
    assert fit(linear(3, 3), (x, y), steps=1).loss.priors.tolist() == pytest.approx(expected)


def test_a_loader_of_several_classes_needs_their_labels():
    x, y = multiclass()
    loader = DataLoader(TensorDataset(x, y), batch_size=64)
    with pytest.raises(ValueError, match="labels must be given for a multiclass task"):
        fit(linear(3, 3), loader, task="multiclass")
    result = fit(
        linear(3, 3), loader, (x, y), task="multiclass", labels=y, steps=100, eval_every=50, lr=1.0
    )
    assert result.auc > 0.95


def test_batches_of_text_raise():
    x, y = binary(8)
    stream = [(x, y, None, ["ward 1"] * 8)]
    with pytest.raises(ValueError, match="the groups of batches must hold numbers, found dtype"):
        run(stream, objective="pairwise", valid=None)


# ---- Samplers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.25, 0.01])
def test_fit_passes_the_share_of_the_batches_to_the_loss(share):
    options = {"steps": 2, "batch_size": 64}
    expected = aucmax.BatchSampler(Y, 64, positives=share).prior
    for parts in (1, 4):
        result = fit(linear(), (X, Y), positives=share, accumulate=parts, **options)
        assert result.loss.prior == expected
    assert fit(linear(), (X, Y), **options).loss.prior == Y.float().mean()


@pytest.mark.parametrize("grouped", [False, True])
def test_parts_of_a_batch_hold_its_rows(grouped):
    labels = torch.arange(32) % 3 == 0
    group = torch.arange(32) // 8 if grouped else None
    sampler = aucmax.BatchSampler(labels, 16, group=group)
    arrays = Batch(torch.arange(32.0)[:, None], labels)
    source = ArraySource(arrays, sampler, FORM, parts=2)
    for k in range(4):
        parts = [source.load(source.draw()) for _ in range(2)]
        rows = torch.cat([part.rows for part in parts])
        assert sorted(rows.tolist()) == sorted(sampler.rows(k).tolist())
        for part in parts:
            assert torch.equal(part.x[:, 0].long(), part.rows)
            assert torch.equal(part.y, labels[part.rows].float())


@pytest.mark.parametrize("endless", [False, True])
def test_a_loader_with_a_batch_sampler_resumes_in_any_epoch(endless):
    def source():
        sampler = aucmax.BatchSampler(Y, 60, seed=1, endless=endless)
        return IterableSource(DataLoader(TensorDataset(X, Y), batch_sampler=sampler), FORM)

    whole, resumed = source(), source()
    batches = [whole.draw()[0] for _ in range(24)]  # 7 an epoch
    sampler = aucmax.BatchSampler(Y, 60, seed=1)
    assert all(torch.equal(x, X[sampler.rows(k)]) for k, x in enumerate(batches))
    assert whole.position(2) == ("batch 21 of round 0" if endless else "batch 0 of round 3")
    other = source()
    for _ in range(17):
        other.draw()
    resumed.load_state_dict(other.state_dict())
    for x in batches[17:]:
        assert torch.equal(resumed.draw()[0], x)
