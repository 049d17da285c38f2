"""Tables read from files, and what is said of those that cannot be."""

import csv
import datetime as dt
import gzip
import io
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aucmax.tables import TableEncoder, columns_of, csv_files, files
from aucmax.tables.files import read_table


@pytest.fixture
def read(tmp_path):
    """Read bytes as if they were a file of that name."""

    def read(data, name="a.csv", **options):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return read_table(path, **options)

    return read


@pytest.fixture
def wrong(read):
    """What is said of bytes that are no table, after the name of the file."""

    def wrong(data, name="a.csv", **options):
        with pytest.raises(ValueError, match=r"^file '.*' [^\n]*$") as caught:
            read(data, name, **options)
        assert caught.value.__cause__ is None
        return str(caught.value).partition(f"{name}' ")[2]

    return wrong


def column(table, name="a"):
    return table[name].to_pylist()


# ---- CSV -----------------------------------------------------------------------------------------


def test_types_are_inferred(read):
    table = read(
        "int,float,bool,day,moment,utc,text\n"
        "1,1.5,true,2024-05-01,2024-05-01T10:00:00,2024-05-01 10:00:00+02:00,x\n"
        "-2,2,False,2024-05-02,2024-05-01 11:30:00.25,2024-05-01T10:00:00Z,3\n"
    )
    assert table.to_pylist() == [
        {
            "int": 1, "float": 1.5, "bool": True, "day": dt.date(2024, 5, 1), "text": "x",
            "moment": dt.datetime(2024, 5, 1, 10), "utc": dt.datetime(2024, 5, 1, 8, tzinfo=dt.UTC),
        },
        {
            "int": -2, "float": 2.0, "bool": False, "day": dt.date(2024, 5, 2), "text": "3",
            "moment": dt.datetime(2024, 5, 1, 11, 30, 0, 250_000),
            "utc": dt.datetime(2024, 5, 1, 10, tzinfo=dt.UTC),
        },
    ]  # fmt: skip


@pytest.mark.parametrize("block", [64, csv_files.BLOCK])
def test_types_hold_for_the_whole_file(read, monkeypatch, block):
    """Also where they change long after the first block that is parsed."""
    monkeypatch.setattr(csv_files, "BLOCK", block)
    rows = [f"{i},{i},{i},2024-01-01,{i}" for i in range(1000)]
    with pytest.warns(UserWarning, match="missing in column") as caught:
        table = read("\n".join(["a,b,c,d,e", *rows, "x,1.5,,later,NA", "1,2,3,2024-01-02,5"]))
    assert [str(each.message) for each in caught] == [
        "'x' is taken as missing in column 'a' (1)",
        "'later' is taken as missing in column 'd' (1)",
    ]
    assert [str(kind) for kind in table.schema.types] == [
        "int64", "double", "int64", "date32[day]", "int64",
    ]  # fmt: skip
    assert column(table)[:2] + column(table)[-2:] == [0, 1, None, 1]
    assert column(table, "b")[-2:] == [1.5, 2.0]
    assert column(table, "c")[-2:] == [None, 3]
    assert column(table, "d")[-2:] == [None, dt.date(2024, 1, 2)]
    assert column(table, "e")[-2:] == [None, 5]


def test_missing_values(read):
    text = 'a,b\n1,NA\nNA,\nNaN,""\nnull,null\n,"NA"\n"",x\n'
    table = read(text)
    assert column(table) == [1, None, None, None, None, None]
    assert column(table, "b") == [None, None, None, None, None, "x"]


def test_quotes(read):
    table = read('"a","b, c"\n"x\ny",1\n"say ""hi""",2\n"p,q",3\n5" pipe,4\n')
    assert table.column_names == ["a", "b, c"]
    assert column(table) == ["x\ny", 'say "hi"', "p,q", '5" pipe']


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
def test_line_ends(read, end, last):
    text = end.join(["a,b", "1,x", "2,y"]) + (end if last else "")
    assert read(text).to_pydict() == {"a": [1, 2], "b": ["x", "y"]}


def test_numbers_too_large_for_integers(read):
    assert column(read("a\n99999999999999999999\n1\n")) == [1e20, 1.0]
    assert column(read("a\n99999999999999999999\nx\n")) == ["99999999999999999999", "x"]


def test_byte_order_mark(read):
    table = read("a,b\n1,é\n".encode("utf-8-sig"))
    assert table.to_pydict() == {"a": [1], "b": ["é"]}


def test_tsv_and_gzip(read):
    expected = {"a": [1, 2], "b": ["x,y", "z"]}
    assert read("a\tb\n1\tx,y\n2\tz\n", "a.tsv").to_pydict() == expected
    assert read(gzip.compress(b"a\tb\n1\tx,y\n2\tz\n"), "a.tsv.gz").to_pydict() == expected
    assert read(gzip.compress(b'a,b\n1,"x,y"\n2,z\n'), "A.CSV.GZ").to_pydict() == expected
    halves = gzip.compress(b"a,b\n1,") + gzip.compress(b'"x,y"\n2,z\n')
    assert read(halves, "a.csv.gz").to_pydict() == expected


