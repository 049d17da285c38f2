"""From files larger than memory to a model folder: rows are read as they are needed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
from numpy.typing import NDArray

from aucmax import checks, distributed
from aucmax.judge.evaluation import Part
from aucmax.report import model_folder
from aucmax.report.model_folder import Fitted
from aucmax.report.unfinished import work_of_all
from aucmax.tables.classifier import AUCClassifier
from aucmax.tables.columns import Columns, columns_of, understood
from aucmax.tables.csv_files import csv_format, drop_empty_ends, without_invisible, wrong
from aucmax.tables.evaluate import ScoredRows
from aucmax.tables.files import without_index
from aucmax.tables.fit import Preview, TableFile, judge
from aucmax.tables.hints import hints
from aucmax.tables.labeled import (
    Labeled,
    choose_labels,
    join_spellings,
    label_numbers,
    row_weights,
    without_target,
)
from aucmax.tables.read_options import ReadOptions
from aucmax.tables.scoring import Rows
from aucmax.tables.several import (
    Paths,
    as_paths,
    check_columns,
    files_of,
    listed,
    model_folder_of,
    put_together,
)
from aucmax.train.options import find_device

BATCH = 1024
EVALUATIONS = 40
KINDS = {".parquet": "parquet", ".arrow": "feather", ".feather": "feather", ".csv": "csv"}
LARGEST_SAMPLE = 200_000
GROUPS_SAMPLED = 64
KEPT = 0.1
"""The share of the sample that is kept to judge by; as many rows are kept to stop by."""
SMALLER = {"quality": "fast", "members": 4, "dropout": 0.0}
"""What a stream trains unless told otherwise: rows that come once or a few times leave little to
guard against, and it takes half the time."""
BLOCK = 65_536
"""Rows that are in memory and shuffled at a time."""


def fit_stream(
    data: Paths,
    target: str,
    *,
    positive: str | None = None,
    out: str | Path | None = None,
    drop: Sequence[str] = (),
    weight: str | None = None,
    id_column: str | None = None,
    exact_labels: bool = False,
    reading: ReadOptions | None = None,
    passes: float = 1.0,
    time_limit: float | None = None,
    seed: int = 0,
    command: str = "",
    progress: bool = True,
    **options: Any,
) -> Fitted:
    """Train on files larger than memory, from disk, in one pass or more.

    How columns become numbers is learned from a sample of at most 200,000 rows, of which two
    tenths are kept to stop and to judge by. The share of positives is estimated as rows come
    (Algorithm 4); of several classes the sample tells the shares. Killed or stopped, the same call
    goes on.

    Under ``torchrun`` each process reads files of its own, or row groups if files are fewer, and
    takes its part of every step; the first writes the model.

    Args:
        data: Parquet, Arrow or CSV: files, folders, or patterns such as ``part-*.parquet``.
        target: the column to predict.
        positive: its positive label; None finds it.
        out: folder for the model.
        drop: columns to leave out.
        weight: a column of numbers of at least 0, how much each row counts, as in ``fit_file``.
        id_column: names a row. It is not trained on, and predictions carry it.
        exact_labels: whether labels that differ in case, blanks or the like are kept apart.
        reading: how CSVs are written, where it cannot be found out.
        passes: how often every row is seen.
        time_limit: seconds for the training.
        seed: of everything.
        command: what was typed, for the report.
        progress: whether to show a bar.
        options: more arguments of :class:`AUCClassifier`; unless they say otherwise its network
            has 4 members and no dropout.
    """
    passes = checks.positive("passes", passes)
    paths = as_paths(data)
    reading = reading or ReadOptions()
    file = TableFile(
        paths, target, positive=positive, drop=tuple(drop), test_share=KEPT, seed=seed,
        exact_labels=exact_labels, weight=weight, id_column=id_column,
        reading=reading,
    )  # fmt: skip
    folder = model_folder_of(out, paths[0])
    options = {"threshold": "balanced", "time_limit": time_limit, **SMALLER, **options}
    with distributed.process_group(find_device(options.get("device", "auto"))):
        groups = RowGroups(paths, reading)
        rows, parts = _read_sample(file, groups)
        labels, weights = rows.labels, rows.weight
        counted = np.ones(len(parts)) if weights is None else weights
        train, valid, test = (
            rows.select(np.flatnonzero((parts == k) & (counted > 0))) for k in range(3)
        )
        if min(valid.counts + test.counts) == 0:
            raise ValueError(
                f"data must have every label among the rows kept apart, found {valid.counts} of "
                f"{labels} to stop by and {test.counts} to judge by"
            )
        model = AUCClassifier(random_state=seed, **options)
        model._begin_stream(train.table, labels, seed)

        def encode(block: Columns) -> tuple[Any, ...]:
            columns, words, weights = _apart(file, block)
            words = join_spellings(
                words, target, [], exact=exact_labels, known=labels, missing=reading.na_values
            )
            there = np.flatnonzero(words != "")
            numbers = label_numbers(words[there], labels, target)
            weights = None if weights is None else weights[there]
            known = Labeled(columns.select(there), numbers, labels, [], weights)
            return _encoded(model, known).for_fit()

        # Rows beyond the sample are not known to lack a label.
        count = groups.rows - (groups.sample_size - len(parts))
        processes = distributed.world_size()
        each = max(1, BATCH // processes)
        steps = max(1, round(passes * (count - (parts > 0).sum()) / (each * processes)))
        mass = np.bincount(train.classes, train.weight, minlength=len(labels))
        settings = {
            **file.settings("fit --streaming", groups.stamps(), options),
            "passes": passes,
            "processes": processes,
        }
        with work_of_all(folder, settings, progress) as work:
            model._fit_stream(
                Batches(groups, encode, each, seed),
                _encoded(model, valid),
                rows={"train": train.counts, "valid": valid.counts},
                shares=(mass / mass.sum()).tolist(),
                steps=steps,
                batch_size=each * processes,
                eval_every=max(1, steps // EVALUATIONS),
                seed=seed,
                out=work,
                progress=progress,
            )
            distributed.gather_objects(None)  # the first removes what others may still read
            told: Any = None
            if distributed.rank() == 0:
                scored = ScoredRows.of(model, model.encoder_.transform(test.table))
                known = rows.select(np.flatnonzero((parts < 2) & (counted > 0)))
                evaluation = judge(
                    model, known, test, scored, file=file, command=command, compare=False
                )
                if count > len(parts):  # nobody has counted the labels of those beyond the sample
                    seen = Part(count - int((parts > 0).sum()))
                    evaluation = replace(evaluation, parts={**evaluation.parts, "train": seen})
                told = evaluation, model_folder.write(folder, model, evaluation).replaced
            evaluation, replaced = distributed.broadcast_object(told)
            return Fitted(folder, model, evaluation, folder / "report.html", replaced)


def preview_stream(data: Paths, target: str, **options: Any) -> Preview:
    r"""Say what is understood of a sample of files larger than memory, and train nothing.

    Args:
        data: as in :func:`fit_stream`.
        target: the column to predict.
        options: ``positive``, ``drop``, ``weight``, ``id_column``, ``exact_labels`` and
            ``reading`` of :func:`fit_stream`.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "part-0.csv").write_text("age;sick\n31,5;no\n44,5;no\n")
        >>> _ = (folder / "part-1.csv").write_text("age;sick\n58,0;yes\n")
        >>> preview_stream(folder / "part-*.csv", "sick").labels
        {'no': 2, 'yes': 1}
    """
    file = TableFile(as_paths(data), target, **options)
    groups = RowGroups(file.data, file.reading)
    preview = Preview.of(_read_sample(file, groups)[0])
    if groups.rows == groups.sample_size:
        return preview
    note = f"only a sample is looked at, {groups.sample_size:,} of {groups.rows:,} rows"
    return preview._replace(notes=(*preview.notes, note))


def _read_sample(file: TableFile, groups: RowGroups) -> tuple[Labeled, NDArray[np.int64]]:
    """The sample's rows that have a label, and each one's part."""
    sample, parts = groups.sample()
    notes = groups.notes.copy()
    table, words, weights = _apart(file, sample)
    reading = groups.reading
    table, more = understood(table, groups.decimal, reading.na_values, reading.categories)
    notes += more
    words = join_spellings(
        words, file.target, notes, exact=file.exact_labels, missing=reading.na_values
    )
    there = np.flatnonzero(words != "")
    table, words, parts = table.select(there), words[there], parts[there]
    weights = None if weights is None else weights[there]
    labels = choose_labels(words, file.target, file.positive, notes)
    classes = label_numbers(words, labels, file.target)
    rows = Labeled(table, classes, labels, notes, weights)
    return rows._replace(notes=[*notes, *hints(rows, file.target)]), parts


def _apart(
    file: TableFile, block: Columns
) -> tuple[Columns, NDArray[Any], NDArray[np.float64] | None]:
    """Columns to train on, the target as words, and weights."""
    others = {"weight": file.weight, "id": file.id_column}
    columns, words = without_target(block, file.target, file.drop, listed(file.data), others)
    if file.weight is None:
        return columns, words, None
    return columns, words, row_weights(block, file.weight, np.arange(block.rows))


class RowGroups:
    """The rows of files with the same columns, in groups that can be read one by one.

    A sample, the first rows of groups spread over the files, is read at once: what columns look
    like is learned from it. Every tenth row of the sample is kept for validation, another tenth
    for testing; :meth:`blocks` never gives those.

    Args:
        data: files, folders, or patterns such as ``part-*.parquet``.
        reading: how CSVs are written.

    Attributes:
        sizes: the rows of each group.
        sample_size: rows of the sample, once it is read.
        decimal: sign of their numbers.
        notes: what a person should know of how they are read.
    """

    def __init__(self, data: Paths, reading: ReadOptions | None = None) -> None:
        self.reading = reading or ReadOptions()
        notes: list[str] = []
        self.paths = files_of(data, notes)
        kinds = {Path(path).suffix for path in self.paths}
        if len(kinds) > 1 or not kinds <= KINDS.keys():
            raise ValueError(
                f"data must be files of one kind of {', '.join(KINDS)}, found {sorted(kinds)}"
            )
        self.kind = KINDS[kinds.pop()]
        self.groups: list[Any] = []
        self.sizes: list[int] = []
        self.sample_size, self.decimal = 0, "."
        self.unnamed: set[str] = set()
        self.invisible = False
        schemas = [self._add(path, notes) for path in self.paths]
        check_columns(self.paths, [without_index(schema.empty_table()) for schema in schemas])
        self.notes = list(dict.fromkeys(notes))
        sampled = min(len(self.groups), GROUPS_SAMPLED)
        self.head = max(1, LARGEST_SAMPLE // sampled)
        spread = np.linspace(0, len(self.groups) - 1, sampled)
        self.sampled = set(spread.round().astype(int).tolist())

    def _add(self, path: str, notes: list[str]) -> pa.Schema:
        """Count a file's rows and divide it into groups; each CSV may be written in its own way."""
        try:
            written: Any = self.kind
            if self.kind == "csv":
                written, dialect, invisible = csv_format(Path(path), self.reading, notes)
                self.invisible |= invisible
                self.decimal = "," if "," in (dialect.decimal, self.decimal) else "."
                self.unnamed |= dialect.unnamed
            data = pyarrow.dataset.dataset(path, format=written)
            for part in data.get_fragments():
                if hasattr(part, "split_by_row_group"):
                    groups = part.split_by_row_group()
                    sizes = [group.row_groups[0].num_rows for group in groups]
                else:
                    groups, sizes = [part], [part.count_rows()]
                self.groups += groups
                self.sizes += sizes
        except (pa.ArrowException, OSError) as error:
            why = re.sub(r".* input source '[^']*': (Invalid: )?", "", str(error).splitlines()[0])
            raise wrong(Path(path), f"cannot be read: {why}") from None
        return data.schema

    @property
    def rows(self) -> int:
        """Of all files."""
        return sum(self.sizes)

    def own(self) -> list[int]:
        """Which groups this process reads: of files of its own, or others if these are too few.

        The processes' rows are as equal in number as can be.
        """
        processes = distributed.world_size()
        if processes == 1:
            return list(range(len(self.groups)))
        files = [group.path for group in self.groups]
        whole = len({*files}) >= processes
        units: dict[Any, list[int]] = {}
        for index, file in enumerate(files):
            units.setdefault(file if whole else index, []).append(index)
        if len(units) < processes:
            raise ValueError(
                f"data must have a file or row group for each of {processes} processes, found "
                f"{len(units)}"
            )
        rows = {unit: sum(self.sizes[index] for index in own) for unit, own in units.items()}
        loads, own = [0] * processes, [list[int]() for _ in range(processes)]
        for unit in sorted(units, key=lambda unit: -rows[unit]):
            least = loads.index(min(loads))
            loads[least] += rows[unit]
            own[least] += units[unit]
        return own[distributed.rank()]

    def stamps(self) -> list[tuple[int, int]]:
        """Size and time of each file: to read all that is in them would take too long."""
        return [(about.st_size, about.st_mtime_ns) for about in map(os.stat, self.paths)]

    def sample(self) -> tuple[Columns, NDArray[np.int64]]:
        """Rows from all over the files, and each one's part: 0 train, 1 validation, 2 test."""
        groups = [self.groups[i] for i in sorted(self.sampled)]
        heads = [group.head(self.head) for group in groups]
        parts = np.concatenate([_part(np.arange(len(head))) for head in heads])
        self.sample_size = len(parts)
        table = without_index(put_together([group.path for group in groups], heads))
        if self.invisible:
            table = without_invisible(table)
        if self.kind == "csv":
            table = drop_empty_ends(table, self.unnamed, self.notes)
        return columns_of(table), parts

    def blocks(self, seed: int) -> Iterator[Columns]:
        """This process's training rows in blocks: groups in random order, rows shuffled."""
        random = np.random.default_rng(seed)
        for index in random.permutation(self.own()).tolist():
            offset = 0
            options = {"batch_size": BLOCK, "batch_readahead": 1, "fragment_readahead": 1}
            for batch in self.groups[index].to_batches(**options):
                places = offset + np.arange(len(batch))
                offset += len(batch)
                held = (index in self.sampled) & (places < self.head) & (_part(places) > 0)
                kept = random.permutation(np.flatnonzero(~held))
                if len(kept):
                    block = batch.take(kept)
                    yield columns_of(without_invisible(block) if self.invisible else block)


