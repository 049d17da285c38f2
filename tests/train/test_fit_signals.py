"""Ctrl-C, SIGTERM and dying workers: one line or one error, nothing lost, nothing hangs."""

import os
import random
import select
import signal
from pathlib import Path

import pytest
from fit_helpers import (
    assert_same_run,
    configure,
    finished,
    outcome_of,
    records,
    saving,
    start_slowly,
    steps_saved,
)

from aucmax import checkpoint

pytestmark = pytest.mark.xdist_group("trainer")
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
IN_WORKERS = ["ppd-sg, Dataset, 2 workers", "adamw, DataLoader with a generator, 2 workers"]
FAR_AWAY = 10**6
LONGEST_WAIT = 30
DEADLY_ROW = 77


@pytest.fixture(scope="module")
def undisturbed(trainer, tmp_path_factory):
    """What a case ends with if nobody disturbs it; each is run but once."""
    folder, known = tmp_path_factory.mktemp("undisturbed"), {}

    def outcome(name, **options):
        key = name, *options.items()
        if key not in known:
            known[key] = finished(trainer, name, folder / str(len(known)), **options)
        return known[key]

    return outcome


def wait_a_little(trainee, out, rng):
    """Until a record more has been written, and somewhere into what follows."""
    seen = records(out)
    trainee.wait_until(lambda: records(out) > seen)
    trainee.is_over(rng.uniform(0, 0.1))


def assert_says_how_to_go_on(outcome, number, out):
    """The exit code, one line that names the folder, and the step it names has been saved."""
    assert outcome.code == CODES[number], outcome.said
    (line,) = outcome.said.splitlines()
    assert str(out) in line
    step = int(steps_saved(out)[-1].removeprefix("step-"))
    assert f" {step}" in line


# ---- One process -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ppd-sg, arrays", "oauc, stream", *IN_WORKERS])
def test_a_signal_saves_and_the_same_call_goes_on(trainer, undisturbed, tmp_path, name):
    """Nothing else saves here: each checkpoint is the one that the signal asked for."""
    rng, out = random.Random(name), tmp_path / "run"
    expected = undisturbed(name, save_every=FAR_AWAY)
    config = configure(name, out, save_every=FAR_AWAY)
    for number in CODES:
        before = steps_saved(out)
        trainee = start_slowly(trainer, config, out, rng)
        wait_a_little(trainee, out, rng)
        trainee.send(number)
        assert_says_how_to_go_on(trainee.wait(), number, out)
        assert steps_saved(out) != before
    assert_same_run(finished(trainer, name, out, save_every=FAR_AWAY), expected)


@pytest.mark.parametrize("number", CODES)
def test_a_signal_in_the_midst_of_a_save_waits_for_it(trainer, undisturbed, tmp_path, number):
    name, out, rng = "adamw, arrays", tmp_path / "run", random.Random(number)
    expected = undisturbed(name)
    trainee = start_slowly(trainer, configure(name, out), out, rng, flush=0.02)
    trainee.wait_until(lambda: records(out) >= 3)
    trainee.wait_until(lambda: saving(out))
    trainee.send(number)
    assert_says_how_to_go_on(trainee.wait(), number, out)
    assert not saving(out)
    assert_same_run(finished(trainer, name, out), expected)


def test_the_line_stands_out_from_the_progress(trainer, tmp_path):
    out, rng = tmp_path / "run", random.Random(0)
    trainee = start_slowly(trainer, configure("adamw, arrays", out, progress=True), out, rng)
    wait_a_little(trainee, out, rng)
    trainee.send(signal.SIGINT)
    outcome = trainee.wait()
    assert outcome.code == CODES[signal.SIGINT]
    assert "Traceback" not in outcome.said
    assert [str(out) in line for line in outcome.said.splitlines()].count(True) == 1
    assert str(out) in outcome.said.splitlines()[-1]


@pytest.mark.parametrize("number", CODES)
def test_without_a_folder_it_says_that_nothing_was_saved(trainer, tmp_path, number):
    config = configure("ppd-sg, arrays", None)
    trainee = start_slowly(trainer, config, tmp_path / "none", random.Random(0))
    trainee.send(number)
    outcome = trainee.wait()
    assert outcome.code == CODES[number]
    (line,) = outcome.said.splitlines()
    assert "nothing was saved" in line
    assert "out=" in line


# ---- A sweep ---------------------------------------------------------------------------------


