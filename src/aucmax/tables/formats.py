"""How the texts of a column are meant: as numbers, dates, and which of them stand for nothing.

What is found in training is kept as a :class:`Format`, by which all later texts are read.
"""

from __future__ import annotations

import datetime
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MISSING = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
    "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
"""Texts that stand for a missing value in every column: those of ``pandas.read_csv``."""

PLACEHOLDERS = (
    "?", "??", "-", "--", "---", ".", "..", "...", "*", "/", "\\n", "na", "n/a", "#n/a", "#na",
    "nan", "-nan", "null", "nil", "none", "missing", "unknown", "#div/0!", "#value!", "#ref!",
    "#num!", "#name?", "#null!", "0000-00-00", "0000-00-00 00:00:00", "00/00/0000", "00.00.0000",
)  # fmt: skip
"""Texts, in lower case, that stand for a missing number or date, even if training had none."""
SIGNS = tuple(text for text in PLACEHOLDERS if not any(map(str.isalnum, text)))
"""Those of them that are odd as a category: ``?`` and the like."""

MOST_MARKS = 5
"""So many different texts may be something else in a column of numbers or dates."""
LEAST_FITTING = 0.9
"""The share of a column's values that must be numbers, or dates, for the others to be missing."""
SAMPLE = 1000
"""Rows, evenly spread, that tell which formats are worth trying on all of them."""


