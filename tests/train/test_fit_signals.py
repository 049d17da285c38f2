"""Ctrl-C, SIGTERM and workers that die: one line or one error, nothing lost, nothing hangs."""

import os
import select
import signal
from pathlib import Path

import pytest
from fit_helpers import assert_same_run, configure, finished, outcome_of, steps_saved
from process import LIMIT

from aucmax import checkpoint

CODES = {"SIGINT": 130, "SIGTERM": 143}
DATASET, LOADER = "ppd-sg, Dataset, 2 workers", "adamw, DataLoader with a generator, 2 workers"
NEVER = {"save_every": 10**6}
DEADLY_ROW = 77


@pytest.fixture(scope="module")
def undisturbed(trainer, tmp_path_factory):
    """What a case ends with if nobody disturbs it; each is run only once."""
    folder, known = tmp_path_factory.mktemp("undisturbed"), {}

    def outcome(name):
        if name not in known:
            known[name] = finished(trainer, name, folder / str(len(known)))
        return known[name]

    return outcome


def assert_stopped(end, code, out):
    """The exit code, and one line that names the folder and the step that was saved."""
    assert end.returncode == code, end.stderr
    (line,) = end.stderr.splitlines()
    assert str(out) in line
    step = int(steps_saved(out)[-1].removeprefix("step-"))
    assert f" {step}" in line


def assert_same_but_checkpoints(actual, expected):
    """How often a run is saved is part of its state, but changes nothing else."""
    names = ("model", "notes", "best", "history")
    assert_same_run({x: actual[x] for x in names}, {x: expected[x] for x in names})


@pytest.mark.parametrize("name", ["oauc, stream", DATASET])
def test_signal_saves_and_the_same_call_resumes(trainer, undisturbed, tmp_path, name):
    """Nothing else saves here: each checkpoint is the one that the signal asked for."""
    config, before = configure(name, tmp_path, **NEVER), []
    for how, batch in (("SIGINT", 15), ("SIGTERM", 25)):
        end = trainer.run(config, init=len(before), stop={"batch": batch, "how": how})
        assert_stopped(end, CODES[how], tmp_path)
        assert steps_saved(tmp_path) != before
        before = steps_saved(tmp_path)
    assert_same_but_checkpoints(finished(trainer, name, tmp_path, **NEVER), undisturbed(name))


@pytest.mark.parametrize("how", CODES)
def test_signal_in_a_save_waits_for_its_end(trainer, undisturbed, tmp_path, how):
    name = "adamw, arrays"
    end = trainer.run(configure(name, tmp_path), stop={"flush": 19, "how": how})
    assert_stopped(end, CODES[how], tmp_path)
    assert not list(tmp_path.rglob("*.tmp"))
    assert_same_run(finished(trainer, name, tmp_path), undisturbed(name))


def test_line_of_a_signal_comes_after_the_progress(trainer, tmp_path):
    config = configure("adamw, arrays", tmp_path, progress=True)
    end = trainer.run(config, stop={"batch": 30, "how": "SIGINT"})
    assert end.returncode == CODES["SIGINT"]
    assert "Traceback" not in end.stderr
    *lines, last = end.stderr.splitlines()
    assert str(tmp_path) in last
    assert lines
    assert not any(str(tmp_path) in line for line in lines)


def test_signal_without_a_folder_says_that_nothing_was_saved(trainer):
    end = trainer.run(configure("ppd-sg, arrays"), stop={"batch": 20, "how": "SIGTERM"})
    assert end.returncode == CODES["SIGTERM"]
    (line,) = end.stderr.splitlines()
    assert "nothing was saved" in line
    assert "out=" in line


def test_signal_stops_a_sweep_and_the_same_sweep_resumes(trainer, undisturbed, tmp_path):
    names = ["adamw, arrays", "ppd-sg, arrays", "pga after pretraining, stream"]
    outs = [tmp_path / str(i) for i in range(len(names))]
    sweep = {"configs": [configure(x, out, **NEVER) for x, out in zip(names, outs, strict=True)]}
    end = trainer.run(sweep, stop={"batch": 90, "how": "SIGTERM"})
    assert end.returncode == CODES["SIGTERM"], end.stderr
    (line,) = end.stderr.splitlines()
    assert "0 runs done and 3 under way" in line
    assert all(len(steps_saved(out)) == 1 for out in outs)
    assert not any((out / "model.json").exists() for out in outs)
    end = trainer.run(sweep)
    assert (end.returncode, end.stderr) == (0, "")
    for name, out in zip(names, outs, strict=True):
        assert_same_but_checkpoints(outcome_of(out), undisturbed(name))


# ---- Workers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [DATASET, LOADER])
def test_ctrl_c_in_a_terminal_reaches_the_workers_too(trainer, undisturbed, tmp_path, name):
    for batch in (9, 22):
        end = trainer.run(configure(name, tmp_path), stop={"batch": batch, "how": "SIGINT for all"})
        assert_stopped(end, CODES["SIGINT"], tmp_path)
    assert_same_run(finished(trainer, name, tmp_path), undisturbed(name))


def assert_one_clear_error(end):
    assert end.returncode == 1, end.stderr
    tracebacks = end.stderr.split("Traceback")[1:]
    # A worker that lives on may print one of its own when its sibling's connection breaks.
    assert len([text for text in tracebacks if "resource_sharer" not in text]) == 1
    assert "worker" in end.stderr.splitlines()[-1]


def assert_resumes(trainer, undisturbed, name, out):
    """The checkpoints are whole, and healthy data lead to where they would have led."""
    for step in steps_saved(out):
        checkpoint.load(out / "checkpoints", step)
    assert_same_run(finished(trainer, name, out), undisturbed(name))


@pytest.mark.parametrize(("name", "death"), [(DATASET, "kill"), (DATASET, 0), (LOADER, 1)])
def test_worker_that_dies_is_an_error(trainer, undisturbed, tmp_path, name, death):
    trouble = {"deadly_row": DEADLY_ROW, "death": death}
    assert_one_clear_error(trainer.run(configure(name, tmp_path), trouble=trouble))
    assert_resumes(trainer, undisturbed, name, tmp_path)


def test_worker_that_is_killed_is_an_error(trainer, undisturbed, tmp_path):
    """As when the machine runs out of memory; most of the epoch's batches are still to come."""
    end = trainer.run(configure(LOADER, tmp_path), stop={"batch": 11, "how": "kill a worker"})
    assert_one_clear_error(end)
    assert_resumes(trainer, undisturbed, LOADER, tmp_path)


def workers_of(run):
    return Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()


@pytest.mark.parametrize("part", ["data", "valid"])
def test_workers_that_begin_after_the_death_of_their_run_end_too(trainer, tmp_path, part):
    """They wait for its death, as if they had begun just then, and it waits for them."""
    config = {**configure("adamw, arrays", tmp_path), part: "dataset", "workers": 2}
    run = trainer.start(config, late_workers=True)
    run.wait_until(lambda: len(workers_of(run)) == 2)
    ends = [os.pidfd_open(int(pid)) for pid in workers_of(run)]
    os.kill(run.pid, signal.SIGKILL)
    assert run.wait().returncode == -signal.SIGKILL
    for end in ends:
        assert select.select([end], [], [], LIMIT)[0], "a worker lives on"
        os.close(end)
