"""The version, where everything that needs it can import it."""

import re

__version__ = "0.3.0.dev0"


def is_newer(version: str) -> bool:
    """Whether a version comes after this one, by its first three numbers.

    Example:
        >>> is_newer("99.0.0"), is_newer("0.2.0"), is_newer(__version__)
        (True, False, False)
    """
    return _numbers(version) > _numbers(__version__)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]
