"""Files and folders that are written whole or not at all, by one process at a time."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Another name to write ``path`` under: flushed and renamed on success, removed on failure.

    Raises:
        OSError: if it could not be written; what was there before is whole.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        yield temporary
        _flush(temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise OSError(error.errno, f"could not write it: {error.strerror}", str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
    _flush(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file in one piece."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file in one piece."""
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file; ValueError if it is none."""
    return json.loads(path.read_text(encoding="utf-8"))


def replace_folder(folder: Path, fresh: Path) -> None:
    """Put a new folder, all of whose files are written, where another may be."""
    for path in (fresh, *fresh.rglob("*")):
        _flush(path)
    before = folder.with_name(folder.name + ".before")
    if folder.exists():
        shutil.rmtree(before, ignore_errors=True)  # of a call that was killed
        folder.rename(before)
    fresh.rename(folder)
    _flush(folder.parent)
    shutil.rmtree(before, ignore_errors=True)


def make_folder(folder: Path, argument: str) -> None:
    """Make a folder, if need be, that files can be written to.

    Raises:
        ValueError: which names the argument, if that cannot be.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"{argument} must be a folder that can be written to, found {folder}: {error.strerror}"
        ) from None


def lock_folder(folder: Path, refusal: str) -> IO[str]:
    """Lock a folder until the file that is returned is closed.

    It is a record lock: worker processes that outlive a killed parent do not hold it.

    Raises:
        ValueError: with ``refusal`` as its message, if another process has locked it.
    """
    lock = (folder / ".lock").open("w")
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise ValueError(refusal) from None
        raise
    return lock


def sha256(path: Path) -> str:
    """The digest of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, have reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
