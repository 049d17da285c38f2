"""What shells complete: commands, options and their values, by a real bash."""

import re
import shutil
import subprocess
from typing import get_args

import pytest

from aucmax.cli import main
from aucmax.cli._completion import options_of
from aucmax.cli._main import COMMANDS
from aucmax.train.metrics import METRICS, MetricName, find_metric
from aucmax.train.objectives import OBJECTIVES, ObjectiveName

ASK = """
source ./script
ask() {{
  COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
  _aucmax
  echo "${{COMPREPLY[@]}}"
}}
ask {words}
"""


@pytest.fixture
def bash(tmp_path, capsys, monkeypatch):
    """Asks a bash that has read the script for the completions of some words."""
    monkeypatch.chdir(tmp_path)
    main(["--print-completion", "bash"])
    (tmp_path / "script").write_text(capsys.readouterr().out)

    def ask(words):
        call = ["bash", "--norc", "-u", "-c", ASK.format(words=words)]
        return subprocess.run(call, check=True, capture_output=True, text=True).stdout.split()

    return ask


def test_commands_options_and_values(bash):
    assert set(COMMANDS) <= set(bash("aucmax ''"))
    assert bash("aucmax pre") == ["predict", "predict-images"]
    assert bash("aucmax --v") == ["--version"]
    assert bash("aucmax fit a.csv --th") == ["--threshold", "--threads"]
    assert bash("aucmax fit a.csv --objective ''") == ["auc+ce", *OBJECTIVES, "auto"]
    assert bash("aucmax fit a.csv --metric av") == ["average_precision"]
    assert bash("aucmax fit a.csv --metric par") == ["partial_auc@0.1"]
    assert bash("aucmax --print-completion f") == ["fish"]
    assert bash("aucmax fit cust") == []  # files, which bash completes by itself


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_every_command_is_known(bash, capsys, name):
    with pytest.raises(SystemExit):
        main([name, "--help"])
    said = capsys.readouterr().out
    found = set(bash(f"aucmax {name} -"))
    assert found == set(options_of(COMMANDS[name]))
    assert [option for option in found if f"{option} " not in said] == []
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", said)) == found


def test_bash_completes_files_where_nothing_else_fits(bash, tmp_path):
    told = subprocess.run(
        ["bash", "--norc", "-c", "source ./script; complete -p aucmax"],
        check=True, capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert told.stdout == "complete -o default -F _aucmax aucmax\n"


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh_reads_its_script(tmp_path, capsys):
    main(["--print-completion", "zsh"])
    (tmp_path / "script").write_text(capsys.readouterr().out)
    call = ["zsh", "-f", "-c", "source ./script; print $_comps[aucmax]"]
    told = subprocess.run(call, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert "_aucmax" in told.stdout


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_completes_by_its_script(tmp_path, capsys):
    main(["--print-completion", "fish"])
    (tmp_path / "script").write_text(capsys.readouterr().out)
    call = ["fish", "-N", "-c", "source ./script; complete -C 'aucmax fit --objective a'"]
    told = subprocess.run(call, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert sorted(told.stdout.split()) == ["ap", "auc", "auc+ce", "auto"]


def test_choices_of_the_shell_are_those_of_python():
    suggested, _ = get_args(ObjectiveName)
    assert get_args(suggested) == ("auc+ce", *OBJECTIVES, "auto")
    suggested, _ = get_args(MetricName)
    assert [name.partition("@")[0] for name in get_args(suggested)] == [*METRICS]
    assert [find_metric(name).name for name in get_args(suggested)] == [*get_args(suggested)]
