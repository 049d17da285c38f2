"""Tables of every library as columns, and columns as numbers."""

import datetime as dt
import enum
import json
import os
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import QuantileTransformer

from aucmax.tables import encoder, files
from aucmax.tables.columns import Columns, columns_of
from aucmax.tables.encoder import TableEncoder
from aucmax.tables.formats import Format

NAN, NAT = np.nan, np.datetime64("NaT")
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def equal(a, b):
    """Whether two columns are the same, dtype and missing values with them."""
    if a.dtype != b.dtype:
        return False
    return a.tolist() == b.tolist() if a.dtype == object else np.array_equal(a, b, equal_nan=True)


def same(a, b):
    """Whether two encodings are the same bits."""
    return all(x.tobytes() == y.tobytes() and x.shape == y.shape for x, y in zip(a, b, strict=True))


def numeric(encoder, X):
    """The numeric outputs by name."""
    encoded = encoder.transform(X).numeric
    return dict(zip(encoder.numeric_names, encoded.T, strict=True))


def codes(encoder, X):
    return encoder.transform(X).categorical[:, 0].tolist()


def frame(**columns):
    return pd.DataFrame(columns)


def through_json(encoder):
    return TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))


def mixed(rows=300, seed=0):
    """A column of each kind, some values missing, as lists."""
    rng = np.random.default_rng(seed)

    def some(values):
        return [None if gone else v for v, gone in zip(values, rng.random(rows) < 0.1, strict=True)]

    start = dt.datetime(2023, 1, 1)
    return {
        "amount": rng.lognormal(size=rows).tolist(),
        "rate": some(rng.normal(size=rows).tolist()),
        "count": some(rng.poisson(2, rows).tolist()),
        "old": (rng.random(rows) < 0.3).tolist(),
        "smoker": some((rng.random(rows) < 0.5).tolist()),
        "city": some(rng.choice(["Rom", "Bonn", "Oslo", "Łódź"], rows, p=[0.5, 0.3, 0.19, 0.01])),
        "seen": some([start + dt.timedelta(seconds=int(s)) for s in rng.integers(0, 4e7, rows)]),
        "born": [
            dt.date(1950, 1, 1) + dt.timedelta(days=int(d)) for d in rng.integers(0, 2e4, rows)
        ],
        "spent": some([dt.timedelta(milliseconds=int(x)) for x in rng.integers(0, 9e6, rows)]),
        "same": [7] * rows,
    }


def as_array(data):
    table = np.empty((len(data["same"]), len(data)), dtype=object)
    for j, values in enumerate(data.values()):
        table[:, j] = values
    return table


MAKERS = {
    "list": lambda data: as_array(data).tolist(),
    "object array": as_array,
    "pandas": pd.DataFrame,
    "pandas objects": lambda data: pd.DataFrame(data, dtype=object),
    "pandas nullable": lambda data: pd.DataFrame(data).convert_dtypes(),
    "pandas arrow": lambda data: pd.DataFrame(data).convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.DataFrame,
    "polars categories": lambda data: pl.DataFrame(data).with_columns(
        pl.col("city").cast(pl.Categorical)
    ),
    "arrow": pa.table,
    "arrow batch": lambda data: pa.table(data).to_batches()[0],
    "arrow chunks": lambda data: pa.concat_tables([pa.table(data)[:100], pa.table(data)[100:]]),
}


# ---- Columns -------------------------------------------------------------------------------------


@pytest.mark.parametrize("maker", MAKERS)
def test_libraries_give_the_same_columns(maker):
    data = mixed()
    expected, found = columns_of(pa.table(data)), columns_of(MAKERS[maker](data))
    assert found.rows == expected.rows == 300
    assert found.named == (maker not in ("list", "object array"))
    assert found.names == (list(data) if found.named else [f"x{j}" for j in range(len(data))])
    for name, a, b in zip(data, expected.values, found.values, strict=True):
        assert equal(a, b), name


@pytest.mark.parametrize("maker", MAKERS)
def test_libraries_give_the_same_encoding(maker):
    train, test = mixed(), mixed(seed=1)
    expected = TableEncoder().fit(pa.table(train))
    encoder = TableEncoder().fit(MAKERS[maker](train))
    assert len(expected.numeric_names) == 22
    assert same(encoder.transform(MAKERS[maker](test)), expected.transform(pa.table(test)))
    assert same(expected.transform(MAKERS[maker](test)), expected.transform(pa.table(test)))


