"""CSV files to Arrow tables, however they are written."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from aucmax.tables.columns import repeated
from aucmax.tables.formats import MISSING, Format, zeros_note
from aucmax.tables.read_options import ReadOptions

QUOTES = "\"'"
SEPARATORS = (",", ";", "\t", "|")
BLOCK = 1 << 20
"""Bytes parsed at once."""
HEAD = 1 << 16
"""Bytes that tell how a file is written."""
PIECES = 16
"""Parts of a file, spread over it, that tell the types of its columns."""

OTHERS = {
    b"PK\x03\x04": "is a ZIP file, or one of a spreadsheet program: save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "is a file of a spreadsheet program: save the sheet as CSV",
    b"%PDF": "is a PDF, no table",
    b"PAR1\x15": "is a Parquet file: let its name end in .parquet",
    b"ARROW1\0": "is an Arrow file: let its name end in .arrow",
    b"\x1f\x8b": "is a gzip file: let its name end in .gz",
    b"<!doctype": "is a web page, no table",
    b"<html": "is a web page, no table",
    b"<?xml": "is XML, no table",
    b'{"': "is JSON, no CSV",
    b'[{"': "is JSON, no CSV",
}
"""What files of other kinds begin with."""

INVISIBLE = {
    "NUL bytes": b"\0",
    "byte order marks": codecs.BOM_UTF8,
    "blanks without a width": "\u200b".encode(),
}
"""What nobody sees, and makes a text of a number."""

NUMBER = re.compile(r"\s*[-+]?\d*\.?\d+\s*")
THOUSANDS = re.compile(r"\s*[-+]?[1-9]\d{0,2}[.,]\d{3}\s*")  # or a fraction: nobody can tell
DECIMAL_COMMA = re.compile(r"\s*[-+]?\d*,\d+\s*")
DECIMAL_POINT = re.compile(r"\s*[-+]?\d*\.\d+\s*")


class Dialect(NamedTuple):
    """How a CSV is written.

    Attributes:
        separator: between values.
        quote: around values that hold a separator or a line break.
        decimal: between a number's whole part and its fraction.
        names: of the columns.
        unnamed: those of them that the file does not name.
        start: where the first row begins, in bytes.
        line: the number of its line, from 1.
    """

    separator: str
    quote: str
    decimal: str
    names: list[str]
    unnamed: set[str]
    start: int
    line: int


def read_csv(
    path: Path,
    suffix: str,
    options: ReadOptions,
    text: set[str],
    formats: Mapping[str, Format] | None,
    notes: list[str],
) -> tuple[pa.Table, str]:
    """The table with the types that Arrow finds, else text as it is written; the decimal sign.

    Args:
        path: of the file.
        suffix: what its name ends in: ``.csv``, ``.tsv``, with ``.gz`` if it is packed.
        options: how it is written.
        text: columns that stay as they are written.
        formats: those of a model that exists, which reads what programs would not write.
        notes: to add to.
    """
    data = _text(path, suffix, options.encoding, notes)
    dialect = _dialect(path, data, suffix, options, formats, notes)
    unlike = {name for name, x in (formats or {}).items() if not x.is_plain}
    text = text | unlike | {*options.categories}
    table = _parse(path, data, dialect, text, options.na_values, [] if formats else notes)
    return drop_empty_ends(table, dialect.unnamed, notes), dialect.decimal


def wrong(path: Path, what: str) -> ValueError:
    """What is said of a file that is no table."""
    return ValueError(f"file {str(path)!r} {' '.join(what.split())}")


def check_names(path: Path, names: list[str]) -> None:
    """Raise if two columns have one name."""
    if (name := repeated(names)) is not None:
        raise wrong(path, f"must have a name of its own for each column, found {name!r} twice")


def is_text(kind: Any) -> bool:
    """Whether a type is text, or nothing at all."""
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(check(kind) for check in (*texts, pa.types.is_null))


def _text(path: Path, suffix: str, encoding: str | None, notes: list[str]) -> bytes:
    """The file's text in UTF-8, unpacked."""
    data = path.read_bytes()
    if suffix.endswith(".gz"):
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise wrong(path, f"is no gzip file, cut off or damaged: {error}") from None
    _check_kind(path, data)
    data = _in_utf8(path, data, encoding, notes)
    data = data.removeprefix(codecs.BOM_UTF8)
    plain = data.isascii()  # which is faster than to look for each
    for what, found in INVISIBLE.items():
        if (found.isascii() or not plain) and found in data:
            notes.append(_left_out(what, data.count(found)))
            data = data.replace(found, b"")
    if data.endswith(b"\x1a"):  # which ended a file once
        data = data.rstrip(b"\x1a")
    if not data[:HEAD].strip() and not data.strip():
        raise wrong(path, "is empty")
    return data


