"""Optuna, which searches need and nothing else does."""

from __future__ import annotations

from typing import Any


def require_optuna() -> Any:
    """The package, or an error that says what to install."""
    try:
        import optuna
    except ImportError as error:
        raise ValueError(
            f"tune needs the package optuna: pip install 'aucmax[tune]' ({error})"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
