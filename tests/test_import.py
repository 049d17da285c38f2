"""What importing aucmax brings along, and what it offers."""

import contextlib
import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

import aucmax

ROOT = Path(__file__).parent.parent
LIGHT = ROOT / "tests" / "helpers" / "light_install.py"
HEAVY = [
    "sklearn",
    "scipy",
    "pandas",
    "pyarrow",
    "matplotlib",
    "jinja2",
    "rich",
    "tyro",
    "optuna",
    "onnx",
    "onnxscript",
    "tabm",
    "safetensors",
    "tensorboard",
    "triton",
]


def in_fresh_python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_importing_aucmax_needs_torch_and_numpy_alone_and_draws_nothing():
    code = (
        "import sys, torch; before = torch.get_rng_state(); import aucmax; "
        "print(torch.equal(before, torch.get_rng_state())); "
        f"print(*[m for m in {HEAVY!r} if m in sys.modules])"
    )
    assert in_fresh_python(code) == ["True"]


def test_every_public_name_is_there():
    assert len(set(aucmax.__all__)) == len(aucmax.__all__)
    for name in aucmax.__all__:
        assert getattr(aucmax, name) is not None


# ---- A light install -----------------------------------------------------------------------------


def packages_without_extras():
    """Those that come with aucmax alone: what it requires, what these require, and so on."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found, lines = set(), list(project["dependencies"])
    while lines:
        line = Requirement(lines.pop())
        name = line.name.lower().replace("_", "-")
        if name in found or (line.marker and not line.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # as Triton may be
            lines += importlib.metadata.requires(name) or []
    return found


HIDE = """
import runpy, sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *rest):
        return None if name.partition(".")[0] in {hidden} else self.finder.find_spec(name, *rest)

sys.meta_path = [Without(finder) for finder in sys.meta_path]
runpy.run_path({script!r}, run_name="__main__")
"""


def test_without_extras_the_core_works_and_the_rest_says_what_to_install():
    """As if only that were installed; ``make dist`` installs it so."""
    kept = packages_without_extras()
    assert {"torch", "numpy", "safetensors", "rich"} <= kept
    hidden = {
        name
        for name, packages in importlib.metadata.packages_distributions().items()
        if not {x.lower().replace("_", "-") for x in packages} & {*kept, "aucmax"}
    }
    assert {"pyarrow", "tyro", "matplotlib"} <= hidden
    assert in_fresh_python(HIDE.format(hidden=hidden, script=str(LIGHT)))[-1] == "works"