@dataclass(frozen=True)
class Format:
    """How a column's texts are read.

    Attributes:
        kind: number, bool, date, time (of day) or text.
        decimal: what divides a number's whole part from its fraction, ``"."`` or ``","``.
        thousands: what groups its digits: ``","``, ``"."``, ``" "`` or ``"'"``.
        unit: a currency's sign, or ``"%"``.
        order: of a date's parts, ``"dmy"``, ``"mdy"`` or ``"ymd"``; ISO 8601 if empty.
        marks: texts that stand for a missing value, besides the usual ones, and how many there
            were in training.
        example: a text that another person might read in another way.
        ambiguous: whether all texts could be read in another way too.
        short_years: whether some years have two digits, so that their century is guessed.
        signs: texts such as ``?`` that are categories, and how many there were.
    """

    kind: str
    decimal: str = "."
    thousands: str = ""
    unit: str = ""
    order: str = ""
    marks: Mapping[str, int] = field(default_factory=dict)
    example: str = ""
    ambiguous: bool = False
    short_years: bool = False
    signs: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Whether it is written as programs write it, but for a decimal comma."""
        return self.kind != "text" and not (self.thousands or self.unit or self.order)

    def read(self, name: str, texts: Any) -> pa.Array:
        """The values that a later table's texts stand for.

        Args:
            name: of the column, for the error.
            texts: str, and None for missing.

        Raises:
            ValueError: if a text is neither of this format nor stands for a missing value.
        """
        try:
            trimmed = pc.utf8_trim_whitespace(pa.array(texts, pa.string()))
        except UnicodeEncodeError as error:
            raise ValueError(
                f"column {name!r} must hold whole characters, found {error.object!r}"
            ) from None
        known = pc.or_(
            pc.is_in(trimmed, pa.array([*MISSING, *self.marks])),
            pc.is_in(pc.utf8_lower(trimmed), pa.array(PLACEHOLDERS)),
        )
        there = _without(trimmed, known)
        values = _read(there, self)
        if self.kind == "number" and values.null_count > there.null_count:
            # True or false with missing values are numbers to most libraries.
            values = pc.coalesce(values.cast(pa.float64()), _flags(there).cast(pa.float64()))
        strange = pc.and_(pc.is_valid(there), pc.is_null(values)).to_numpy(zero_copy_only=False)
        if strange.any():
            row = int(np.argmax(strange))
            wanted = {"number": "numbers", "bool": "true or false", "date": "dates"}
            like = f", written {self.example}" if self.example else ""
            if self.kind == "date" and not self.order:
                like = ", such as 2024-05-31"
            raise ValueError(
                f"column {name!r} must hold {wanted.get(self.kind, 'times of day')} as in training"
                f"{like}, found {str(texts[row])!r} in row {row}"
            )
        return values

    def is_missing(self, text: str | None) -> bool:
        """Whether a category stands for a missing value."""
        return text is None or text.strip() in MISSING or text.strip() in self.marks

    def to_dict(self) -> dict[str, Any]:
        """As JSON: what differs from a column as programs write it."""
        plain = asdict(Format(self.kind))
        changed = {key: value for key, value in asdict(self).items() if value != plain[key]}
        return {"kind": self.kind, **changed}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Format:
        """From JSON."""
        return cls(**content)


def understand(
    texts: pa.Array | pa.ChunkedArray, decimal: str = ".", na_values: Sequence[str] = ()
) -> tuple[pa.Array | pa.ChunkedArray, Format]:
    """Find out what texts stand for: the values, and how they were read.

    They are numbers if at least 90 % of those that are not missing are, written in one way, and
    the others are at most five different texts, which are then missing too; else true or false, or
    dates or times by the same rule; else categories. Texts such as ``?`` and ``-``, which many
    write for a missing number, are not counted among the 90 %.

    Args:
        texts: a column of strings.
        decimal: what numbers are more likely to be written with, ``"."`` or ``","``.
        na_values: further texts that stand for a missing value.

    Example:
        >>> values, written = understand(pa.array([*map(str, range(18)), "?", "NA"]))
        >>> values.null_count, written.kind, written.marks
        (2, 'number', {'?': 1})
    """
    marks = dict.fromkeys(map(str.strip, na_values), 0)
    texts = texts.cast(pa.string())  # from null, if there is none at all
    trimmed = pc.utf8_trim_whitespace(texts)
    empty = pc.is_in(trimmed, pa.array([*MISSING, *marks]))
    there = _without(trimmed, empty)
    if not len(there) - there.null_count:
        return as_categories(texts, na_values)
    best: _Reading | None = None
    for written in _candidates(_spread(there), decimal):
        reading = _read_all(there, written)
        if reading is not None and (best is None or len(reading.marks) < len(best.marks)):
            best = reading
        if best is not None and not any(map(_has_digit, best.marks)):
            break  # no other way to write a number or a date could read more
    if best is None:
        return as_categories(texts, na_values)
    return best.values, replace(best.written, marks={**marks, **best.marks})


def as_categories(texts: Any, na_values: Sequence[str] = ()) -> tuple[Any, Format]:
    """Texts as they are, but for those that stand for a missing value."""
    marks = dict.fromkeys(map(str.strip, na_values), 0)
    trimmed = pc.utf8_trim_whitespace(texts)
    empty = pc.is_in(trimmed, pa.array([*MISSING, *marks]))
    signs = pa.array([sign for sign in SIGNS if sign not in marks])
    kept = _counts(trimmed.filter(pc.is_in(trimmed, signs)))
    return _without(texts, empty), Format("text", marks=marks, signs=kept)


class _Reading(NamedTuple):
    """A whole column, read in one way; the marks are texts that no value came of."""

    written: Format
    values: Any
    marks: dict[str, int]


def _read_all(texts: Any, written: Format) -> _Reading | None:
    """The column's values, or None if too many texts are something else."""
    sample = _spread(texts)
    seen = list(_misfits(sample, _read(sample, written)))
    # Without what the sample shows to be no number, all others may be read at once.
    rest = _without(texts, pc.is_in(texts, pa.array(seen, pa.string()))) if seen else texts
    values = _read(rest, written)
    marks = _misfits(texts, values)
    count, strange = len(values) - values.null_count, _strange(marks)
    few = len(marks) <= MOST_MARKS and count >= LEAST_FITTING * (count + strange)
    if not count or not few or any(_is_value(mark, written.kind) for mark in marks):
        return None
    return _Reading(_described(written, rest), values, marks)


def _is_value(mark: str, kind: str) -> bool:
    """Whether a text is a value that is only written in another way: it must not be lost."""
    if kind == "date":
        return is_date(mark)
    if kind == "bool":
        return not is_placeholder(mark)
    if mark.lower() in ("true", "false"):
        return True
    return _has_digit(mark) and re.search(CURRENCY, mark) is not None


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def _strange(marks: Mapping[str, int]) -> int:
    """How many texts are none that everybody writes for a missing value."""
    return sum(count for mark, count in marks.items() if mark.lower() not in PLACEHOLDERS)


def _misfits(texts: Any, values: Any) -> dict[str, int]:
    """The texts that no value came of, with their counts."""
    return _counts(texts.filter(pc.and_(pc.is_valid(texts), pc.is_null(values))))


