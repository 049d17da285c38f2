"""Hints on messy files: given where they help, and nowhere else."""

import numpy as np
import pandas as pd
import pytest

from aucmax.cli import main
from aucmax.tables import TableEncoder
from aucmax.tables.fit import TableFile
from aucmax.tables.hints import hints
from aucmax.tables.labeled import read_labeled

ROWS = 400


def usual(rows=ROWS, seed=0, share=0.2):
    """A table of which nothing is to be said, though two of its columns say much."""
    random = np.random.default_rng(seed)
    sick = random.random(rows) < share
    return pd.DataFrame(
        {
            "age": random.integers(18, 90, rows),
            "marker": random.normal(2 * sick, 1.0),
            "ward": np.where(sick & (random.random(rows) < 0.9), "east", "west"),
            "since": np.datetime64("2020-01-01") + random.integers(0, 900, rows),
            "city": random.choice([f"city {k}" for k in range(90)], rows),
            "income": np.where(random.random(rows) < 0.3, np.nan, random.normal(size=rows)),
            "sick": np.where(sick, "yes", "no"),
        }
    )


def said(tmp_path, data, target="sick", name="data.csv"):
    path = tmp_path / name
    if path.suffix == ".parquet":
        data.to_parquet(path)
    else:
        data.to_csv(path, index=False)
    return hints(read_labeled(path, target), target)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("rows", [40, ROWS, 3000])
def test_usual_table_has_no_hints(tmp_path, rows, seed):
    assert said(tmp_path, usual(rows, seed)) == []


# ---- Categories ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "hinted"),
    [
        (["3", "2.5", "4", "low", "high"], True),
        ([*"123456", *(f"v{k}" for k in range(5))], True),
        (["3", "2.5", "low", "high", "x"], False),
    ],
)
def test_category_of_numbers(tmp_path, texts, hinted):
    data = usual().assign(grade=[texts[k % len(texts)] for k in range(ROWS)])
    notes = said(tmp_path, data)
    assert len(notes) == hinted
    if hinted:
        assert "'grade' is taken as a category, though" in notes[0]
        assert "--na-values says which" in notes[0]


# ---- Keys ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["data.csv", "data.parquet"])
def test_row_numbers_and_keys(tmp_path, name):
    random = np.random.default_rng(0)
    data = usual().assign(
        **{
            "row no": np.arange(ROWS) + 7,
            "shuffled": random.permutation(ROWS),
            "key": [f"C{k:05d}" for k in random.permutation(ROWS)],
        }
    )
    (note,) = said(tmp_path, data, name=name)
    assert note == (
        "columns 'row no', 'shuffled' have another value in every row, as row numbers and "
        "keys have: --drop 'row no' shuffled leaves them out"
    )
    notes = TableEncoder().fit(data).notes(data)
    why = "it had another value in every row of training, as keys have"
    assert any(x.startswith(f"column 'key' is not used: {why}: --id carries") for x in notes)


@pytest.mark.parametrize("gaps", [0, 20])
def test_free_text(tmp_path, gaps):
    texts = [f"called on day {k} about the bill" for k in range(ROWS)]
    texts = [*["asked again"] * 20, *texts[20:]] if not gaps else [*[None] * gaps, *texts[gaps:]]
    (note,) = said(tmp_path, usual().assign(text=texts))
    assert "it looks like free text, whose words are not read" in note


def test_columns_that_are_no_keys(tmp_path):
    data = usual()
    number, text = np.arange(ROWS).astype(float), [f"k{k}" for k in range(ROWS)]
    gap, repeat = number.copy(), number.copy()
    gap[3], repeat[3] = np.nan, 4
    data = data.assign(gap=gap, repeat=repeat, half=number / 2, wide=1000 * number)
    data = data.assign(text=["k1", *text[1:]], empty=[None, *text[1:]])
    assert said(tmp_path, data) == []


def test_key_with_gaps_where_the_target_is_missing(tmp_path):
    data = usual().assign(id=np.arange(ROWS))
    data.loc[::7, "sick"] = None
    assert "--drop id leaves it out" in said(tmp_path, data)[0]


# ---- Columns that are known too late -------------------------------------------------------------


