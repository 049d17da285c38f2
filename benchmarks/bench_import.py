"""``import aucmax`` against ``import torch``, each in a fresh interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from _timing import against, alternate


def fresh_import(module: str) -> Callable[[], object]:
    """Start an interpreter that imports the module and ends."""
    return lambda: subprocess.run([sys.executable, "-c", f"import {module}"], check=True)


def measure(module: str = "aucmax") -> dict[str, Any]:
    """Seconds and the ratio, the interpreter's own start included in both."""
    runs = {"torch": fresh_import("torch"), module: fresh_import(module)}
    return {"import": against("torch", alternate(runs, rounds=11))}


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:]), indent=2))
