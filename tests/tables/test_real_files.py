"""Files with the flaws of real ones: each is understood as it was meant, or what is odd is said."""

import datetime as dt
import re
import tomllib
from pathlib import Path

import pytest

from aucmax.cli import main
from aucmax.tables.encoder import TableEncoder
from aucmax.tables.files import read
from aucmax.tables.hints import hints
from aucmax.tables.labeled import read_labeled

FOLDER = Path(__file__).parents[1] / "files" / "tables"
EXPECTED = tomllib.loads((FOLDER / "expected.toml").read_text("utf-8"))


def test_every_file_has_its_expectation():
    files = {path.name for path in FOLDER.iterdir()}
    assert files - {"expected.toml", "write.py", "__pycache__"} == EXPECTED.keys()


def value(cell):
    """As in the expectations: days for midnights, and UTC without saying so."""
    if isinstance(cell, dt.datetime):
        cell = cell.replace(tzinfo=None)
        return cell.date() if cell.time() == dt.time() else cell
    return "" if cell is None else cell


def understood(name):
    """The table, its columns' kinds, and all that is said of it but for the positive label."""
    found = read(FOLDER / name)
    notes = list(found.notes)
    if "y" in found.table.column_names and len(found.table.column_names) > 1:
        rows = read_labeled(FOLDER / name, "y")
        notes = [*rows.notes, *hints(rows, "y")]
        notes += TableEncoder(min_count=1).fit(rows.table).notes(rows.table)
    usual = r"is taken as the positive label|rows? (has|have) no 'y' and (is|are) left out$"
    kinds = {column: written.kind for column, written in found.formats.items()}
    return found.table, kinds, [note for note in notes if not re.search(usual, note)]


@pytest.mark.parametrize("name", EXPECTED)
def test_file(name):
    expected = EXPECTED[name]
    if "error" in expected:
        with pytest.raises(ValueError, match=expected["error"]) as caught:
            understood(name)
        assert "\n" not in str(caught.value)
        return
    table, kinds, notes = understood(name)
    if "same_as" in expected:
        other = read(FOLDER / expected["same_as"])
        assert table.to_pydict() == other.table.to_pydict()
        assert kinds == {column: written.kind for column, written in other.formats.items()}
    assert list(expected.get("columns", kinds).items()) == list(kinds.items())
    for column, cells in expected.get("cells", {}).items():
        found = table[column].to_pylist()[: len(cells)]
        assert list(map(value, found)) == list(map(value, cells))
    for column, count in expected.get("missing", {}).items():
        assert table[column].null_count == count
    if "labels" in expected:
        assert read_labeled(FOLDER / name, "y").labels == expected["labels"]
    wanted = expected.get("notes", [])
    assert [
        x for x in wanted if not any(re.search(x, note, re.IGNORECASE) for note in notes)
    ] == [], notes
    allowed = [*wanted, *expected.get("maybe", [])]
    assert [
        note for note in notes if not any(re.search(x, note, re.IGNORECASE) for x in allowed)
    ] == []


@pytest.mark.parametrize("name", [name for name in EXPECTED if EXPECTED[name].get("command")])
def test_file_by_the_command_line(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = EXPECTED[name]
    arguments = ["fit", str(FOLDER / name), "--target", "y", "--dry-run"]
    if "error" in expected:
        with pytest.raises(SystemExit) as end:
            main(arguments)
        out, said = capsys.readouterr()
        assert (end.value.code, out) == (2, "")
        assert re.fullmatch(rf"aucmax: error: .*{expected['error']}.*\n", said)
    else:
        main(arguments)
        said = "".join(capsys.readouterr())
        for column in expected.get("columns", {}):
            assert column == "y" or re.search(rf"^{re.escape(column)} +\S", said, re.MULTILINE)
        for pattern in expected.get("notes", []):
            assert re.search(f"note: .*{pattern}", said, re.IGNORECASE)
    assert list(tmp_path.iterdir()) == []
