"""One column of a table: how it is encoded, learned from its training values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aucmax.tables import _values
from aucmax.tables._values import Numbers, Values
from aucmax.tables.columns import arrow_values
from aucmax.tables.formats import Format, is_number, is_placeholder

DAY = np.timedelta64(1, "D")
HOUR = np.timedelta64(1, "h")

LIMIT = 5.0
"""No score is beyond it."""

MOST_RARE = 1000
"""Rare categories that are kept, to know those that training has not seen."""

CLOSEST = 1e-290
"""Knots are no closer, so that no slope between them overflows."""


class Settings(NamedTuple):
    """What a user may choose; see :class:`TableEncoder`."""

    quantiles: int
    max_categories: int
    min_count: int


@dataclass(frozen=True)
class Scale:
    """A line from value to score through some of the training values, flat beyond its ends.

    Attributes:
        knots: values, increasing.
        scores: what each knot becomes.
        fill: what a missing value becomes: the score of the median.
    """

    knots: Numbers
    scores: Numbers
    fill: float

    @classmethod
    def fit(cls, values: Numbers, quantiles: int) -> Scale | None:
        """The normal quantile of each value's rank, about unit; None if only one value occurs.

        Through the distinct values, or if they are too many those among evenly spaced quantiles.
        A value's rank is the middle of its ties. Columns with a few rare values would need scores
        beyond the limit to have unit variance: they get as near as it lets them.
        """
        values = np.sort(values[~np.isnan(values)])
        knots = _distinct(values)
        if len(knots) > quantiles:
            even = np.linspace(0, len(values) - 1, quantiles).round().astype(int)
            knots = _distinct(values[even])
        with np.errstate(over="ignore"):
            apart = np.diff(knots) > CLOSEST
        knots = np.delete(knots, 1 + np.flatnonzero(~apart))
        if len(knots) < 2:
            return None
        ranks = (np.searchsorted(values, knots) + np.searchsorted(values, knots, "right")) / 2
        normal = NormalDist()
        scores = np.array([normal.inv_cdf(p) for p in (ranks / len(values)).tolist()])
        scores = scores.clip(-LIMIT, LIMIT)
        spread = np.interp(values, knots, scores).std()
        scores *= min(1 / spread, LIMIT / np.abs(scores).max())
        # Of float32's precision, so that rounding to it cannot put a value above the next knot.
        scores = scores.astype(np.float32).astype(np.float64)
        return cls(knots, scores, _fill(values, knots, scores))

    @classmethod
    def flag(cls, values: Numbers) -> Scale | None:
        """0 and 1 as they are; None if only one of them occurs."""
        ends = np.array([0.0, 1.0])
        if values.min() == values.max():
            return None
        return cls(ends, ends, _fill(np.sort(values), ends, ends))

    def encode(self, values: Numbers, missing: NDArray[np.bool_]) -> Numbers:
        """The score of each value."""
        scores: Numbers = np.interp(values, self.knots, self.scores)
        scores[missing] = self.fill
        return scores

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"knots": self.knots.tolist(), "scores": self.scores.tolist(), "fill": self.fill}

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Scale:
        """From JSON."""
        knots, scores = (np.array(d[key], dtype=np.float64) for key in ("knots", "scores"))
        return cls(knots, scores, float(d["fill"]))


def _distinct(ordered: Numbers) -> Numbers:
    return np.delete(ordered, 1 + np.flatnonzero(ordered[1:] == ordered[:-1]))


def _fill(ordered: Numbers, knots: Numbers, scores: Numbers) -> float:
    """The score of the median."""
    half = len(ordered) // 2
    median = ordered[half] / 2 + ordered[-half - 1] / 2  # halved first: the sum may overflow
    return float(np.interp(median, knots, scores))


@dataclass(frozen=True)
class Field:
    """How a column is encoded.

    Attributes:
        name: of the raw column.
        kind: number, bool, date or text; unused if it tells nothing.
        scales: of its numeric outputs, by their names.
        indicator: whether another output says where it is missing.
        categories: of a text, those with a code of their own: 1, 2, ...; None is missing.
        why: it is unused.
        rare: of a text, the categories that have no code; None if they are too many to keep.
        format: how texts are read; None for models of versions that had none.
    """

    name: str
    kind: str
    scales: dict[str, Scale] = field(default_factory=dict)
    indicator: bool = False
    categories: tuple[str | None, ...] = ()
    why: str = ""
    format: Format | None = None
    rare: tuple[str, ...] | None = None

    @classmethod
    def fit(cls, name: str, values: Values, written: Format | None, settings: Settings) -> Field:
        """Learn from the training values, and keep the format that their texts had, if any."""
        if _values.kind_of(values) == "text":
            learned = cls._fit_text(name, values, written or Format("text"), settings)
        else:
            learned = cls._fit_numbers(name, values, settings)
        return replace(learned, format=written)

    @classmethod
    def _fit_numbers(cls, name: str, values: Values, settings: Settings) -> Field:
        kind = _values.kind_of(values)
        parts = numeric_parts(kind, name, values)
        missing = np.isnan(next(iter(parts.values())))
        if missing.all():
            return cls(name, "unused", why="it had no values in training")
        fitted = {
            output: Scale.flag(part) if kind == "bool" else Scale.fit(part, settings.quantiles)
            for output, part in parts.items()
        }
        scales = {output: scale for output, scale in fitted.items() if scale is not None}
        if not scales and not missing.any():
            return cls(name, "unused", why="it was constant in training")
        return cls(name, kind, scales, indicator=bool(missing.any()))

    @classmethod
    def _fit_text(cls, name: str, values: Values, written: Format, settings: Settings) -> Field:
        counts = Counter(values.tolist())
        missing = sum(counts.pop(text) for text in list(counts) if written.is_missing(text))
        common = [text for text in counts if counts[text] >= settings.min_count]
        kept = sorted(common, key=lambda text: (-counts[text], text))[: settings.max_categories]
        pooled = len(values) - missing - sum(counts[text] for text in kept)
        if len(kept) + (missing > 0) + (pooled > 0) < 2:
            why = "it was constant in training"
            if missing:
                why = "it had no values in training"
            elif pooled and len(counts) == pooled > 1:
                why = (
                    "it had another value in every row of training, as keys have: --id carries "
                    "such a column into predictions"
                )
            elif pooled:
                why = f"all its {len(counts):,} categories were rare in training"
            return cls(name, "unused", why=why)
        rare = tuple(sorted(counts.keys() - set(kept)))
        return cls(
            name,
            "text",
            categories=(*kept, *([None] if missing else [])),
            rare=rare if len(rare) <= MOST_RARE else None,
        )

    @property
    def numeric_names(self) -> list[str]:
        """Of its numeric outputs."""
        return [*self.scales, *([f"{self.name} is missing"] if self.indicator else [])]

    def encode(self, values: Values, numeric: Values, categorical: Values) -> None:
        """Write the outputs, to a column each."""
        if self.kind == "text":
            texts = _values.to_text(values).tolist()
            codes = self._codes(set(texts))
            categorical[:, 0] = [codes[text] for text in texts]
            return
        parts = numeric_parts(self.kind, self.name, self.values_of(values))
        missing = np.isnan(next(iter(parts.values())))
        for j, (output, scale) in enumerate(self.scales.items()):
            numeric[:, j] = scale.encode(parts[output], missing)
        if self.indicator:
            numeric[:, -1] = missing

    def _codes(self, texts: set[str | None]) -> dict[str | None, int]:
        """The code of each text."""
        known = {category: code for code, category in enumerate(self.categories, start=1)}
        missing = known.get(None, 0)
        codes = dict.fromkeys(texts, 0)
        for text in texts:
            if text in known:
                codes[text] = known[text]
            elif not text or (self.format is not None and self.format.is_missing(text)):
                codes[text] = missing
        return codes

    def values_of(self, values: Values) -> Values:
        """What a later table's texts stand for; numbers that stand for nothing are missing."""
        written = self.format or Format(self.kind)
        if _values.kind_of(values) == "text":
            return arrow_values(self.name, written.read(self.name, values))
        gone = [float(mark) for mark in written.marks if is_number(mark)]
        if gone and _values.kind_of(values) == "number":
            return np.where(np.isin(values, gone), np.nan, values)
        return values

    def new_marks(self, values: Values) -> dict[str, int]:
        """Texts for a missing number or date that training had not seen, with their counts."""
        if self.kind == "text" or _values.kind_of(values) != "text":
            return {}
        known = self.format or Format(self.kind)
        texts = Counter(text.strip() for text in values.tolist() if text is not None)
        return {x: n for x, n in texts.items() if is_placeholder(x) and not known.is_missing(x)}

    def unseen(self, values: Values) -> Counter[str]:
        """Texts that training has not seen, with their counts; none if that is not known."""
        if self.kind != "text" or self.rare is None:
            return Counter()
        counts = Counter(_values.to_text(values).tolist())
        known, written = {*self.categories, *self.rare}, self.format or Format("text")
        return Counter(
            {x: n for x, n in counts.items() if x not in known and not written.is_missing(x)}
        )

    def takes_shares(self, values: Values) -> bool:
        """Whether numbers up to 1 come where training had per cent."""
        if self.format is None or self.format.unit != "%" or _values.kind_of(values) != "number":
            return False
        there = np.abs(values[~np.isnan(values)])
        most = max(abs(scale.knots).max() for scale in self.scales.values())
        return len(there) > 0 and bool(there.max() <= 1 < most)

    def loses(self, values: Values) -> bool:
        """Whether numbers come for categories that numbers cannot tell apart, such as 007 and 7."""
        if self.kind != "text" or _values.kind_of(values) != "number":
            return False
        numbers = [text for text in self.categories if text is not None and is_number(text)]
        plain = _values.to_text(np.array(list(map(float, numbers)))).tolist()
        return bool(numbers != plain)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        own: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.kind == "unused":
            own["why"] = self.why
        elif self.kind == "text":
            own["categories"] = list(self.categories)
            own |= {} if self.rare is None else {"rare": list(self.rare)}
        else:
            own["scales"] = [
                {"name": output, **scale.to_dict()} for output, scale in self.scales.items()
            ]
            own["indicator"] = self.indicator
        return own if self.format is None else {**own, "format": self.format.to_dict()}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Field:
        """From JSON."""
        scales = {scale["name"]: Scale.from_dict(scale) for scale in d.get("scales", [])}
        categories = tuple(d.get("categories", ()))
        indicator = bool(d.get("indicator", False))
        return cls(
            d["name"],
            d["kind"],
            scales,
            indicator,
            categories,
            d.get("why", ""),
            Format.from_dict(d["format"]) if "format" in d else None,
            tuple(d["rare"]) if "rare" in d else None,
        )