BERLIN = ZoneInfo("Europe/Berlin")
NOON = dt.datetime(2024, 7, 1, 12, tzinfo=BERLIN)
UTC_NOON = np.array(["2024-07-01T10", "NaT"], dtype="datetime64[us]")
TEXT = np.array(["a", None], dtype=object)


class Color(enum.Enum):
    RED = 1


COLUMNS = {
    "ints": ([1, 2], [1.0, 2.0]),
    "ints and floats": ([1, 2.5], [1.0, 2.5]),
    "decimals": ([Decimal("1.5"), Decimal("NaN")], [1.5, NAN]),
    "NumPy's own": ([np.float32(1.5), np.int8(2)], [1.5, 2.0]),
    "bools and numbers": ([True, 0.5], [1.0, 0.5]),
    "bools": ([True, np.False_], [True, False]),
    "bools, one missing": ([True, None], [1.0, NAN]),
    "pandas' missing": ([pd.NA, 1], [NAN, 1.0]),
    "nothing at all": ([None, NAN], [NAN, NAN]),
    "text and numbers": (["a", 1.0, 2.5, True, NAN], ["a", "1", "2.5", "True", None]),
    "bytes": ([b"\xc3\xa9", b"\xe9"], ["é", "\\xe9"]),
    "other things": ([Color.RED, None], ["Color.RED", None]),
    "times of day": ([dt.time(1, 2, 3, 500_000), None], [3723.5, NAN]),
    "durations": ([dt.timedelta(days=1), np.timedelta64(5, "m")], [86400.0, 300.0]),
    "days and moments": (
        [dt.date(2024, 5, 1), dt.datetime(2024, 5, 1, 3), np.datetime64("2024-05-02"), pd.NaT],
        np.array(["2024-05-01", "2024-05-01T03", "2024-05-02", "NaT"], dtype="datetime64[us]"),
    ),
    "time zones": ([NOON, None], UTC_NOON),
    "pandas' moments": ([pd.Timestamp(NOON) + pd.Timedelta(1, "ns"), NAT], UTC_NOON),
    "text with a zero byte": (["a\0", "b"], ["a\0", "b"]),
    "too large": ([10**400, -(10**400)], [np.inf, -np.inf]),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_columns_of_objects(case):
    values, expected = COLUMNS[case]
    if isinstance(expected, list):
        dtype = object if any(isinstance(v, str) for v in expected) else None
        expected = np.array(expected, dtype=dtype)
    rows = np.empty((len(values), 1), dtype=object)
    rows[:, 0] = values
    assert equal(columns_of(rows).values[0], expected)
    assert equal(
        columns_of(pd.DataFrame({"a": pd.Series(values, dtype=object)})).values[0], expected
    )


TYPED = {
    "int64 missing": (pd.Series([1, None], dtype="Int64"), np.array([1, NAN])),
    "boolean missing": (pd.Series([True, None], dtype="boolean"), np.array([1, NAN])),
    "string": (pd.Series(["a", None], dtype="string"), TEXT),
    "category": (pd.Series(["a", None], dtype="category"), TEXT),
    "int category": (pd.Series([3, None], dtype="category"), np.array(["3", None], dtype=object)),
    "zone": (pd.Series([pd.Timestamp(NOON), None]).dt.tz_convert("Asia/Tokyo"), UTC_NOON),
    "timedelta": (pd.Series(pd.to_timedelta(["1.5s", None])), np.array([1.5, NAN])),
    "sparse": (pd.Series([1.0, 0.0], dtype="Sparse[float]"), np.array([1.0, 0.0])),
    "period": (
        pd.Series(pd.PeriodIndex(["2024-01", None], freq="M")), np.array(["2024-01", None]),
    ),
    "arrow zone": (
        pd.Series([NOON, None], dtype=pd.ArrowDtype(pa.timestamp("s", "Asia/Tokyo"))), UTC_NOON,
    ),
    "arrow day": (
        pd.Series([dt.date(2024, 5, 1), None], dtype=pd.ArrowDtype(pa.date32())),
        np.array(["2024-05-01", "NaT"], dtype="datetime64[us]"),
    ),
    "polars enum": (pl.Series(["a", None], dtype=pl.Enum(["a"])), TEXT),
    "polars decimal": (pl.Series([Decimal("1.5"), None]), np.array([1.5, NAN])),
    "polars int128": (pl.Series([1, None], dtype=pl.Int128), np.array([1, NAN])),
    "polars zone": (pl.Series([NOON, None], dtype=pl.Datetime("ms", "Asia/Tokyo")), UTC_NOON),
    "polars time": (pl.Series([dt.time(1), None]), np.array([3600, NAN])),
    "polars binary": (pl.Series([b"a", None]), TEXT),
    "arrow decimal": (pa.array([Decimal("1.5"), None]), np.array([1.5, NAN])),
    "arrow half": (pa.array([np.float16(1.5), None], pa.float16()), np.array([1.5, NAN])),
    "arrow dictionary": (pa.array(["a", None]).dictionary_encode(), TEXT),
    "arrow int dictionary": (
        pa.array([3, None]).dictionary_encode(), np.array(["3", None], dtype=object),
    ),
    "arrow view": (pa.array(["a", None], pa.string_view()), TEXT),
    "arrow binary": (pa.array([b"a", None]), TEXT),
    "arrow uint64": (pa.array([2**64 - 1, None], pa.uint64()), np.array([2.0**64, NAN])),
    "arrow bool missing": (pa.array([True, None]), np.array([1, NAN])),
    "arrow time": (pa.array([dt.time(1), None], pa.time64("us")), np.array([3600, NAN])),
    "arrow duration": (pa.array([dt.timedelta(seconds=1), None]), np.array([1, NAN])),
    "arrow zone of its own": (pa.array([NOON, None], pa.timestamp("ns", "Asia/Tokyo")), UTC_NOON),
}  # fmt: skip


@pytest.mark.parametrize("case", TYPED)
def test_columns_of_typed_values(case):
    values, expected = TYPED[case]
    if isinstance(values, pa.Array):
        tables = [pa.table({"a": values}), pa.record_batch({"a": values})]
    else:
        tables = [(pl if isinstance(values, pl.Series) else pd).DataFrame({"a": values})]
    for table in tables:
        assert equal(columns_of(table).values[0], expected)


def test_columns_of_arrays():
    expected = np.array([[1.0, 2.0], [3.0, 4.0]])
    masked = np.ma.array(expected, mask=[[0, 1], [0, 0]])
    sparse = scipy.sparse.csr_matrix(expected)
    tables = [
        expected.astype(np.float32),
        expected.astype(np.uint8),
        expected.astype(np.longdouble),
    ]
    tables += [torch.tensor(expected), torch.tensor(expected).bfloat16()]
    tables += [torch.tensor(expected).int(), tuple(map(tuple, expected))]
    tables += [sparse, scipy.sparse.coo_array(expected), scipy.sparse.csc_array(expected)]
    for table in tables:
        found = columns_of(table)
        assert (found.names, found.rows, found.named) == (["x0", "x1"], 2, False)
        assert equal(found.values[0], expected[:, 0])
        assert equal(found.values[1], expected[:, 1])
    assert equal(columns_of(masked).values[1], np.array([NAN, 4.0]))
    assert equal(columns_of(np.array([["a"], ["b"]])).values[0], np.array(["a", "b"], dtype=object))
    assert equal(columns_of(np.array([[True]])).values[0], np.array([True]))
    assert equal(columns_of(np.array([[NAT]])).values[0], np.array([NAT], dtype="datetime64[us]"))
    found = columns_of(np.array([[90]], dtype="timedelta64[m]"))
    assert equal(found.values[0], np.array([5400.0]))


def test_duplicate_entries_of_a_sparse_matrix():
    twice = scipy.sparse.csc_matrix(([1.0, 2.0], [0, 0], [0, 2]), shape=(2, 1))
    assert columns_of(twice).values[0].tolist() == [3.0, 0.0]


NO_TABLES = {
    "one dimension": (np.zeros(3), r"rows and columns.*found shape \(3,\)"),
    "three": (np.zeros((1, 2, 3)), r"found shape \(1, 2, 3\)"),
    "ragged": ([[1, 2], [3]], r"every row of one length, found shape \(2,\)"),
    "complex": (
        np.zeros((2, 2), dtype=complex),
        r"column 'x0' must hold numbers.*found dtype complex",
    ),
    "lists": (pd.DataFrame({"a": [1], "b": [[1]]}), "column 'b' .*, found values of type list"),
    "polars lists": (pl.DataFrame({"a": [[1]]}), r"column 'a' must hold .*List"),
    "arrow lists": (pa.table({"a": [[1]]}), "column 'a' must hold .*list"),
    "twice": (pd.DataFrame([[1, 2]], columns=["a", "a"]), "found 'a' twice"),
    "arrow twice": (pa.table([[1], [2]], names=["a", "a"]), "found 'a' twice"),
}


@pytest.mark.parametrize("case", NO_TABLES)
def test_columns_of_no_table_raises(case):
    table, message = NO_TABLES[case]
    with pytest.raises(ValueError, match=message):
        columns_of(table)


# ---- Numbers -------------------------------------------------------------------------------------


def normal_scores(x):
    """The normal quantile of the mid-rank, scaled, as SciPy has it."""
    scores = scipy.stats.norm.ppf((scipy.stats.rankdata(x) - 0.5) / len(x)).clip(-5, 5)
    return scores * min(1 / scores.std(), 5 / np.abs(scores).max())


@pytest.mark.parametrize("kind", ["normal", "counts", "rare", "few"])
def test_scores_match_scipy(kind):
    rng = np.random.default_rng(3)
    x = {
        "normal": rng.normal(size=900),
        "counts": rng.poisson(1, 900) ** 3,
        "rare": rng.random(900) < 0.01,
        "few": np.array([5.0, -1.0, 2.0]),
    }[kind].astype(float)
    found = TableEncoder().fit(x[:, None]).transform(x[:, None]).numeric[:, 0]
    np.testing.assert_allclose(found, normal_scores(x), atol=1e-6)
    np.testing.assert_array_equal(scipy.stats.rankdata(found), scipy.stats.rankdata(x))


def test_frequent_value_is_in_its_middle():
    x = np.r_[np.zeros(40), np.arange(1, 61)]
    scale = TableEncoder().fit(x[:, None]).to_dict()["columns"][0]["scales"][0]
    middle = scale["scores"][0] / scale["scores"][-1]
    assert middle == pytest.approx(
        scipy.stats.norm.ppf(0.2) / scipy.stats.norm.ppf(0.995), rel=1e-5
    )


@pytest.mark.parametrize("draw", ["normal", "lognormal", "standard_cauchy"])
def test_scores_match_sklearn(draw):
    rng = np.random.default_rng(4)
    train, test = getattr(rng, draw)(size=(20_000, 1)), getattr(rng, draw)(size=(5_000, 1))
    peer = QuantileTransformer(output_distribution="normal", n_quantiles=1000, subsample=None)
    expected = peer.fit(train).transform(test)[:, 0]
    found = TableEncoder().fit(train).transform(test).numeric[:, 0]
    inner = np.abs(expected) < 2.5
    assert np.abs(found - expected)[inner].max() < 0.02
    assert scipy.stats.spearmanr(found, expected)[0] > 1 - 1e-8
    assert (np.diff(found[np.argsort(test[:, 0])]) >= 0).all()


def test_columns_have_unit_deviation():
    rng = np.random.default_rng(5)
    columns = [rng.normal(size=5000), rng.lognormal(size=5000), rng.poisson(1, 5000)]
    columns += [rng.random(5000) < 0.3, rng.random(5000) < 0.001]
    encoded = TableEncoder().fit(np.array(columns, dtype=float).T).transform(np.array(columns).T)
    assert np.abs(encoded.numeric[:, :4].std(axis=0) - 1).max() < 0.01
    assert encoded.numeric[:, 4].max() == 5  # a rare value is not let further out


def test_scores_are_clipped():
    x = np.linspace(-1, 1, 50)[:, None]
    found = TableEncoder().fit(x).transform([[-1], [-1e300], [1], [1e300]]).numeric[:, 0]
    assert found[0] == found[1] == -found[2] == -found[3]


def test_few_values_are_all_knots_however_rare():
    x = np.random.default_rng(8).poisson(2, 20_000).astype(float)
    encoder = TableEncoder(quantiles=20).fit(x[:, None])
    np.testing.assert_allclose(numeric(encoder, x[:, None])["x0"], normal_scores(x), atol=1e-6)


def test_number_of_quantiles_limits_the_knots():
    x = np.random.default_rng(6).normal(size=(5000, 1))
    scale = TableEncoder(quantiles=11).fit(x).to_dict()["columns"][0]["scales"][0]
    assert len(scale["knots"]) == len(scale["scores"]) == 11
    assert (scale["knots"][0], scale["knots"][-1]) == (x.min(), x.max())
    assert scale["knots"][5] == pytest.approx(np.median(x), abs=1e-3)


def test_extreme_numbers_do_not_overflow():
    encoder = TableEncoder().fit([[0.0], [1e-323], [2.0], [1e308], [-1e308]])
    found = numeric(encoder, [[-1e308], [0], [5e-324], [1e-323], [1], [1e308]])["x0"]
    assert (np.diff(found) >= 0).all()
    assert np.abs(found).max() <= 5


def test_missing_numbers():
    encoder = TableEncoder().fit([[1.0, 1], [2.0, 2], [50.0, 3], [None, 4]])
    assert encoder.numeric_names == ["x0", "x0 is missing", "x1"]
    found = encoder.transform([[None, None], [2, 2.5]]).numeric
    assert found[0].tolist() == [found[1, 0], 1, found[1, 2]]
    assert found[1, 1] == 0


def test_median_of_an_even_number():
    encoder = TableEncoder().fit([[0.0], [0.0], [1.0], [1.0], [None]])
    found = numeric(encoder, [[None], [0.5], [0]])["x0"]
    assert found[0] == found[1] > found[2]


def test_constant_with_missing_values_keeps_its_indicator():
    encoder = TableEncoder().fit([[7.0], [None], [7.0]])
    assert encoder.numeric_names == ["x0 is missing"]
    assert encoder.transform([[None], [8.0]]).numeric.tolist() == [[1.0], [0.0]]


def test_bools_are_1_and_0():
    encoder = TableEncoder().fit(frame(a=[True, False, True]))
    assert encoder.transform(frame(a=[True, False])).numeric.tolist() == [[1.0], [0.0]]
    assert encoder.transform([[0], [1.0], [True], [None]]).numeric[:, 0].tolist() == [0, 1, 1, 1]
    texts = [["False"], ["TRUE"], ["1"], [" 0 "], ["NA"]]
    assert encoder.transform(texts).numeric[:, 0].tolist() == [0, 1, 1, 0, 1]


def test_numbers_may_come_as_bools_or_text():
    encoder = TableEncoder().fit([[0.0], [1.0], [3.5]])
    expected = encoder.transform([[0], [1], [3.5], [None]])
    assert same(encoder.transform(frame(x0=["0", " 1.0", "3.5e0", "NaN"])), expected)
    flags = encoder.transform(frame(x0=[False, True]))
    assert flags.numeric.tolist() == expected.numeric[:2].tolist()


LATER = {
    "text for a number": ([1, 2, 3], ["1", "x", "y"], "numbers as in training, found 'x' in row 1"),
    "underscores": ([1, 2, 3], ["1_000"], "numbers as in training, found '1_000' in row 0"),
    "a date for a number": ([1, 2], pd.to_datetime([None, "2024-05-01"]), "numbers .*'2024-05-01"),
    "a number for a flag": ([True, False], [1, 2], "true or false .*, found '2' in row 1"),
    "text for a flag": ([True, False], ["x", "1"], "true or false .*, found 'x' in row 0"),
    "infinity": ([1, 2], [1, np.inf], "be finite, found inf in row 1"),
    "infinity as text": ([1, 2], ["-inf"], "be finite, found -inf in row 0"),
    "too large": ([1, 2], [10**400], "be finite, found inf in row 0"),
}


@pytest.mark.parametrize(("train", "later", "said"), LATER.values(), ids=LATER)
def test_transform_raises_for_other_values(train, later, said):
    encoder = TableEncoder().fit(frame(a=train))
    with pytest.raises(ValueError, match=f"^column 'a' must .*{said}|^column 'a' must {said}"):
        encoder.transform(frame(a=later))


REFUSED_FITS = {
    "infinity": ([[1.0, 2.0], [2.0, np.inf]], {}, "column 'x1' must be finite"),
    "constants": ([[1, "a"], [1, "b"]], {}, "X must have a column that differs by row"),
    "no columns": (np.empty((3, 0)), {}, "X .*found no columns"),
    "no rows": (np.empty((0, 3)), {}, "X must have rows"),
    "quantiles": ([[1], [2]], {"quantiles": 1}, "quantiles must be an integer >= 2"),
    "max_categories": ([[1], [2]], {"max_categories": 0}, "max_categories must be"),
    "min_count": ([[1], [2]], {"min_count": 0}, "min_count must be an integer >= 1"),
}


@pytest.mark.parametrize(("table", "options", "said"), REFUSED_FITS.values(), ids=REFUSED_FITS)
def test_fit_raises(table, options, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        TableEncoder(**options).fit(table)


# ---- Text ----------------------------------------------------------------------------------------


def texts(**counts):
    return [[None if name == "missing" else name] for name in counts for _ in range(counts[name])]


def test_codes_are_ordered_by_frequency():
    encoder = TableEncoder(min_count=2).fit(texts(b=2, missing=1, c=5, rare=1, a=2))
    assert encoder.categorical_names == ["x0"]
    assert encoder.cardinalities == [5]
    assert encoder.numeric_names == []
    found = codes(encoder, [["c"], ["a"], ["b"], [None], ["rare"], ["never seen"]])
    assert found == [1, 2, 3, 4, 0, 0]
    assert encoder.transform([["c"]]).numeric.shape == (1, 0)


def test_number_of_categories_is_limited():
    encoder = TableEncoder(min_count=1, max_categories=2).fit(texts(a=1, b=3, c=1, d=2))
    assert encoder.cardinalities == [3]
    assert codes(encoder, [["b"], ["d"], ["a"], ["c"], [None]]) == [1, 2, 0, 0, 0]


def test_missing_text_is_a_category():
    encoder = TableEncoder(min_count=1, max_categories=2).fit(texts(a=1, b=3, missing=1))
    assert encoder.cardinalities == [4]
    assert codes(encoder, [["b"], ["a"], [None]]) == [1, 2, 3]


def test_default_number_of_categories():
    rows = [[f"c{i}"] for i in range(300) for _ in range(5)] + [["four"]] * 4 + [[None]]
    encoder = TableEncoder().fit(rows)
    assert encoder.cardinalities == [256]
    assert codes(encoder, [["four"], [None]]) == [0, 255]


def test_numbers_in_a_text_column():
    encoder = TableEncoder(min_count=1).fit(texts(**{"3": 3, "2.5": 2, "True": 1, "x": 1}))
    assert codes(encoder, np.array([[3.0], [2.5], [4.0], [NAN]])) == [1, 2, 0, 0]
    assert codes(encoder, np.array([[3], [4]])) == [1, 0]
    assert codes(encoder, [[True], [False]]) == [3, 0]
    days = {"2024-05-01": 2, "2024-05-01 10:00:00": 1, "later": 1}
    encoder = TableEncoder(min_count=1).fit(texts(**days))
    dates = np.array([["2024-05-01"], ["2024-05-01T10"], ["NaT"]], dtype="datetime64[s]")
    assert codes(encoder, dates) == [1, 2, 0]


@given(st.lists(st.none() | st.sampled_from("abcdef") | st.text(max_size=2), min_size=2))
def test_codes_of_any_texts(values):
    texts = Format("text")
    columns = Columns(["a"], [np.array(values, dtype=object)], len(values), formats={"a": texts})
    values = [None if texts.is_missing(text) else text for text in values]
    kept = {v for v in values if v is None or values.count(v) >= 2}
    groups = len(kept) + (len(set(values)) > len(kept))
    if groups < 2:
        with pytest.raises(ValueError, match="a column that differs by row"):
            TableEncoder(min_count=2).fit(columns)
        return
    encoder = TableEncoder(min_count=2).fit(columns)
    found = codes(encoder, columns)
    assert encoder.cardinalities == [len(kept) + 1]
    assert all((code > 0) == (value in kept) for code, value in zip(found, values, strict=True))
    assert len(set(zip(found, values, strict=True))) == len(set(values))
    assert len(set(found) - {0}) == len(kept)
    assert codes(through_json(encoder), columns) == found


# ---- Dates ---------------------------------------------------------------------------------------


def test_dates_match_pandas():
    rng = np.random.default_rng(7)
    seconds = rng.integers(-3e9, 3e9, 400)  # before 1970 too
    dates = pd.Series(pd.to_datetime(seconds, unit="s"))
    expected = {
        "t: days": seconds / 86400,
        "t: year": dates.dt.year,
        "t: month": dates.dt.month,
        "t: day": dates.dt.day,
        "t: weekday": dates.dt.day_of_week,
        "t: hour": dates.dt.hour + dates.dt.minute / 60 + dates.dt.second / 3600,
    }
    encoder = TableEncoder().fit(frame(t=dates))
    assert encoder.numeric_names == list(expected)
    found = numeric(encoder, frame(t=dates))
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], normal_scores(values), atol=1e-6, err_msg=name)


