"""Why rows have the scores that they have: what each column adds, by Shapley sampling."""

from __future__ import annotations

import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from aucmax import checks
from aucmax.tables import inputs
from aucmax.tables.classifier import AUCClassifier
from aucmax.tables.encoder import Encoded

Floats = NDArray[np.float64]

SAMPLES, LEAST = 32, 8
"""Walks from another row to the one that is explained, and the fewest for many rows."""
MANY, MOST = 500_000, 10_000_000
"""Scorings beyond which walks are fewer, and beyond which rows are refused."""
BLOCK, FIRST = 32_768, 2_048
"""Scorings at a time, and in the first block, which tells how long the others will take."""
VALUES = 1 << 23
"""Numbers at a time: of wide tables scorings are fewer."""
LONG = 10.0
"""Seconds from which on they are announced."""


class Explanation(NamedTuple):
    """What each column adds to the log-odds of rows.

    Attributes:
        names: of the columns that the model uses.
        values: (rows, columns), positive where the column moves a row towards its class.
        base: mean log-odds of the rows that it is compared with, (rows,).
        scores: log-odds of the rows, ``base + values.sum(axis=1)``.
        classes: the place of the class that is explained, (rows,): the second of two, of several
            the one that is predicted.
        samples: walks that each row's values are the mean of.
        scorings: rows that were scored for it.

    Example:
        >>> import numpy as np, aucmax
        >>> X = np.arange(40.0)[:, None]
        >>> model = aucmax.AUCClassifier(models=["logistic"]).fit(X, X[:, 0] > 30)
        >>> found = explain_rows(model, X[:5])
        >>> isinstance(found, Explanation), found.values.shape
        (True, (5, 1))
    """

    names: list[str]
    values: Floats
    base: Floats
    scores: Floats
    classes: NDArray[np.int64]
    samples: int
    scorings: int


def explain_rows(
    model: AUCClassifier, X: Any, *, samples: int | None = None, seed: int = 0
) -> Explanation:
    r"""What each column adds to each row's log-odds, compared with other rows of the table.

    With :math:`f` for the log-odds of a class and :math:`b` for a row to compare with, let
    :math:`v(S)` be the mean over :math:`b` of :math:`f` at the row whose columns in :math:`S` are
    those of :math:`x` and whose others are those of :math:`b`. A column's Shapley value is what it
    adds, on average over all orders in which columns may be taken over:

    .. math::
        \phi_j = \sum_{S \not\ni j} \frac{|S|!\,(d - |S| - 1)!}{d!}
            \bigl(v(S \cup \{j\}) - v(S)\bigr), \qquad
        \sum_j \phi_j = f(x) - \frac1B \sum_b f(b).

    Orders are sampled: on a walk from :math:`b` to :math:`x` columns are taken over one by one, and
    each adds the difference that it makes; then once more in the opposite order, which cancels
    much of what chance does. The sum over columns is exact, whatever the sample. The rows to
    compare with are spread evenly over the table's log-odds. A walk of d columns takes d - 1
    scorings, so that n rows cost ``n * samples * (d - 1)`` of them.

    Args:
        model: fitted.
        X: the rows, at least two, as the model's ``predict`` takes them.
        samples: walks for each row; None for 32, and for fewer, at least 8, if they would take more
            than 500,000 scorings.
        seed: of the orders.

    Raises:
        ValueError: if there is only one row, or 8 walks would take more than 10 million scorings.

    Example:
        >>> import numpy as np, aucmax
        >>> from aucmax.tables import explain_rows
        >>> X = np.random.default_rng(0).normal(size=(300, 3))
        >>> model = aucmax.AUCClassifier(quality="fast", random_state=0).fit(X, X[:, 1] > 0.5)
        >>> found = explain_rows(model, X[:20], samples=16)
        >>> np.allclose(found.base + found.values.sum(axis=1), found.scores)
        True
        >>> int(np.abs(found.values).mean(axis=0).argmax())
        1
    """
    check_is_fitted(model, "ensemble_")
    table = inputs.checked_columns(model, X, reset=False)
    return explain_encoded(model, model.encoder_.transform(table), samples=samples, seed=seed)


