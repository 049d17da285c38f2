"""Experiments that are killed, interrupted or lose a worker go on to the same results."""

import json
import os
import signal

import pytest
from experiment_helpers import Command, assert_bar, options, records, results, run, stamps, timeless

from aucmax.paper import datasets, reproduce

pytestmark = pytest.mark.xdist_group("experiments")
LINES = ("ppd-sg",)
STEPS = 800
GRID = 5  # step sizes in the paper's grid


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


def kill(out):
    """SIGKILL: nobody is told, yet no worker outlives it for long."""
    with Command(options(out, lines=LINES, steps=STEPS)) as command:
        command.wait_until(lambda: any(command.workers()))
        with pytest.raises(ValueError, match="one command at a time"):
            reproduce("figure1", out=out, progress=False)
        train_on(command, out)
        command.kill()
        assert command.wait() == -signal.SIGKILL


def interrupt(out):
    """Ctrl-C in a terminal reaches every process; one line says that it can go on."""
    with Command(options(out, lines=LINES, steps=STEPS), columns=80) as command:
        train_on(command, out)
        command.type("\x03")
        assert command.wait() == 130, command.text()
    text = command.text()
    assert "Traceback" not in text
    said = [line for line in text.splitlines() if "aucmax: " in line]
    assert len(said) == 1, said
    assert said[0].startswith("aucmax: stopped; the same command goes on")


def lose_a_worker(out):
    """As when the machine runs out of memory."""
    with Command(options(out, lines=LINES, steps=STEPS)) as command:
        train_on(command, out)
        (worker,) = command.workers()
        os.kill(worker, signal.SIGKILL)
        assert command.wait() == 1
    assert command.text() == ""
    assert "Traceback" not in command.text("err")
    (line,) = [line for line in command.text("err").splitlines() if "aucmax: " in line]
    assert line.startswith(
        "aucmax: error: a worker process died during strong-digits-91-9-ppd-sg-seed0"
    )
    assert "the same command goes on" in line


def finish(out):
    code, said, noise = run(options(out, lines=LINES, steps=STEPS))
    assert code == 0, noise
    return said, noise


@pytest.fixture(autouse=True)
def ready(tmp_path):
    """What a call in this process needs is imported before a race begins."""
    datasets.load("digits")


def test_however_it_is_stopped_the_same_command_ends_with_the_same_results(tmp_path):
    out = tmp_path / "stopped"
    for stop in (kill, interrupt, lose_a_worker):
        stop(out)
        assert len(results(out)) < len(LINES), f"{stop.__name__} came too late"
        assert records(out) >= 5, f"after {stop.__name__} nothing is left to go on from"
    said, noise = finish(out)
    whole = reproduce(
        "figure1", protocols=["strong"], removed=[0.9], lines=LINES, seeds=1, steps=STEPS,
        out=tmp_path / "whole", workers=2, progress=False,
    ).parent  # fmt: skip
    expected = results(whole)
    assert len(expected) == len(LINES)
    assert timeless(results(out)) == timeless(expected)
    assert not (out / "unfinished").exists()
    assert_tells(out, said, noise)


def assert_tells(out, said, noise):
    """The table and the page on standard output; a line for each run on standard error."""
    lines = said.splitlines()
    assert lines[0].split()[:4] == ["Protocol", "Dataset", "Ratio", "Method"]
    for result in results(out).values():
        final = result["result"]["final"]
        (row,) = [line for line in lines if result["label"] in line]
        assert all(f"{final[which]:.4f}" in row for which in ("last", "average"))
        shown = f"test AUC last {final['last']:.4f}, average {final['average']:.4f}"
        name = f"strong-digits-91-9-{result['line']}-seed0"
        assert len([line for line in noise.splitlines() if f"{name}: {shown}" in line]) == 1
    assert str(out / "index.html") in lines[-1]
    assert "\x1b" not in said + noise
    assert "1/1  " in noise
    assert len(noise.splitlines()) == 1


# ---- Tuning ------------------------------------------------------------------------------------


def test_a_search_that_is_killed_goes_on_and_its_best_is_used(tmp_path):
    out = tmp_path / "tuned"
    command = options(out, "--tune", "--tune-steps", 30, lines=["sgd"], steps=40)
    with Command(command) as killed:
        killed.wait_until(lambda: len(results(out, "trials")) >= 2)
        killed.kill()
        killed.wait()
    before = {name: x for name, x in stamps(out).items() if name.startswith("trials/")}
    assert 2 <= len(before) < GRID
    code, text, _ = run(command, columns=80)
    assert code == 0, text
    assert_bar(text, 80)
    assert "tuning" in text
    assert "training" in text
    trials, after = results(out, "trials"), stamps(out)
    assert len(trials) == GRID
    assert [name for name, stamp in before.items() if after[name] != stamp] == []
    rates = {trial["configuration"]["lr"]: trial for trial in trials.values()}
    assert sorted(rates) == [0.005, 0.008, 0.01, 0.05, 0.1]
    assert {trial["steps"] for trial in trials.values()} == {30}
    best = max(rates.values(), key=lambda trial: trial["history"][-1]["valid_auc_average"])
    (found,) = json.loads((out / "tuned.json").read_text()).items()
    assert found[0] == "strong-digits-91-9-sgd"
    assert found[1]["options"] == {"lr": best["configuration"]["lr"]}
    assert found[1]["valid_auc"] == best["history"][-1]["valid_auc_average"]
    (result,) = results(out).values()
    assert result["configuration"]["lr"] == best["configuration"]["lr"]
    assert result["steps"] == 40
    assert not (out / "unfinished").exists()
