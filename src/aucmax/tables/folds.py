"""Which rows each of several fits is trained on, and which it is judged by."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from aucmax.data.labels import has_pairs
from aucmax.tables.encoder import Encoded

DISTINCT = 0.5
"""The share of rows that differ from which on repeats are kept together."""
FEWEST = 4
"""Rows, not repeats, of a class below which nothing is kept back: a share of them says nothing."""
ROUNDS = 3
"""How often a group may change sides to bring the shares of the classes nearer."""


@dataclass(frozen=True)
class Folds:
    """Rows of several fits of the same model; a fit is judged by rows that it is not trained on.

    Attributes:
        used: (N, fits), whether a row is trained on.
        held: (N, fits), whether it is judged; never both.
        apart: whether the rows that judge are for that alone, and no fit of all rows knows them.
    """

    used: NDArray[np.bool_]
    held: NDArray[np.bool_]
    apart: bool = False

    @property
    def count(self) -> int:
        """How many fits there are."""
        return int(self.held.shape[1])

    @property
    def judged(self) -> NDArray[np.int64]:
        """Numbers of the rows that some fit is judged by."""
        return np.flatnonzero(self.held.any(axis=1))

    @property
    def whole(self) -> NDArray[np.int64]:
        """Numbers of the rows that one more fit, for new rows, is trained on."""
        used = self.used.any(axis=1)
        return np.flatnonzero(used if self.apart else used | self.held.any(axis=1))

    def rows(self, fit: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of the rows that a fit is trained on, and of those that it is judged by."""
        return np.flatnonzero(self.used[:, fit]), np.flatnonzero(self.held[:, fit])


def scores_out_of_fold(
    held: NDArray[np.bool_],
    outputs: int,
    score: Callable[[int, NDArray[np.int64]], NDArray[Any]],
) -> NDArray[np.float64]:
    """Of each row the mean of its scores by the fits that are judged by it; NaN if there are none.

    Args:
        held: (N, fits), whether a fit is judged by a row.
        outputs: scores per row.
        score: gives those of some rows, by their numbers, by one fit.
    """
    total = np.zeros((len(held), outputs))
    for fit, judges in enumerate(held.T):
        if len(rows := np.flatnonzero(judges)):
            total[rows] += score(fit, rows)
    with np.errstate(invalid="ignore"):
        return np.asarray(total / held.sum(axis=1, keepdims=True))


def make_folds(
    encoded: Encoded,
    classes: NDArray[np.int64],
    weight: NDArray[Any] | None,
    *,
    count: int,
    repeats: int = 1,
    seed: int,
    group: NDArray[np.int64] | None = None,
    time: NDArray[Any] | None = None,
) -> Folds:
    """Folds of about equal size, each with its share of every class: a fit for each.

    Repeats of a row and groups are kept together as in :func:`held_out`. There are fewer folds
    where a class has too few rows, or too few groups can be compared within; no fit, if there
    cannot be two.

    By time, the later half of the rows is cut into ``count`` blocks, one after the other, or into
    fewer if one of them would lack a class. A fit is trained on all that came before the block that
    judges it: on half of the rows at least. The first half judges none.

    Args:
        encoded: the table.
        classes: each row's class.
        weight: rows that weigh nothing are neither trained on nor judged.
        count: how many folds.
        repeats: cut so many times, each time anew, with a fit for each fold; once by time.
        seed: of the choice.
        group: the number of each row's group.
        time: of each row, anything in order; none missing.
    """
    table, random = _Table(encoded, classes, weight, group, time), np.random.default_rng(seed)
    used, held = [], []
    for _ in range(repeats if time is None else 1):
        part = table.equal_parts(count, random)
        if part is None:
            continue
        last = int(part.max())
        for k in range(last + 1) if time is None else reversed(range(last)):
            held.append(part == k)
            used.append(part != k if time is None else part > k)
    return table.folds(used, held)


