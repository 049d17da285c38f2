"""However a table is written, and whoever reads it, it is the same table."""

import csv
import datetime as dt
import io
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aucmax.tables.columns import columns_of
from aucmax.tables.encoder import TableEncoder
from aucmax.tables.files import read

# ---- However it is written -----------------------------------------------------------------------

DATES = ["%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%b-%Y", "%b %d, %Y"]
TELLING = dt.date(2024, 12, 31)  # which of day and month is first
USUAL = ["", "NA", "N/A", "null", "NaN", "None"]
LETTERS = st.text("abß é.,;|\t\"\n'", max_size=6)


@st.composite
def tables(draw):
    """Numbers, texts, dates and true or false, with missing values, one row without."""
    rows = draw(st.integers(1, 12))

    def column(values, first):
        return [first, *draw(st.lists(st.none() | values, min_size=rows, max_size=rows))]

    return {
        "size": column(st.integers(-(10**11), 10**11).map(lambda n: n / 10**4), 0.5),
        "größe": column(st.integers(-999, 999), 7),
        # Nothing that stands for a number or for none, nor begins or ends with a quote.
        "text": column(LETTERS.map(lambda text: f"w{text}w"), "word"),
        "day": column(st.dates(dt.date(1971, 1, 1), dt.date(2060, 1, 1)), TELLING),
        "flag": column(st.booleans(), True),
    }


WRITTEN = st.fixed_dictionaries(
    {
        "separator": st.sampled_from(",;\t|"),
        "quote": st.sampled_from("\"'"),
        "quote_all": st.booleans(),
        "decimal": st.sampled_from(".,"),
        "digits": st.integers(1, 4),
        "thousands": st.sampled_from(["", "other", "\u00a0", " "]),
        "dates": st.sampled_from(DATES),
        "encoding": st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"]),
        "line_end": st.sampled_from(["\n", "\r\n", "\r"]),
        "missing": st.sampled_from([*USUAL, "?", "-"]),
    }
)


def written(table, how):
    """The table's bytes."""

    def text(value):
        if value is None:
            return how["missing"]
        if isinstance(value, float):
            other = {".": ",", ",": "."}[how["decimal"]]
            signs = {".": how["decimal"], ",": how["thousands"].replace("other", other)}
            return re.sub("[.,]", lambda sign: signs[sign[0]], f"{value:,.{how['digits']}f}")
        return value.strftime(how["dates"]) if isinstance(value, dt.date) else str(value)

    file = io.StringIO(newline="")
    lines = csv.writer(
        file, delimiter=how["separator"], quotechar=how["quote"], lineterminator=how["line_end"],
        quoting=csv.QUOTE_ALL if how["quote_all"] else csv.QUOTE_MINIMAL,
    )  # fmt: skip
    lines.writerow(table)
    lines.writerows([text(value) for value in row] for row in zip(*table.values(), strict=True))
    return file.getvalue().encode(how["encoding"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables(), WRITTEN)
def test_written_tables_round_trip(tmp_path, table, how):
    table["size"] = [value and round(value, how["digits"]) for value in table["size"]]
    if how["missing"] not in USUAL:  # in a text they are texts
        table["text"] = ["word" if value is None else value for value in table["text"]]
    if how["quote"] == "'":  # nobody can tell which of the two it is
        table["text"] = [value and value.replace('"', "") for value in table["text"]]
    table["text"] = [value and value.replace("\n", how["line_end"]) for value in table["text"]]
    path = tmp_path / "table.csv"
    path.write_bytes(written(table, how))
    found = read(path)
    days = found.table["day"].cast(pa.date32())
    assert found.table.set_column(3, "day", days).to_pydict() == table
    kinds = ["number", "number", "text", "date", "bool"]
    assert [each.kind for each in found.formats.values()] == kinds


# ---- Whoever reads it ----------------------------------------------------------------------------


def messy(rows=60):
    """A table as people write it, all texts."""
    random = np.random.default_rng(0)
    day = [dt.date(2022, 1, 1) + dt.timedelta(int(n)) for n in random.integers(0, 700, rows)]
    table = {
        "size": [f"{x:.2f}" for x in random.normal(size=rows)],
        "count": [str(n) for n in random.integers(0, 50, rows)],
        "city": [["Oslo", "Rome", "N/A"][k] for k in random.integers(0, 3, rows)],
        "day": [f"{d:%d/%m/%Y}" for d in day],
        "moment": [f"{d:%Y-%m-%d} 10:30:00" for d in day],
        "paid": [f"${x:,.2f}" for x in random.uniform(1, 9000, rows)],
        "flag": [["True", "False"][k] for k in random.integers(0, 2, rows)],
        "share": [f"{x:.1f}%" for x in random.uniform(0, 100, rows)],
    }
    for place, (name, values) in enumerate(table.items()):
        for row in range(place, rows, 17):
            values[row] = "NA" if name in ("city", "flag") else "?"
    return table


def by_file(path):
    """The columns of a file, as the commands have them."""
    content = read(path)
    columns = columns_of(content.table)
    return columns._replace(formats={**columns.formats, **content.formats})


@pytest.fixture(scope="module")
def readings(tmp_path_factory):
    """The same table, as each reader gives it."""
    folder, table = tmp_path_factory.mktemp("readings"), messy()
    pd.DataFrame(table).to_csv(folder / "table.csv", index=False)
    typed = read(folder / "table.csv").table
    texts = pa.table(table)
    pa.parquet.write_table(typed, folder / "typed.parquet")
    pa.parquet.write_table(texts, folder / "texts.parquet")
    return {
        "CSV": by_file(folder / "table.csv"),
        "typed Parquet": by_file(folder / "typed.parquet"),
        "Parquet of texts": by_file(folder / "texts.parquet"),
        "pandas.read_csv": pd.read_csv(folder / "table.csv"),
        "pandas.read_csv of texts": pd.read_csv(folder / "table.csv", dtype=str),
        "typed pandas": typed.to_pandas(),
        "typed pandas of Arrow": typed.to_pandas(types_mapper=pd.ArrowDtype),
        "pandas of texts": pd.DataFrame(table),
        "polars.read_csv": pl.read_csv(folder / "table.csv"),
        "typed polars": pl.from_arrow(typed),
        "Arrow of texts": texts,
        "rows of texts": [list(row) for row in zip(*table.values(), strict=True)],
    }


@pytest.mark.filterwarnings("ignore:'[?]' is taken as missing")
def test_readers_give_the_same_bits(readings):
    expected = TableEncoder(min_count=1).fit(readings["CSV"]).transform(readings["CSV"])
    assert expected.numeric.shape[1] > 15
    for learned, table in readings.items():
        encoder = TableEncoder(min_count=1).fit(table)
        for name, other in readings.items():
            if "typed" in learned and "typed" not in name:
                continue  # it cannot know how the texts are meant
            if "rows" in learned and "rows" not in name:
                continue  # nor which column is which
            found = encoder.transform(other)
            for ours, theirs in zip(expected, found, strict=True):
                assert ours.tobytes() == theirs.tobytes(), f"learned from {learned}, read by {name}"
