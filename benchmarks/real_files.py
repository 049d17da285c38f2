"""Show what two source trees make of files with the flaws of real ones: a table in Markdown.

    python benchmarks/real_files.py ../before/src src
    python benchmarks/real_files.py ../before/src src --only labels placeholders

Each tree runs every case in a process of its own, on the tables of tests/files/tables and on some
that are made here. Only what both trees have is called; an option that the older one does not know
shows as its error.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

TABLES = Path(__file__).parents[1] / "tests" / "files" / "tables"
CASES: dict[str, Callable[[Path], str]] = {}
LONGEST = 240


def case(function: Callable[[Path], str]) -> Callable[[Path], str]:
    """Enter a function, whose docstring names the flaw that it shows; it gets an empty folder."""
    CASES[str(function.__doc__).rstrip(".")] = function
    return function


def aucmax(*arguments: Any) -> str:
    """What the command line says."""
    from aucmax.cli import main

    said = io.StringIO()
    with (
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
        contextlib.suppress(SystemExit),
        warnings.catch_warnings(action="ignore"),
    ):
        main([str(each) for each in arguments])
    return said.getvalue()


def auc_of(said: str) -> str:
    """The AUC among what a command said, or its error."""
    found = re.search(r"AUC (\d\.\d+)", said)
    return f"AUC {float(found[1]):.2f}" if found else last_line(said)


def last_line(said: str) -> str:
    """What was said last."""
    return said.strip().splitlines()[-1] if said.strip() else "nothing"


def noted(said: str, pattern: str) -> str:
    """The note of that pattern, or that there is none."""
    notes = [line for line in said.splitlines() if line.startswith("note:")]
    return next((note for note in notes if re.search(pattern, note)), "no note")


# ---- Tables of 400 rows --------------------------------------------------------------------------


def customers(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    """Two columns tell the target in part."""
    random = np.random.default_rng(seed)
    y = random.random(rows) < 0.3
    return pd.DataFrame(
        {
            "income": random.normal(50 + 9 * y, 9).round(2),
            "debt": random.normal(20 - 5 * y, 6).round(2),
            "plan": random.choice(["basic", "plus", "N/A"], rows),
            "y": np.where(y, "yes", "no"),
        }
    )


def with_marks(table: pd.DataFrame, mark: str, columns: tuple[str, ...]) -> pd.DataFrame:
    """The table with a mark in one of 33 rows of the columns."""
    table = table.astype(dict.fromkeys(columns, object))
    for place, column in enumerate(columns):
        table.loc[place::33, column] = mark
    return table


def fitted(folder: Path, table: pd.DataFrame) -> str:
    """What ``aucmax fit`` says of a table."""
    table.to_csv(folder / "train.csv", index=False)
    return aucmax("fit", folder / "train.csv", "--target", "y", "--out", folder / "model")


def notes_of(folder: Path, table: pd.DataFrame, of: str) -> str:
    """The notes on a column; a model of a few steps is in the folder."""
    from aucmax.tables import fit_file

    table.to_csv(folder / "train.csv", index=False)
    quick = {"max_steps": 40, "members": 2, "width": 16, "n_jobs": 1, "compare": False}
    with warnings.catch_warnings(action="ignore"):
        model = fit_file(folder / "train.csv", "y", out=folder / "model", progress=False, **quick)
    notes = [f"note: {note}" for note in model.evaluation.notes if f"{of!r}" in note]
    return " / ".join(notes) or "no note"


@case
def placeholders(folder: Path) -> str:
    """`?` in numbers."""
    said = fitted(folder, with_marks(customers().drop(columns="plan"), "?", ("income", "debt")))
    return f"{auc_of(said)}; {noted(said, 'missing')}"


@case
def without_placeholders(folder: Path) -> str:
    """The same table without `?`."""
    return auc_of(fitted(folder, customers().drop(columns="plan")))


@case
def placeholders_in_predict(folder: Path) -> str:
    """`?` in numbers to predict, none in training."""
    notes_of(folder, customers(), "income")
    with_marks(customers(50, 1), "?", ("income",)).to_csv(folder / "new.csv", index=False)
    said = aucmax("predict", folder / "model", folder / "new.csv", "--out", folder / "out.csv")
    return last_line(said).replace(str(folder), "")


@case
def one_meaning(folder: Path) -> str:
    """`N/A` in a text: by file and by `pandas.read_csv`."""
    notes_of(folder, customers(), "plan")
    import aucmax as library

    aucmax("predict", folder / "model", folder / "train.csv", "--out", folder / "out.csv")
    by_file = pd.read_csv(folder / "out.csv")["probability of yes"].to_numpy()
    model = library.AUCClassifier.load(folder / "model")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame = pd.read_csv(folder / "train.csv").drop(columns="y")
        by_pandas = model.predict_proba(frame)[:, 1]
    return f"probabilities up to {np.abs(by_file - by_pandas).max():.4f} apart"


# ---- The tables of the tests ---------------------------------------------------------------------


def column(name: str, of: str = "x") -> Callable[[Path], str]:
    """What a column of one of the tables is read as, with its first values."""

    def read(folder: Path) -> str:
        from aucmax.tables.files import read_table

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            values = read_table(TABLES / name)[of]
        first = ", ".join(map(_shown, values.to_pylist()[:2]))
        missing = f", {values.null_count} missing" if values.null_count else ""
        notes = "".join(f"; note: {each.message}" for each in caught)
        return f"{values.type}: {first}{missing}{notes}"

    return read


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else str(value)


CASES |= {
    "`-` in numbers": column("dashes.csv"),
    "`.` in numbers": column("points.csv"),
    "Blanks in numbers": column("blanks.csv"),
    "`None` in numbers": column("none-words.csv"),
    "`N/A` in a text": column("text-na.csv", "colour"),
    "Decimal commas": column("decimal-commas.csv"),
    "`1,234.50`": column("thousands.csv"),
    "`$500.00`": column("dollars.csv"),
    "`49.5%`": column("per-cent.csv"),
    "`16/11/2022`": column("dates-day-first.csv"),
    "`01.12.2022`": column("dates-points.csv"),
    "`01/02/2024`, either way": column("dates-ambiguous.csv"),
    "Latin-1": column("latin-1.csv", "city"),
    "UTF-16": column("utf-16-le-bom.csv", "city"),
    "Quoted line breaks": column("quoted-line-breaks.csv", "note"),
    "`sep=;` as a first line": column("sep-line.csv"),
    "Line ends of old Macs": column("cr.csv"),
    "A workbook called .csv": column("workbook.csv"),
    "A web page called .csv": column("page.csv"),
}


@case
def mostly_numbers(folder: Path) -> str:
    """A category that is mostly numbers."""
    table = customers()
    table["income"] = table["income"].astype(object).mask(table.index % 5 == 0, "low")
    return notes_of(folder, table, "income")


@case
def nearly_unique(folder: Path) -> str:
    """A category with nearly as many values as rows."""
    table = customers()
    table["plan"] = [f"no {k % 395}" for k in range(400)]
    return notes_of(folder, table, "plan")


# ---- Labels --------------------------------------------------------------------------------------


def labels(name: str) -> Callable[[Path], str]:
    """The labels of one of the tables, and what is said of them."""

    def read(folder: Path) -> str:
        from aucmax.tables.labeled import read_labeled

        rows = read_labeled(TABLES / name, "y")
        notes = "".join(f"; note: {note}" for note in rows.notes if "positive label" not in note)
        return f"{len(rows.labels)} labels: {', '.join(map(repr, rows.labels))}{notes}"

    return read


CASES |= {
    "Labels `yes`, ` Yes`, `YES`": labels("labels-case.csv"),
    "A NUL byte in a label": labels("labels-nul.csv"),
    "Labels 1 and 1.0": labels("labels-numbers.csv"),
    "Labels `?`, `NA`, `-`": labels("labels-missing.csv"),
}


# ---- Few positives -------------------------------------------------------------------------------


@case
def few_positives(folder: Path) -> str:
    """Eight positives to judge by."""
    table = customers(1000)
    extra = table.index[table["y"] == "yes"][40:]
    said = fitted(folder, table.drop(index=extra))
    lines = [
        line for line in said.splitlines() if re.match(r"AUC|against|.* positives|.*% of", line)
    ]
    return " / ".join(lines)


# ---- Interrupts ----------------------------------------------------------------------------------


@case
def interrupted(folder: Path) -> str:
    """Ctrl-C of `aucmax fit --out`."""
    customers(20_000).to_csv(folder / "train.csv", index=False)
    command = [sys.executable, "-c", "from aucmax.cli import main; main()", "fit"]
    command += [str(folder / "train.csv"), "--target", "y", "--out", str(folder / "model")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        while b"step" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[0].decode()
    return last_line(said.replace("\r", "\n")).replace(f"{folder}/", "")


# ---- Options -------------------------------------------------------------------------------------


@case
def options(folder: Path) -> str:
    """Options of `aucmax fit` and `predict`."""
    wanted = {
        "fit": ["weight", "threshold", "id", "device", "threads", "quiet", "dry-run", "decimal"],
        "predict": ["threshold", "explain", "id"],
    }
    absent = [
        f"{command} --{option}"
        for command, names in wanted.items()
        for option in names
        if f"--{option} " not in aucmax(command, "--help").replace("\n", " ")
    ]
    return f"none of {', '.join(absent)}" if absent else "all there"


# ---- Smaller -------------------------------------------------------------------------------------


@case
def id_notes(folder: Path) -> str:
    """Notes on an `id` column."""
    table = customers()
    table.insert(0, "id", [f"C{k:05}" for k in range(400)])
    return notes_of(folder, table, "id")


@case
def repeated_columns(folder: Path) -> str:
    """Two columns of one name in a DataFrame."""
    from aucmax import AUCClassifier

    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 2)), columns=["a", "a"])
    AUCClassifier().fit(frame, [0, 1] * 10)
    return "trained"


@case
def one_positive(folder: Path) -> str:
    """One positive in Python."""
    from aucmax import AUCClassifier

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        AUCClassifier(max_steps=10, n_jobs=1).fit(np.arange(40.0)[:, None], [1] + [0] * 39)
    return "; ".join(str(each.message) for each in caught) or "no warning"


@case
def sigmoid(folder: Path) -> str:
    """A network that ends in a sigmoid."""
    import torch

    from aucmax import fit

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Sigmoid())
    x = torch.randn(200, 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(model, (x, (x[:, 0] > 0).float()), steps=60, progress=False)
    return "; ".join(str(each.message) for each in caught) or "no warning"


# ---- Both trees ----------------------------------------------------------------------------------


def run(names: list[str]) -> None:
    """All cases with the aucmax that is found first; a line of JSON for each."""
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = CASES[name](Path(folder))
            except Exception as error:
                kind = type(error).__name__
                found = f"{kind}: {str(error).replace(f'{TABLES}/', '').replace(folder, '')}"
        print(json.dumps([name, " ".join(found.split())]), flush=True)


def results(tree: Path, names: list[str]) -> dict[str, str]:
    """What each case shows in a tree."""
    where = {**os.environ, "PYTHONPATH": str(tree.resolve()), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, __file__, "--here", "--only", *names]
    said = subprocess.run(command, env=where, stdout=subprocess.PIPE, check=True, text=True).stdout
    return dict(json.loads(line) for line in said.splitlines())


def cell(text: str) -> str:
    """A text for a table in Markdown."""
    short = text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
    return short.replace("|", "\\|")


def main() -> None:
    """Read the arguments, run both trees, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trees", nargs="*", type=Path, help="the folders above aucmax, old and new")
    parser.add_argument("--only", nargs="*", help="flaws, by a part of their names")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    wanted = given.only if given.only else [""]
    names = [name for name in CASES if any(part in name for part in wanted)]
    if given.here:
        run([name for name in CASES if name in wanted])
        return
    if len(given.trees) != 2:
        parser.error("two source trees are compared")
    old, new = (results(tree, names) for tree in given.trees)
    print("| flaw | before | after |\n|---|---|---|")
    for name in names:
        print(f"| {name} | {cell(old[name])} | {cell(new[name])} |")


if __name__ == "__main__":
    main()
