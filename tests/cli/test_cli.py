"""The command line: what it prints, in a terminal and elsewhere, and what it says of mistakes."""

import inspect
import re
import sys

import pytest
from experiment_helpers import Command, assert_bar, options, run, screen

from aucmax import __version__
from aucmax.cli import main
from aucmax.cli._reproduce import reproduce
from aucmax.judge.threshold import NAMES, RULES

pytestmark = pytest.mark.xdist_group("experiments")


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AUCMAX_DATA", raising=False)
    return tmp_path


def outcome(capfd, arguments):
    """Exit code, standard output, standard error of a call in this process."""
    try:
        main(arguments)
        code = 0
    except SystemExit as end:
        code = end.code
    captured = capfd.readouterr()
    return code, captured.out, captured.err


# ---- Help --------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]], ids=str)
def test_asked_for_nothing_it_says_what_it_can_do(capfd, arguments):
    code, out, err = outcome(capfd, arguments)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "usage: aucmax COMMAND [OPTIONS]"
    assert re.search(r"^ *reproduce +Run an experiment of the paper", out, re.MULTILINE)


def test_the_version(capfd):
    assert outcome(capfd, ["--version"]) == (0, f"aucmax {__version__}\n", "")


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_the_help_of_a_command_names_every_option(capfd, word):
    code, out, err = outcome(capfd, ["reproduce", word])
    assert (code, err) == (0, "")
    names = [name.replace("_", "-") for name in inspect.signature(reproduce).parameters]
    names.remove("experiment")
    assert [name for name in names if f"--{name} " not in out] == []
    assert "{figure1,figure1-long,figure2,figure3,readings,study}" in out
    assert "None" not in out


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_the_help_names_every_rule_for_a_threshold(capfd, command):
    _, out, _ = outcome(capfd, [command, "--help"])
    about = out.split("--threshold")[1].split("--")[0]
    rules = [*NAMES, *(f"{kind}=" for kind in RULES if kind != "value")]
    assert [rule for rule in rules if rule not in about] == []


def test_the_installed_command_is_this_one():
    assert run(["--version"]) == (0, f"aucmax {__version__}\n", "")


# ---- Mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("train", "command must be one of .*reproduce, found 'train'"),
        ("--quiet", "command must be one of .*reproduce, found '--quiet'"),
        ("reproduce", "figure1,figure1-long,figure2,figure3"),
        ("reproduce figure4", "figure4.*'figure1', 'figure1-long', 'figure2', 'figure3'"),
        ("reproduce figure1 figure2", "figure2"),
        ("reproduce figure1 --dataset mnist", "mnist.*--dataset.*'digits'"),
        ("reproduce figure1 --protocol weak", "weak.*--protocol.*'paper', .*'strong'"),
        ("reproduce figure1 --regime small", "regime must go with study, found it with figure1"),
        ("reproduce study", "regime must be given for study, some of clean, small, "),
        ("reproduce study --regime small --steps 5 --tune", "study .*, found --steps, --tune"),
        ("reproduce study --regime small", "data must be a folder with one named tables"),
        ("reproduce figure1 --removed 1", "removed must be .*, found 1.0"),
        ("reproduce figure1 --removed most", "--removed.*most"),
        ("reproduce figure1 --seeds 1 --steps 1 --lines sgd --removed", "--removed"),
        ("reproduce figure1 --seeds 1 --steps 1 --lines sgd --protocol", "--protocol"),
        ("reproduce figure1 --seeds 1 --steps 1 --removed 0.9 --lines", "--lines"),
        ("reproduce figure1 --lines ppd", "lines must be one of .*'ppd-sg'.*, found 'ppd'"),
        ("reproduce figure1 --seeds 0", "seeds must be an integer >= 1, found 0"),
        ("reproduce figure1 --seeds two", "--seeds.*two"),
        ("reproduce figure1 --steps -3", "steps must be an integer >= 1, found -3"),
        ("reproduce figure1 --steps 1.5", "--steps.*1.5"),
        ("reproduce figure1 --steps", "--steps"),
        ("reproduce figure1 --lines sgd --steps 1 --tune --tune-steps 0", "tune_steps .*found 0"),
        ("reproduce figure1 --tune --trials 0", "trials must be an integer >= 1, found 0"),
        ("reproduce figure1 --workers 0", "workers must be an integer >= 1, found 0"),
        ("reproduce figure1 --device abacus", "device must be .*, found 'abacus'"),
        ("reproduce figure1 --device cuda:99", "device must be .*, found 'cuda:99'"),
        ("reproduce figure1 --time-limit -1", "time_limit must be .*, found -1.0"),
        ("reproduce figure1 --time-limit soon", "--time-limit.*soon"),
        ("reproduce figure1 --fast", "reproduce has no option --fast: .*--help lists all$"),
        ("reproduce figure1 --seed=2", "reproduce has no option --seed: did you mean --seeds.$"),
        ("fit a.csv --targt y", "fit has no option --targt: did you mean --target.$"),
        ("predcit m a.csv", "found 'predcit': did you mean predict.$"),
        ("reproduce figure1 --dataset cifar10", "'data' must hold .*--download"),
        ("reproduce figure1 --dataset catdog --data nowhere", "nowhere"),
        ("reproduce figure1 --out /dev/null/here --lines sgd", "/dev/null"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_leaves_nothing(capfd, empty_folder, arguments, said):
    code, out, err = outcome(capfd, arguments.split())
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("aucmax: error: ")
    assert re.search(said, line), line
    assert not re.search("Traceback|NoneType|<class|[│╭╰─]", line)
    assert not list(empty_folder.iterdir())


def test_a_long_mistake_is_whole_in_a_narrow_terminal(monkeypatch, capfd):
    """The box that it is taken from breaks lines: no word may be lost."""
    monkeypatch.setenv("COLUMNS", "40")
    _, _, err = outcome(capfd, ["reproduce", "figure1", "--dataset", "no-such-data-set"])
    (line,) = err.splitlines()
    assert "invalid choice 'no-such-data-set' for argument '--dataset'" in line
    assert "'catdog'" in line


def test_tuning_without_optuna_says_what_to_install(tmp_path, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    call = options(tmp_path / "out", "--tune", lines=["sgd"], steps=20)
    code, out, err = outcome(capfd, call)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert "pip install 'aucmax[tune]'" in line
    assert not list(tmp_path.iterdir())


# ---- Runs --------------------------------------------------------------------------------------


def test_in_a_terminal_a_bar_counts_steps(tmp_path):
    """What is said of the run stands above it, the table below."""
    out = tmp_path / "out"
    with Command(options(out, lines=["sgd"], steps=40), columns=40) as command:
        assert command.wait() == 0
    text = command.text()
    assert_bar(text, 40)
    assert "0 of 1 runs" in text
    said = "".join(screen(text)[0])
    assert re.search(r"1/1  strong-digits-91-9-sgd-seed0: test AUC last 0\.\d{4}, average", said)
    assert said.index("1/1  strong") < said.index("1 of 1 runs done") < said.index("Protocol")
    assert str(out / "index.html") in said
