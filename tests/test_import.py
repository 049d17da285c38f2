"""What importing aucmax brings along, and which way its modules import each other."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import aucmax

ROOT = Path(aucmax.__file__).parent
HEAVY = [
    "sklearn",
    "scipy",
    "pandas",
    "pyarrow",
    "matplotlib",
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

# Each row may import from the rows above it. `optim` knows torch and the checks alone.
LAYERS = [
    [
        "_version",
        "checks",
        "disk",
        "distributed",
        "processes",
        "progress",
        "random_state",
        "search",
    ],
    ["kernels"],
    ["sharding", "stages", "metrics"],
    ["loss", "data", "models", "history"],
    ["optim", "checkpoint"],
    ["train"],
    ["judge"],
    ["report"],
    ["tables", "paper"],
    ["cli"],
    ["__main__"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
MODULES = sorted(ROOT.rglob("*.py"))


def part_of(module):
    """The part of aucmax that a dotted name belongs to, "" for the package itself."""
    return module.split(".")[1] if "." in module else ""


def name_of(path):
    relative = path.relative_to(ROOT).with_suffix("")
    return ".".join(["aucmax", *(x for x in relative.parts if x != "__init__")])


def imported(path):
    """Every module a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from names_from(node)


def names_from(node):
    """`from aucmax import checks` imports a module, `from aucmax.checks import x` from one."""
    if node.module == "aucmax":
        return [f"aucmax.{alias.name}" for alias in node.names]
    return [node.module]


def own_imports(path):
    return [m for m in imported(path) if m.split(".")[0] == "aucmax"]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_one_way(path):
    part = part_of(name_of(path))
    if not part:
        return  # the package itself re-exports
    assert part in LEVEL, f"give {part} a place in LAYERS"
    for module in own_imports(path):
        other = part_of(module)
        assert other == part or LEVEL.get(other, 99) < LEVEL[part], f"{part} imports {module}"


OPTIM = [path for path in MODULES if part_of(name_of(path)) == "optim"]


def test_the_optimizers_are_found():
    assert OPTIM


@pytest.mark.parametrize("path", OPTIM, ids=name_of)
def test_the_optimizers_know_torch_only(path):
    for module in imported(path):
        root = module.split(".")[0]
        if root == "aucmax":
            assert part_of(module) in ("checks", "kernels", "optim", ""), module
        else:
            assert root == "torch" or root in sys.stdlib_module_names, module


@pytest.mark.parametrize("path", OPTIM, ids=name_of)
def test_the_optimizers_print_nothing(path):
    calls = [n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.Call)]
    assert not [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"]


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