def test_constant_parts_of_dates_are_dropped():
    days = [dt.date(2024, 5, day) for day in range(1, 29)]
    encoder = TableEncoder().fit(frame(t=days))
    assert encoder.numeric_names == ["t: days", "t: day", "t: weekday"]
    encoder = TableEncoder().fit(frame(t=[*days, None]))
    assert encoder.numeric_names == ["t: days", "t: day", "t: weekday", "t is missing"]
    found = encoder.transform(frame(t=[None, dt.datetime(2024, 5, 14, 12)]))
    assert found.numeric[0, 0] == found.numeric[1, 0]  # the median is the noon between two days
    assert found.numeric[:, 3].tolist() == [1, 0]


def test_dates_as_text():
    encoder = TableEncoder().fit(frame(t=[dt.datetime(2024, 5, d, d) for d in range(1, 20)]))
    moments = [dt.datetime(2024, 5, 3), dt.datetime(2024, 5, 3, 10, 30), None]
    written = ["2024-05-03", " 2024-05-03T12:30:00+02:00", "null"]
    assert same(encoder.transform(frame(t=written)), encoder.transform(frame(t=moments)))
    nothing = encoder.transform(frame(t=[None, None])).numeric
    assert nothing.tolist() == [encoder.transform(frame(t=moments)).numeric[2].tolist()] * 2
    with pytest.raises(
        ValueError,
        match=r"'t' must hold dates as in training, such as 2024-05-31, found '3.5.24' in row 1",
    ):
        encoder.transform(frame(t=["2024-05-03", "3.5.24"]))
    with pytest.raises(ValueError, match=r"'t' must hold dates as in training, found '7' in row 1"):
        encoder.transform(frame(t=[None, 7.0]))
    with pytest.raises(
        ValueError, match=r"'t' must hold dates as in training, found 'True' in row 0"
    ):
        encoder.transform(frame(t=[True]))


