"""How long does ``import aucmax`` take beside ``import torch``, in fresh interpreters?

python benchmarks/imports.py
"""

from __future__ import annotations

import subprocess
import sys

from _timing import Bench, Work, main


def fresh(code: str) -> Work:
    """Return a function that runs code in a new interpreter."""
    return lambda: subprocess.run([sys.executable, "-c", code], check=True)


def measure(bench: Bench) -> None:
    """Time imports; the start of the interpreter counts for all of them."""
    names = bench.size(("torch", "aucmax"), ("sys",))
    works = {name: fresh(f"import {name}") for name in names}
    if not bench.tiny:
        works["from aucmax import AUCClassifier"] = fresh("from aucmax import AUCClassifier")
        works["aucmax --version"] = fresh("from aucmax.cli import main; main(['--version'])")
    bench.compare("fresh interpreter", works, rounds=11)


if __name__ == "__main__":
    main(measure, __doc__)
