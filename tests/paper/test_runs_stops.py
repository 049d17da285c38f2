"""An experiment that is killed, interrupted or loses a worker goes on to the same results."""

import json
import os
import re
import signal

import pytest
from experiment_helpers import Command, assert_bar, options, records, results, run, stamps, timeless
from fit_data import one_thread  # noqa: F401

from aucmax.paper import datasets, reproduce
from aucmax.paper.folder import Folder
from aucmax.paper.runner import train_run
from aucmax.paper.settings import make_plan
from aucmax.paper.tune import OPTIONS, command_options, plan_trials

pytestmark = pytest.mark.xdist_group("experiments")
NAME = "strong-digits-91-9-ppd-sg"
RATES = (0.1, 0.05, 0.01)


def command_line(out):
    search = ("--tune-lr", *RATES, "--tune-steps", 200)
    return options(out, *search, lines=["ppd-sg"], steps=600)


def kill_the_search(out):
    """SIGKILL: nobody is told, yet no worker outlives it for long."""
    with Command(command_line(out)) as command:
        command.wait_until(lambda: any(command.workers()))
        with pytest.raises(ValueError, match="one command at a time"):
            reproduce("figure1", out=out, progress=False)
        command.wait_until(lambda: len(results(out, "trials")) >= 1)
        command.kill()
        assert command.wait() == -signal.SIGKILL


def interrupt(out):
    """Ctrl-C in a terminal reaches every process; one line says that it can go on."""
    with Command(command_line(out), columns=80) as command:
        train_on(command, out)
        command.type("\x03")
        assert command.wait() == 130, command.text()
    text = command.text()
    assert "tuning" in text
    assert "training" in text
    assert_bar(text[: text.index("training")], 80, closed=False)
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is back
    said = [line for line in text.splitlines() if "aucmax: " in line]
    assert len(said) == 1, said
    assert said[0].startswith("aucmax: stopped by SIGINT; the same command goes on")


def lose_a_worker(out):
    """As when the machine runs out of memory."""
    with Command(command_line(out)) as command:
        train_on(command, out)
        (worker,) = command.workers()
        os.kill(worker, signal.SIGKILL)
        assert command.wait() == 1
    assert command.text() == ""
    assert "Traceback" not in command.text("err")
    (line,) = [line for line in command.text("err").splitlines() if "aucmax: " in line]
    assert line.startswith(f"aucmax: error: a worker process died during {NAME}-seed0")
    assert "the same command goes on" in line


def train_on(command, out):
    """Until more evaluations are recorded than a stop left; it goes on from the last that counts.

    What was recorded after the last checkpoint, every fifth time, is done again and no more.
    """
    left, seen = records(out), []

    def more():
        seen.append(records(out))
        return seen[-1] >= left + 5

    command.wait_until(more)
    assert min(seen) >= left - 5


def test_however_it_is_stopped_the_same_command_ends_with_the_same_results(tmp_path):
    images = datasets.load("digits")  # imports what is needed before a race begins
    out, unstopped = tmp_path / "stopped", Folder(tmp_path / "unstopped")
    kill_the_search(out)
    done = re.compile(r"trials/.*\.json")  # a kill may leave one half written
    trials = {name: x for name, x in stamps(out).items() if done.fullmatch(name)}
    assert 1 <= len(trials) < len(RATES), "it was killed too late"
    for stop in (interrupt, lose_a_worker):
        stop(out)
        assert not results(out), f"{stop.__name__} came too late"
        assert records(out) >= 5, f"after {stop.__name__} nothing is left to go on from"
    code, said, noise = run(command_line(out))
    assert code == 0, noise
    after = stamps(out)
    assert [name for name, stamp in trials.items() if after[name] != stamp] == []
    assert not (out / "unfinished").exists()
    assert_best_is_used(out)
    assert_tells(out, said, noise)
    unstopped.store_images(images)
    for wanted in wanted_runs(out):
        train_run(wanted, unstopped, "cpu", at_once=2)
    for place in ("trials", "runs"):
        assert timeless(results(out, place)) == timeless(results(unstopped.path, place))


def wanted_runs(out):
    """The trials, and the run with the best options of them."""
    asked = {"protocols": ["strong"], "removed": [0.9], "lines": ["ppd-sg"], "seeds": 1}
    plan = make_plan("figure1", "digits", steps=600, tuned=False, **asked)
    (trials,) = plan_trials(plan.runs, {"strong": {"lr": RATES}}, 200, None).values()
    (best,) = json.loads((out / "tuned.json").read_text()).values()
    how = command_options({"lr": RATES}, 200, None)
    return [*trials, plan.runs[0].with_options(**best["options"], tuned=how)]


def assert_best_is_used(out):
    """Of the trials on validation data, and it says so."""
    trials = {trial["configuration"]["lr"]: trial for trial in results(out, "trials").values()}
    assert sorted(trials) == sorted(RATES)
    assert {trial["steps"] for trial in trials.values()} == {200}
    best = max(trials.values(), key=lambda trial: trial["history"][-1]["valid_auc_average"])
    ((name, tuned),) = json.loads((out / "tuned.json").read_text()).items()
    assert name == NAME
    assert tuned["options"] == {name: best["configuration"][name] for name in OPTIONS}
    assert tuned["valid_auc"] == best["history"][-1]["valid_auc_average"]
    (result,) = results(out).values()
    assert result["configuration"]["lr"] == best["configuration"]["lr"]
    assert result["steps"] == 600


def assert_tells(out, said, noise):
    """The table and the page on standard output; a line for each run on standard error."""
    lines = said.splitlines()
    assert lines[0].split()[:4] == ["Protocol", "Dataset", "Ratio", "Method"]
    (result,) = results(out).values()
    final = result["result"]["final"]
    (row,) = [line for line in lines if line.startswith("strong") and result["label"] in line]
    assert all(f"{final[which]:.4f}" in row for which in ("last", "average"))
    shown = f"test AUC last {final['last']:.4f}, average {final['average']:.4f}"
    assert len([line for line in noise.splitlines() if f"{NAME}-seed0: {shown}" in line]) == 1
    assert str(out / "index.html") in lines[-1]
    assert "\x1b" not in said + noise
    assert noise.splitlines()[0] == f"{len(RATES)} of {len(RATES)} runs were done before"
    assert "1/1  " in noise
    assert len(noise.splitlines()) == 2


def test_what_a_run_left_that_was_killed_with_its_result_written_goes(tmp_path):
    left, wanted = tmp_path / "unfinished" / "runs" / "a", tmp_path / "unfinished" / "runs" / "b"
    for path in (left, wanted, tmp_path / "runs"):
        path.mkdir(parents=True)
    (tmp_path / "runs" / "a.json").write_text("{}")
    Folder(tmp_path).tidy()
    assert (left.exists(), wanted.exists()) == (False, True)
    wanted.rmdir()
    Folder(tmp_path).tidy()
    assert not (tmp_path / "unfinished").exists()