def test_a_signal_stops_all_runs_and_the_same_sweep_goes_on(trainer, undisturbed, tmp_path):
    names = ["adamw, arrays", "ppd-sg, arrays", "pga, Dataset"]
    outs = [tmp_path / str(i) for i in range(len(names))]
    configs = [configure(x, out, save_every=FAR_AWAY) for x, out in zip(names, outs, strict=True)]
    many = {"configs": configs, "at_once": 3}
    trainee = trainer.start(many, pace={"pause": 0.004})
    trainee.wait_until(lambda: all(records(out) >= 2 for out in outs))
    trainee.send(signal.SIGTERM)
    outcome = trainee.wait()
    assert outcome.code == CODES[signal.SIGTERM], outcome.said
    (line,) = outcome.said.splitlines()
    assert line == (
        "aucmax: stopped by SIGTERM with 0 runs done and 3 under way; the same call goes on"
    )
    assert all(len(steps_saved(out)) == 1 for out in outs)
    assert not any((out / "model.json").exists() for out in outs)
    assert trainer.run(many) == (0, "")
    for name, out in zip(names, outs, strict=True):
        assert_same_run(outcome_of(out), undisturbed(name, save_every=FAR_AWAY))


# ---- Workers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", IN_WORKERS)
def test_ctrl_c_in_a_terminal_reaches_the_workers_too(trainer, undisturbed, tmp_path, name):
    rng, out = random.Random(name), tmp_path / "run"
    expected = undisturbed(name)
    for _ in range(3):
        trainee = start_slowly(trainer, configure(name, out), out, rng)
        trainee.is_over(rng.uniform(0, 0.1))
        os.killpg(trainee.pid, signal.SIGINT)
        assert_says_how_to_go_on(trainee.wait(), signal.SIGINT, out)
    assert_same_run(finished(trainer, name, out), expected)


def workers_of(trainee):
    return Path(f"/proc/{trainee.pid}/task/{trainee.pid}/children").read_text().split()


def assert_one_clear_error(outcome):
    assert outcome.code == 1, outcome.said
    tracebacks = outcome.said.split("Traceback")[1:]
    # A worker that lives on may print one of its own when its sibling's connection breaks.
    assert len([text for text in tracebacks if "resource_sharer" not in text]) == 1
    assert "worker" in outcome.said.splitlines()[-1]


def assert_goes_on(trainer, undisturbed, name, out):
    """The checkpoints are whole, and healthy data lead to where they would have led."""
    for step in steps_saved(out):
        checkpoint.load(out / "checkpoints", step)
    assert_same_run(finished(trainer, name, out), undisturbed(name))


@pytest.mark.parametrize(
    ("name", "death"), [(IN_WORKERS[0], "kill"), (IN_WORKERS[0], 0), (IN_WORKERS[1], 1)]
)
def test_a_worker_that_dies_is_an_error(trainer, undisturbed, tmp_path, name, death):
    """However it dies, and whoever notices first: it is a race, so it is run a few times."""
    trouble = {"deadly_row": DEADLY_ROW, "death": death}
    for attempt in range(2):
        out = tmp_path / str(attempt)
        trainee = trainer.start(configure(name, out), trouble=trouble)
        assert_one_clear_error(trainee.wait(LONGEST_WAIT))
    assert_goes_on(trainer, undisturbed, name, out)


@pytest.mark.parametrize("name", IN_WORKERS)
def test_a_worker_that_is_killed_is_an_error(trainer, undisturbed, tmp_path, name):
    """As when the machine runs out of memory."""
    rng = random.Random(name)
    for attempt in range(5):  # a worker whose round is over does no harm when it dies
        out = tmp_path / str(attempt)
        trainee = start_slowly(trainer, configure(name, out), out, rng)
        wait_a_little(trainee, out, rng)
        workers = workers_of(trainee)
        if workers:  # none between two rounds
            os.kill(int(rng.choice(workers)), signal.SIGKILL)
        outcome = trainee.wait(LONGEST_WAIT)
        if outcome.code:
            break
    assert_one_clear_error(outcome)
    assert_goes_on(trainer, undisturbed, name, out)


@pytest.mark.parametrize("part", ["data", "valid"])
def test_workers_that_begin_after_the_death_of_their_run_end_too(trainer, tmp_path, part):
    """Killed the moment that it has forked them, be it for training or for an evaluation."""
    config = {**configure("adamw, arrays", tmp_path / "run"), part: "dataset", "workers": 2}
    trainee = trainer.start(config, late_workers=True)
    trainee.wait_until(lambda: len(workers_of(trainee)) == 2)
    ends = [os.pidfd_open(int(pid)) for pid in workers_of(trainee)]
    trainee.send(signal.SIGKILL)
    assert trainee.wait().code == -signal.SIGKILL
    for end in ends:
        assert select.select([end], [], [], LONGEST_WAIT)[0], "a worker lives on"
        os.close(end)
