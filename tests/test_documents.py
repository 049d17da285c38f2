"""Examples in docstrings, README and documentation run."""

import doctest
import importlib
import importlib.metadata
import json
import re
import textwrap
from contextlib import chdir
from pathlib import Path

import pytest

import aucmax
from aucmax.cli import main

ROOT = Path(__file__).parent.parent
SOURCE = Path(aucmax.__file__).parent
WITH_EXAMPLES = [
    path
    for path in sorted(SOURCE.rglob("*.py"))
    if re.search(r"^ *>>> ", path.read_text("utf-8"), flags=re.M)
]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_examples_in_docstrings_run(path: Path) -> None:
    name = ".".join(["aucmax", *path.relative_to(SOURCE).with_suffix("").parts])
    module = importlib.import_module(name.removesuffix(".__init__"))
    found = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert found.attempted
    assert not found.failed


def test_every_public_name_is_in_the_api_reference() -> None:
    page = (ROOT / "docs" / "api.rst").read_text(encoding="utf-8")
    assert [x for x in aucmax.__all__ if not re.search(rf"\b{x}\b", page)] == []


def test_code_in_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
        auc = float(re.search(r"test AUC ([\d.]+)", capsys.readouterr().out)[1])
        assert auc > 0.9


def test_commands_in_the_readme_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    block = re.search(r"```\n(\. \.venv.*?)```", (ROOT / "README.md").read_text(), flags=re.S)[1]
    _, *commands = [line.split("#")[0].split() for line in block.splitlines()]
    assert [command for _, command, *_ in commands] == ["fit", "predict", "evaluate"]
    rows = [f"{n % 7},{'ab'[n % 2]},{'yes' if n % 7 > 4 else 'no'}" for n in range(70)]
    for name in ("customers.csv", "new.csv", "labelled.csv"):
        (tmp_path / name).write_text("\n".join(["calls,plan,churned", *rows]))
    with chdir(tmp_path):
        for program, command, *arguments in commands:
            assert program == "aucmax"
            main([command, *arguments, *(["--quality", "fast"] if command == "fit" else [])])
    assert (tmp_path / "customers-model" / "report.html").exists()
    assert "probability of yes" in capsys.readouterr().out


def test_links_in_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)", (ROOT / "README.md").read_text())
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link).exists()] == []


TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


@pytest.mark.parametrize("source", TUTORIALS, ids=lambda path: path.stem)
def test_tutorials_were_run_as_they_stand(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    written = importlib.import_module("run_tutorials").read(source)
    text = source.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert "/site-packages/" not in text  # a path of the machine that ran it
    stored = json.loads(text)
    cells = [(x["cell_type"], "".join(x["source"])) for x in stored["cells"]]
    assert cells == [(x.cell_type, x.source) for x in written.cells], "make docs"
    outputs = [output for cell in stored["cells"] for output in cell.get("outputs", [])]
    assert {x["output_type"] for x in outputs} <= {"stream", "execute_result"}
    assert len(json.dumps(outputs)) < 20_000


def blocks_of(name: str) -> list[str]:
    page = (ROOT / "docs" / f"{name}.rst").read_text()
    blocks = re.findall(r"\.\. code-block:: python\n\n((?:    .*\n|\n)+)", page)
    return [textwrap.dedent(block) for block in blocks]


PAGES = ["boosting", "files", "images", "losses", "recipes", "tables", "training"]
BLOCKS = [(page, k) for page in PAGES for k in range(len(blocks_of(page)))]


@pytest.mark.parametrize(("page", "number"), BLOCKS)
def test_recipes_run_and_rank(page: str, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    if page == "boosting":
        pytest.importorskip("lightgbm")
    exec(compile(blocks_of(page)[number], page, "exec"), {})
    aucs = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    assert all(auc > 0.7 for auc in aucs)


def test_versions_agree() -> None:
    version = aucmax.__version__
    assert importlib.metadata.version("aucmax") == version
    assert f"version: {version}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()