# But for byte order marks, which are left out wherever they are.
words = st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff"), max_size=5)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(words, st.integers(-5, 5), words), min_size=1, max_size=8))
def test_csv_round_trip(read, rows):
    file = io.StringIO(newline="")
    writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
    writer.writerows([("a", "b", "c"), *((f"t{a}", b, f"t{c}") for a, b, c in rows)])
    table = read(file.getvalue())
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (f"t{a}", b, f"t{c}") for a, b, c in rows
    ]


# ---- What is wrong with CSV ----------------------------------------------------------------------


WRONG = {
    "empty": ("a.csv", b"", "is empty"),
    "blank": ("a.csv", b"  \n\t\r\n", "is empty"),
    "a mark alone": ("a.csv", b"\xef\xbb\xbf", "is empty"),
    "empty in gzip": ("a.csv.gz", gzip.compress(b""), "is empty"),
    "empty Parquet": ("a.parquet", b"", "is empty"),
    "a header alone": ("a.csv", b"\n\na,b\n", "has no rows"),
    "a name twice": ("a.csv", b"a,b,a\n1,2,3\n", "must have a name .*, found 'a' twice"),
}


@pytest.mark.parametrize(("name", "data", "said"), WRONG.values(), ids=WRONG)
def test_file_without_a_table_raises(wrong, name, data, said):
    assert re.fullmatch(said, wrong(data, name))


def test_encoding_that_does_not_fit_raises(wrong, tmp_path):
    said = wrong(b"a\n\xff\xff", encoding="utf-8")
    assert said == "must be text in utf-8, found byte 0xff in line 2: --encoding says another"
    for name, options, message in (
        ("a.csv", {"encoding": "klingon"}, "encoding must be one that Python knows"),
        ("a.xlsx", {}, r"the file must end in \.csv, .*, found '.*a.xlsx'$"),
        ("none.csv", {}, r"^file '.*none\.csv' is not there$"),
    ):
        with pytest.raises(ValueError, match=message):
            read_table(tmp_path / name, **options)


RAGGED = {
    "too few": ("a,b,c\n1,2,3\n1,2\n", "has 2 values in line 3, the header has 3"),
    "too many": ("a,b\n1,2\n1,2\n1,2,3,4\n1,2,3\n", "has 4 values in line 4, the header has 2"),
    "after quotes": ('a,b\n"x\n\ny",2\n\n1\n', "has 1 values in line 6, the header has 2"),
    "in quotes": ('a,b\n1,2\n"x\ny"\n', "has 1 values in line 3, the header has 2"),
    "late": ("a,b\n" + "1,2\n" * 5000 + "1\n", "has 1 values in line 5002, the header has 2"),
    "windows": ("a,b\r\n1,2\r\n3\r\n", "has 1 values in line 3, the header has 2"),
}


@pytest.mark.parametrize("case", RAGGED)
def test_ragged_lines(wrong, case):
    data, message = RAGGED[case]
    assert wrong(data) == message
    assert wrong(data.replace(",", "\t"), "a.tsv") == message


OPEN = {
    "to the end": 'a,b\n1,2\n1,"x\n3,4\n5,6\n',
    "no line end": 'a,b\n1,2\n1,"x\n3,4',
    "quotes inside": 'a,b\n1,2\n1,"x ""y"" z\n3,4\n',
    "one column": 'a\nx\n"y\nz\n',
    "more than Python reads": 'a,b\n1,2\n"1,2\n' + "3,4\n" * 40_000,
}


@pytest.mark.parametrize("case", OPEN)
def test_unclosed_quote_raises(wrong, case):
    assert wrong(OPEN[case]) == "has a quote in line 3 that is never closed"


def test_quote_closed_at_the_end(read):
    assert column(read('a,b\n1,"x\ny"'), "b") == ["x\ny"]
    assert column(read('a,b\n1,"say ""x"""'), "b") == ['say "x"']
    assert column(read('a,b\n1,x\n2,""'), "b") == ["x", None]
    assert column(read('a,b\n1,y"x'), "b") == ['y"x']


