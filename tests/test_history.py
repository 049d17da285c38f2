"""Records of a run: one JSON object per line, the same in memory and in the file."""

import json
import math

import pytest

from aucmax.history import History, read

RECORDS = [
    {"step": 1, "phase": "ppd-sg", "loss": 0.1 + 0.2, "alpha": None},
    {"step": 2, "phase": "ppd-sg", "loss": 1e-300, "a": [[0.5, 1.5], [2.5, -0.0]]},
    {"step": 3, "phase": "α, β and a\nnew line", "converged": True},
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.jsonl"


def strictly(line):
    """Parse a line as the JSON standard has it, which knows no NaN."""
    return json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_what_is_appended_is_read_back(path):
    with History(path) as records:
        for record in RECORDS:
            records.append(record)
        assert records.records == RECORDS
    assert read(path) == read(str(path)) == RECORDS


def test_a_line_per_record(path):
    with History(path) as records:
        for record in RECORDS:
            records.append(record)
    lines = path.read_text("utf-8").split("\n")
    assert [strictly(line) for line in lines[:-1]] == RECORDS
    assert lines[-1] == ""


def test_every_line_is_there_as_soon_as_it_is_appended(path):
    with History(path) as records:
        for k, record in enumerate(RECORDS, start=1):
            records.append(record)
            assert read(path) == RECORDS[:k]


def test_nan_and_infinity_are_null(path):
    with History(path) as records:
        records.append({"x": math.nan, "y": [math.inf, 1.0], "z": {"w": -math.inf}})
    expected = [{"x": None, "y": [None, 1.0], "z": {"w": None}}]
    assert [strictly(line) for line in path.read_text().splitlines()] == expected
    assert records.records == expected


def test_a_record_that_is_changed_later_changes_nothing(path):
    record = {"step": 1, "a": [1.0]}
    with History(path) as records:
        records.append(record)
        record["a"].append(2.0)
    assert records.records == read(path) == [{"step": 1, "a": [1.0]}]


def test_without_a_path_records_are_kept_in_memory(tmp_path):
    records = History()
    records.append({"step": 1})
    records.close()
    assert records.records == [{"step": 1}]
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_made_to_hold_what_is_known_to_be_over(path):
    """A run that goes on forgets the evaluations after its checkpoint."""
    with History(path) as records:
        for record in RECORDS:
            records.append(record)
    with History(path, RECORDS[:1]) as records:
        assert read(path) == RECORDS[:1]
        records.append({"step": 2, "again": True})
    assert read(path) == records.records == [RECORDS[0], {"step": 2, "again": True}]
    assert [p.name for p in path.parent.iterdir()] == ["history.jsonl"]


def test_a_new_history_empties_the_file(path):
    path.write_text('{"step": 1}\n')
    History(path).close()
    assert path.read_text() == ""


@pytest.mark.parametrize("cut", [1, 5, 11])
def test_a_last_line_that_was_cut_off_is_left_out(path, cut):
    path.write_text('{"step": 1}\n{"step": 2}\n'[:-1][:-cut])
    assert read(path) == [{"step": 1}]


def test_an_empty_file_has_no_records(path):
    path.touch()
    assert read(path) == []


def test_a_file_that_is_not_there(path):
    with pytest.raises(FileNotFoundError):
        read(path)


def test_what_json_cannot_hold_is_refused_and_leaves_the_file_whole(path):
    with History(path) as records:
        records.append({"step": 1})
        with pytest.raises(TypeError):
            records.append({"step": object()})
    assert read(path) == records.records == [{"step": 1}]
