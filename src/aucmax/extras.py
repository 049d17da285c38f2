"""Packages that aucmax alone does without, and what to install for those that need them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class NotInstalledError(ImportError):
    """A package that only an extra of aucmax brings is not there."""


@contextmanager
def needed(what: str, extra: str) -> Iterator[None]:
    """Import within it what an extra brings; if that is not there, one line says what to install.

    Args:
        what: a name or command that needs the packages.
        extra: of ``pyproject.toml``, which brings them.

    Raises:
        NotInstalledError: in place of the error that names the package alone.

    Example:
        >>> with needed("tune", "tune"):
        ...     import no_such_package
        Traceback (most recent call last):
        aucmax.extras.NotInstalledError: tune needs no_such_package: pip install 'aucmax[tune]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "aucmax":
            raise
        line = f"{what} needs {package}: pip install 'aucmax[{extra}]'"
        raise NotInstalledError(line, name=error.name) from None
