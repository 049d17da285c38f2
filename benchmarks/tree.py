"""Count a source tree: files, lines, and functions and modules that one place alone uses.

    python benchmarks/tree.py src/aucmax
    python benchmarks/tree.py ../before/src/aucmax src/aucmax

By the syntax alone, nothing is imported. A function or a private method counts as used once if its
name occurs once outside its definition, imports left out; names in an ``__all__`` are for users and
do not count. A module counts as used once if one other imports from it.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

COLUMNS = ("files", "imported once", "lines", "functions", "used once")
LISTS = ("__all__", "_NAMES", "_LATER")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Module:
    """One file, read."""

    name: str
    """Dotted."""
    part: str
    """The package directly below the root, or "" for files in the root itself."""
    lines: int
    tree: ast.Module
    imports: set[str] = field(default_factory=set)


def read(root: Path) -> dict[str, Module]:
    """All modules of a package by their names."""
    modules = {}
    for path in sorted(root.rglob("*.py")):
        text, relative = path.read_text("utf-8"), path.relative_to(root)
        steps = [step for step in relative.with_suffix("").parts if step != "__init__"]
        name = ".".join([root.name, *steps])
        part = relative.parts[0] if len(relative.parts) > 1 else ""
        modules[name] = Module(name, part, text.count("\n"), ast.parse(text))
    for module in modules.values():
        module.imports = imported(module.tree, modules) - {module.name}
    return modules


def imported(tree: ast.Module, modules: dict[str, Module]) -> set[str]:
    """The modules of the package that one imports from, wherever the import stands."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name if name in modules else name.rpartition(".")[0] for name in names} & {*modules}


def occurrences(tree: ast.AST) -> Counter[str]:
    """How often each name is used, as a name or after a dot."""
    return Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    )


def functions(tree: ast.Module) -> list[Function]:
    """Those of the module itself, and the private methods of its classes."""
    own = [node for node in tree.body if isinstance(node, Function)]
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            methods = [x for x in node.body if isinstance(x, Function)]
            own += [x for x in methods if x.name.startswith("_") and not x.name.endswith("__")]
    return own


def offered(modules: dict[str, Module]) -> set[str]:
    """The names of every ``__all__``, and of the table of a package that loads them later."""
    names = set()
    for module in modules.values():
        for node in module.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in LISTS:
                texts = (x.value for x in ast.walk(node.value) if isinstance(x, ast.Constant))
                names |= {text for text in texts if isinstance(text, str)}
    return names


def count(root: Path) -> dict[str, Counter[str]]:
    """The columns by part."""
    modules = read(root)
    used = sum((occurrences(module.tree) for module in modules.values()), Counter[str]())
    importers = Counter(name for module in modules.values() for name in module.imports)
    public, rows = offered(modules), defaultdict[str, Counter[str]](Counter)
    for module in modules.values():
        own = functions(module.tree)
        once = [f for f in own if used[f.name] - occurrences(f)[f.name] == 1]
        rows[module.part] += Counter(
            {
                "files": 1,
                "lines": module.lines,
                "functions": len(own),
                "used once": sum(f.name not in public for f in once),
                "imported once": int(importers[module.name] == 1),
            }
        )
    return dict(sorted(rows.items()))


def table(rows: dict[str, Counter[str]]) -> str:
    """The columns as text, with the sums below."""
    total = sum(rows.values(), Counter[str]())
    shown = [("", COLUMNS)]
    for part, row in [*rows.items(), ("in all", total)]:
        shown.append((part or "(top level)", tuple(f"{row[name]:,}" for name in COLUMNS)))
    return "\n".join(f"{part:<12}" + "".join(f"{x:>15}" for x in row) for part, row in shown)


def main() -> None:
    """Print a table for each tree."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="+", type=Path, help="a package's folder")
    for root in parser.parse_args().root:
        print(f"{root}\n{table(count(root))}\n")


if __name__ == "__main__":
    main()