def _counts(texts: Any) -> dict[str, int]:
    return {pair["values"]: pair["counts"] for pair in pc.value_counts(texts).to_pylist()}


def _without(texts: Any, gone: Any) -> Any:
    return pc.if_else(gone, pa.scalar(None, pa.string()), texts)


def _spread(texts: Any) -> pa.Array:
    """Some texts from all over the column."""
    step = -(-len(texts) // SAMPLE) or 1
    some = texts.take(pa.array(np.arange(0, len(texts), step)))
    some = some.combine_chunks() if isinstance(some, pa.ChunkedArray) else some
    return some.drop_null()


def _candidates(sample: pa.Array, decimal: str) -> Iterator[Format]:
    """The formats that most of the sample has, the plainest first."""
    counts = Counter(sample.to_pylist())
    with_digits = sorted(filter(_has_digit, counts))
    if len(counts) - len(with_digits) > MOST_MARKS:  # no number, date or time
        return
    formats = []
    if with_digits:
        units = [match[0] for text in with_digits if (match := re.search(f"{CURRENCY}|%$", text))]
        unit = max(sorted(set(units)), key=units.count) if len(units) * 2 > len(with_digits) else ""
        other = "," if decimal == "." else "."
        formats += [
            Format("number", point, thousands, unit)
            for point, comma in ((decimal, other), (other, decimal))
            for thousands in ("", comma, " ", "'")
        ]
    if not {text.lower() for text in counts}.isdisjoint(["true", "false"]):
        formats.append(Format("bool"))
    if with_digits:
        separators = {match[0] for text in with_digits if (match := re.search(r"[/.\-]", text))}
        # Where both fit, Germans with their points put the day first; pandas puts the month first.
        orders = ("ymd", "dmy", "mdy") if separators == {"."} else ("ymd", "mdy", "dmy")
        formats += [Format("date", order=order) for order in ("", *orders)]
        formats.append(Format("time"))
    texts = pa.array(list(counts), pa.string())
    for written in formats:
        lost = {text: counts[text] for text in _misfits(texts, _read(texts, written))}
        if len(lost) <= MOST_MARKS and _strange(lost) * 2 <= len(sample):
            yield written


def _described(written: Format, texts: Any) -> Format:
    """With an example of how it is written, and whether that could be meant in another way."""
    if written.is_plain:
        return written
    there = texts.drop_null()
    lengths = pc.utf8_length(there)
    example = there.filter(pc.equal(lengths, pc.max(lengths)))[0].as_py()
    swapped = None
    if written.kind == "number" and written.thousands in (",", "."):
        swapped = replace(written, decimal=written.thousands, thousands="")
    elif written.order in ("dmy", "mdy"):
        swapped = replace(written, order="mdy" if written.order == "dmy" else "dmy")
    ambiguous = swapped is not None and _read(there, swapped).null_count == 0
    distinct = there.unique().to_pylist() if written.order else []
    short = any(len(_parts(x, written.order).get("y", "")) == 2 for x in distinct if not _iso(x))
    return replace(written, example=example, ambiguous=ambiguous, short_years=short)


def _read(texts: Any, written: Format) -> Any:
    """The values of the texts; of those that are not of the format, null."""
    if written.kind == "number":
        return _numbers(texts, written)
    if written.kind == "bool":
        return _flags(texts)
    if written.kind == "time":
        return _each(texts, _time, pa.time64("us"))
    if written.order:
        return _each(texts, lambda text: _date(text, written.order), pa.timestamp("us"))
    return _iso_dates(texts)


# ---- Numbers -------------------------------------------------------------------------------------

CURRENCY = r"(?:[A-Z]{0,2}[$€£¥₹₽₩₪₺₫₴₦₱฿]|USD|EUR|GBP|CHF|JPY|SEK|NOK|DKK|PLN|zł|kr\b)"
PLAIN = r"^[+\-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+\-]?\d+)?$|^[+\-]?(?i:inf|infinity)$"
GROUPS = {",": ",", ".": r"\.", " ": "[ \u00a0\u2009\u202f]", "'": "['\u2019]"}
SIGN = "[+\\-\u2212]"


def _numbers(texts: Any, written: Format) -> Any:
    if written.decimal == "." and not written.thousands and not written.unit:
        for kind in (pa.int64(), pa.float64()):
            try:
                values = texts.cast(kind)
            except pa.ArrowInvalid:
                continue
            # Codes such as 0x1f are whole numbers to Arrow alone.
            if (
                kind == pa.float64()
                or not pc.any(pc.match_substring(texts, "x", ignore_case=True)).as_py()
            ):
                return values
    fitting = pc.match_substring_regex(texts, _pattern(written))
    texts = _without(texts, pc.invert(fitting))
    if written.unit:
        texts = pc.replace_substring(texts, written.unit, "")
    texts = pc.replace_substring_regex(texts, r"^\((.*)\)$", r"-\1")
    texts = pc.replace_substring(texts, "\u2212", "-")
    texts = pc.replace_substring_regex(texts, rf"[^0-9eEinfty+\-{written.decimal}]", "")
    if written.decimal != ".":
        texts = pc.replace_substring(texts, written.decimal, ".")
    return texts.cast(pa.float64())


def _pattern(written: Format) -> str:
    point = re.escape(written.decimal)
    group = GROUPS.get(written.thousands)
    whole = rf"(?:[1-9]\d{{0,2}}(?:{group}\d{{3}})+|\d+)" if group else r"\d+"
    number = rf"(?:{whole}(?:{point}\d*)?|{point}\d+)(?:[eE][+\-]?\d+)?"
    if written.unit == "%":
        return rf"^(?:{SIGN}?{number}\s?%|0)$"
    unit = re.escape(written.unit)
    before, after = (rf"(?:{unit}\s?)?", rf"(?:\s?{unit})?") if unit else ("", "")
    signed = rf"(?:{SIGN}?{before}|{before}{SIGN}){number}{after}"
    return rf"^(?:{signed}|\({before}{number}{after}\)|{SIGN}?(?i:inf|infinity))$"


def is_placeholder(text: str) -> bool:
    """Whether many write it for a missing number; those of :data:`MISSING` everybody does."""
    return text not in MISSING and text.lower() in PLACEHOLDERS


def spelling_key(text: str) -> str:
    """The same for texts that differ in case or blanks alone."""
    return " ".join(text.split()).casefold()


def is_number(text: str) -> bool:
    """Whether a text is a number as programs write it."""
    return re.match(PLAIN, text) is not None


def _flags(texts: Any) -> Any:
    fitting = pc.match_substring_regex(texts, r"^(?i:true|false|[01](\.0*)?)$")
    texts = _without(texts, pc.invert(fitting))
    return pc.replace_substring_regex(texts, r"\.0*$", "").cast(pa.bool_())


# ---- Dates and times -----------------------------------------------------------------------------

DATE = re.compile(
    r"(?P<a>\d{1,4}|[A-Za-z]{3,9})(?:[/.\-]|,?\s)\s?(?P<b>\d{1,2}|[A-Za-z]{3,9}),?"
    r"(?:[/.\-]|,?\s)\s?(?P<c>\d{1,4})\.?(?:(?:,?\s+|T)(?P<time>\d.*))?"
)
TIME = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d)(?:\.(\d{1,6})\d*)?)?(?:\s?([AaPp])\.?[Mm]\.?)?")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
PIVOT = 69
"""Two digits from here on are a year of the last century."""


