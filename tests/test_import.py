"""What importing aucmax brings along, and what it offers."""

import contextlib
import importlib.metadata
import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import aucmax
from aucmax.models import resnet20

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


# ---- Names of 0.2 --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("aucmax.AUCWithCrossEntropy", r"auc \+ 0.5 \* CrossEntropy"),
        ("aucmax.loss.binary", r"import from aucmax\.loss$"),
        ("aucmax.loss.objective", r"import from aucmax\.loss\.saddle$"),
        ("aucmax.loss.pairs", r"import from aucmax\.loss\.pairwise$"),
        ("aucmax.optim.iterate_average", r"import from aucmax\.optim$"),
        ("aucmax.metrics.delong_test", r"aucmax\.metrics\.compare"),
        ("aucmax.data.augment", r"import from aucmax\.images\.augment$"),
        ("aucmax.data.sources", r"import from aucmax\.data\.batches$"),
        ("aucmax.models.side_by_side", r"import from aucmax\.models\.tabular$"),
    ],
)
def test_former_names_name_the_new_place(old, new):
    package, _, name = old.rpartition(".")
    with pytest.raises(ImportError, match=new):
        exec(f"from {package} import {name}")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        importlib.import_module(package).nothing  # noqa: B018


LOSSES = [getattr(aucmax, name) for name in aucmax.__all__ if name.endswith("Loss")]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_former_arguments_name_the_new_ones(loss):
    with pytest.raises(
        ValueError, match=r"debug is no longer .* found debug=True: call loss\.check"
    ):
        loss(debug=True)
    assert "debug" not in inspect.signature(loss).parameters


def test_former_arguments_of_single_functions():
    with pytest.raises(ValueError, match=r"prior is no longer .* pass data_prior"):
        aucmax.AveragePrecisionLoss(prior=0.1)
    with pytest.raises(ValueError, match=r"fused is no longer .*experiments/resnet20"):
        resnet20(fused=True)


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