def numeric_parts(kind: str, name: str, values: Values) -> dict[str, Numbers]:
    """The numbers that a column holds, by the names of their outputs: several for dates.

    Raises:
        ValueError: if a value is infinite, or cannot be read as this kind.
    """
    if kind == "bool":
        return {name: _values.to_flags(name, values)}
    if kind == "number":
        numbers = np.ascontiguousarray(_values.to_numbers(name, values))  # read more than once
        infinite = np.isinf(numbers)
        if infinite.any():
            row = int(np.argmax(infinite))
            raise ValueError(f"column {name!r} must be finite, found {numbers[row]} in row {row}")
        return {name: numbers}
    dates = _values.to_dates(name, values)
    days, months, years = (dates.astype(f"datetime64[{unit}]") for unit in "DMY")
    start = np.datetime64("1970-01-01")
    parts = {
        "days": (dates - start) / DAY,  # with the time of day as their fraction
        "year": (years - np.datetime64("1970", "Y")) / np.timedelta64(1, "Y") + 1970,
        "month": (months - years.astype("datetime64[M]")) / np.timedelta64(1, "M") + 1,
        "day": (days - months.astype("datetime64[D]")) / DAY + 1,
        "weekday": ((days - start) / DAY + 3) % 7,  # 0 is Monday
        "hour": (dates - days) / HOUR,
    }
    return {f"{name}: {part}": numbers for part, numbers in parts.items()}
