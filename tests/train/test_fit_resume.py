"""Runs that are killed anywhere and started again end with the same bits as one that was not."""

import random

import pytest
from fit_helpers import (
    CASES,
    Trainer,
    assert_same_run,
    configure,
    finished,
    kill_at_random,
)

pytestmark = pytest.mark.xdist_group("trainer")
KILLS_PER_CASE, FEWEST_KILLS, FEWEST_IN_A_SAVE = 1, 12, 2  # make soak kills for minutes


@pytest.fixture(scope="module")
def another_trainer(tmp_path_factory):
    """Another process: hashes and addresses differ."""
    with Trainer(tmp_path_factory.mktemp("trainer")) as trainer:
        yield trainer


def kill_and_go_on(trainer, name, folder, rng, length):
    """Kill a run as often as wanted, in new folders if it gets away; the last one is finished."""
    kills = []
    for attempt in range(5):
        out = folder / str(attempt)
        landed = True
        while landed and sum(kill.landed for kill in kills) < KILLS_PER_CASE:
            kills.append(kill_at_random(trainer, configure(name, out), out, rng, length))
            landed = kills[-1].landed
        if landed:
            break
    return kills, finished(trainer, name, out)


def test_killed_runs_end_with_the_same_bits(trainer, another_trainer, tmp_path):
    rng, kills = random.Random(0), []
    for name in CASES:
        expected = finished(another_trainer, name, tmp_path / name / "whole")
        length = len(expected["history"])
        found, actual = kill_and_go_on(trainer, name, tmp_path / name, rng, length)
        assert_same_run(actual, expected)
        kills += found
    assert sum(kill.landed for kill in kills) >= FEWEST_KILLS
    assert sum(kill.in_a_save for kill in kills) >= FEWEST_IN_A_SAVE


@pytest.mark.parametrize(
    "name", ["ppd-sg, arrays", "adamw, DataLoader with a generator, 2 workers"]
)
def test_a_seed_decides_every_bit(trainer, tmp_path, name):
    first, again, other = (
        finished(trainer, name, tmp_path / str(k), seed=seed) for k, seed in enumerate([3, 3, 4])
    )
    assert_same_run(again, first)
    assert other["model"] != first["model"]


def test_the_number_of_workers_changes_no_bit(trainer, tmp_path):
    name = "ppd-sg, Dataset"
    alone = finished(trainer, name, tmp_path / "0")
    assert_same_run(finished(trainer, f"{name}, 2 workers", tmp_path / "2"), alone)
