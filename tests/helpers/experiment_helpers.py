"""The command line in processes of its own, with or without a terminal, and what it leaves."""

import json
import os
import re
from contextlib import suppress

from process import Command, run

__all__ = ["Command", "run"]
TIMES = ("seconds", "steps_per_second", "seconds_per_step", "date", "commit")


def options(out, *more, lines=("ppd-sg", "sgd"), steps=1200):
    """A small experiment's command."""
    chosen = ["--removed", 0.9, "--protocol", "strong", "--seeds", 1, "--workers", 2]
    command = ["reproduce", "figure1", "--out", out, "--steps", steps, "--lines", *lines]
    return [str(word) for word in [*command, *chosen, *more]]


# ---- A terminal --------------------------------------------------------------------------------


def screen(text):
    """What a terminal shows in the end, line by line, and how long the longest bar was."""
    lines, longest = [""], 0
    for piece in re.split(r"(\x1b\[[0-9;?]*[A-Za-z]|\r\n|\r|\n)", text):
        if piece in ("\n", "\r\n"):
            lines.append("")
        elif piece == "\r" or piece.endswith("K"):
            lines[-1] = ""
        elif not piece.startswith("\x1b"):
            lines[-1] += piece
            if "━" in lines[-1]:
                longest = max(longest, len(lines[-1]))
    return lines, longest


def assert_bar(text, columns, closed=True):
    """It grew to 100 % on a line of its own; once it is closed, the cursor is back."""
    _, longest = screen(text)
    assert 20 < longest <= columns
    shown = [int(found) for found in re.findall(r"(\d+)%", text)]
    assert shown[0] == 0
    assert shown[-1] == 100
    assert text.count("\x1b[?25l") == 1
    assert text.count("\x1b[?25h") == closed
    assert "\x1b[1A" not in text  # nor did it ever need a second line
    assert "Traceback" not in text


# ---- What is left ------------------------------------------------------------------------------


def records(out, place="runs"):
    """The most evaluations that an unfinished run has recorded."""
    return max(
        (path.read_bytes().count(b"\n") for path in _histories(out, place) if path.exists()),
        default=0,
    )


def _histories(out, place):
    with suppress(FileNotFoundError):
        names = os.listdir(out / "unfinished" / place)
        return [out / "unfinished" / place / name / "history.jsonl" for name in names]
    return []


def results(out, place="runs"):
    """Each result by its name; a file that is not whole is an error, and so is nan."""
    return {
        path.stem: json.loads(path.read_text(), parse_constant=_refuse)
        for path in sorted((out / place).glob("*.json"))
    }


def _refuse(name):
    raise AssertionError(f"{name} is no JSON")


def stamps(out):
    """When each file but the lock was written; one that was replaced by its like is another."""
    return {
        str(path.relative_to(out)): (path.stat().st_mtime_ns, path.stat().st_ino)
        for path in out.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def timeless(tree):
    """Without times, day and commit."""
    if isinstance(tree, dict):
        return {key: timeless(value) for key, value in tree.items() if key not in TIMES}
    return [timeless(value) for value in tree] if isinstance(tree, list) else tree
