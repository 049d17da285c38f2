"""What training says: a live bar in a terminal, plain lines elsewhere, nothing if told so."""

import math
import re
import sys
import textwrap
from types import SimpleNamespace

import pytest
from fit_data import (
    binary,
    fit,
    linear,
    one_thread,  # noqa: F401
)
from fit_helpers import WARNINGS
from process import Command

from aucmax.train._reporter import Reporter
from aucmax.train.metrics import ROC_AUC

X, Y = binary()
VALID = binary(seed=1)
LINE = re.compile(
    r"(?P<name>[\w-]+): step (?P<step>[\d,]+) of (?P<total>[\d,]+), stage (?P<stage>\d+), "
    r"loss (?P<loss>-?\d+\.\d+)"
    r"(, valid AUC last (?P<last>\d\.\d+), average (?P<average>\d\.\d+))?, "
    r"(?P<speed>[\d,]+) steps/s, (?P<left>\d+:\d\d(:\d\d)?) left"
)
SCRIPT = textwrap.dedent(
    """
    import os, sys, torch, aucmax
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(200) % 4 == 0
    x = torch.randn(200, 3, generator=generator) + y[:, None]
    def train(**options):
        model = torch.nn.Linear(3, 1)
        aucmax.fit(model, (x, y), (x, y), batch_size=32, eval_every=20, **options)
    """
)


def script(folder, body):
    path = folder / "train.py"
    path.write_text(SCRIPT + textwrap.dedent(body))
    return [sys.executable, *WARNINGS, str(path)]


def said(capfd, **options):
    """What a run writes, standard output and standard error."""
    result = fit(linear(), (X, Y), VALID, **{"progress": True, "eval_every": 10, **options})
    captured = capfd.readouterr()
    return result, captured.out, captured.err


# ---- Plain lines -------------------------------------------------------------------------------


def test_where_there_is_no_terminal_a_line_per_record(capfd):
    result, out, err = said(capfd)
    assert out == ""
    assert "\x1b" not in err
    assert "\r" not in err
    *lines, last = err.splitlines()
    assert re.fullmatch(
        r"aucmax: all steps taken; kept the \w+ iterate of step \d+, .* [01]\.\d+", last
    )
    lines = [LINE.fullmatch(line) for line in lines]
    assert len(lines) == len(result.history)
    for line, record in zip(lines, result.history, strict=True):
        assert line["name"] == record["phase"] == "ppd-sg"
        assert (int(line["step"]), int(line["stage"])) == (record["step"], record["stage"])
        assert line["loss"] == f"{record['loss']:.4f}"
        assert line["last"] == f"{record['valid_auc_last']:.4f}"
        assert line["average"] == f"{record['valid_auc_average']:.4f}"
    assert lines[-1]["left"] == "0:00"


@pytest.mark.parametrize(("seconds", "left"), [(math.inf, "16:30"), (40, "0:30"), (9, "0:00")])
def test_the_time_left_ends_with_the_time_limit(capfd, monkeypatch, seconds, left):
    """Ten seconds for the first 1,000 of 100,000 steps."""
    clock = iter([1000.0])
    monkeypatch.setattr("aucmax.train._reporter.time", SimpleNamespace(perf_counter=clock.__next__))
    reporter = Reporter(100_000, ROC_AUC, True, None)
    reporter.begin("x", 0, seconds)
    monkeypatch.setattr("aucmax.train._reporter.time", SimpleNamespace(perf_counter=lambda: 1010.0))
    aucs = {"valid_auc_last": 0.5, "valid_auc_average": 0.5}
    reporter.evaluation({"phase": "x", "stage": 1, "loss": 0.5, "step": 1000, **aucs})
    line = LINE.fullmatch(capfd.readouterr().err.strip())
    assert (line["step"], line["total"], line["left"]) == ("1,000", "100,000", left)


def test_without_validation_there_is_no_auc(capfd):
    fit(linear(), (X, Y), progress=True, eval_every=20)
    err = capfd.readouterr().err
    assert "AUC" not in err
    assert "nan" not in err.lower()
    assert all(LINE.fullmatch(line) for line in err.splitlines()[:-1])


def test_silence_is_silence(capfd, tmp_path):
    for _ in range(2):  # the second finds a run that is over
        result, out, err = said(capfd, progress=False, out=tmp_path)
        assert out == err == ""
    assert result.steps == 40


def test_the_lines_name_the_phase_that_is_walked(capfd):
    result, _, err = said(capfd, pretrain=10)
    names = [LINE.fullmatch(line)["name"] for line in err.splitlines()[:-1]]
    assert names == [record["phase"] for record in result.history]
    assert set(names) == {"pretrain", "ppd-sg"}


def test_a_run_that_is_over_says_so(capfd, tmp_path):
    said(capfd, out=tmp_path)
    _, out, err = said(capfd, out=tmp_path)
    assert out == ""
    assert "holds a finished run (all steps taken)" in err


# ---- A live bar --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def terminal(tmp_path_factory):
    folder = tmp_path_factory.mktemp("terminal")
    body = """
        train(steps=600, lr=0.5)
        print("now", file=sys.stderr)
        os.environ["COLUMNS"] = "30"
        train(steps=40)
        print("done", file=sys.stderr)
    """
    with Command([], columns=120, program=script(folder, body)) as command:
        code = command.wait()
        return command.text(), code


def test_in_a_terminal_there_is_a_live_bar(terminal):
    written, code = terminal
    assert code == 0, written
    assert "\x1b[" in written  # it moves the cursor
    assert written.count("/600") >= 2  # it is drawn again
    assert "step 20 of" not in written  # and no plain lines


def test_the_bar_shows_stage_step_auc_speed_and_time_left(terminal):
    written, _ = terminal
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    states = re.findall(
        r"ppd-sg .*?(\d+)/600 +stage (\d) +AUC (\d\.\d{4}) +([\d,]+) steps/s +(\d+:\d\d) left",
        plain,
    )
    steps = [int(state[0]) for state in states]
    assert steps == sorted(steps)
    assert steps[-1] == 600
    assert [state[1] for state in states] == sorted(state[1] for state in states)
    assert states[-1][1] == "4"
    assert all(0 <= float(state[2]) <= 1 for state in states)
    assert states[-1][4] == "0:00"


def test_what_comes_after_the_bar_has_a_line_of_its_own(terminal):
    written, _ = terminal
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    assert re.search(r"[\r\n]done\r?\n$", plain)
    assert "\x1b[?25h" in written or "\x1b[?25l" not in written  # the cursor is shown again


def test_a_narrow_terminal_does_not_break_it(terminal):
    wide, narrow = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal[0]).split("now", 1)
    assert max(map(len, re.split(r"[\r\n]+", wide))) > 60
    assert "ppd-sg" in narrow
    bars = [line for line in re.split(r"[\r\n]+", narrow) if not line.startswith("aucmax:")]
    assert max(map(len, bars)) <= 30