class Batches:
    """The batches of a pass after the other, for :func:`aucmax.fit`.

    Args:
        groups: of the rows.
        encode: from a block to tensors ``(x, y)`` or ``(x, y, weight)``, x being several.
        batch_size: rows of a batch; a block's last one may be smaller.
        seed: of the order, with the number of the pass.
    """

    def __init__(
        self,
        groups: RowGroups,
        encode: Callable[[Columns], tuple[Any, ...]],
        batch_size: int,
        seed: int,
    ) -> None:
        self.groups, self.encode, self.batch_size, self.seed = groups, encode, batch_size, seed
        self.sampler = self
        self.round = 0

    def set_epoch(self, number: int) -> None:
        """The pass that begins next."""
        self.round = number

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for block in self.groups.blocks(self.seed + self.round):
            x, y, *weight = self.encode(block)
            for start in range(0, len(y), self.batch_size):
                part = slice(start, start + self.batch_size)
                yield tuple(column[part] for column in x), y[part], *(w[part] for w in weight)


def _encoded(model: AUCClassifier, rows: Labeled) -> Rows:
    """As the network takes them, without those that weigh nothing."""
    if rows.weight is not None:
        rows = rows.select(np.flatnonzero(rows.weight))
    weight = None if rows.weight is None else rows.weight.astype(np.float32)
    return Rows.of(model.encoder_.transform(rows.table), rows.classes, weight)


def _part(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of rows of a sampled head: every tenth validates, the fifth after it tests."""
    return np.where(places % 10 == 0, 1, np.where(places % 10 == 5, 2, 0))
