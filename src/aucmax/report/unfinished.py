"""What a command has done when it is stopped: kept beside its model's folder, until it is done."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from aucmax import disk, distributed
from aucmax.report import model_folder
from aucmax.signals import Stopped
from aucmax.version import __version__

OURS = re.compile(r"\.lock|[0-9a-f]{12}(\.json(\.tmp)?)?")
"""All that is ever in ``OUT.unfinished``: the work of some settings, and the settings beside it."""


@contextmanager
def work_folder(folder: Path, settings: Mapping[str, Any], say: bool) -> Iterator[Path]:
    """A place for the work of these settings, in ``OUT.unfinished``, for one process at a time.

    Whatever ends a command, it leaves there what it has begun, and the same settings find it again;
    others begin their own beside it. Success leaves nothing, nor does what ends before training has
    begun. Where nothing tells a setting from another, as of a lambda, none is found again.

    Args:
        folder: of the model, which must be free, see :func:`aucmax.report.model_folder.check_free`.
        settings: all that decides the result.
        say: whether to note on standard error that there is work of other settings.

    Raises:
        ValueError: if the folders are not free, or another process works there.
    """
    place = folder.with_name(f"{folder.name}.unfinished")
    was_there = place.exists()
    _check_ours(place)
    disk.make_folder(place, "out")
    at_work = f"out must be the folder of one command at a time, found another at work in {place}"
    with disk.lock_folder(place, at_work):
        try:
            if was_there:  # left by a process that was killed, perhaps while it wrote the model
                model_folder.recover(folder)
            model_folder.check_free(folder)
            text, nameless = _described(settings)
            work = place / hashlib.sha256(text.encode()).hexdigest()[:12]
            if nameless:
                _remove(work)
            _begin(place, work, text, say)
            try:
                yield work
            except BaseException as error:
                if nameless or not any(path.is_file() for path in work.rglob("*")):
                    _remove(work)
                if isinstance(error, Stopped):
                    begun = work.exists()
                    error.how = "the same command goes on" if begun else "training had not begun"
                    if nameless:
                        error.how = f"nothing was saved, as {nameless[0]} has no name of its own"
                elif work.exists():
                    error.add_note(
                        f"what was trained is kept: the same command goes on, and begins anew "
                        f"without {place}"
                    )
                raise
            _remove(work)
        finally:
            _tidy(place)
            if [path.name for path in place.iterdir()] == [".lock"]:
                shutil.rmtree(place)


@contextmanager
def work_of_all(folder: Path, settings: Mapping[str, Any], say: bool) -> Iterator[Path]:
    """The :func:`work_folder` of all processes of a group, which the first holds for them."""
    with ExitStack() as held:
        work, error = None, None
        if distributed.rank() == 0:
            try:
                work = held.enter_context(work_folder(folder, settings, say))
            except (ValueError, OSError) as caught:
                error = caught
        work, error = distributed.broadcast_object((work, error))  # none waits for one that failed
        if error is not None:
            raise error
        yield work


def _described(settings: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Settings as JSON, and the names of those that nothing tells from others."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        # Of a function its module and name, of a partial or an object with a state that, too.
        return hashlib.sha256(pickle.dumps(value)).hexdigest()

    described: dict[str, Any] = {"aucmax": __version__}
    nameless = []
    for name, value in settings.items():
        try:
            described[name] = json.loads(json.dumps(value, default=plain))
        except (pickle.PicklingError, AttributeError, TypeError):  # a lambda, a function in another
            described[name] = None
            nameless.append(name)
    return json.dumps(described, sort_keys=True), nameless


def _begin(place: Path, work: Path, text: str, say: bool) -> None:
    """Write the settings; it is for whoever begins the work to make its folder."""
    _tidy(place)
    others = [path for path in place.glob("*.json") if path.stem != work.name]
    if others and say:
        there = disk.read_json(max(others, key=lambda path: path.stat().st_mtime))
        now = json.loads(text)
        keys = [key for key in now if there.get(key) != now[key]]
        print(
            f"aucmax: {place} keeps unfinished work of other settings ({', '.join(keys)}), which "
            f"is not gone on with; remove it if it is not needed",
            file=sys.stderr,
        )
    disk.write_json(work.with_suffix(".json"), json.loads(text))


def _check_ours(place: Path) -> None:
    if place.exists() and not place.is_dir():
        raise ValueError(f"out must leave {place} free, found a file: remove it")
    for path in place.iterdir() if place.exists() else ():
        if not OURS.fullmatch(path.name):
            raise ValueError(f"out must leave {place} free, found {path.name!r} in it: remove it")


def _remove(work: Path) -> None:
    """First the settings, which make it count."""
    work.with_suffix(".json").unlink(missing_ok=True)
    shutil.rmtree(work, ignore_errors=True)


def _tidy(place: Path) -> None:
    """Remove settings without work, and work without settings, which a kill has left."""
    for path in place.iterdir():
        is_whole = path.with_suffix("").is_dir() and path.with_suffix(".json").exists()
        if path.name != ".lock" and (path.suffix == ".tmp" or not is_whole):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
