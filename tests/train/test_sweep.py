"""Runs that take turns end as each would alone, whatever happens to the others."""

import itertools
import random

import fit_child
import numpy as np
import pytest
import torch
from fit_data import assert_same_weights, binary, linear, one_thread, with_dropout  # noqa: F401
from fit_helpers import steps_saved, timeless
from torch.utils.data import DataLoader, TensorDataset

import aucmax
from aucmax.train import _sweep
from aucmax.train._step import Step
from aucmax.train._turns import SharedArrays, TurnTaker

CASES = [
    "ppd-sg, arrays",
    "adagrad, partial, DataLoader",
    "pga after pretraining, stream",
    "oauc, stream",
    "ppd-adagrad, plateau",
    "adamw, arrays",
]


@pytest.fixture
def in_turn(monkeypatch):
    """Three runs at a time, on the CPU too."""
    monkeypatch.setattr(_sweep, "MOST_ON_CPU", 3)


def arguments(name, **more):
    return {**fit_child.arguments(**fit_child.CASES[name]), **more}


def config(**more):
    """A short run on easy data."""
    return {"model": linear(), "train": binary(), "steps": 20, "batch_size": 32, **more}


def sweep(configs, **options):
    return aucmax.sweep(configs, **{"progress": False, **options})


def assert_same_result(actual, expected):
    assert_same_weights(actual.model, expected.model)
    assert_same_weights(actual.loss, expected.loss)
    assert repr(timeless(actual.history)) == repr(timeless(expected.history))
    kept = ("step", "iterate", "steps", "reason", "out")
    assert [getattr(actual, x) for x in kept] == [getattr(expected, x) for x in kept]


def callers_numbers():
    return random.random(), np.random.rand(), torch.rand(()).item()  # noqa: NPY002


# ---- Results -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("at_once", "names"), [(1, CASES[:1]), (3, CASES)])
def test_each_run_ends_with_the_bits_of_fit_alone(in_turn, at_once, names):
    """With dropout, batch norm, noise on the inputs, and every kind of random number."""
    turns = []

    def noted(number):
        def augment(x):
            turns.append(number)
            return fit_child.augment(x)

        return augment

    configs = [arguments(name, augment=noted(i), seed=i) for i, name in enumerate(names)]
    torch.manual_seed(7), random.seed(7), np.random.seed(7)  # noqa: NPY002
    results = sweep(configs, at_once=at_once)
    changes = sum(a != b for a, b in itertools.pairwise(turns))
    assert (changes > 30) == (at_once > 1)
    after = callers_numbers()
    torch.manual_seed(7), random.seed(7), np.random.seed(7)  # noqa: NPY002
    assert callers_numbers() == after
    for i, (name, result) in enumerate(zip(names, results, strict=True)):
        alone = aucmax.fit(**arguments(name, augment=fit_child.augment, seed=i), progress=False)
        assert_same_result(result, alone)


def test_a_run_that_diverges_leaves_its_error_and_the_others_go_on(in_turn):
    x, y = binary()
    bad = torch.full_like(x, torch.nan)
    configs = [config(model=with_dropout()), config(train=(bad, y)), config(), config()]
    good, error, *others = sweep(configs)
    assert isinstance(error, aucmax.DivergedError)
    assert "training diverged" in str(error)
    assert error.__traceback__ is error.__context__ is None  # they would hold model and data
    assert [result.steps for result in (good, *others)] == [20] * 3
    assert_same_result(good, aucmax.fit(**config(model=with_dropout()), progress=False))


def test_models_are_made_when_their_run_begins_with_its_seed(in_turn):
    events = []

    def maker(number):
        def make():
            events.append(f"made {number}")
            return torch.nn.Linear(4, 1)

        return make

    def ended(number, _):
        events.append(f"ended {number}")

    configs = [config(model=maker(i), seed=i, steps=steps) for i, steps in enumerate((15, 9, 9, 9))]
    results = sweep(configs, at_once=2, on_end=ended)
    assert events == [
        "made 0", "made 1", "ended 1", "made 2", "ended 0", "made 3", "ended 2", "ended 3",
    ]  # fmt: skip
    torch.manual_seed(1)
    alone = aucmax.fit(**config(model=torch.nn.Linear(4, 1), seed=1, steps=9), progress=False)
    assert_same_result(results[1], alone)


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_config_may_depend_on_the_outcomes_so_far(in_turn, at_once):
    known, asked = {}, []

    def configs():
        for number in range(5):
            asked.append(sorted(known))
            yield config(lr=0.1 / (1 + len(known)), valid=binary(seed=1), seed=number)

    results = sweep(configs(), at_once=at_once, on_end=known.__setitem__)
    assert results == [known[number] for number in range(5)]
    assert [len(seen) for seen in asked] == [max(0, n + 1 - at_once) for n in range(5)]