def _iso_dates(texts: Any) -> Any:
    for kind in (pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid:
            continue
    return _each(texts, _iso, pa.timestamp("us"))


def _iso(text: str) -> datetime.datetime | None:
    if not re.match(r"\d{4}-\d\d-\d\d", text):
        return None
    try:
        value = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)


def is_date(text: str) -> bool:
    """Whether a text is a date in any order of its parts."""
    return any(_date(text, order) for order in ("dmy", "mdy", "ymd"))


def _parts(text: str, order: str) -> dict[str, str]:
    """Year "y", month "m", day "d" and "time" as they are written; empty if it is no date."""
    match = DATE.fullmatch(text)
    if match is None:
        return {}
    parts = dict(zip(order, match.group("a", "b", "c"), strict=True))
    return {**parts, "time": match["time"] or ""}


def _date(text: str, order: str) -> datetime.datetime | None:
    if iso := _iso(text):  # which has one meaning, beside any other order
        return iso
    parts = _parts(text, order)
    if not parts:
        return None
    year, month, day = parts["y"], parts["m"], parts["d"]
    if not (year.isdigit() and day.isdigit() and len(day) <= 2):
        return None
    if len(year) not in (2, 4) or (order == "ymd" and len(year) == 2):
        return None
    century = 0 if len(year) == 4 else 1900 if int(year) >= PIVOT else 2000
    short = month[:3].lower()
    number = int(month) if month.isdigit() else MONTHS.index(short) + 1 if short in MONTHS else 0
    try:
        date = datetime.datetime(century + int(year), number, int(day))
    except ValueError:
        return None
    if not parts["time"]:
        return date
    time = _time(parts["time"].strip())
    return None if time is None else datetime.datetime.combine(date, time)


