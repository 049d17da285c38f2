"""Optuna, which the searches for options need and nothing else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aucmax.extras import needed


def require_optuna() -> Any:
    """The package, or an error that says what to install."""
    with needed("tune", "tune"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_journal(path: Path) -> Any:
    """Optuna's storage in a file of a folder that this process has locked.

    What a killed process left of a line, and its lock, are removed.
    """
    storages = require_optuna().storages
    path.with_name(path.name + ".lock").unlink(missing_ok=True)
    if path.exists():
        content = path.read_bytes()
        with path.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)
    return storages.JournalStorage(storages.journal.JournalFileBackend(str(path)))