def held_out(
    encoded: Encoded,
    classes: NDArray[np.int64],
    weight: NDArray[Any] | None,
    share: float,
    seed: int,
    group: NDArray[np.int64] | None = None,
    time: NDArray[Any] | None = None,
) -> Folds:
    """One fit that is judged by a share of each class, repeats together.

    Rows that are alike in every column would be known before they are judged, so all of them are
    on one side; but where most rows are repeats, as in a table of a few categories, new rows will
    be repeats too, and rows are taken one by one. Without enough rows of a class, nothing is held
    out.

    All rows of a group are on one side too, and each side has a group with two classes. The share
    is then as near as whole groups come to it, of each class and of such groups. Groups that have
    repeats in common stay together, unless nothing could be held out then.

    By time, the latest share of the rows is held out; rows of the same time are on one side. What
    was seen before may come again, so repeats and groups may then be on both.

    Args:
        encoded: the table.
        classes: each row's class.
        weight: rows that weigh nothing are on neither side.
        share: of the rows to hold out.
        seed: of the choice.
        group: the number of each row's group.
        time: of each row, anything in order; none missing.
    """
    table = _Table(encoded, classes, weight, group, time)
    if share == 0 or table.fewest < FEWEST:
        part = None
    else:
        part = table.cut(np.array([share]), np.random.default_rng(seed))
    held = np.zeros(len(table.rows), bool) if part is None else part == 0
    return table.folds([~held], [held])


def judged_by(judges: NDArray[np.bool_], weight: NDArray[Any] | None) -> Folds:
    """One fit that is judged by these rows alone; those that weigh nothing are on neither side."""
    counted = np.ones(len(judges), bool) if weight is None else weight > 0
    return Folds((counted & ~judges)[:, None], (counted & judges)[:, None], apart=True)


def count_known(encoded: Encoded, known: Encoded) -> int:
    """How many rows are alike in every column to one that is known."""
    return int(np.isin(_contents(encoded), _contents(known)).sum())


class _Table:
    """The rows that weigh something, to be cut into parts that each have every class.

    Attributes:
        rows: their numbers.
        fewest: rows of the rarest class, not counting repeats.
    """

    def __init__(
        self,
        encoded: Encoded,
        classes: NDArray[np.int64],
        weight: NDArray[Any] | None,
        group: NDArray[np.int64] | None,
        time: NDArray[Any] | None,
    ) -> None:
        self.total = len(classes)
        self.rows = np.arange(self.total) if weight is None else np.flatnonzero(weight)
        self.classes = classes[self.rows]
        self.group = None if group is None else group[self.rows]
        self.time = None if time is None else time[self.rows]
        self.unit = first = np.arange(len(self.rows))
        if time is None:
            _, at, same = np.unique(
                _contents(encoded)[self.rows], return_index=True, return_inverse=True
            )
            if len(at) >= DISTINCT * len(self.rows):
                first, self.unit = at, same
        self.of_unit = self.classes[first]  # a repeat with another label goes where it goes
        counts = np.bincount(self.of_unit, minlength=int(self.classes.max()) + 1)
        self.fewest = int(counts.min())

    def equal_parts(self, count: int, random: np.random.Generator) -> NDArray[np.int64] | None:
        """Each row's part of so many, or of as many as there can be; None if there is no cut.

        By time, parts of the later half, and the other half as one part more.
        """
        if self.fewest < FEWEST:
            return None
        for parts in range(min(count, self.fewest), 0, -1):
            share = 1 / parts if self.time is None else 0.5 / parts
            shares = np.full(parts - (self.time is None), share)
            if len(shares) and (part := self.cut(shares, random)) is not None:
                return part
        return None

    def cut(
        self, shares: NDArray[np.float64], random: np.random.Generator
    ) -> NDArray[np.int64] | None:
        """Each row's part, those of these shares first, then the rest; None if it cannot be."""
        if self.time is not None:
            part = _by_time(self.time, shares)
        elif self.group is not None:
            return self._whole_groups(self.group, shares, random)
        else:
            of_unit = np.zeros(len(self.of_unit), np.int64)
            for number in range(int(self.of_unit.max()) + 1):
                units = random.permutation(np.flatnonzero(self.of_unit == number))
                ends = np.maximum(1, np.rint(shares.cumsum() * len(units)))
                of_unit[units] = np.searchsorted(ends, np.arange(len(units)), "right")
            part = of_unit[self.unit]
        return part if _are_whole(part, len(shares) + 1, self.classes, self.group) else None

    def _whole_groups(
        self, group: NDArray[np.int64], shares: NDArray[np.float64], random: np.random.Generator
    ) -> NDArray[np.int64] | None:
        part = np.full(len(group), len(shares))
        for k, share in enumerate(shares):
            left = np.flatnonzero(part == len(shares))
            among = share / (1 - shares[:k].sum())
            held = _hold_groups(self.classes[left], group[left], self.unit[left], among, random)
            if held is None:
                return None
            part[left[held]] = k
        return part

    def folds(self, used: list[NDArray[np.bool_]], held: list[NDArray[np.bool_]]) -> Folds:
        """Folds of all rows, from which of those that weigh something each fit gets."""
        whole = np.zeros((2, self.total, len(held)), bool)
        for k, sides in enumerate(zip(used, held, strict=True)):
            whole[:, self.rows, k] = sides
        return Folds(*whole)


