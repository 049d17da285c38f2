"""Which way the modules of aucmax import each other, and what they keep to themselves.

An import counts wherever it stands: at the top, inside a function, under ``TYPE_CHECKING``.
"""

import ast
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import aucmax

ROOT = Path(aucmax.__file__).parent

# Each row may import from the rows above it, and none from its own row.
LAYERS = [
    [
        "version",
        "checks",
        "disk",
        "distributed",
        "extras",
        "processes",
        "progress",
        "random_state",
        "row_groups",
    ],
    ["signals", "search", "threads", "onnx_file"],
    ["kernels"],
    ["stages", "metrics", "loss", "optim"],
    ["sharding", "data", "models", "history", "boosting"],
    ["checkpoint"],
    ["train"],
    ["judge"],
    ["report"],
    ["tables", "images"],
    ["cli"],
    ["__main__"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
MAY_IMPORT_ELSEWHERE = {  # what is not aucmax or Python's own
    "optim": {"torch"},
    "loss": {"torch", "numpy"},
    "stages": {"torch", "numpy"},
    "metrics": {"torch", "numpy"},
    "boosting": {"numpy"},
}
MAY_IMPORT = {"optim": {"checks", "kernels"}}


# ---- Reading the modules -------------------------------------------------------------------------


def name_of(path):
    relative = path.relative_to(ROOT).with_suffix("")
    return ".".join(["aucmax", *(x for x in relative.parts if x != "__init__")])


TREES = {name_of(path): ast.parse(path.read_text("utf-8")) for path in sorted(ROOT.rglob("*.py"))}


def part_of(module):
    """The part of aucmax that a dotted name belongs to, "" for the package itself."""
    return module.split(".")[1] if "." in module else ""


NAMEDTUPLE = {"_asdict", "_field_defaults", "_fields", "_make", "_replace"}  # public all the same


def is_private(name):
    return name.startswith("_") and not name.endswith("__") and name not in NAMEDTUPLE


def imports(module):
    """Dotted name, and the name it is bound to, of all that is imported."""
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, alias.asname or alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports must be absolute"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", alias.asname or alias.name
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            yield from ((x.value, "") for x in node.args if isinstance(x, ast.Constant))


def own_imports(module):
    """What a module imports of aucmax: dotted names, of modules or of what is in them."""
    return [(name, bound) for name, bound in imports(module) if name.split(".")[0] == "aucmax"]


def module_of(name):
    """The module that a dotted name is, or is in."""
    while name not in TREES:
        name = name.rpartition(".")[0]
    return name


def imported_modules(module):
    return {module_of(name) for name, _ in own_imports(module)} - {"aucmax"}


PARTS = {part_of(module) for module in TREES} - {""}


def modules_of(part):
    return [module for module in TREES if part_of(module) == part]


# ---- Direction -----------------------------------------------------------------------------------


def against_the_direction(part):
    """Such as "report -> tables", for each other part that this one must not know."""
    for module in modules_of(part):
        for other in {part_of(m) for m in imported_modules(module)} - {part}:
            known = other in MAY_IMPORT.get(part, LEVEL)
            if not known or LEVEL[other] >= LEVEL[part]:
                yield f"{part} -> {other}"


def test_imports_point_one_way():
    assert not PARTS - LEVEL.keys(), "give it a place in LAYERS"
    assert not {wrong for part in PARTS for wrong in against_the_direction(part)}


def test_the_core_knows_torch_and_numpy_alone():
    for part, allowed in MAY_IMPORT_ELSEWHERE.items():
        for module in modules_of(part):
            roots = {name.split(".")[0] for name, _ in imports(module)} - {"aucmax"}
            other = roots - allowed - set(sys.stdlib_module_names)
            assert not other, f"{module} imports {sorted(other)}"


def test_nobody_imports_from_the_package_itself():
    """Which re-exports what is in others, and so would be imported in a circle."""
    for module in set(TREES) - {"aucmax"}:
        for name, _ in own_imports(module):
            assert module_of(name) != "aucmax", f"{module} imports {name}"


# ---- Cycles --------------------------------------------------------------------------------------


def cycle_in(part):
    """Modules of a part that import each other in a circle."""
    inside = set(modules_of(part))
    graph = {module: (imported_modules(module) & inside) - {module} for module in inside}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_cycle_inside_a_part():
    assert not {part: cycle_in(part) for part in PARTS if cycle_in(part)}


# ---- Private names -------------------------------------------------------------------------------


def uses_of(module):
    """Dotted names of aucmax's modules, and of what is in them, that a module uses."""
    bound = {}
    for name, alias in own_imports(module):
        yield name
        if module_of(name) == name:
            bound[alias] = name if alias != "aucmax" else "aucmax"
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            if first in bound:
                yield f"{bound[first]}.{rest}"


def private_names(tree):
    """What a module defines for itself: functions, methods, classes, variables, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names = [node.id]
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names = [node.attr]
        else:
            continue
        yield from filter(is_private, names)


PRIVATE = {
    part: {name for module in modules_of(part) for name in private_names(TREES[module])}
    for part in PARTS
}


def others_private(part):
    elsewhere = set().union(*(names for other, names in PRIVATE.items() if other != part))
    for module in modules_of(part):
        for name in uses_of(module):
            steps = name.split(".")[1:]
            hidden = [i for i, step in enumerate(steps) if is_private(step)]
            if hidden and steps[0] != part:
                yield f"{part} -> {'.'.join(steps[: hidden[0] + 1])}"
        for node in ast.walk(TREES[module]):
            if isinstance(node, ast.Attribute) and node.attr in elsewhere - PRIVATE[part]:
                yield f"{part} -> .{node.attr}"


def test_private_names_stay_in_their_part():
    assert not {name for part in PARTS for name in others_private(part)}


# ---- Manners -------------------------------------------------------------------------------------


def test_the_optimizers_print_nothing():
    assert modules_of("optim")
    for module in modules_of("optim"):
        calls = [node for node in ast.walk(TREES[module]) if isinstance(node, ast.Call)]
        assert "print" not in [c.func.id for c in calls if isinstance(c.func, ast.Name)]