def _check_kind(path: Path, data: bytes) -> None:
    """Raise if a file begins as those of other kinds do."""
    begin = b"".join(data[:50].split())
    for first, what in OTHERS.items():
        if begin.startswith(first) or begin.lower().startswith(first):
            raise wrong(path, what)


def _in_utf8(path: Path, data: bytes, encoding: str | None, notes: list[str]) -> bytes:
    found = encoding or "utf-8"
    try:
        if encoding is None:
            found = _encoding(data)
            if found == "utf-8":
                return data
            notes.append(_read_as(found))
        return data.decode(found).encode()
    except UnicodeError as error:
        raise _no_text(path, found, error) from None


def _read_as(encoding: str) -> str:
    return f"the text is no UTF-8 and is read as {encoding}: --encoding says another"


def _left_out(what: str, count: int) -> str:
    return f"{what} are left out, {count:,} in all"


def _no_text(path: Path, encoding: str, error: UnicodeError, line: int = 1) -> ValueError:
    """What is said of bytes that are no text in an encoding; they begin in a line."""
    found = str(error)
    if isinstance(error, UnicodeDecodeError):
        line += error.object.count(b"\n", 0, error.start)
        found = f"byte 0x{error.object[error.start]:02x} in line {line:,}"
    return wrong(path, f"must be text in {encoding}, found {found}: --encoding says another")


