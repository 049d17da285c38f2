"""``aucmax fit`` stopped by a signal: it says how to go on, and the same command ends the same."""

import os
import signal
import subprocess
import sys
import warnings
from contextlib import chdir
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from fit_commands import COMMAND, SIGNALS, outcome_of, write_rows

from aucmax.cli import main
from aucmax.metrics import roc_auc
from aucmax.report.unfinished import work_folder
from aucmax.signals import Stopped
from aucmax.tables import fit_file
from aucmax.tables.ensemble.kinds import FITS

HELPERS = Path(__file__).parents[1] / "helpers"


def left_alone(folder):
    """The same command to its end, here: only what is stopped needs a process of its own."""
    with chdir(folder):
        main(COMMAND)
    assert {path.name for path in folder.iterdir()} == {"rows.csv", "rows-model"}
    return outcome_of(folder)


def test_killed_command_resumes_bit_for_bit(tmp_path, capsys):
    for name in ("whole", "killed"):
        write_rows(tmp_path / name)
    folder = tmp_path / "killed"
    script = [sys.executable, HELPERS / "killed_command.py", "/network/", "4"]
    done = subprocess.run([*script, *COMMAND], cwd=folder, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (folder / "rows-model").exists()
    expected = left_alone(tmp_path / "whole")
    capsys.readouterr()
    assert left_alone(folder) == expected
    assert "aucmax: going on from step " in capsys.readouterr().err


def test_folder_is_for_one_process_at_a_time(tmp_path):
    with work_folder(tmp_path / "m", {}, say=False), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python's own, of threads and forks
        if (child := os.fork()) == 0:
            try:
                with work_folder(tmp_path / "m", {}, say=False):
                    os._exit(1)
            except ValueError as error:
                os._exit("found another at work in" not in str(error))
        assert os.waitpid(child, 0)[1] == 0


NETWORK_IS_UNDER_WAY = []


def interrupted(scores, labels, weights):
    """A metric at whose call somebody presses Ctrl-C, if the network is under way."""
    if NETWORK_IS_UNDER_WAY and any(Path().glob(NETWORK_IS_UNDER_WAY[0])):
        raise KeyboardInterrupt
    return roc_auc(scores, labels, weights)


def test_finished_models_are_not_fitted_again(tmp_path, monkeypatch):
    given = {"quality": "good", "models": ["logistic", "boosting", "network"], "compare": False}
    given |= {"max_steps": 20, "width": 8, "members": 1, "metric": interrupted, "progress": False}
    for name in ("alone", "killed"):
        write_rows(tmp_path / name, 80)
    with chdir(tmp_path / "alone"):
        fit_file("rows.csv", "y", **given)
    folder = tmp_path / "killed"
    NETWORK_IS_UNDER_WAY.append("rows-model.unfinished/*/network/history.jsonl")
    with chdir(folder), pytest.raises(KeyboardInterrupt):
        fit_file("rows.csv", "y", **given)
    NETWORK_IS_UNDER_WAY.clear()
    for name in ("boosting", "logistic"):
        assert [*folder.glob(f"rows-model.unfinished/*/{name}/done.json")]

    def fit_again(*_):
        raise AssertionError("it was done")

    for name in ("boosting", "logistic"):
        monkeypatch.setitem(FITS, name, fit_again)
    with chdir(folder):
        fit_file("rows.csv", "y", **given)
    assert outcome_of(folder) == outcome_of(tmp_path / "alone")


# ---- The folder of the work ----------------------------------------------------------------------


def end_by(error, folder, begin=True, **settings):
    """Let an error end a command that has begun, or has not, and give the place of its work."""
    with work_folder(folder, settings, say=True) as work:
        if begin:
            work.mkdir(exist_ok=True)
            (work / "state").write_text(f"{settings}")
        raise error


def test_work_is_found_by_its_settings(tmp_path, capsys):
    folder, stopped = tmp_path / "m", Stopped(SIGNALS["Ctrl-C"], " after step 7")
    with pytest.raises(Stopped):
        end_by(stopped, folder, seed=0)
    assert stopped.in_words() == "stopped by SIGINT after step 7; the same command goes on"
    assert capsys.readouterr().err == ""
    with pytest.raises(KeyboardInterrupt):
        end_by(KeyboardInterrupt(), folder, begin=False, seed=1)
    err = capsys.readouterr().err
    assert f"{folder}.unfinished keeps unfinished work of other settings (seed), which is" in err
    with work_folder(folder, {"seed": 0}, say=True) as work:
        assert (work / "state").read_text() == "{'seed': 0}"
    assert list(tmp_path.iterdir()) == []


def test_work_that_has_not_begun_leaves_nothing(tmp_path):
    stopped = Stopped(SIGNALS["SIGTERM"])
    with pytest.raises(Stopped):
        end_by(stopped, tmp_path / "m", begin=False)
    assert (stopped.in_words(), stopped.code) == ("stopped by SIGTERM; training had not begun", 143)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [ValueError, ArithmeticError, OSError])
