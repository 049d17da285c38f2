"""How a command ends that cannot be done: one line and an exit code."""

from __future__ import annotations

import sys
from typing import NoReturn


def fail(message: str, code: int = 2) -> NoReturn:
    """Say it on standard error and end."""
    print(f"aucmax: error: {' '.join(message.split())}", file=sys.stderr)
    raise SystemExit(code)
