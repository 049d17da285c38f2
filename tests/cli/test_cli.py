"""The command line: what it prints, and what it says of mistakes."""

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from refusals import refused

from aucmax import __version__
from aucmax.cli import main
from aucmax.cli._main import COMMANDS
from aucmax.judge.threshold import NAMES, RULES
from aucmax.train.metrics import METRICS, MetricName, find_metric
from aucmax.train.objectives import OBJECTIVES, ObjectiveName


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def help_of(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main([*words, "--help"])
    out, err = capsys.readouterr()
    assert (end.value.code, err) == (0, "")
    return out


# ---- Help --------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]], ids=str)
def test_help_lists_the_commands(capsys, arguments):
    main(arguments)
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines()[0] == "usage: aucmax COMMAND [OPTIONS]"
    assert [name for name in COMMANDS if not re.search(rf"^ +{name} +\S", out, re.MULTILINE)] == []


def test_installed_command_prints_the_version():
    command = [Path(sys.executable).with_name("aucmax"), "--version"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"aucmax {__version__}\n", "")


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_help_names_every_rule_for_a_threshold(capsys, command):
    about = help_of(capsys, command).split("--threshold")[1].split("--")[0]
    rules = [*NAMES, *(f"{kind}=" for kind in RULES if kind != "value")]
    assert [rule for rule in rules if rule not in about] == []


def test_choices_of_the_shell_are_those_of_python(capsys):
    suggested, _ = get_args(ObjectiveName)
    assert get_args(suggested) == ("auc+ce", *OBJECTIVES, "auto")
    suggested, _ = get_args(MetricName)
    assert [name.partition("@")[0] for name in get_args(suggested)] == [*METRICS]
    assert [find_metric(name).name for name in get_args(suggested)] == [*get_args(suggested)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_names_every_command(capsys, shell):
    main(["--print-completion", shell])
    out = capsys.readouterr().out
    assert [name for name in COMMANDS if name not in out] == []
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=out, text=True, check=True)


# ---- Mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("train", "command must be one of .*, found 'train'"),
        ("--quiet", "command must be one of .*, found '--quiet'"),
        ("predcit m a.csv", "found 'predcit': did you mean predict.$"),
        ("fit a.csv --targt y", "fit has no option --targt: did you mean --target.$"),
        ("fit a.csv --target y --fast", "fit has no option --fast: .*--help lists all$"),
        ("fit a.csv", "--target"),
        ("fit a.csv --target y --quality great", "great.*--quality.*'fast'"),
        ("fit a.csv --target y --seed two", "--seed.*two"),
        ("fit a.csv --target", "--target"),
        ("fit a.csv --target y", "a.csv"),
    ],
)
def test_mistake_is_one_line_and_leaves_nothing(capsys, empty_folder, arguments, said):
    (empty_folder / "a.csv").touch()
    line = refused(capsys, *arguments.split())
    assert re.search(said, line), line
    assert not re.search("Traceback|NoneType|<class|[│╭╰─]", line)
    assert [path.name for path in empty_folder.iterdir()] == ["a.csv"]


def test_long_mistake_is_whole_in_a_narrow_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    line = refused(capsys, "fit", "a.csv", "--target", "y", "--quality", "no-such-quality-at-all")
    assert "invalid choice 'no-such-quality-at-all' for argument '--quality'" in line
    assert "'best'" in line
