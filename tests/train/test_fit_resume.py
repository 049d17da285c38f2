"""Runs that are killed and started again end with the same bits as one that was not."""

import random

import pytest
from fit_helpers import (
    CASES,
    assert_same_run,
    configure,
    finished,
    make_trainer,
    steps_saved,
)

SEEN_IN_OTHERS = ("ppd-sg, Dataset", "adamw, arrays")
KILLED = [name for name in CASES if name not in SEEN_IN_OTHERS]


@pytest.fixture(scope="module")
def another_trainer(tmp_path_factory):
    """Another process: hashes and addresses differ."""
    with make_trainer(tmp_path_factory.mktemp("trainer"), hash_seed=1) as trainer:
        yield trainer


@pytest.mark.parametrize("name", KILLED)
def test_killed_run_ends_with_the_same_bits(trainer, another_trainer, tmp_path, name):
    """Killed while a file is written, then before a batch, whatever the weights it is given."""
    rng, out = random.Random(name), tmp_path / "killed"
    expected = finished(another_trainer, name, tmp_path / "whole")
    batches, flushes = expected["taken"]["batch"], expected["taken"]["flush"]
    moments = {"flush": rng.randrange(1, flushes // 2)}, {"batch": rng.randrange(1, batches // 3)}
    for moment in moments:
        init = 1 if steps_saved(out) else 0  # other weights are overwritten by a checkpoint's
        stop = {**moment, "how": "SIGKILL"}
        end = trainer.run(configure(name, out), init=init, stop=stop)
        assert end.returncode == -9, end.stderr
        assert not (out / "model.json").exists()
    assert_same_run(finished(trainer, name, out), expected)


def test_killed_in_a_save_leaves_a_half_written_file(trainer, tmp_path):
    """The moment before a flush is in the midst of a save."""
    end = trainer.run(configure("adamw, arrays", tmp_path), stop={"flush": 19, "how": "SIGKILL"})
    assert end.returncode == -9
    assert list(tmp_path.rglob("*.tmp"))
    assert steps_saved(tmp_path)


def test_seed_decides_every_bit(trainer, tmp_path):
    first, again, other = (
        finished(trainer, "ppd-sg, arrays", tmp_path / str(k), seed=seed)
        for k, seed in enumerate([3, 3, 4])
    )
    assert_same_run(again, first)
    assert other["model"] != first["model"]


def test_number_of_workers_changes_no_bit(trainer, tmp_path):
    name = "ppd-sg, Dataset"
    alone = finished(trainer, name, tmp_path / "0")
    assert_same_run(finished(trainer, f"{name}, 2 workers", tmp_path / "2"), alone)
