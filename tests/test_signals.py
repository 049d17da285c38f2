"""Signals as an exception: where it is raised, and what is said of it."""

import importlib
import os
import signal
import time

import pytest

from aucmax.signals import Stopped, listen, raising, saying_so


def send(number):
    os.kill(os.getpid(), number)
    time.sleep(0)  # where Python looks for signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_raised_and_the_handlers_come_back(number):
    before = signal.getsignal(number)
    with pytest.raises(Stopped) as end, raising():
        send(number)
    assert (end.value.number, end.value.code) == (number, 128 + number)
    assert signal.getsignal(number) is before


def test_an_import_is_let_end_first(tmp_path, monkeypatch):
    """Extension modules make an ImportError of what they are interrupted by."""
    text = "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(0.05)\n"
    (tmp_path / "interrupted.py").write_text(f"{text}is_whole = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = []

    def load_and_wait():
        found.append(importlib.import_module("interrupted"))
        time.sleep(5)

    with pytest.raises(Stopped), raising():
        load_and_wait()
    assert found[0].is_whole


def test_a_second_signal_does_not_disturb_what_the_first_has_set_going():
    tidied = []

    def work():
        try:
            send(signal.SIGINT)
        finally:
            send(signal.SIGINT)
            tidied.append(True)

    with pytest.raises(Stopped), raising():
        work()
    assert tidied


def test_one_that_is_ignored_stays_so():
    """As for a program under nohup, or in the background of a script."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with raising():
            send(signal.SIGINT)
            assert signal.SIGINT not in listen(signal.getsignal(signal.SIGTERM))
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_outer_block_says_it_and_knows_how_to_go_on(capsys):
    with pytest.raises(Stopped), saying_so("the same command goes on"), saying_so():
        raise Stopped(signal.SIGTERM, " after step 7", "the same call goes on from here")
    assert capsys.readouterr().err == (
        "aucmax: stopped by SIGTERM after step 7; the same command goes on\n"
    )
    with pytest.raises(Stopped), saying_so():
        raise Stopped(signal.SIGTERM, silent=True)
    assert capsys.readouterr().err == ""
