"""Checkpoints: every value comes back, files are whole or not there, modes are the user's."""

import errno
import json
import math
import os
import resource
import stat
from contextlib import contextmanager

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from aucmax import checkpoint, disk, load_weights
from aucmax.checkpoint import DamagedError
from aucmax.version import __version__

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


def round_trip(folder, state):
    checkpoint.save(folder, "state", state)
    return checkpoint.load(folder, "state")


def assert_equal(actual, expected):
    """Equal types, values and bits, all the way down."""
    assert type(actual) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        assert torch.equal(actual.nan_to_num(nan=7), expected.nan_to_num(nan=7))
    elif isinstance(expected, dict):
        assert list(actual) == list(expected)
        for key in expected:
            assert_equal(actual[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            assert_equal(a, e)
    elif isinstance(expected, float):
        assert actual.hex() == expected.hex()
    else:
        assert actual == expected


# ---- Round trips -------------------------------------------------------------------------------


PLAIN = [
    None, True, False, 0, -1, 2**100, 0.1 + 0.2, -0.0, 5e-324, 1.7e308,
    math.inf, -math.inf, math.nan, "", "text", "α\n\"'\\", [], {}, (), (1, [2, (3,)]),
    {"a": {"b": [1, None]}}, {0: "int", "0": "text"}, {"tensor": "a name"}, {"float": 1.0},
    {"dict": {}, "list": [], "tuple": ()}, {"z": 1, "a": 2},
]  # fmt: skip


def test_plain_values_come_back_from_within(tmp_path):
    state = {"in": PLAIN, "by name": {repr(value): value for value in PLAIN}}
    assert_equal(round_trip(tmp_path, state), state)


@pytest.mark.parametrize("value", PLAIN[::3], ids=repr)
def test_a_plain_value_is_a_whole_state(tmp_path, value):
    assert_equal(round_trip(tmp_path, value), value)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_of_every_dtype_and_shape_come_back(tmp_path, dtype):
    generator = torch.Generator().manual_seed(0)
    shapes = [(), (0,), (3,), (2, 0, 3), (2, 3, 4)]
    state = {
        str(shape): (torch.randn(shape, generator=generator) * 3).to(dtype) for shape in shapes
    }
    assert_equal(round_trip(tmp_path, state), state)


def test_tensors_that_are_views_come_back(tmp_path):
    x = torch.arange(24.0).reshape(4, 6)
    views = {"columns": x.T, "slice": x[1:3, ::2], "expanded": x[:1].expand(3, 6), "whole": x}
    found = round_trip(tmp_path, views)
    assert_equal(found, views)
    found["whole"].zero_()
    assert torch.equal(found["slice"], x[1:3, ::2])  # shares no memory


def test_the_numbers_of_tensors_that_are_not_finite_come_back(tmp_path):
    x = torch.tensor([math.nan, math.inf, -math.inf, -0.0])
    found = round_trip(tmp_path, [x])[0]
    assert found.view(torch.int32).tolist() == x.view(torch.int32).tolist()


def test_parameters_come_back_as_tensors(tmp_path):
    p = nn.Parameter(torch.ones(2))
    found = round_trip(tmp_path, {"p": p})["p"]
    assert torch.equal(found, p)
    assert not found.requires_grad


@pytest.mark.parametrize(
    "state",
    [
        {"a": {"b": torch.ones(1)}, "a.b": torch.zeros(1)},
        {1: torch.ones(1), "1": torch.zeros(1)},
        {"x": [torch.ones(1)], "x.0": torch.zeros(1)},
        {"": torch.ones(1), "a": {"": torch.zeros(1)}},
        {"a": torch.ones(1), ".a": torch.zeros(1)},
        [torch.ones(1), {"": torch.zeros(1)}],
    ],
    ids=["dots", "int and text", "list and text", "empty", "leading dot", "list"],
)
def test_tensors_with_confusing_names_are_kept_apart(tmp_path, state):
    assert_equal(round_trip(tmp_path, state), state)


trees = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.integers(0, 9).map(lambda k: torch.full((2,), float(k))),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text("ab.0", max_size=3) | st.integers(0, 2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(state=trees)
def test_any_tree_comes_back(tmp_path_factory, state):
    assert_equal(round_trip(tmp_path_factory.mktemp("tree"), state), state)


def test_the_state_of_a_model_and_its_optimizer_comes_back(tmp_path):
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    state = {"model": dict(model.state_dict()), "optimizer": optimizer.state_dict()}
    assert_equal(round_trip(tmp_path, state), state)


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, b"bytes", 1j, len], ids=lambda x: type(x).__name__
)
def test_what_a_checkpoint_cannot_hold_is_named_and_leaves_no_file(tmp_path, value):
    with pytest.raises(ValueError, match=rf"cannot hold {type(value).__name__} .*here"):
        checkpoint.save(tmp_path, "state", {"here": value})
    assert list(tmp_path.iterdir()) == []


# ---- Files -------------------------------------------------------------------------------------


def test_two_files_that_other_programs_can_read(tmp_path):
    checkpoint.save(tmp_path, "state", {"x": torch.ones(3), "y": 1})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state.json", "state.safetensors"]
    (x,) = safetensors.torch.load_file(tmp_path / "state.safetensors").values()
    assert x.tolist() == [1.0, 1.0, 1.0]
    content = json.loads((tmp_path / "state.json").read_text("utf-8"))
    assert content["sha256"] == disk.sha256(tmp_path / "state.safetensors")


def test_the_json_knows_no_nan(tmp_path):
    checkpoint.save(tmp_path, "state", {"x": math.nan, "y": [math.inf]})
    text = (tmp_path / "state.json").read_text()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_the_same_state_makes_the_same_files(tmp_path):
    state = {"b": torch.arange(5), "a": [1.5, torch.zeros(2)]}
    for name in ("one", "two"):
        checkpoint.save(tmp_path, name, state)
    for suffix in (".json", ".safetensors"):
        assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()


def test_a_checkpoint_is_replaced(tmp_path):
    for k in range(3):
        checkpoint.save(tmp_path, "state", {"k": k, "x": torch.full((2,), float(k))})
    found = checkpoint.load(tmp_path, "state")
    assert (found["k"], found["x"].tolist()) == (2, [2.0, 2.0])
    assert len(list(tmp_path.iterdir())) == 2


def test_removing_one_leaves_the_others(tmp_path):
    for name in ("state", "state-2"):
        checkpoint.save(tmp_path, name, {"name": name})
    checkpoint.remove(tmp_path, "state")
    checkpoint.remove(tmp_path, "state")  # what is gone is gone
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state-2.json", "state-2.safetensors"]


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_the_umask_decides_who_may_read(tmp_path, mask):
    before = os.umask(mask)
    try:
        checkpoint.save(tmp_path, "state", {"x": torch.ones(2)})
        checkpoint.save_weights(tmp_path, "model", nn.Linear(1, 1), {})
        disk.write_json(tmp_path / "config.json", {})
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    assert modes == {0o666 & ~mask}


# ---- In one piece ------------------------------------------------------------------------------


class Failing:
    """A function of os that fails once, at a call of its own."""

    def __init__(self, real, number):
        self.real, self.number, self.calls = real, number, 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        if self.calls == self.number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.real(*args, **kwargs)


@contextmanager
def files_of_at_most(size):
    """The system refuses to write more into any file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def assert_nothing_new(folder, old):
    assert_equal(checkpoint.load(folder, "old"), old)
    assert not list(folder.glob("*.tmp"))
    with pytest.raises(DamagedError, match=r"new\.json is missing"):
        checkpoint.load(folder, "new")


@pytest.mark.parametrize(
    ("name", "number"), [("fsync", 1), ("replace", 1), ("fsync", 3), ("replace", 2)]
)
def test_a_full_disk_leaves_what_was_there_before(tmp_path, monkeypatch, name, number):
    old = {"k": 1, "x": torch.ones(3)}
    checkpoint.save(tmp_path, "old", old)
    with monkeypatch.context() as patch:
        patch.setattr(os, name, Failing(getattr(os, name), number))
        with pytest.raises(OSError, match="could not write it: No space left") as caught:
            checkpoint.save(tmp_path, "new", {"x": torch.zeros(3)})
    assert caught.value.errno == errno.ENOSPC
    assert str(tmp_path / "new") in str(caught.value)
    assert_nothing_new(tmp_path, old)


@pytest.mark.parametrize(
    "state", [{"x": torch.zeros(10**5)}, {"x": "long" * 10**5}], ids=["x", "y"]
)
def test_a_write_that_fails_halfway_leaves_what_was_there_before(tmp_path, state):
    old = {"k": 1, "x": torch.ones(3)}
    checkpoint.save(tmp_path, "old", old)
    with files_of_at_most(10_000), pytest.raises(OSError, match="could not write it") as caught:
        checkpoint.save(tmp_path, "new", state)
    assert caught.value.errno == errno.EFBIG
    assert str(tmp_path / "new") in str(caught.value)
    assert_nothing_new(tmp_path, old)


def test_the_file_that_counts_comes_last(tmp_path, monkeypatch):
    order = []
    real = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: order.append(b.name) or real(a, b))
    checkpoint.save(tmp_path, "state", {"x": torch.ones(1)})
    assert order == ["state.safetensors", "state.json"]


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        checkpoint.save(tmp_path / "nowhere", "state", {})


# ---- Weights -----------------------------------------------------------------------------------


def model():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))


def test_weights_have_the_models_own_names(tmp_path):
    own = model()
    checkpoint.save_weights(tmp_path, "model", own, {"step": 7})
    stored = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert stored.keys() == own.state_dict().keys()
    other = model()
    assert load_weights(other, tmp_path)["step"] == 7
    assert load_weights(other, str(tmp_path))["step"] == 7
    for name, value in own.state_dict().items():
        assert torch.equal(other.state_dict()[name], value)


def test_tied_weights(tmp_path):
    def tied():
        layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        layers[1].weight = layers[0].weight
        return layers

    own, other = tied(), tied()
    checkpoint.save_weights(tmp_path, "model", own, {})
    load_weights(other, tmp_path)
    assert torch.equal(other[0].weight, own[0].weight)
    assert other[1].weight is other[0].weight


def test_weights_of_another_model_are_refused(tmp_path):
    checkpoint.save_weights(tmp_path, "model", model(), {})
    other = nn.Linear(3, 1)
    before = other.weight.detach().clone()
    with pytest.raises(ValueError, match=r"model\.safetensors must fit the model"):
        load_weights(other, tmp_path)
    assert torch.equal(other.weight, before)


def test_a_folder_without_a_result(tmp_path):
    with pytest.raises(ValueError, match=r"finished run, found no model\.json"):
        load_weights(model(), tmp_path)


# ---- Versions ----------------------------------------------------------------------------------


def test_what_a_newer_version_wrote_is_read_with_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "__version__", "99.1.0")
    checkpoint.save(tmp_path, "state", {"step": 7})
    checkpoint.save_weights(tmp_path, "model", model(), {"step": 7})
    monkeypatch.undo()
    line = rf"{tmp_path} was written by aucmax 99\.1\.0, .*{__version__}.*pip install --upgrade"
    with pytest.warns(UserWarning, match=line):
        assert checkpoint.load(tmp_path, "state") == {"step": 7}
    with pytest.warns(UserWarning, match=line):
        assert load_weights(model(), tmp_path)["step"] == 7


def test_the_version_that_wrote_it_is_named_and_needs_no_warning(tmp_path):
    checkpoint.save(tmp_path, "state", {})
    assert json.loads((tmp_path / "state.json").read_text())["aucmax"] == __version__
    checkpoint.load(tmp_path, "state")
