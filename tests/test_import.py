"""What importing aucmax brings along, and what it offers."""

import subprocess
import sys

import test_architecture

import aucmax

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


def test_no_new_import_against_the_architecture():
    """Which :mod:`test_architecture` looks at part by part."""
    for part in test_architecture.PARTS:
        assert not {*test_architecture.against_the_direction(part)}
        assert not {*test_architecture.others_private(part)}
        assert test_architecture.cycle_in(part) == []


def in_fresh_python(code):
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_importing_aucmax_needs_torch_and_numpy_alone():
    code = f"import sys, aucmax; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    assert in_fresh_python(code) == []


def test_importing_aucmax_draws_no_random_number():
    code = (
        "import torch; before = torch.get_rng_state(); import aucmax; "
        "print(torch.equal(before, torch.get_rng_state()))"
    )
    assert in_fresh_python(code) == ["True"]


def test_every_public_name_is_there():
    assert len(set(aucmax.__all__)) == len(aucmax.__all__)
    for name in aucmax.__all__:
        assert getattr(aucmax, name) is not None