def test_configs_may_wait_for_outcomes(in_turn):
    known, waited = {}, []

    def configs():
        yield from (config(seed=0), config(seed=1))
        while len(known) < 2:
            waited.append(len(known))
            yield None
        yield config(seed=2)

    assert len(sweep(configs(), on_end=known.__setitem__)) == 3
    assert waited == [0, 1]  # it is asked again when a run has ended, not at every turn
    with pytest.raises(ValueError, match="configs must give one when no run is under way"):
        sweep([None])


def test_arrays_that_runs_share_are_put_on_the_device_once():
    shelf, data = SharedArrays(torch.device("meta")), binary()
    first = shelf.put("train", data)
    assert first.there[0].is_meta
    assert shelf.put("valid", data) is first
    assert shelf.put("train", (data[0], data[1])) is first
    assert shelf.put("train", (data[0].clone(), data[1])) is not first
    del first
    assert not shelf._copies


# ---- Errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("step", {"step": 3}),
        ("steps", {"steps": 0}),
        ("device", {"device": "cpu"}),
        ("model", {"model": 3}),
        ("train", {"train": (torch.zeros(4, 2), torch.zeros(4))}),
    ],
)
def test_an_error_names_its_config(name, wrong):
    with pytest.raises(ValueError, match=rf"\b{name}\b") as caught:
        sweep([config(), {**config(), **wrong}])
    assert caught.value.__notes__ == ["in config 1 of the sweep"]


@pytest.mark.parametrize(
    ("name", "configs", "at_once"),
    [("configs", config(), 1), ("configs", 3, 1), ("configs", [3], 1), ("at_once", [config()], 0)],
)
def test_what_is_no_sweep(name, configs, at_once):
    with pytest.raises(ValueError, match=f"^{name} must"):
        sweep(configs, at_once=at_once)


def test_what_only_one_run_can_have(tmp_path):
    stream, model = iter([binary(32)] * 9), linear()
    rows = TensorDataset(*binary())
    loader = DataLoader(rows, 32, num_workers=1, persistent_workers=True)
    taken = [("model", model), ("train", stream), ("train", loader), ("out", tmp_path / "a")]
    for name, value in taken:
        with pytest.raises(ValueError, match=f"{name} must belong to one config, .* config 0"):
            sweep([{**config(steps=1), name: value} for _ in range(2)])


def test_processes_that_train_together_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="sweep must run in one process, found 2"):
        sweep([config()])


class BrokenError(Exception):
    """Somewhere in a run."""


def test_an_error_ends_the_sweep_but_loses_nothing(in_turn, tmp_path):
    """The others have saved, and the same call goes on without the mistake."""
    calls = []

    def breaks(x):
        calls.append(1)
        if len(calls) == 15:
            raise BrokenError
        return x

    def configs(augment):
        names = ("adamw, arrays", "ppd-sg, arrays")
        saved = [arguments(x, out=tmp_path / x, save_every=10**6) for x in names]
        return [*saved, config(augment=augment, eval_every=4)]

    with pytest.raises(BrokenError) as caught:
        sweep(configs(breaks))
    assert caught.value.__notes__ == ["in config 2 of the sweep"]
    for path in tmp_path.iterdir():
        assert steps_saved(path) not in ([], ["step-0000000048"])
    results = sweep(configs(None))
    for name, result in zip(("adamw, arrays", "ppd-sg, arrays"), results, strict=False):
        alone = aucmax.fit(**arguments(name, out=tmp_path / f"{name}, alone"), progress=False)
        assert_same_weights(result.model, alone.model)


def test_what_is_shown(capfd):
    x, y = binary()
    bad = (torch.full_like(x, torch.nan), y)
    sweep([config(valid=binary(seed=1)), config(train=bad)], progress=True)
    first, second = capfd.readouterr().err.splitlines()
    assert first.startswith("   1/2  config 0: 20 steps, validation AUC 0.")
    assert first.endswith("steps/s in all")
    assert second.startswith("   2/2  config 1: training diverged")
    sweep([config()], progress=False)
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("in_turn")
def test_runs_that_replay_take_short_turns_without_their_random_numbers(monkeypatch):
    """As captured steps do on a GPU; here a property says that plain ones do too."""
    monkeypatch.setattr(Step, "is_replaying", True)
    turns, advance = [], TurnTaker.advance
    monkeypatch.setattr(TurnTaker, "advance", lambda run: turns.append(run.number) or advance(run))
    seeds = range(3)
    results = sweep([config(seed=seed, eval_every=20) for seed in seeds], at_once=3)
    assert turns[:12] == [0, 1, 2] * 4  # each begins, then takes 8, 16 and all of 20 steps
    for seed, result in zip(seeds, results, strict=True):
        alone = aucmax.fit(**config(seed=seed, eval_every=20), progress=False)
        assert_same_result(result, alone)


def test_a_wrong_config_at_the_end_is_found_before_the_first_run():
    ran = []
    with pytest.raises(ValueError, match="lr") as error:
        sweep([config(), config(lr=-1.0)], on_end=lambda number, _: ran.append(number))
    assert error.value.__notes__ == ["in config 1 of the sweep"]
    assert ran == []
