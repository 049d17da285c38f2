"""A folder for one process at a time."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO


def take(folder: Path, refusal: str) -> IO[str]:
    """Lock a folder until the file that is returned is closed; ValueError if another has it.

    A record lock: worker processes that outlive a killed parent do not hold it.
    """
    lock = (folder / ".lock").open("w")
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise ValueError(refusal) from None
    return lock