# ---- Tables --------------------------------------------------------------------------------------


def test_constant_columns_are_not_used():
    table = frame(
        constant=[1] * 6, empty=[None] * 6, no=[False] * 6, day=[dt.date(2024, 1, 1)] * 6,
        one=["a"] * 6, rare=list("abcdef"), x=range(6),
    )  # fmt: skip
    encoder = TableEncoder().fit(table)
    assert encoder.names == list(table.columns)
    assert (encoder.numeric_names, encoder.categorical_names) == (["x"], [])
    assert encoder.transform(frame(x=[3])).numeric.shape == (1, 1)  # the others need not be there
    assert encoder.notes(table) == [
        "column 'constant' is not used: it was constant in training",
        "column 'empty' is not used: it had no values in training",
        "column 'no' is not used: it was constant in training",
        "column 'day' is not used: it was constant in training",
        "column 'one' is not used: it was constant in training",
        "column 'rare' is not used: it had another value in every row of training, as keys have: "
        "--id carries such a column into predictions",
    ]


def test_columns_are_matched_by_name():
    table = pd.DataFrame(mixed())
    encoder = TableEncoder().fit(table)
    other = table[table.columns[::-1]].assign(extra=1)
    assert same(encoder.transform(other), encoder.transform(table))
    assert encoder.notes(other) == [
        "column 'same' is not used: it was constant in training",
        "column 'extra' is not used: the model was not trained with it",
    ]


