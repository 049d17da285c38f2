"""The command line: parse, call, print."""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import io
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import tyro

from aucmax import checks
from aucmax.cli import _completion
from aucmax.cli._errors import fail
from aucmax.cli._images import evaluate_images, fit_images, predict_images
from aucmax.cli._tables import demo, evaluate, export, fit, predict, report, tune
from aucmax.extras import NotInstalledError
from aucmax.processes import WorkerDiedError
from aucmax.train import DivergedError

COMMANDS: dict[str, Callable[..., None]] = {
    "fit": fit,
    "tune": tune,
    "predict": predict,
    "evaluate": evaluate,
    "fit-images": fit_images,
    "predict-images": predict_images,
    "evaluate-images": evaluate_images,
    "report": report,
    "export": export,
    "demo": demo,
}


def run_command(given: list[str]) -> None:
    """Run a command; what cannot be right is one line and exit code 2."""
    try:
        with warnings.catch_warnings():
            if "--quiet" in given:
                warnings.simplefilter("ignore")
            warnings.showwarning = _note
            _run(given)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError, NotInstalledError) as error:
        fail(_in_words(error))
    except (WorkerDiedError, DivergedError, MemoryError, ImportError) as error:
        fail(_in_words(error), code=1)


def _in_words(error: Exception) -> str:
    return "; ".join([str(error) or type(error).__name__, *getattr(error, "__notes__", ())])


def _note(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning of the library as a note among others."""
    print(f"note: {message}", file=sys.stderr)


def _run(given: list[str]) -> None:
    if given in (["-h"], ["--help"]) or not given:
        lines = [f"  {k:<15} {(v.__doc__ or '').splitlines()[0]}" for k, v in COMMANDS.items()]
        print("usage: aucmax COMMAND [OPTIONS]", "", *lines, "", sep="\n")
        print("aucmax COMMAND --help says more, aucmax --version which one this is, and")
        print("aucmax --print-completion bash|zsh|fish how a shell completes commands.")
    elif given[0] == "--print-completion":
        shell = checks.choice("--print-completion", " ".join(given[1:]), _completion.SHELLS)
        print(_completion.script(shell, COMMANDS), end="")
    elif given[0] == "reproduce":
        raise ValueError("aucmax reproduce is gone: see experiments/README.md in the repository")
    elif given[0] not in COMMANDS:
        raise ValueError(
            f"command must be one of {', '.join(COMMANDS)}, found {given[0]!r}"
            f"{_nearest(given[0], COMMANDS)}"
        )
    else:
        COMMANDS[given[0]](**_parse(given[0], given[1:]))


def _parse(name: str, arguments: list[str]) -> dict[str, Any]:
    """The command's options; what tyro says of a wrong one in a box becomes one line."""

    @functools.wraps(COMMANDS[name])
    def collect(*given: Any, **options: Any) -> dict[str, Any]:
        return {**dict(zip(inspect.signature(collect).parameters, given, strict=False)), **options}

    _check_options(name, arguments)
    _check_values(arguments)
    config = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            found = dict(tyro.cli(collect, prog=f"aucmax {name}", args=arguments, config=config))
    except SystemExit as end:
        if end.code == 2:
            fail(_unboxed(said.getvalue()))
        raise
    if found.get("data") == ():
        raise ValueError("a FILE must be given, and before options of several values like --drop")
    return found


def _unboxed(text: str) -> str:
    """The message in a box: its lines above the rule, without the frame and the title.

    Where the terminal has no lines for a frame, the title is above a first rule of its own.
    """
    lines = [line.strip("│ ") for line in text.splitlines() if not line.startswith(("╭", "╰"))]
    rules = [i for i, line in enumerate(lines) if line.startswith(("──", "--")) and " " not in line]
    framed = "╭" in text or not rules
    first = 0 if framed else rules.pop(0) + 1
    message = " ".join(lines[first : rules[0] if rules else len(lines)]) or text
    return message.split(" Got errors:")[0].replace("{None}|", "")


SEVERAL = ("--drop", "--keep", "--na-values", "--categories")


def _check_options(name: str, arguments: list[str]) -> None:
    """Every option is one of the command's, written as tyro takes it."""
    known = _completion.options_of(COMMANDS[name])
    for argument in arguments:
        option = argument.partition("=")[0].replace("_", "-")
        if re.match("--[a-z]", option) and option not in known:
            advice = _nearest(option, known) or f": aucmax {name} --help lists all"
            raise ValueError(f"aucmax {name} has no option {option}{advice}")


def _nearest(text: str, names: Iterable[str]) -> str:
    """A question, if one of the names is much like the text."""
    found = difflib.get_close_matches(text, names, n=1, cutoff=0.75)
    return f": did you mean {found[0]}?" if found else ""


def _check_values(arguments: list[str]) -> None:
    """An option of several values with none would pass for one that was not given."""
    for option in SEVERAL:
        if arguments.count(option) > 1:
            raise ValueError(f"{option} must be given once, with all its values after it")
    for option, value in pairwise([*arguments, "--"]):
        if option in SEVERAL and value.startswith("--"):
            raise ValueError(f"{option} must have a value, found none")
