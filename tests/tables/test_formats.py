"""What the texts of a column are taken for, and how later texts are read."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aucmax.tables import ReadOptions, TableEncoder
from aucmax.tables.files import read
from aucmax.tables.formats import MISSING, Format, notes, understand

DIGITS = [str(k) for k in range(20)]
NOON = dt.datetime(2024, 5, 1, 12)

READ = {
    "numbers": ([".5", "1e3", " 7. "], [0.5, 1000, 7], Format("number")),
    "a minus of print": (["\u22125", "(3)"], [-5, -3], Format("number")),
    "thousands": (["1,234.50", "2"], [1234.5, 2], Format("number", thousands=",")),
    "decimal commas": (["1,5", "-2,25"], [1.5, -2.25], Format("number", ",")),
    "both": (["1.234,50", "3,1"], [1234.5, 3.1], Format("number", ",", ".")),
    "blanks": (["1 234,5", "2\u00a0000,1"], [1234.5, 2000.1], Format("number", ",", " ")),
    "dollars": (
        ["$500.00", "-$3", "($1,200.50)"],
        [500, -3, -1200.5],
        Format("number", ".", ",", "$"),
    ),
    "euros": (["1.234,50 €", "2,00 €"], [1234.5, 2], Format("number", ",", ".", "€")),
    "per cent": (["49.5%", "-3 %", "0"], [49.5, -3, 0], Format("number", unit="%")),
    "other units": (["12 kg", "5 kg"], ["12 kg", "5 kg"], Format("text")),
    "flags": (["true", "FALSE", "1"], [True, False, True], Format("bool")),
    "flags and a mark": (
        ["true", "false", "?"],
        [True, False, None],
        Format("bool", marks={"?": 1}),
    ),
    "words": (["red", "n/a", " None ", "blue "], ["red", None, None, "blue "], Format("text")),
    "ISO": (
        ["2024-05-01", "2024-05-02"],
        [dt.date(2024, 5, 1), dt.date(2024, 5, 2)],
        Format("date"),
    ),
    "zones": (
        ["2024-05-01T12:00:00Z", "2024-05-01T14:00:00+02:00"],
        [NOON.replace(tzinfo=dt.UTC)] * 2,
        Format("date"),
    ),
    "day first": (
        ["16/11/2022", "1/2/2022"],
        [dt.datetime(2022, 11, 16), dt.datetime(2022, 2, 1)],
        Format("date", order="dmy"),
    ),
    "month first": (
        ["11/16/22", "1/2/69"],
        [dt.datetime(2022, 11, 16), dt.datetime(1969, 1, 2)],
        Format("date", order="mdy"),
    ),
    "points": (
        ["31.12.2024", "1.5.2024 12:00"],
        [dt.datetime(2024, 12, 31), NOON],
        Format("date", order="dmy"),
    ),
    "year first": (["2024/5/1 12:00 PM"], [NOON], Format("date", order="ymd")),
    "names of months": (
        ["1-May-2024", "16 November 2022"],
        [dt.datetime(2024, 5, 1), dt.datetime(2022, 11, 16)],
        Format("date", order="dmy"),
    ),
    "mixed orders": (["16/11/2022", "11/16/2022"], ["16/11/2022", "11/16/2022"], Format("text")),
    "times": (
        ["9:30 PM", "12:05:01.5"],
        [dt.time(21, 30), dt.time(12, 5, 1, 500_000)],
        Format("time"),
    ),
    "nothing": (["", "NA", " "], [None] * 3, Format("text")),
    "marks": ([*DIGITS, "?"], [*range(20), None], Format("number", marks={"?": 1})),
    "half of them marks": (
        ["1", "?", "2", "?"],
        [1, None, 2, None],
        Format("number", marks={"?": 2}),
    ),
    "a tenth of words": (
        [*DIGITS[:18], "a", "b"],
        [*range(18), None, None],
        Format("number", marks={"a": 1, "b": 1}),
    ),
    "more than a tenth": ([*DIGITS[:17], "a", "b"], [*DIGITS[:17], "a", "b"], Format("text")),
    "no six words": ([*DIGITS * 5, *"abcdef"], [*DIGITS * 5, *"abcdef"], Format("text")),
    "marks among dates": (
        [*(f"2024-05-{k:02d}" for k in range(1, 21)), "0000-00-00"],
        [*(dt.date(2024, 5, k) for k in range(1, 21)), None],
        Format("date", marks={"0000-00-00": 1}),
    ),
    "thousands are no marks": (
        [*DIGITS, "1,200,000"],
        [*range(20), 1_200_000],
        Format("number", thousands=","),
    ),
}


@pytest.mark.parametrize("case", READ)
def test_understand(case):
    texts, expected, written = READ[case]
    values, found = understand(pa.array(texts))
    assert values.to_pylist() == expected
    kept = ("kind", "decimal", "thousands", "unit", "order", "marks")
    assert [getattr(found, name) for name in kept] == [getattr(written, name) for name in kept]
    assert not found.ambiguous
    assert Format.from_dict(found.to_dict()) == found
    if found.kind != "text":  # later, one by one, the same
        assert [found.read("a", [text])[0].as_py() for text in texts] == expected
    chunks = pa.chunked_array([texts[:1], [], texts[1:]])
    assert understand(chunks)[0].to_pylist() == expected


def test_ambiguous_formats_are_noted():
    _, number = understand(pa.array(["1,234", "12,500"]))
    _, date = understand(pa.array(["01/02/2024", "03/04/2024"]))
    _, points = understand(pa.array(["01.02.2024", "03.04.2024"]))
    assert (number.thousands, date.order, points.order) == (",", "mdy", "dmy")
    assert [each.ambiguous for each in (number, date, points)] == [True] * 3
    assert notes({"a": number, "b": date}) == [
        "column 'a': in numbers such as '12,500' ',' is read as dividing thousands; --decimal , "
        "reads it as the decimal sign",
        "column 'b': dates such as '01/02/2024' are read as month, day, year, but could be meant "
        "the other way round: write them as 2024-05-31",
    ]
    values, _ = understand(pa.array(["1,234", "12,500"]), decimal=",")
    assert values.to_pylist() == [1.234, 12.5]


def test_na_values():
    values, written = understand(pa.array(["1", "-999", "x", "2"]), na_values=["-999", "x"])
    assert values.to_pylist() == [1, None, None, 2]
    assert written.marks == {"-999": 0, "x": 0}
    assert understand(pa.array(["a", "x", "b"]), na_values=["x"])[0].to_pylist() == ["a", None, "b"]


def test_late_mark():
    """Beyond the rows that are looked at first."""
    texts = [str(k / 7) for k in range(5000)]
    texts[1234] = "broken"
    values, written = understand(pa.array(texts))
    assert written == Format("number", marks={"broken": 1})
    assert values.null_count == 1


@given(
    st.lists(st.floats(-1e6, 1e6).map(lambda x: round(x, 2)), min_size=3, max_size=30),
    st.sampled_from([(".", ""), (".", ","), (",", ""), (",", "."), (",", " "), (".", "'")]),
    st.sampled_from(["", "$", "€", "%"]),
)
def test_numbers_round_trip(numbers, signs, unit):
    decimal, thousands = signs
    numbers = [*numbers, 1234567.25]  # which has one meaning only

    def write(number):
        text = f"{number:,.2f}".replace(",", "T").replace(".", decimal).replace("T", thousands)
        if unit in ("%", "€"):
            return f"{text}{unit}"
        return f"-{unit}{text[1:]}" if text.startswith("-") else f"{unit}{text}"

    values, written = understand(pa.array([write(x) for x in numbers]))
    assert written.kind == "number"
    np.testing.assert_allclose(values.to_numpy(), numbers)


FRAMES = {
    "pandas": pd.DataFrame,
    "pandas objects": lambda data: pd.DataFrame(data, dtype=object),
    "polars": pl.DataFrame,
    "Arrow": pa.table,
}


@pytest.mark.parametrize("library", FRAMES)
def test_later_tables_are_read_as_in_training(library):
    make = FRAMES[library]
    train = {
        "age": [*DIGITS, "?"],
        "paid": ["$1,200.50", "$3"] * 10 + ["$7"],
        "kind": list("abc") * 7,
    }
    with pytest.warns(UserWarning, match=r"^'\?' is taken as missing in column 'age' \(1\)$"):
        encoder = TableEncoder(min_count=1).fit(make(train))
    assert encoder.numeric_names == ["age", "age is missing", "paid"]
    later = {"age": ["?", "3", "-"], "paid": ["$3", "1,200.50", " NA"], "kind": ["a", "N/A", "?"]}
    found = encoder.transform(make(later))
    assert found.numeric[:, 1].tolist() == [1, 0, 1]
    assert found.categorical[:, 0].tolist() == [1, 0, 0]
    assert encoder.notes(make(later)) == [
        "'-' is taken as missing in column 'age' (1)",
        "column 'kind': 1 of 3 values were not seen in training: '?' (1)",
    ]
    with pytest.raises(
        ValueError, match=r"column 'age' must hold numbers as in training, found 'x'"
    ):
        encoder.transform(make({**later, "age": ["1", "x", "2"]}))
    with pytest.raises(ValueError, match=r"'paid' .*, written \$1,200.50, found '€3' in row 2"):
        encoder.transform(make({**later, "paid": ["$1", "$2", "€3"]}))


def test_lost_zeros_are_noted():
    codes = pa.table({"code": ["007", "7", "x7"] * 5, "x": range(15)})
    encoder = TableEncoder().fit(codes)
    later = pd.DataFrame({"code": [7, 7], "x": [1.0, 2.0]})
    assert encoder.notes(later) == [
        "column 'code' held texts in training and comes as numbers, which have lost how they were "
        "written, such as zeros in front: read it as text"
    ]
    assert encoder.notes(later.astype({"code": str})) == []


def test_missing_words_match_pandas():
    from pandas._libs.parsers import STR_NA_VALUES

    assert set(MISSING) == STR_NA_VALUES


def test_shares_for_per_cent_are_noted():
    encoder = TableEncoder().fit(pa.table({"rate": [f"{k}%" for k in range(20)]}))
    shares = pd.DataFrame({"rate": [0.03, 0.12]})
    assert encoder.notes(shares) == [
        "column 'rate' was per cent in training and comes as numbers up to 1: if these are shares, "
        "multiply them by 100"
    ]
    assert encoder.notes(100 * shares) == []


def test_true_among_0_and_1_is_no_mark():
    values, written = understand(pa.array(["0", "1"] * 48 + ["true"] * 4))
    assert (written.kind, written.marks, values.null_count) == ("bool", {}, 0)
    values, written = understand(pa.array([*DIGITS * 5, "true"]))
    assert written.kind == "text"


def test_unseen_categories_are_noted():
    plans = pa.table({"plan": ["basic"] * 9 + ["gold"] * 9 + ["rare"], "x": range(19)})
    encoder = TableEncoder().fit(plans)
    later = pd.DataFrame({"plan": ["gold", "platinum", " Gold", "rare", None], "x": range(5)})
    for each in (encoder, TableEncoder.from_dict(encoder.to_dict())):
        assert each.notes(later) == [
            "column 'plan': 2 of 5 values were not seen in training: 'platinum' (1), ' Gold' (1); "
            "' Gold' is 'gold' but for case or blanks"
        ]
    assert encoder.notes(plans) == []


def test_leading_zeros(tmp_path):
    path = tmp_path / "codes.csv"
    path.write_text("code,x\n007,1\n070,2\n7,3\n")
    said = "column 'code' is read as numbers, without the zeros in front of '007'"
    content = read(path)
    assert content.table["code"].to_pylist() == [7, 70, 7]
    assert content.notes == [f"{said}: --categories code keeps it as it is written"]
    kept = read(path, ReadOptions(categories=("code", "x")))
    assert kept.table.to_pydict() == {"code": ["007", "070", "7"], "x": ["1", "2", "3"]}
    assert (kept.notes, kept.formats["code"].kind) == ([], "text")
    with pytest.raises(ValueError, match="categories must be one of 'code', 'x', found 'z'"):
        read(path, ReadOptions(categories=("z",)))
    with pytest.warns(UserWarning, match=f"^{said}"):
        TableEncoder().fit(pd.read_csv(path, dtype=str))
