"""What the documents show runs, and every public name is in them."""

import doctest
import importlib
import importlib.metadata
import json
import os
import pkgutil
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path
from xml.etree import ElementTree

import pytest
import test_architecture

import aucmax

ROOT = Path(__file__).parent.parent
MODULES = [m.name for m in pkgutil.walk_packages(aucmax.__path__, prefix="aucmax.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


API = (ROOT / "docs" / "api.rst").read_text(encoding="utf-8")


def names_in_the_reference() -> dict[str, object]:
    """What each of its directives shows, by its full name."""
    found, module = {}, ""
    directives = (
        r"\.\. (currentmodule|auto\w+):: (\S+)\n(?:   :members:((?:.*\n)(?:    +\S.*\n)*))?"
    )
    for kind, name, members in re.findall(directives, API):
        if kind in ("currentmodule", "automodule"):
            module = name
        if kind == "automodule":
            shown = importlib.import_module(name)
            listed = re.findall(r"\w+", members) or getattr(shown, "__all__", None)
            listed = listed or [x for x, y in vars(shown).items() if is_of(shown, x, y)]
            found |= {f"{name}.{x}": getattr(shown, x) for x in listed}
        elif kind != "currentmodule":
            full = name if name.startswith("aucmax.") else f"{module}.{name}"
            place, _, last = full.rpartition(".")
            found[full] = getattr(importlib.import_module(place), last)
    return found


def is_of(module: object, name: str, value: object) -> bool:
    return not name.startswith("_") and getattr(value, "__module__", "") == module.__name__


NAMES = names_in_the_reference()


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example(name: str) -> None:
    on_the_page = "\n".join(re.findall(r"^    (?:>>>|\.\.\.) .*", API, flags=re.M))
    used = re.search(rf"\b{name.rpartition('.')[2]}\b", on_the_page)
    assert ">>>" in (NAMES[name].__doc__ or "") or used


def test_code_in_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
        auc = float(re.search(r"test AUC ([\d.]+)", capsys.readouterr().out)[1])
        assert auc > 0.9


def test_commands_in_the_readme_run(tmp_path: Path) -> None:
    block = re.search(r"```\n(pip install.*?)```", (ROOT / "README.md").read_text(), flags=re.S)[1]
    install, *commands = [line.split("#")[0].split() for line in block.splitlines()]
    assert install[:2] == ["pip", "install"]
    rows = [f"{n % 7},{'ab'[n % 2]},{'yes' if n % 7 > 4 else 'no'}" for n in range(70)]
    for name in ("customers.csv", "new.csv"):
        (tmp_path / name).write_text("\n".join(["calls,plan,churned", *rows]))
    for program, *arguments in commands:
        assert program == "aucmax"
        done = subprocess.run(
            [sys.executable, "-m", "aucmax", *arguments],
            cwd=tmp_path, capture_output=True, text=True, check=False,
            env=os.environ | {"MPLBACKEND": "module://of_a_notebook"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "customers-model" / "report.html").exists()
    assert "probability of yes" in done.stdout


def test_links_in_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)", (ROOT / "README.md").read_text())
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link).exists()] == []


TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


@pytest.mark.parametrize("source", TUTORIALS, ids=lambda path: path.stem)
def test_tutorials_were_run_as_they_stand(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    written = importlib.import_module("run_tutorials").read(source)
    stored = json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))
    cells = [(x["cell_type"], "".join(x["source"])) for x in stored["cells"]]
    assert cells == [(x.cell_type, x.source) for x in written.cells], "make docs"
    outputs = [output for cell in stored["cells"] for output in cell.get("outputs", [])]
    assert {x["output_type"] for x in outputs} <= {"stream", "execute_result"}
    assert len(json.dumps(outputs)) < 20_000


def blocks_of(name: str) -> list[str]:
    page = (ROOT / "docs" / name).read_text()
    blocks = re.findall(r"\.\. code-block:: python\n\n((?:    .*\n|\n)+)", page)
    return [textwrap.dedent(block) for block in blocks]


PAGES = [("recipes.rst", number) for number in range(4)]
PAGES += [("tables.rst", 0), ("files.rst", 0), *(("training.rst", i) for i in range(3))]
PAGES += [
    ("images.rst", 0),
    ("losses.rst", 0),
    ("experiments.rst", 0),
    ("experiments.rst", 1),
    ("boosting.rst", 0),
]


@pytest.mark.parametrize(("page", "number"), PAGES)
def test_recipes_run_and_rank(page: str, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    if page == "boosting.rst":
        pytest.importorskip("lightgbm")
    exec(compile(blocks_of(page)[number], page, "exec"), {})
    aucs = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    assert all(auc > 0.7 for auc in aucs)
    assert len(blocks_of(page)) == sum(name == page for name, _ in PAGES)


def test_every_public_name_is_in_the_api_reference() -> None:
    modules = {"history", "metrics", "stages"}
    shown = {name.removeprefix("aucmax.") for name in NAMES}
    assert set(aucmax.__all__) - modules <= shown
    assert all(any(name.startswith(f"{module}.") for name in shown) for module in modules)
    assert len(shown) > 100


@pytest.mark.parametrize("module", [aucmax.metrics, aucmax.stages, aucmax.history])
def test_modules_shown_whole_document_each_public_name(module) -> None:
    assert module.__all__
    assert all(getattr(module, name).__doc__ for name in module.__all__)


def test_the_files_that_the_page_on_architecture_names_are_there() -> None:
    page = (ROOT / "docs" / "architecture.rst").read_text()
    names = set(re.findall(r"``([\w/.]+(?:\.py|\.toml|\.rst|/))``", page))
    assert "train/_loop.py" in names
    roots = (ROOT, ROOT / "src" / "aucmax")
    assert [name for name in names if not any((root / name).exists() for root in roots)] == []


def test_the_map_shows_every_package_where_the_imports_have_it() -> None:
    drawn = ElementTree.parse(ROOT / "docs" / "_static" / "architecture.svg").getroot()
    boxes = [text for text in drawn.iter() if text.get("class") == "name"]
    height = {text.text: -float(text.get("y", "")) for text in boxes}
    assert height.keys() == test_architecture.LEVEL.keys() - {"__main__"}
    for name, level in test_architecture.LEVEL.items():
        lower = [x for x in height if test_architecture.LEVEL[x] < level]
        assert all(height[x] <= height.get(name, 0.0) for x in lower), name


def luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return sum(share * x for share, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize(("theme", "page"), [("light", "#f8f9fb"), ("dark", "#1a1c1e")])
def test_links_stand_out_from_the_darkest_and_the_lightest_page(theme: str, page: str) -> None:
    options = runpy.run_path(str(ROOT / "docs" / "conf.py"))["html_theme_options"]
    for colour in options[f"{theme}_css_variables"].values():
        low, high = sorted([luminance(colour), luminance(page)])
        assert (high + 0.05) / (low + 0.05) >= 4.5  # WCAG 2, AA


def test_versions_agree() -> None:
    version = aucmax.__version__
    assert importlib.metadata.version("aucmax") == version
    assert f"version: {version}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()