def test_missing_columns_raise():
    encoder = TableEncoder().fit(frame(age=[1, 2], income=[3, 2], city=[2, 1]))
    near = r"found none named 'age' \(but ' AGE'\), 'income' \(but 'in_come'\), 'city'$"
    with pytest.raises(ValueError, match=near):
        encoder.transform(pd.DataFrame({"in_come": [1], " AGE": [1], "z": [1]}))


def test_from_dict_of_another_format_raises():
    d = TableEncoder().fit([[1], [2]]).to_dict()
    with pytest.raises(ValueError, match="a format up to 1, found 2: upgrade aucmax"):
        TableEncoder.from_dict({**d, "format": 2})
    with pytest.raises(ValueError, match="d must be a dict made by to_dict"):
        TableEncoder.from_dict({"format": 0})
    with pytest.raises(ValueError, match="must be fitted first"):
        TableEncoder().transform([[1]])


def test_number_of_columns():
    encoder = TableEncoder().fit(frame(a=[1, 2], b=[1, 1], c=[3, 2]))
    assert same(encoder.transform([[1, 1, 2]]), encoder.transform(frame(c=[2], a=[1])))
    for count in (2, 4):
        with pytest.raises(
            ValueError, match=f"X must have 3 columns as in training, found {count}"
        ):
            encoder.transform(np.ones((1, count)))
    assert encoder.notes(np.ones((1, 3))) == ["column 'b' is not used: it was constant in training"]