def test_error_keeps_the_work(tmp_path, error):
    """Though it would come again: another page, disk or version may mend it."""
    with pytest.raises(error):
        end_by(error, tmp_path / "m", begin=False, metric=max)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(error) as caught:
        end_by(error, tmp_path / "m", metric=max)
    place = tmp_path / "m.unfinished"
    said = f"the same command goes on, and begins anew without {place}"
    assert caught.value.__notes__ == [f"what was trained is kept: {said}"]
    with work_folder(tmp_path / "m", {"metric": max}, say=True) as work:
        assert work.exists()


class Within:
    """A metric with a state."""

    def __init__(self, share):
        self.share = share

    def __call__(self, scores, labels, weights):
        return self.share


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (np.int64(1), 1, np.int64(2)),
        (np.bool_(True), True, np.bool_(False)),
        (partial(round, ndigits=1), partial(round, ndigits=1), partial(round, ndigits=2)),
        (Within(0.1), Within(0.1), Within(0.2)),
        (max, max, min),
    ],
)
def test_settings_of_every_type_are_told_apart(tmp_path, one, same, other):
    with pytest.raises(KeyboardInterrupt):
        end_by(KeyboardInterrupt, tmp_path / "m", setting=one)
    for value, found in ((other, False), (same, True)):
        with work_folder(tmp_path / "m", {"setting": value}, say=False) as work:
            assert work.exists() == found


def test_lambda_is_never_resumed(tmp_path):
    """Not even by itself, for nothing tells it from another lambda."""
    metric, stopped = lambda *_: 0.5, Stopped(SIGNALS["Ctrl-C"])
    with pytest.raises(Stopped):
        end_by(stopped, tmp_path / "m", metric=metric)
    assert stopped.how == "nothing was saved, as metric has no name of its own"
    assert list(tmp_path.iterdir()) == []


THESIS = "years of work"


def meddling(scores, labels, weights):
    """A metric in whose time somebody puts a file where the model will be."""
    if not Path("thesis.txt").exists():
        Path("m").mkdir(exist_ok=True)
        Path("m/thesis.txt").write_text(THESIS)
    return float((scores[labels == 1].mean() > scores.mean()).item())


def test_foreign_file_in_the_folder_is_kept(tmp_path, monkeypatch, capsys):
    write_rows(tmp_path / "run", 60)
    monkeypatch.chdir(tmp_path / "run")
    given = {"max_steps": 4, "width": 8, "members": 1, "compare": False, "metric": meddling}
    given["quality"] = "fast"
    refusal = "out must be empty or a model's folder, found 'thesis.txt' in .*/m: move it elsewhere"
    with pytest.raises(ValueError, match=refusal):
        fit_file("rows.csv", "y", out="m", **given)
    assert Path("m/thesis.txt").read_text() == THESIS
    assert sorted(os.listdir()) == ["m", "m.unfinished", "rows.csv"]
    Path("m/thesis.txt").rename("thesis.txt")
    fit_file("rows.csv", "y", out="m", **given)
    assert (
        "holds a finished run (all steps taken), which is not run again" in capsys.readouterr().err
    )
    assert sorted(os.listdir()) == ["m", "rows.csv", "thesis.txt"]


def test_leftovers_of_a_kill_are_removed(tmp_path):
    """While old work was removed, and while the model's folder was replaced."""
    with pytest.raises(KeyboardInterrupt):
        end_by(KeyboardInterrupt, tmp_path / "m", seed=0)
    (settings,) = (tmp_path / "m.unfinished").glob("*.json")
    settings.unlink()
    (tmp_path / "m.before").mkdir()
    (tmp_path / "m.partial").mkdir()
    with work_folder(tmp_path / "m", {"seed": 0}, say=True) as work:
        assert not work.exists()
        assert {path.name for path in tmp_path.iterdir()} == {"m", "m.unfinished"}


def test_foreign_unfinished_folder_raises(tmp_path):
    place = tmp_path / "m.unfinished"
    place.mkdir()
    (place / "thesis.txt").write_text("years of work")
    refusal = r"out must leave .*m.unfinished free, found 'thesis.txt' in it: remove it"
    with pytest.raises(ValueError, match=refusal):
        end_by(OSError, tmp_path / "m")
    assert [path.name for path in place.iterdir()] == ["thesis.txt"]
    (tmp_path / "n.unfinished").write_text("more")
    with pytest.raises(ValueError, match="free, found a file: remove it"):
        end_by(OSError, tmp_path / "n")