def test_damaged_gzip(wrong):
    data = gzip.compress("\n".join(["a,b", *(f"{i},{i * i}" for i in range(2000))]).encode())
    about = "is no gzip file, cut off or damaged: "
    assert wrong(data[:-9], "a.csv.gz").startswith(about)
    assert wrong(data[:-4], "a.csv.gz").startswith(about)
    assert wrong(b"a,b\n1,2\n", "a.csv.gz").startswith(about)
    for place in (20, len(data) // 2, len(data) - 6):
        changed = bytearray(data)
        changed[place] ^= 0xFF
        assert wrong(bytes(changed), "a.csv.gz").startswith(about)


# ---- Files of every kind -------------------------------------------------------------------------

TABLE = pa.table({"a": [1, 2, None], "b": ["x", None, "z"], "c": [True, False, None]})


def arrow_bytes(maker, table=TABLE):
    sink = pa.BufferOutputStream()
    with maker(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def parquet_bytes(table=TABLE, **options):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return sink.getvalue().to_pybytes()


def test_parquet(read):
    assert read(parquet_bytes(), "a.parquet").equals(TABLE)
    assert read(parquet_bytes(compression="zstd"), "A.PARQUET").equals(TABLE)


@pytest.mark.parametrize("name", ["a.arrow", "a.feather"])
def test_arrow(read, name):
    for maker in (pa.ipc.new_file, pa.ipc.new_stream):
        assert read(arrow_bytes(maker), name).equals(TABLE)


def test_files_of_pandas_and_polars(tmp_path):
    frame = pl.from_arrow(TABLE)
    frame.write_ipc(tmp_path / "a.arrow")
    frame.write_parquet(tmp_path / "a.parquet")
    for name in ("a.arrow", "a.parquet"):
        assert read_table(str(tmp_path / name)).to_pylist() == TABLE.to_pylist()
    rows = pd.DataFrame({"a": [1, 2]}, index=[7, 9])  # pandas adds the numbers of the rows
    rows.to_parquet(tmp_path / "b.parquet")
    assert read_table(tmp_path / "b.parquet").column_names == ["a"]


def test_arrow_and_parquet_without_a_table_raise(wrong):
    empty = TABLE[:0]
    assert wrong(parquet_bytes(empty), "a.parquet") == "has no rows"
    assert wrong(arrow_bytes(pa.ipc.new_file, empty), "a.arrow") == "has no rows"
    twice = pa.table([[1], [2]], names=["a", "a"])
    assert wrong(parquet_bytes(twice), "a.parquet").endswith("found 'a' twice")


def test_damaged_parquet(wrong):
    table = pa.table({"a": list(range(20_000)), "b": [str(i) for i in range(20_000)]})
    data = parquet_bytes(table, write_page_checksum=True)
    about = "is no Parquet file, cut off or damaged: "
    for part in (data[:-1], data[:1000], data[:6], b"a,b\n1,2\n", data[100:]):
        assert wrong(part, "a.parquet").startswith(about)
    for place in (2000, len(data) // 2):
        changed = bytearray(data)
        changed[place] ^= 0xFF
        assert wrong(bytes(changed), "a.parquet").startswith(about)


def test_damaged_arrow(wrong):
    about = "is no Arrow file, cut off or damaged: "
    for maker in (pa.ipc.new_file, pa.ipc.new_stream):
        data = arrow_bytes(maker)
        for part in (data[:-20], data[:100], data[:3]):
            assert wrong(part, "a.arrow").startswith(about)
    assert wrong(b"a,b\n1,2\n", "a.feather").startswith(about)


# ---- Real tables ---------------------------------------------------------------------------------

FOLDER = Path(os.environ.get("AUCMAX_DATA") or "none") / "tables"
REAL = sorted(FOLDER.glob("*.csv.gz"))[::3]


@pytest.mark.skipif(not REAL, reason="AUCMAX_DATA names no folder with the real tables")
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name.partition(".")[0])
def test_real_tables_match_pandas(path):
    table = read_table(path)
    peer = pd.read_csv(path, keep_default_na=False, na_values={})
    assert table.column_names == list(peer.columns)
    assert set(column(table, "target")) == {0, 1}
    for name in peer:
        mine = table[name].to_pandas()
        if peer[name].dtype.kind in "ifb":
            pd.testing.assert_series_equal(mine, peer[name], check_dtype=False)
        else:
            theirs = peer[name].astype(object).where(peer[name] != "", None)
            numbers = mine.dtype.kind in "if"
            theirs = pd.to_numeric(theirs, errors="coerce") if numbers else theirs
            assert mine.isna().equals(theirs.isna())
            there = ~mine.isna()
            assert mine[there].tolist() == theirs[there].tolist()


def test_formats_of_training_read_another_file(tmp_path):
    """Learned from decimal commas, it reads points, and digits in groups or not."""
    ours = "x;n\n" + "".join(f"{k},5;{k}.{250 + k}\n" for k in range(1, 30))
    theirs = ours.replace(",", "#").replace(".", "").replace("#", ".").replace(";", ",")
    for name, content in (("ours.csv", ours), ("theirs.csv", theirs)):
        (tmp_path / name).write_text(content)
    learned = files.read(tmp_path / "ours.csv")
    assert (learned.formats["x"].decimal, learned.formats["n"].thousands) == (",", ".")
    columns = columns_of(learned.table)._replace(formats=learned.formats)
    encoder = TableEncoder().fit(columns)
    expected = encoder.transform(columns)
    for name in ("ours.csv", "theirs.csv"):
        later = files.read(tmp_path / name, formats=encoder.formats)
        np.testing.assert_array_equal(encoder.transform(later.table).numeric, expected.numeric)
    (tmp_path / "one.csv").write_text("x;n\n1,500;1.251\n")  # which tells nothing by itself
    one = files.read(tmp_path / "one.csv", formats=encoder.formats)
    np.testing.assert_array_equal(encoder.transform(one.table).numeric, expected.numeric[:1])
