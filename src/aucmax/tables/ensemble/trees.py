"""Decision trees as plain arrays, which score without the library that has grown them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aucmax.tables.encoder import Encoded
from aucmax.tables.ensemble.base import Scores

MOST_CODES = 255
"""That scikit-learn's boosting can tell apart in one column."""

LOWEST = np.array([0] + [(bits & -bits).bit_length() - 1 for bits in range(1, 1 << 16)])
"""Of 16 bits, which is the lowest that is set."""

BLOCK = 4096
"""Rows that one thread scores before it takes others."""

NEAR = 50_000
"""So many words of leaves at a time stay near the processor."""


class Split(NamedTuple):
    """A node that asks a column; a leaf is a number in its place.

    Attributes:
        column: its number, those of codes after the numeric ones.
        asked: what goes left: numbers up to this one, or these codes.
        left: the node below.
        right: the node for all other rows.
    """

    column: int
    asked: float | NDArray[np.int64]
    left: Split | float
    right: Split | float


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees whose leaves' values are summed up; tree number t adds to output t % outputs.

    The nodes of all trees follow one another, each before those below it, so that the left child
    of a node is the next one.

    Attributes:
        column: (nodes,) that it asks, those of codes after the numeric ones; -1 in a leaf.
        threshold: (nodes,) numbers up to it go left.
        chosen: (nodes,) the row of ``sets`` for a column of codes; -1 for a numeric one.
        right: (nodes,) the right child; 0 in a leaf.
        value: (nodes,) of a leaf, else 0.
        roots: (trees,) their first nodes.
        sets: (splits by codes, codes) whether a code goes left.
        base: (outputs,) what is added to the sums.
        numeric: how many columns are numeric.
    """

    column: NDArray[np.int32]
    threshold: NDArray[np.float32]
    chosen: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float64]
    roots: NDArray[np.int32]
    sets: NDArray[np.bool_]
    base: Scores
    numeric: int

    # ---- Where they come from --------------------------------------------------------------------

    @classmethod
    def of_lightgbm(cls, boosters: Sequence[Any], numeric: int, cardinalities: list[int]) -> Self:
        """The mean of LightGBM's boosters."""

        def node(found: dict[str, Any]) -> Split | float:
            if "leaf_value" in found:
                return float(found["leaf_value"]) / len(boosters)
            asked = found["threshold"]
            if found["decision_type"] == "==":
                asked = np.array(asked.split("||"), np.int64)
            children = node(found["left_child"]), node(found["right_child"])
            return Split(found["split_feature"], asked, *children)

        dumps = [booster.dump_model() for booster in boosters]
        trees = [node(tree["tree_structure"]) for dump in dumps for tree in dump["tree_info"]]
        base = np.zeros(dumps[0]["num_tree_per_iteration"])
        return cls._laid_out(trees, base, numeric, cardinalities)

    @classmethod
    def of_scikit_learn(cls, model: Any, numeric: int, cardinalities: list[int]) -> Self:
        """Those of scikit-learn's HistGradientBoostingClassifier.

        It puts the columns of codes first and numbers the codes seen in training anew; one not
        seen goes where missing values go. Codes beyond the last that it can take are as that.
        """
        known = []
        if cardinalities:
            known = model._preprocessor.named_transformers_["encoder"].categories_

        def codes_of(split: Any, bitsets: NDArray[np.uint32]) -> NDArray[np.int64]:
            seen = known[split["feature_idx"]].astype(np.int64)
            goes = np.full(cardinalities[split["feature_idx"]], split["missing_go_to_left"] > 0)
            bits = np.unpackbits(bitsets[split["bitset_idx"]].view(np.uint8), bitorder="little")
            goes[seen] = bits[: len(seen)]
            goes[MOST_CODES:] = goes[MOST_CODES - 1 : MOST_CODES]
            return np.flatnonzero(goes)

        def node(tree: Any, at: int) -> Split | float:
            found = tree.nodes[at]
            if found["is_leaf"]:
                return float(found["value"])
            children = node(tree, found["left"]), node(tree, found["right"])
            column = int(found["feature_idx"]) - len(known)
            if column >= 0:
                return Split(column, found["num_threshold"], *children)
            codes = codes_of(found, tree.raw_left_cat_bitsets)
            return Split(numeric + len(known) + column, codes, *children)

        trees = [node(tree, 0) for several in model._predictors for tree in several]
        base = np.ravel(model._baseline_prediction).astype(np.float64)
        return cls._laid_out(trees, base, numeric, cardinalities)

    @classmethod
    def _laid_out(
        cls, trees: list[Split | float], base: Scores, numeric: int, cardinalities: list[int]
    ) -> Self:
        """As arrays."""
        nodes: list[list[Any]] = []
        sets: list[NDArray[np.bool_]] = []
        codes = np.arange(max(cardinalities, default=0))

        def lay(node: Split | float) -> None:
            if not isinstance(node, Split):
                nodes.append([-1, 0.0, -1, 0, node])
                return
            place = [node.column, node.asked, -1, 0, 0.0]
            if isinstance(node.asked, np.ndarray):
                place[1:3] = 0.0, len(sets)
                sets.append(np.isin(codes, node.asked))
            nodes.append(place)
            lay(node.left)
            place[3] = len(nodes)
            lay(node.right)

        roots = []
        for tree in trees:
            roots.append(len(nodes))
            lay(tree)
        column, exact, chosen, right, value = map(np.array, zip(*nodes, strict=True))
        return cls(
            column.astype(np.int32), down_to_single(exact), chosen.astype(np.int32),
            right.astype(np.int32), value.astype(np.float64), np.array(roots, np.int32),
            np.array(sets, bool).reshape(len(sets), len(codes)), base, numeric,
        )  # fmt: skip

    # ---- Scores ----------------------------------------------------------------------------------

    def score(self, rows: Encoded) -> Scores:
        """The sums (N, outputs); a row's do not depend on its neighbours."""
        return in_blocks(partial(self._score, self._reach), rows, len(self.base))

    def _score(self, reach: _Reach, rows: Encoded, scores: Scores) -> None:
        """Score rows by the leaves that each column leaves in reach, as QuickScorer does.

        A split that sends a row right puts the leaves on its left out of reach. Of those that no
        split has put there, the leftmost is where the row ends.
        """
        trees, words = len(self.roots), reach.words
        found = []  # of each column: the table, and the row of it that each row takes
        for column, edges, table in reach.columns:
            if edges is None:
                found.append((table, rows.categorical[:, column - self.numeric]))
            else:
                found.append((table, _count_below(edges, rows.numeric[:, column])))
        size = max(1, NEAR // (trees * words))
        buffers = np.empty((2, size, words * trees), np.uint16)
        for start in range(0, len(scores), size):
            chunk = slice(start, start + size)
            left, more = buffers[:, : len(scores[chunk])]
            left[:] = 0xFFFF
            for table, at in found:
                table.take(at[chunk], axis=0, out=more, mode="clip")  # "raise" would copy
                left &= more
            by_word = left.reshape(-1, words, trees)
            leaf = LOWEST.take(by_word[:, -1]) + 16 * (words - 1)
            for word in range(words - 2, -1, -1):
                here = by_word[:, word]
                leaf = np.where(here, LOWEST.take(here) + 16 * word, leaf)
            leaf += reach.first
            values = reach.values.take(leaf).reshape(len(leaf), -1, len(self.base))
            scores[chunk] = values.sum(1) + self.base

    @cached_property
    def _reach(self) -> _Reach:
        is_leaf = self.column < 0
        before: NDArray[np.int64] = np.cumsum(is_leaf) - is_leaf  # leaves before each node
        tree = np.searchsorted(self.roots, np.arange(len(before)), "right") - 1
        own = before[self.roots][tree]
        first, middle = before - own, before[self.right] - own  # leaves below its children
        words = -(-int(np.bincount(tree[is_leaf]).max()) // 16)
        values = np.zeros((len(self.roots), 16 * words))
        values[tree[is_leaf], first[is_leaf]] = self.value[is_leaf]
        leaf = np.arange(16 * words)
        lost = (first[:, None] <= leaf) & (leaf < middle[:, None])  # by going right at each node
        kept = np.packbits(~lost, axis=1, bitorder="little").view("<u2")
        columns: list[tuple[int, NDArray[np.float32] | None, NDArray[np.uint16]]] = []
        for column in np.unique(self.column[~is_leaf]).tolist():
            splits = np.flatnonzero(self.column == column)
            if column < self.numeric:
                edges, place = np.unique(self.threshold[splits], return_inverse=True)
                right = place[:, None] < np.arange(len(edges) + 1)
            else:
                edges, right = None, ~self.sets[self.chosen[splits]]
            table = np.full((right.shape[1], words, len(self.roots)), 0xFFFF, np.uint16)
            for split, goes in zip(splits, right, strict=True):
                table[goes, :, tree[split]] &= kept[split]
            columns.append((column, edges, table.reshape(len(table), -1)))
        return _Reach(columns, words, np.arange(len(self.roots)) * 16 * words, values.ravel())

    # ---- Other forms -----------------------------------------------------------------------------

    def to_plain(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What JSON can hold, and arrays."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        about = {"numeric": arrays.pop("numeric"), "codes": self.sets.shape[1]}
        return about, {**arrays, "sets": np.packbits(self.sets, axis=1)}

    @classmethod
    def from_plain(cls, about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """The trees that :meth:`to_plain` was called on."""
        sets = np.unpackbits(arrays["sets"], axis=1, count=about["codes"]).astype(bool)
        return cls(**{**arrays, "sets": sets}, numeric=about["numeric"])

    def as_module(self) -> nn.Module:
        """The same from (numeric, codes), going down all trees at once."""
        return _Descent(self)


class _Reach(NamedTuple):
    """Which leaves a column leaves in reach, in 16-bit words; bit 0 is the leftmost leaf.

    Attributes:
        columns: of each that is asked: its number, its thresholds in order (None for codes), and
            a table of one row for each code, or for each number of thresholds below a value, with
            the words of all trees: first each tree's first, then each one's second, ...
        words: of each tree.
        first: (trees,) where the values of each tree's leaves begin.
        values: of all leaves.
    """

    columns: list[tuple[int, NDArray[np.float32] | None, NDArray[np.uint16]]]
    words: int
    first: NDArray[np.int64]
    values: NDArray[np.float64]


def in_blocks(score: Callable[[Encoded, Scores], None], rows: Encoded, outputs: int) -> Scores:
    """Scores (N, outputs) that a function fills in for some rows at a time, by several threads."""
    scores = np.empty((len(rows.numeric), outputs))
    starts = range(0, len(scores), BLOCK)
    threads = min(torch.get_num_threads(), len(starts))

    def work(start: int) -> None:
        block = slice(start, start + BLOCK)
        score(Encoded(rows.numeric[block], rows.categorical[block]), scores[block])

    if threads < 2:
        for start in starts:
            work(start)
    else:  # NumPy does all of it without Python's lock
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, starts))
    return scores


def down_to_single(thresholds: NDArray[np.float64]) -> NDArray[np.float32]:
    """A single is up to a double if it is up to the single that is next, not above it."""
    found = thresholds.astype(np.float32)
    above = found > thresholds
    found[above] = np.nextafter(found[above], np.float32(-np.inf))
    return found


def _count_below(edges: NDArray[np.float32], x: NDArray[np.float32]) -> NDArray[np.int64]:
    """How many of the edges, which are in order, are below each value.

    All values take the same steps, so it needs half the time of NumPy's own search, which a
    processor cannot foresee.
    """
    steps = len(edges).bit_length()
    padded = np.full(1 << steps, np.inf, np.float32)
    padded[: len(edges)] = edges
    x = np.ascontiguousarray(x)
    below = np.zeros(len(x), np.int64)
    for step in range(steps - 1, -1, -1):
        half = 1 << step
        below += (padded.take(below + (half - 1), mode="clip") < x).astype(np.int64) << step
    return below


class _Descent(nn.Module):
    """Trees in operations that ONNX has: a step down in all of them at once, till all are down."""

    column: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    value: Tensor
    roots: Tensor
    base: Tensor
    first: Tensor
    sets: Tensor

    def __init__(self, trees: Trees) -> None:
        super().__init__()
        is_leaf = trees.column < 0
        own = np.arange(len(is_leaf))
        buffers = {
            "column": np.where(is_leaf, 0, trees.column),
            "threshold": np.where(trees.chosen < 0, trees.threshold.astype(np.float64), -np.inf),
            "left": np.where(is_leaf, own, own + 1),  # a leaf's child is itself
            "right": np.where(is_leaf, own, trees.right),
            "value": trees.value,
            "roots": trees.roots,
            "base": trees.base,
            "first": (trees.chosen + 1) * trees.sets.shape[1],  # in the sets one after the other,
            "sets": np.pad(trees.sets, ((1, 0), (0, 0))).ravel(),  # an empty one for numbers first
        }
        for name, x in buffers.items():
            is_index = x.dtype in (np.int32, np.int64)
            self.register_buffer(name, torch.from_numpy(x.astype(np.int64) if is_index else x))
        self.codes, self.outputs = trees.sets.shape[1], len(trees.base)
        self.depth, at = 0, trees.roots
        while (at := at[~is_leaf[at]]).size:
            at = np.concatenate([at + 1, trees.right[at]])
            self.depth += 1

    def forward(self, columns: tuple[Tensor, Tensor]) -> Tensor:
        """Scores (N, outputs)."""
        x = torch.cat([part.double() for part in columns if part.shape[1]], 1)
        at = self.roots.expand(x.shape[0], -1)  # len(x) is a fixed number to ONNX
        for _ in range(self.depth):
            asked = x.gather(1, _taken(self.column, at))
            goes_left = asked <= _taken(self.threshold, at)
            if self.codes:
                code = asked.clamp(0, self.codes - 1).long()
                goes_left = goes_left | _taken(self.sets, _taken(self.first, at) + code)
            at = torch.where(goes_left, _taken(self.left, at), _taken(self.right, at))
        values = self.value.index_select(0, at.flatten())
        return values.reshape(x.shape[0], -1, self.outputs).sum(1) + self.base


def _taken(values: Tensor, at: Tensor) -> Tensor:
    """``values[at]``, which ONNX Runtime would take one by one."""
    return values.index_select(0, at.flatten()).reshape(at.shape)