def _contents(encoded: Encoded) -> NDArray[np.void]:
    """Each row's content, the same for rows that are alike."""
    columns = [np.ascontiguousarray(x).view(np.uint8).reshape(len(x), -1) for x in encoded]
    content = np.ascontiguousarray(np.concatenate(columns, axis=1))
    return content.view(np.dtype((np.void, content.shape[1]))).reshape(-1)


def _are_whole(
    part: NDArray[np.int64],
    count: int,
    classes: NDArray[np.int64],
    group: NDArray[np.int64] | None,
) -> bool:
    """Whether each part has every class, and a group with two if rows have groups."""
    kinds = int(classes.max()) + 1
    if not np.bincount(part * kinds + classes, minlength=count * kinds).all():
        return False
    masks = (part == k for k in range(count))
    return group is None or all(has_pairs(group[x], classes[x]).any() for x in masks)


def _by_time(time: NDArray[Any], shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """Each row's part, the latest first; those of one time are in one."""
    _, at, counts = np.unique(time, return_inverse=True, return_counts=True)
    from_then_on = counts[::-1].cumsum()[::-1]
    wanted = shares.cumsum() * len(time)
    begins = np.abs(from_then_on - wanted[:, None]).argmin(axis=1)
    return np.asarray((at[:, None] < begins).sum(axis=1))


def _hold_groups(
    classes: NDArray[np.int64],
    group: NDArray[np.int64],
    same: NDArray[np.int64],
    share: float,
    random: np.random.Generator,
) -> NDArray[np.bool_] | None:
    """Which rows to hold out, by whole groups; None if that cannot be.

    Args:
        classes: each row's class.
        group: each row's group.
        same: a number that repeats of a row have in common.
        share: of the rows to hold out.
        random: decides between groups.
    """
    _, group = np.unique(group, return_inverse=True)
    compared, count = has_pairs(group, classes), int(classes.max()) + 1
    for unit_of in (_joined(group, same), np.arange(len(compared))):
        content = np.zeros((unit_of.max() + 1, count + 1))  # a unit's rows by class, and groups
        np.add.at(content, (unit_of[group], classes), 1)
        content[:, -1] = np.bincount(unit_of, compared, len(content))
        shares = content / content.sum(axis=0).clip(min=1)
        order = random.permutation(len(shares))
        nearest_first = order[np.square(share - shares[order]).sum(axis=1).argsort()]
        enough = nearest_first[shares[nearest_first, -1] > 0][:1]  # if no choice has pairs
        for begin in (enough[:0], enough):
            held = _near(share, shares, order, begin)[unit_of[group]]
            held = held if held.mean() <= 0.5 else ~held  # half the rows at least remain
            if _are_whole(held.astype(np.int64), 2, classes, group):
                return held
    return None


def _joined(group: NDArray[np.int64], same: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number for each group, which those with repeats in common share."""
    groups, pairs = int(group.max()) + 1, (group, group.max() + 1 + same)
    size = groups + int(same.max()) + 1
    graph = sparse.coo_array((np.ones(len(group), bool), pairs), (size, size))
    _, number = csgraph.connected_components(graph, directed=False)
    return np.unique(number[:groups], return_inverse=True)[1]


def _near(
    share: float,
    shares: NDArray[np.float64],
    order: NDArray[np.int64],
    begin: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Units whose shares add up to about the share asked for.

    In that order, round after round, each is taken in or out if that brings the sums nearer; those
    to begin with stay.
    """
    taken, free = [False] * len(shares), order[~np.isin(order, begin)].tolist()
    for unit in begin:
        taken[unit] = True
    missing = (share - shares[begin].sum(axis=0)).tolist()
    contents, squares = shares.tolist(), np.square(shares).sum(axis=1).tolist()  # lists: faster
    for unit in free * ROUNDS:
        sign, content = -1 if taken[unit] else 1, contents[unit]
        if 2 * sign * sum(map(operator.mul, missing, content)) > squares[unit]:
            taken[unit] = not taken[unit]
            missing = [x - sign * y for x, y in zip(missing, content, strict=True)]
    return np.array(taken)