def test_no_rows():
    encoder = TableEncoder(min_count=1).fit(pd.DataFrame(mixed()))
    found = encoder.transform(pd.DataFrame(mixed()).iloc[:0])
    assert found.numeric.shape == (0, len(encoder.numeric_names))
    assert found.categorical.shape == (0, 1)


def test_dtypes():
    found = TableEncoder().fit(pd.DataFrame(mixed())).transform(pd.DataFrame(mixed()))
    assert (found.numeric.dtype, found.categorical.dtype) == (np.float32, np.int64)
    assert np.isfinite(found.numeric).all()
    assert all(part.flags.c_contiguous for part in found)


@pytest.mark.parametrize("threads", [3])
def test_threads_give_the_same_bits(monkeypatch, threads):
    train, test = columns_of(pa.table(mixed(500))), columns_of(pa.table(mixed(400, seed=1)))
    serial = TableEncoder().fit(train)
    pools = []

    class Pool(encoder.ThreadPoolExecutor):
        def __init__(self, workers):
            pools.append(workers)
            super().__init__(workers)

    monkeypatch.setattr(encoder, "ThreadPoolExecutor", Pool)
    expected = serial.transform(test)
    assert pools == []
    monkeypatch.setattr(encoder, "MANY", 4000)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    parallel = TableEncoder().fit(train)
    assert parallel.to_dict() == serial.to_dict()
    monkeypatch.setattr(encoder, "MANY", 3600)  # of nine columns: one is not used
    assert same(parallel.transform(test), expected)
    assert pools == [threads, threads]


