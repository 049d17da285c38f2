"""Run the tutorials and keep what they print: ``make docs`` does it before it builds the site.

A tutorial is tutorials/NAME.md, text and code in MyST. NAME.ipynb holds the same with the outputs
of its last run, and is what the site shows: ``make test`` builds it without running anything. A
tutorial runs in an empty folder that is thrown away: what it needs it makes itself.

    python docs/run_tutorials.py             # all of them, two at a time
    python docs/run_tutorials.py churn       # one
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from myst_nb.core.read import read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig
from nbclient import NotebookClient
from traitlets.config import Config

TUTORIALS = Path(__file__).parent / "tutorials"
SECONDS = 120
"""A cell that takes longer is an error."""
AT_ONCE = 2
SURROUNDINGS = {"COLUMNS": "90", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}


def read(source: Path) -> nbformat.NotebookNode:
    """A tutorial's cells, without outputs."""
    text = source.read_text(encoding="utf-8")
    notebook = read_myst_markdown_notebook(text, MdParserConfig(), path=source)
    notebook.metadata.pop("source_map", None)
    for number, cell in enumerate(notebook.cells):
        cell.id = str(number)  # else it is drawn at random
    return notebook


def run(name: str) -> Path:
    """Run a tutorial in a folder of its own, and write it with its outputs."""
    notebook = read(TUTORIALS / f"{name}.md")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as sockets:
        by_files = {"transport": "ipc", "ip": f"{sockets}/kernel"}  # no network
        NotebookClient(
            notebook,
            timeout=SECONDS,
            record_timing=False,
            resources={"metadata": {"path": folder}},
            config=Config({"KernelManager": by_files}),
        ).execute()
        text = nbformat.writes(tidy(notebook))
    target = TUTORIALS / f"{name}.ipynb"
    text = text.replace(folder + "/", "").replace(folder, ".")
    text = re.sub(r"/[^\s\"]*/(site-packages|ipykernel_\d+)/", "", text)  # a warning names its file
    target.write_text(text + "\n", encoding="utf-8")
    return target


def tidy(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Leave out what other machines would have otherwise, and join what was printed in pieces."""
    notebook.metadata.language_info = {"name": "python", "pygments_lexer": "ipython3"}
    for cell in notebook.cells:
        outputs: list[nbformat.NotebookNode] = []
        for output in cell.get("outputs", []):
            output.get("metadata", {}).clear()
            before = outputs[-1] if outputs else {}
            if output.output_type == "stream" and before.get("name") == output.name:
                before.text += output.text
            else:
                outputs.append(output)
        if cell.cell_type == "code":
            cell.outputs = outputs
    return notebook


def main(names: list[str]) -> None:
    """Run those that are named, or all."""
    os.environ.update(SURROUNDINGS)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for written in pool.map(run, names or sorted(path.stem for path in TUTORIALS.glob("*.md"))):
            print(f"ran {written.stem}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