def late(data, kind):
    """A column that is known after the outcome."""
    random, sick = np.random.default_rng(1), (data["sick"] == "yes").to_numpy()
    day = np.datetime64("2024-01-01") + random.integers(0, 90, len(data))
    return {
        "number": random.normal(10.0 * sick),
        "falling": random.normal(-10.0 * sick),
        "flag": sick,
        "missing": np.where(sick, random.normal(size=len(data)), np.nan),
        "date": np.where(sick, day, np.datetime64("NaT")),
        "text": np.where(sick, random.choice(["flu", "cold"], len(data)), "none at all"),
        "reason": np.where(sick, random.choice(["flu", "cold"], len(data)), None),
    }[kind]


@pytest.mark.parametrize("kind", ["number", "falling", "flag", "missing", "date", "text", "reason"])
def test_leaking_column(tmp_path, kind):
    data = usual(share=0.1)
    (note,) = said(tmp_path, data.assign(late=late(data, kind)))
    assert note == (
        "column 'late' alone tells 'sick' almost perfectly and may be known only after the "
        "outcome: if so, --drop late"
    )


def test_few_rows_suspect_no_leak(tmp_path):
    data = usual(80, share=0.3)
    assert said(tmp_path, data.assign(late=late(data, "flag"))) == []
    data = usual(share=0.015)
    assert (data["sick"] == "yes").sum() < 10
    assert said(tmp_path, data.assign(late=late(data, "flag"))) == []


def test_rare_positives_suspect_no_leak(tmp_path):
    """Seen by itself, each category tells its few rows; on other rows it tells nothing."""
    random = np.random.default_rng(0)
    data = pd.DataFrame({"code": [f"c{k}" for k in random.integers(0, 900, 3000)]})
    data["sick"] = np.arange(3000) % 200 == 0
    assert said(tmp_path, data) == []


def test_leak_of_several_classes(tmp_path):
    random = np.random.default_rng(0)
    kind = random.integers(0, 3, ROWS)
    data = pd.DataFrame(
        {
            "half": random.normal(10 * (kind == 0)),
            "whole": random.normal(20 * kind),
            "some": np.where(kind == 0, "a", "b"),
            "each": np.array(["x", "y", "z"])[kind],
            "kind": np.array(["a", "b", "c"])[kind],
        }
    )
    (note,) = said(tmp_path, data, "kind")
    assert note.startswith("columns 'whole', 'each' alone tell 'kind' almost perfectly")


# ---- From the shell ------------------------------------------------------------------------------


def test_dry_run_prints_hints(tmp_path, capsys):
    grade = [*"0123456789", "low", "high"]
    data = usual(200).assign(id=np.arange(200), grade=[grade[k % 12] for k in range(200)])
    data["dose"] = [*"abcdef", *(f"{k}.5" for k in range(194))]
    path = tmp_path / "data.csv"
    data.assign(late=late(data, "flag")).to_csv(path, index=False)
    main(["fit", str(path), "--target", "sick", "--dry-run"])
    notes = [x for x in capsys.readouterr().out.splitlines() if x.startswith("note: ")]
    for part in (
        "column 'grade' is taken as a category",
        "column 'dose' is not used, though 97% of its values are numbers",
        "--drop id leaves it",
        "if so, --drop late",
    ):
        assert sum(part in note for note in notes) == 1
    assert sum("'dose'" in note for note in notes) == 1


def test_repeats_that_change_the_test_share(tmp_path):
    rng = np.random.default_rng(0)
    table = {"a": rng.normal(size=400), "b": rng.normal(size=400), "y": np.arange(400) % 3 == 0}
    for name in table:
        table[name][:190] = table[name][1]  # one row, 190 times
    path = tmp_path / "a.csv"
    pd.DataFrame(table).to_csv(path, index=False)
    told = []
    for seed in range(8):
        train, test, _ = TableFile([path], "y", seed=seed).split()
        share = len(test.classes) / 400
        notes = [note for note in test.notes if "are kept apart where 20%" in note]
        assert bool(notes) == (abs(share - 0.2) > 0.1)
        assert len(train.classes) + len(test.classes) == 400
        told += notes
    assert 0 < len(told) < 8