@given(
    st.lists(
        st.none() | FINITE | st.integers(-3, 3).map(float), min_size=1, max_size=40,
    ),
    st.lists(FINITE, min_size=1, max_size=40),
    st.integers(2, 50),
)  # fmt: skip
def test_scores_of_any_numbers(train, test, quantiles):
    """Within the limit, in the order of the values, the same through JSON."""
    column = np.array(train, dtype=float)
    try:
        encoder = TableEncoder(quantiles=quantiles).fit(column[:, None])
    except ValueError:
        assert np.ptp(column[~np.isnan(column)] / 2) < 1e-290 if (column == column).any() else True
        return
    x = np.sort(np.array([*test, *(value for value in train if value is not None)]))[:, None]
    found = encoder.transform(x)
    assert np.isfinite(found.numeric).all()
    assert np.abs(found.numeric).max() <= 5
    assert (np.diff(found.numeric[:, 0]) >= 0).all()
    assert same(through_json(encoder).transform(x), found)


# ---- What is kept --------------------------------------------------------------------------------


def test_json_round_trip():
    table, other = pd.DataFrame(mixed()), pd.DataFrame(mixed(seed=2))
    encoder = TableEncoder(quantiles=50, max_categories=2).fit(table)
    copy = through_json(encoder)
    assert same(copy.transform(other), encoder.transform(other))
    assert copy.to_dict() == encoder.to_dict()
    assert copy.to_dict()["format"] == 1
    for name in ("names", "numeric_names", "categorical_names", "cardinalities"):
        assert getattr(copy, name) == getattr(encoder, name)
    assert copy.notes(table) == encoder.notes(table) != []
    assert copy.fit(other).to_dict() == encoder.fit(other).to_dict()  # the settings are kept