def _encoding(data: bytes) -> str:
    """The likeliest encoding; UnicodeDecodeError if it is UTF-8 but for some bytes."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    even, odd = (data[start:2000:2].count(0) for start in (0, 1))
    if max(even, odd) > len(data[:2000]) / 4 and min(even, odd) < max(even, odd) / 4:
        return "utf-16-be" if even > odd else "utf-16-le"
    try:
        data.isascii() or data.decode()
    except UnicodeDecodeError:
        text = data.decode(errors="replace")
        if len(re.findall("[^\x00-\x7f\ufffd]", text)) > text.count("\ufffd"):
            raise
        undefined = b"\x81\x8d\x8f\x90\x9d"
        return "latin-1" if any(byte in data for byte in undefined) else "windows-1252"
    return "utf-8"


def _dialect(
    path: Path,
    data: bytes,
    suffix: str,
    options: ReadOptions,
    formats: Mapping[str, Format] | None,
    notes: list[str],
) -> Dialect:
    """How the file is written, from its first lines."""
    size = HEAD  # a header may be longer
    while size < len(data) and max(data.count(end, 0, size) for end in (b"\n", b"\r")) < 3:
        size *= 4
    head = data[:size].decode(errors="ignore")
    told = re.match(r"sep=(.)\r?\n", head)  # as a spreadsheet program tells itself
    quote = _quote(head)
    separators = list(("\t", *SEPARATORS) if ".tsv" in suffix else SEPARATORS)
    if separator := options.separator or (told[1] if told else None):
        separators = [separator]
    rows_by = {each: _rows(head, each, quote, whole=size >= len(data)) for each in separators}
    separator = max(separators, key=lambda each: _regularity(rows_by[each]))
    rows = rows_by[separator][1 if told else 0 :]
    width = Counter(len(row.values) for row in rows).most_common(1)[0][0] if rows else 0
    if skipped := _titles(rows, width):
        title = next(filter(None, rows[0].values), "")
        notes.append(f"lines above the names are left out, {skipped} of them: {title!r}")
        rows = rows[skipped:]
    if not rows:
        raise wrong(path, "has no rows")
    # Columns without a name are called as pandas calls them.
    names = [name or f"Unnamed: {place}" for place, name in enumerate(rows[0].values)]
    unnamed = {name for name, given in zip(names, rows[0].values, strict=True) if not given}
    check_names(path, names)
    fractions = any(map(DECIMAL_POINT.fullmatch, rows[0].values))
    if fractions or all(map(NUMBER.fullmatch, filter(None, rows[0].values))):
        notes.append(
            f"the first line is taken as names, though it holds numbers: {rows[0].values[:5]}"
        )
    decimal = options.decimal or _decimal(rows[1:], separator, formats, notes)
    lines = list(io.StringIO(head, newline=""))[: rows[0].end]
    start = len("".join(lines).encode())
    return Dialect(separator, quote, decimal, names, unnamed, start, rows[0].end + 1)


def _titles(rows: list[_Row], width: int) -> int:
    """How many rows are above the names: with fewer values, or all but one of them empty."""

    def is_title(row: _Row) -> bool:
        empty = width > 2 and sum(map(bool, row.values)) < 2
        return empty or len(row.values) != width

    count = next((place for place, row in enumerate(rows) if not is_title(row)), 0)
    short = all(sum(map(bool, row.values)) < 2 for row in rows[:count])
    # Names that are too few would make the first row of numbers names.
    return count if short or not any(map(NUMBER.fullmatch, rows[count].values)) else 0


class _Row(NamedTuple):
    values: list[str]
    end: int
    """The number of its last line, from 1."""


def _rows(head: str, separator: str, quote: str, whole: bool) -> list[_Row]:
    """The first rows, without empty ones; the last may be cut off unless it is the whole file."""
    lines = csv.reader(io.StringIO(head, newline=""), delimiter=separator, quotechar=quote)
    rows: list[_Row] = []
    with suppress(csv.Error):
        rows.extend(_Row(row, lines.line_num) for row in lines if row)
    return rows if whole else rows[:-1] or rows


def _quote(head: str) -> str:
    """Apostrophes quote if some stand around values, and no quotation marks do."""
    around = r"(?:^|[,;\t|\r]){0}(?:[^{0}]|{0}{0})*{0}(?:[,;\t|\r]|$)"
    marks = [quote for quote in QUOTES if re.search(around.format(quote), head, re.M)]
    return marks[0] if marks else '"'


def _regularity(rows: list[_Row]) -> tuple[float, int]:
    """How well a separator divides lines: the share of those with as many values, if several."""
    if not rows:
        return 0.0, 0
    width, often = Counter(len(row.values) for row in rows).most_common(1)[0]
    return (often / len(rows) if width > 1 else 0.0), width


def _decimal(
    rows: list[_Row], separator: str, formats: Mapping[str, Format] | None, notes: list[str]
) -> str:
    """A comma where the file's numbers have commas, and none has a point.

    Where no number tells, it is that of the model that exists already; else, where semicolons
    separate values, a comma, for that is why they do.
    """
    cells = [cell for row in rows for cell in row.values]
    unclear = [cell for cell in cells if THOUSANDS.fullmatch(cell)]
    clear = [cell for cell in cells if not THOUSANDS.fullmatch(cell)]
    commas = any(map(DECIMAL_COMMA.fullmatch, clear))
    points = any(map(DECIMAL_POINT.fullmatch, clear))
    if commas != points:
        return "," if commas and separator != "," else "."
    if formats is not None:
        return "," if any(x.decimal == "," for x in formats.values()) else "."
    if separator == ";" and unclear and not commas and all("," in cell for cell in unclear):
        notes.append(
            f"numbers such as {unclear[0]!r} are read with a decimal comma, as semicolons separate "
            f"values: --decimal . says that it divides thousands"
        )
        return ","
    if separator == ";" and unclear and not points and not any("," in cell for cell in unclear):
        notes.append(
            f"numbers such as {unclear[0]!r} are read with a decimal point: --decimal , says that "
            f"it divides thousands"
        )
    return "."


def _parse(
    path: Path,
    data: bytes,
    dialect: Dialect,
    text: set[str],
    na_values: tuple[str, ...],
    notes: list[str],
) -> pa.Table:
    """All columns with the types that Arrow finds; those that are not all of one are text."""
    strings = {name: pa.string() for name in dialect.names}
    null_values = [*MISSING, *na_values]
    quoted = data.find(dialect.quote.encode(), dialect.start) >= 0

    def parse(body: Any, types: Mapping[str, Any], block: int, threads: bool) -> pa.Table:
        return pyarrow.csv.read_csv(
            body,
            pyarrow.csv.ReadOptions(
                block_size=block, use_threads=threads, column_names=dialect.names
            ),
            pyarrow.csv.ParseOptions(
                delimiter=dialect.separator,
                quote_char=dialect.quote,
                newlines_in_values=quoted,
            ),
            pyarrow.csv.ConvertOptions(
                column_types=types, null_values=null_values, decimal_point=dialect.decimal
            ),
        )

    start = dialect.start
    if not data[start : start + HEAD].strip() and not data[start:].strip():
        raise wrong(path, "has no rows")
    body = pa.py_buffer(data).slice(start)
    try:
        sample = _sample(data, start, quoted)
        found = parse(pa.py_buffer(sample), {}, len(sample) + 1, threads=False).schema
        types = {f.name: pa.string() if pa.types.is_null(f.type) else f.type for f in found}
        if b"0x" in sample.lower():  # Arrow reads these codes as numbers, pandas as text
            types |= {x: pa.string() for x, kind in types.items() if pa.types.is_integer(kind)}
        types |= {name: pa.string() for name in text & set(types)}
        if whole := [name for name, kind in types.items() if pa.types.is_integer(kind)]:
            texts = parse(pa.py_buffer(sample), strings, len(sample) + 1, threads=False)
            notes += filter(None, (zeros_note(name, texts[name]) for name in whole))
        try:
            table = parse(body, types, BLOCK, threads=body.size > BLOCK)
        except pa.ArrowInvalid:
            # A later value is of another type than the sample, or a row longer than a block. By
            # one thread, for those that still run when an error ends the process abort it.
            table = parse(body, strings, body.size + 1, threads=False)
    except pa.ArrowInvalid as error:
        _check_lengths(path, data, dialect)
        raise wrong(path, f"cannot be read: {error}") from None
    if quoted:
        _check_quotes(path, data, table, dialect.quote)
    return table


def csv_format(
    path: Path, options: ReadOptions, notes: list[str]
) -> tuple[pyarrow.dataset.CsvFileFormat, Dialect, bool]:
    """How Arrow's data sets read this CSV, how it is written, and whether some of it is invisible.

    Every value is read as text, with what is invisible: see :func:`without_invisible`.

    What texts stand for is found from a sample, and what comes later need not be of its type.
    """
    import pyarrow.dataset  # which loads pandas, if that is there

    with path.open("rb") as file:
        head = file.read(PIECES * HEAD)
    _check_kind(path, head)
    if not head.strip():
        raise wrong(path, "is empty")
    encoding, invisible, unpaired = _look_through(path, options.encoding, notes)
    data = head.decode(encoding, errors="ignore").encode()
    for left_out in INVISIBLE.values():
        data = data.replace(left_out, b"")
    dialect = _dialect(path, data, "", options, None, notes)
    written = pyarrow.dataset.CsvFileFormat(
        pyarrow.csv.ParseOptions(
            delimiter=dialect.separator, quote_char=dialect.quote, newlines_in_values=True
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={name: pa.string() for name in dialect.names}
        ),
        read_options=pyarrow.csv.ReadOptions(
            encoding=encoding, column_names=dialect.names, skip_rows=dialect.line - 1
        ),
    )
    if dialect.quote in unpaired:
        _check_last_value(path, written, dialect)
    return written, dialect, invisible


def without_invisible(texts: Any) -> Any:
    """A Table or RecordBatch of texts without what nobody sees in them."""
    some = "|".join(each.decode() for each in INVISIBLE.values())
    columns = [pc.replace_substring_regex(column, some, "") for column in texts.columns]
    return type(texts).from_arrays(columns, names=texts.schema.names)


def _check_last_value(path: Path, written: Any, dialect: Dialect) -> None:
    """Raise if the last value began with a quote that nothing closes: it may hold many rows."""
    never = "has a quote that is never closed"
    value = ""
    try:
        data = pyarrow.dataset.dataset(path, format=written)
        for batch in data.to_batches(columns=dialect.names[-1:]):
            value = batch[0][-1].as_py() if len(batch) else value
    except pa.ArrowInvalid as error:
        if "straddling" in str(error):  # the value is longer than a block
            raise wrong(path, never) from None
        raise
    if "\n" in value or "\r" in value:
        raise wrong(path, f"{never}, before {value.splitlines()[0]!r}")


def _look_through(path: Path, encoding: str | None, notes: list[str]) -> tuple[str, bool, set[str]]:
    """Of a file of any size: encoding, whether text is invisible, quotes that may lack another.

    The encoding is told, or found where the first letter beyond ASCII is. All of the file must be
    in it: what is not would end the training when it is met.
    """
    known, line = encoding is not None, 1
    invisible: Counter[str] = Counter()
    quotes: Counter[str] = Counter()
    end = ""
    found = encoding or "utf-8"
    decoder = codecs.getincrementaldecoder(found)()
    with path.open("rb") as file:
        while True:
            block = file.read(PIECES * HEAD)
            try:
                if not known:
                    lines = block[: max(block.rfind(b"\n"), block.rfind(b"\r")) + 1] or block
                    found = _encoding(lines)
                    known = found != "utf-8" or not block.isascii()
                    decoder = codecs.getincrementaldecoder(found)()
                text = decoder.decode(block, final=not block)
            except UnicodeError as error:
                raise _no_text(path, found, error, line) from None
            if not block:
                break
            text = text.removeprefix("\ufeff") if file.tell() == len(block) else text
            invisible += {what: text.count(each.decode()) for what, each in INVISIBLE.items()}
            quotes += {quote: text.count(quote) for quote in QUOTES}
            end = text[-100:].rstrip()[-1:] or end
            line += block.count(b"\n")
    if encoding is None and found != "utf-8":
        notes.append(_read_as(found))
    notes += [_left_out(what, count) for what, count in invisible.items()]
    unpaired = {quote for quote in QUOTES if quotes[quote] % 2 and quote != end}
    return found, bool(invisible), unpaired


def _sample(data: bytes, start: int, quoted: bool) -> bytes:
    """Some lines from all over the file."""
    if len(data) - start <= PIECES * HEAD:
        return data[start:]
    if quoted:  # a line break may be part of a value
        return data[start : data.rfind(b"\n", start, start + PIECES * HEAD) + 1] or data[start:]
    pieces = []
    for place in np.linspace(start, len(data) - HEAD, PIECES).astype(int).tolist():
        first = place if place == start else data.find(b"\n", place) + 1
        pieces.append(data[first : data.rfind(b"\n", place, place + HEAD) + 1])
    return b"".join(pieces) or data[start:]


def drop_empty_ends(table: pa.Table, unnamed: set[str], notes: list[str]) -> pa.Table:
    """Without the last columns that have neither name nor value: each line ended in a separator."""
    while table.num_columns > 1:
        name, column = table.column_names[-1], table.columns[-1]
        blank = is_text(column.type) and not pc.any(pc.not_equal(column, "")).as_py()
        if name not in unnamed or not (blank or column.null_count == len(column)):
            break
        notes.append("each line ends in a separator: the empty column after it is left out")
        table = table.drop_columns(name)
    if left := [name for name in table.column_names if name in unnamed]:
        one = len(left) == 1
        has = "1 column has no name and is" if one else f"{len(left)} columns have no name and are"
        notes.append(f"{has} called {', '.join(left[:5])}")
    return table


def _check_lengths(path: Path, data: bytes, dialect: Dialect) -> None:
    """Raise for the first line with more or fewer values than there are names."""
    lines = list(io.StringIO(data[dialect.start :].decode(), newline=""))
    rows = csv.reader(lines, delimiter=dialect.separator, quotechar=dialect.quote)
    expected, found, line = len(dialect.names), 0, dialect.line
    with suppress(csv.Error):  # a value longer than Python's reader takes
        for row in rows:
            if row and len(row) != expected:
                found = len(row)
                break
            line = dialect.line + rows.line_num
        else:
            return
    written = lines[line - dialect.line : rows.line_num if found else None]
    if "".join(written).count(dialect.quote) % 2:
        raise wrong(path, f"has a quote in line {line} that is never closed")
    if found:
        raise wrong(path, f"has {found} values in line {line}, the header has {expected}")


def _check_quotes(path: Path, data: bytes, table: pa.Table, quote: str) -> None:
    """Raise if the last text began with a quote that nothing closes: it may hold many rows."""
    texts = [column for column in table.columns if is_text(column.type)]
    value = texts[-1][-1].as_py() if texts else None
    if value:
        raw = (quote + value.replace(quote, 2 * quote)).encode()
        if data.endswith(raw):
            line = data.count(b"\n", 0, len(data) - len(raw)) + 1
            raise wrong(path, f"has a quote in line {line} that is never closed")