def _time(text: str) -> datetime.time | None:
    match = TIME.fullmatch(text)
    if match is None:
        return None
    hour, minute, second, fraction, half = match.groups(default="")
    hours = int(hour)
    if half:
        if not 1 <= hours <= 12:
            return None
        hours = hours % 12 + (12 if half in "Pp" else 0)
    try:
        return datetime.time(hours, int(minute), int(second or 0), int(fraction.ljust(6, "0") or 0))
    except ValueError:
        return None


def _each(texts: Any, read: Callable[[str], Any], kind: pa.DataType) -> Any:
    """Each text read once, however often it occurs."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    codes = texts.dictionary_encode()
    known = pa.array([read(text) for text in codes.dictionary.to_pylist()], kind)
    return known.take(codes.indices)


# ---- In words ------------------------------------------------------------------------------------


def kind_of_type(kind: pa.DataType) -> str:
    """The format's kind for values that are no texts."""
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "date"
    if pa.types.is_time(kind):
        return "time"
    types = pa.types
    numbers = (types.is_integer, types.is_floating, types.is_decimal, types.is_duration)
    return "number" if any(check(kind) for check in numbers) else "text"


def zeros_note(name: str, texts: Any) -> str | None:
    """What is said of whole numbers with zeros in front, as codes have; None if there are none."""
    texts = pc.utf8_trim_whitespace(texts)
    padded = texts.filter(pc.match_substring_regex(texts, r"^0\d+$"))
    if not len(padded):
        return None
    return (
        f"column {name!r} is read as numbers, without the zeros in front of {padded[0].as_py()!r}: "
        f"--categories {shlex.quote(name)} keeps it as it is written"
    )


def notes(formats: Mapping[str, Format]) -> list[str]:
    """What a person should know of how columns were read."""
    lines = [
        f"{mark!r} is taken as missing in {_columns(names)}"
        for mark, names in _by_text({name: x.marks for name, x in formats.items()}).items()
    ]
    lines += [
        f"{sign!r} is a category, not missing, in {_columns(names)}"
        for sign, names in _by_text({name: x.signs for name, x in formats.items()}).items()
    ]
    for name, written in formats.items():
        if written.short_years:
            lines.append(
                f"column {name!r}: years of two digits, as in {written.example!r}, are read as 19"
                f"{PIVOT} to 20{PIVOT - 1}"
            )
        if written.ambiguous and written.order:
            parts = {"d": "day", "m": "month", "y": "year"}
            order = ", ".join(parts[part] for part in written.order)
            lines.append(
                f"column {name!r}: dates such as {written.example!r} are read as {order}, but "
                f"could be meant the other way round: write them as 2024-05-31"
            )
        elif written.ambiguous:
            lines.append(
                f"column {name!r}: in numbers such as {written.example!r} {written.thousands!r} is "
                f"read as dividing thousands; --decimal {written.thousands} reads it as the "
                f"decimal sign"
            )
    return lines


MOST_NAMED = 10


def _by_text(counts: Mapping[str, Mapping[str, int]]) -> dict[str, list[str]]:
    """The columns that hold a text, each with how many."""
    found: dict[str, list[str]] = {}
    for name, texts in counts.items():
        for text, count in texts.items():
            if count:
                found.setdefault(text, []).append(f"{name!r} ({count:,})")
    return found


def _columns(names: Sequence[str]) -> str:
    what = "columns" if len(names) > 1 else "column"
    return f"{what} {', '.join(names[:MOST_NAMED])}{_and_more(names)}"


def _and_more(names: Sequence[str]) -> str:
    return f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