# ---- Real tables ---------------------------------------------------------------------------------

FOLDER = Path(os.environ.get("AUCMAX_DATA") or "none") / "tables"
REAL = sorted(FOLDER.glob("*.csv.gz"))[::3]


@pytest.mark.skipif(not REAL, reason="AUCMAX_DATA names no folder with the real tables")
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name.partition(".")[0])
def test_real_tables(path):
    table = files.read_table(path).drop_columns("target")[:3_000]
    encoder = TableEncoder().fit(table)
    found = encoder.transform(table)
    assert np.isfinite(found.numeric).all()
    assert np.abs(found.numeric).max() <= 5
    assert (found.numeric.std(axis=0) <= 1.001).all()
    assert (found.categorical.max(axis=0, initial=0) < encoder.cardinalities).all()
    copy = through_json(TableEncoder().fit(table.to_pandas()))
    assert same(copy.transform(table.to_pandas()), found)
    used = {name.removesuffix(" is missing") for name in encoder.numeric_names}
    used |= set(encoder.categorical_names)
    assert len(used) + len(encoder.notes(table)) == table.num_columns
    check_ranks(table, encoder, found.numeric)


def check_ranks(table, encoder, found):
    """A column with few values has them all as knots, so that its ranks are kept exactly."""
    for name in set(table.column_names) & set(encoder.numeric_names):
        values = table[name].to_pandas().to_numpy(float)
        there = ~np.isnan(values)
        if len(np.unique(values[there])) <= 1000:
            x = found[there, encoder.numeric_names.index(name)]
            assert np.array_equal(scipy.stats.rankdata(x), scipy.stats.rankdata(values[there]))