def explain_encoded(
    model: AUCClassifier, encoded: Encoded, *, samples: int | None = None, seed: int = 0
) -> Explanation:
    """The same of rows that the model's encoder has encoded."""
    rows, places = len(encoded.numeric), model.encoder_.places()
    if rows < 2:
        raise ValueError("explain must have other rows to compare with, found one row in all")
    wanted = _walks(rows, len(places), samples)
    scores = model.score_encoded(encoded)
    classes = np.ones(rows, np.int64) if scores.ndim == 1 else model._decisions(scores).argmax(1)
    own = _log_odds(model, scores, classes)
    # The others are the middles of equal parts of the rows by log-odds; each begins as many walks.
    count = min(rows, wanted // 2)
    middles = ((np.arange(count) + 0.5) * rows / count).astype(np.int64)
    others = np.argsort(own, kind="stable")[middles]
    walks = Walks(places, np.repeat(others, -(-wanted // (2 * count))), seed)
    size, steps = len(walks.begins), max(0, len(places) - 1)
    width = sum(part.shape[1] for part in encoded)
    values, base = np.zeros((rows, len(places))), np.zeros(rows)
    done, began = 0, time.perf_counter()
    while done < rows * size:
        most = max(1, min(BLOCK if done else FIRST, VALUES // width))
        end = min(rows * size, done + max(1, most // max(1, steps)))
        row, walk = np.divmod(np.arange(done, end), size)
        start = _log_odds(model, scores[walks.begins[walk]], classes[row])
        path = [start[:, None]]
        for step in range(1, steps + 1, most):  # once, unless a single walk is too much
            part = np.arange(step, min(step + most, steps + 1))
            between = model.score_encoded(walks.between(encoded, row, walk, part))
            log_odds = _log_odds(model, between, classes[row].repeat(len(part)))
            path.append(log_odds.reshape(len(row), len(part)))
        path.append(own[row, None])
        gains = np.take_along_axis(np.diff(np.hstack(path), axis=1), walks.turns[walk], axis=1)
        np.add.at(values, row, gains / size)
        np.add.at(base, row, start / size)
        if not done:
            each = (time.perf_counter() - began) / len(row)
            _announce(rows, rows * size * steps, each * rows * size)
        done += len(row)
    names = [name for name, *_ in places]
    return Explanation(names, values, base, own, classes, size, rows * size * steps)


class Walks:
    """Ways from other rows to a row: columns are taken over one by one, in random orders.

    Each order has its opposite, from the same row.

    Args:
        places: of each column, see :meth:`TableEncoder.places`.
        begins: the rows that half of the walks begin at.
        seed: of the orders.

    Attributes:
        begins: the rows that all walks begin at.
        turns: when each column is taken over, (walks, columns).
    """

    def __init__(
        self, places: list[tuple[str, list[int], list[int]]], begins: NDArray[np.int64], seed: int
    ) -> None:
        random, count = np.random.default_rng(seed), len(places)
        turns = np.stack([random.permutation(count) for _ in begins])
        self.turns = np.concatenate([turns, count - 1 - turns])
        self.begins = np.concatenate([begins, begins])
        # Of each encoded column, numeric ones and codes, the place of the column it belongs to.
        self.owners = [
            np.repeat(np.arange(count), [len(place[part]) for place in places]) for part in (1, 2)
        ]

    def between(
        self,
        encoded: Encoded,
        row: NDArray[np.int64],
        walk: NDArray[np.int64],
        steps: NDArray[np.int64],
    ) -> Encoded:
        """The rows after some steps of some walks, one walk after the other.

        Args:
            encoded: all rows.
            row: where each walk leads.
            walk: which one it is.
            steps: after each of them so many columns are taken over.
        """

        def mixed(table: NDArray[Any], owner: NDArray[np.int64]) -> NDArray[Any]:
            taken = self.turns[walk][:, None, owner] < steps[:, None]
            found = np.where(taken, table[row][:, None], table[self.begins[walk]][:, None])
            return found.reshape(len(row) * len(steps), table.shape[1])

        numeric, codes = self.owners
        return Encoded(mixed(encoded.numeric, numeric), mixed(encoded.categorical, codes))


def _announce(rows: int, scorings: int, seconds: float) -> None:
    """Say what it will take, if that is long."""
    if seconds > LONG:
        warnings.warn(
            f"explaining {rows:,} rows takes {scorings:,} scorings, about {seconds:,.0f} seconds",
            UserWarning, stacklevel=3,
        )  # fmt: skip


def _walks(rows: int, columns: int, samples: int | None) -> int:
    """How many walks each row gets, an even number."""
    if samples is not None:
        return 2 * -(-checks.count("samples", samples, least=2) // 2)
    per_walk = rows * max(1, columns - 1)
    if LEAST * per_walk > MOST:
        raise ValueError(
            f"explain must take at most {MOST:,} scorings, found {LEAST * per_walk:,} for "
            f"{rows:,} rows of {columns} columns: ask it of {MOST // LEAST // (columns - 1):,} rows"
        )
    return max(LEAST, min(SAMPLES, MANY // per_walk // 2 * 2))


def _log_odds(model: AUCClassifier, scores: Floats, classes: NDArray[np.int64]) -> Floats:
    """Of each row's class, by raw scores (N,) of two classes or (N, c) of several."""
    logits = model.calibration_.logit(scores)
    if logits.ndim == 1:
        return logits
    own = logits[np.arange(len(logits)), classes]
    rest = np.where(np.arange(logits.shape[1]) == classes[:, None], -np.inf, logits)
    top = rest.max(axis=1)
    return np.asarray(own - top - np.log(np.exp(rest - top[:, None]).sum(axis=1)))
