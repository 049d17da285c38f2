"""From a file to a model folder with its report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aucmax import checks, disk
from aucmax.data.labels import has_pairs
from aucmax.judge.evaluation import Column, Evaluation, Part, Peer, versions
from aucmax.judge.interval import Interval
from aucmax.judge.peers import RELIABLE_SHARE, compare_with_peers
from aucmax.judge.threshold import Rule
from aucmax.report import model_folder
from aucmax.report.model_folder import Fitted
from aucmax.report.unfinished import work_folder
from aucmax.report.words import NO_BREAK, percent, plural
from aucmax.tables import evaluate
from aucmax.tables._values import to_text
from aucmax.tables.classifier import AUCClassifier
from aucmax.tables.columns import Columns, rows_in
from aucmax.tables.encoder import Encoded, TableEncoder
from aucmax.tables.evaluate import ScoredRows
from aucmax.tables.folds import count_known, held_out
from aucmax.tables.hints import hints, is_key, one_label_groups
from aucmax.tables.labeled import Labeled, read_labeled
from aucmax.tables.read_options import ReadOptions
from aucmax.tables.several import Paths, as_paths, files_of, listed, model_folder_of
from aucmax.tables.store import plain_number
from aucmax.train.metrics import metric_in_records
from aucmax.train.objectives import parts_of

MAY_DIFFER = ("device", "n_jobs", "verbose", "time_limit", "threshold")
"""Options of the classifier that do not decide what its training comes to."""

NEAR, ENOUGH_TO_SHARE = 0.1, 100
"""How far from the share that was wanted the rows kept apart may be without a word, of so many."""


def fit_file(
    data: Paths,
    target: str,
    *,
    positive: str | None = None,
    out: str | Path | None = None,
    drop: Sequence[str] = (),
    weight: str | None = None,
    group: str | None = None,
    time: str | None = None,
    id_column: str | None = None,
    exact_labels: bool = False,
    reading: ReadOptions | None = None,
    valid: Paths = (),
    test_share: float = 0.2,
    time_limit: float | None = None,
    seed: int = 0,
    compare: bool = True,
    command: str = "",
    progress: bool = True,
    **options: Any,
) -> Fitted:
    """Train on a file, judge the model on rows kept apart, and write model and report.

    Stopped or killed, the same call goes on: the training is in ``OUT.unfinished`` until the model
    is written.

    Args:
        data: CSV, Parquet or Arrow; several files with the same columns are one table, as are a
            folder of files of one kind, and a pattern such as ``part-*.parquet``.
        target: the column to predict.
        positive: its positive label; None finds it.
        out: folder for the model; None for the folder's or first file's name with "-model".
        drop: columns to leave out.
        weight: a column of numbers of at least 0, how much each row counts: in training, and in
            every AUC, share, rate and cost. It is not trained on, and predictions do not need it.
        group: a column without missing values, such as patients, sites or queries: only rows of
            the same group are compared, and a group is kept apart whole or not at all. It is not
            trained on, and predictions do not need it.
        time: a column of numbers or dates, none missing: the model is trained on the past and
            judged by the future, which is the latest ``test_share`` of the rows; those to stop by
            are later than what is trained on, too. It is not trained on, for what comes is beyond
            all of its values, and predictions do not need it.
        id_column: names a row. It is not trained on, and predictions carry it.
        exact_labels: whether labels that differ in case, blanks or the like are kept apart.
        reading: how the files are written, where it cannot be found out.
        valid: a file, or several, of rows to stop and to calibrate by; none of ``data`` are then
            held out for that. They have the columns of ``data``, the target's, weights' and groups'
            among them.
        test_share: share of the rows kept apart to judge by, repeats of a row together.
        time_limit: seconds for the training.
        seed: of everything.
        compare: whether to train logistic regression and gradient boosting too.
        command: what was typed, for the report.
        progress: whether to show a bar.
        options: more arguments of :class:`AUCClassifier`, such as ``metric``; ``threshold`` is
            "balanced" if nothing else is said.

    Returns:
        The folder, the model and how good it is.

    Raises:
        ValueError: for what cannot be right; nothing is written then.
    """
    paths = as_paths(data)
    file = TableFile(
        paths, target, positive=positive, drop=tuple(drop), test_share=test_share, seed=seed,
        exact_labels=exact_labels, weight=weight, group=group, time=time, id_column=id_column,
        reading=reading or ReadOptions(), valid=as_paths(valid) if valid else (),
    )  # fmt: skip
    folder = model_folder_of(out, paths[0])
    with work_folder(folder, file.settings("fit", file.digest, options), progress) as work:
        train, test, given = file.split()
        options = {"time_limit": time_limit, "verbose": progress, **options}
        model = fit_rows(train, seed, work, given, **options)
        scored = ScoredRows.of(model, model.encoder_.transform(test.table))
        evaluation = judge(
            model, train, test, scored, file=file, command=command, compare=compare, valid=given
        )
        return model_folder.write(folder, model, evaluation)


class Preview(NamedTuple):
    r"""What is understood of a file before anything is trained.

    Attributes:
        columns: as the model would see them.
        labels: how many rows have each, the negative first of two.
        notes: what a person should know.
        warnings: why results may mislead.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "a.csv"
        >>> _ = path.write_text("age,sick\n31,no\n45,no\n58,yes\n")
        >>> preview = preview_file(path, "sick")
        >>> isinstance(preview, Preview), preview.labels
        (True, {'no': 2, 'yes': 1})
    """

    columns: tuple[Column, ...]
    labels: dict[str, int]
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, rows: Labeled) -> Preview:
        """What is understood of rows."""
        encoder = TableEncoder().fit(rows.table)
        counts = np.bincount(rows.classes, minlength=len(rows.labels)).tolist()
        return cls(
            evaluate.describe_columns(encoder, rows.table),
            dict(zip(rows.labels, counts, strict=True)),
            tuple(all_notes(rows, encoder)),
            rows.warnings,
        )


def preview_file(data: Paths, target: str, **options: Any) -> Preview:
    r"""Say what is understood of a file, and train nothing.

    Args:
        data: as in :func:`fit_file`.
        target: the column to predict.
        options: ``positive``, ``drop``, ``weight``, ``group``, ``time``, ``id_column``,
            ``exact_labels`` and ``reading`` of :func:`fit_file`.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "a.csv"
        >>> _ = path.write_text("age;sick\n31,5;no\n?;no\n58,0;yes\n")
        >>> preview = preview_file(path, "sick")
        >>> preview.columns[0].kind, preview.labels
        ('number', {'no': 2, 'yes': 1})
        >>> preview.notes[0]
        "'?' is taken as missing in column 'age' (1)"
    """
    return Preview.of(TableFile(as_paths(data), target, **options).read())


@dataclass(frozen=True)
class TableFile:
    """Files, which of their columns is predicted, and which of their rows are kept apart."""

    data: tuple[str, ...]
    target: str
    positive: str | None = None
    drop: tuple[str, ...] = ()
    test_share: float = 0.2
    seed: int = 0
    exact_labels: bool = False
    weight: str | None = None
    group: str | None = None
    id_column: str | None = None
    reading: ReadOptions = field(default_factory=ReadOptions)
    time: str | None = None
    valid: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        allowed = "a share between 0 and 1"
        checks.number("test_share", self.test_share, allowed, lambda x: 0 < x < 1)
        if self.valid and self.time is not None:
            raise ValueError(
                f"valid must not be given with time, by which the rows to stop by are later than "
                f"those to train on, found {listed(self.valid)!r} and {self.time!r}"
            )

    @cached_property
    def digest(self) -> str:
        """Of what is in the files; one that is not there is for whoever reads it to say."""
        paths = map(Path, files_of((*self.data, *self.valid)))
        return " ".join(disk.sha256(path) for path in paths if path.is_file())

    def settings(self, command: str, data: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        """What must be the same for a command's training to be gone on with.

        Args:
            command: which of them.
            data: what tells the content of the files from another.
            options: of the classifier.
        """
        deciding = {k: v for k, v in options.items() if k not in MAY_DIFFER}
        return {
            **asdict(self), "data": data, "valid": len(self.valid), "command": command, **deciding,
        }  # fmt: skip

    def read(self) -> Labeled:
        """All rows, with notes of what is odd about them."""
        rows = read_labeled(
            self.data, self.target, positive=self.positive, drop=self.drop, weight=self.weight,
            group=self.group, time=self.time, id_column=self.id_column,
            exact_labels=self.exact_labels, reading=self.reading,
        )  # fmt: skip
        if rows.group is not None:
            if not has_pairs(rows.group, rows.classes).any():
                raise ValueError(
                    f"group must be a column with rows of several labels in one group, found "
                    f"{groups_in_words(rows)} in {self.group!r}"
                )
            if warning := one_label_groups(rows.group, rows.classes, "--group"):
                rows = rows._replace(warnings=(warning,))
            else:
                rows.notes.append(
                    f"rows are compared with others of the same {self.group!r} alone: "
                    f"{groups_in_words(rows)}"
                )
        return rows._replace(notes=[*rows.notes, *hints(rows, self.target)])

    def split(self) -> tuple[Labeled, Labeled, Labeled | None]:
        """Read the files: the rows to train on, those to judge by, and those given to stop by."""
        rows = self.read()
        # Rows are repeats of each other if they look alike to a network. So they are encoded, by an
        # encoder that no model gets: theirs must not know the rows to judge by.
        encoder = TableEncoder().fit(rows.table)
        encoded = encoder.transform(rows.table)
        valid = self._read_valid(rows, encoder, encoded) if self.valid else None
        share, seed, time = self.test_share, self.seed, rows.time
        train, test = held_out(encoded, rows.classes, None, share, seed, rows.group, time).rows(0)
        if time is not None:
            self._check_times(rows, train, test)
        elif not len(test) and rows.group is not None:
            raise ValueError(
                f"group must leave whole groups to keep apart, with rows of every label and one "
                f"with several on both sides, found {groups_in_words(rows)} in {self.group!r}"
            )
        elif not len(test):
            counts = np.bincount(rows.classes)
            few = rows.labels[int(counts.argmin())]
            raise ValueError(
                f"data must have enough rows of every label to keep some apart, found few of "
                f"{few!r} that differ, {counts.min()} in all"
            )
        total = len(train) + len(test)
        if total >= ENOUGH_TO_SHARE and abs(len(test) / total - self.test_share) > NEAR:
            rows.notes.append(
                f"{len(test):,} of {total:,} rows ({len(test) / total:.0%}) are kept apart where "
                f"{self.test_share:.0%} were wanted: rows that are alike in every column, or of "
                f"one group or time, stay together"
            )
        return rows.select(train), rows.select(test), valid

    def _check_times(
        self, rows: Labeled, train: NDArray[np.int64], test: NDArray[np.int64]
    ) -> None:
        """Note which times are trained on and judged, or raise if that cannot be."""
        assert rows.time is not None
        if not len(test):
            groups = "" if rows.group is None else " and a group with several"
            first, last = to_text(np.array([rows.time.min(), rows.time.max()]))
            raise ValueError(
                f"time must leave rows of every label{groups} before some time and after it, where "
                f"the latest {self.test_share:.0%} begin, found too few in {self.time!r} from "
                f"{first} to {last}"
            )
        (begin,) = to_text(rows.time[test].min(keepdims=True))
        rows.notes.append(
            f"rows before {begin} are trained on, and those from then on judge the "
            f"model; {self.time!r} itself is not trained on, and rows that are alike in every "
            f"column{'' if rows.group is None else ', or of one group,'} may be on both sides"
        )

    def _read_valid(self, rows: Labeled, encoder: TableEncoder, encoded: Encoded) -> Labeled:
        """Rows given to stop by, read as those of the data; what is odd is noted there."""
        valid = read_labeled(
            self.valid, self.target, weight=self.weight, group=self.group, labels=rows.labels,
            exact_labels=self.exact_labels, reading=self.reading, formats=encoder.formats,
        )  # fmt: skip
        where = listed(self.valid)
        counts = np.bincount(valid.classes, minlength=len(rows.labels))
        if not counts.all():
            absent = rows.labels[int(counts.argmin())]
            raise ValueError(
                f"valid must have rows of every label, found none of {absent!r} in {where}"
            )
        known = count_known(encoder.transform(valid.table), encoded)
        notes = [*valid.notes, *encoder.notes(valid.table.without([*self.drop, self.id_column]))]
        rows.notes.extend(f"{where}: {note}" for note in notes)
        if known:
            rows.notes.append(
                f"{where}: {known:,} of {valid.table.rows:,} rows are alike in every column to "
                f"rows of {listed(self.data)}: training may stop late, and probabilities be too "
                f"sure of themselves"
            )
        return valid


def groups_in_words(rows: Labeled) -> str:
    """How many groups rows have, and how many of these have pairs to compare."""
    assert rows.group is not None
    compared = int(has_pairs(rows.group, rows.classes).sum())
    labels = "both labels" if len(rows.labels) == 2 else "several labels"
    return f"{plural(len(np.unique(rows.group)), 'group')}, {compared:,} of them with {labels}"


def fit_rows(
    train: Labeled, seed: int, work: Path, valid: Labeled | None = None, **options: Any
) -> AUCClassifier:
    """A classifier for the rows, which predicts their labels; it goes on from its ``work``."""
    model = AUCClassifier(random_state=seed, **{"threshold": "balanced", **options})
    given = None
    if valid is not None:
        given = valid.table, valid.classes, valid.weight, valid.group
    fitting = model._prepare(
        train.table, train.classes, train.weight, train.group, train.labels, eval_set=given,
        time=train.time,
    )  # fmt: skip
    return model._train(fitting, work)


def all_notes(rows: Labeled, encoder: TableEncoder) -> list[str]:
    """Of the rows and their columns; a hint on one that is not used says more than that."""
    hinted = {note.split(" is not used, ")[0] for note in rows.notes}
    more = [x for x in encoder.notes(rows.table) if x.split(" is not used: ")[0] not in hinted]
    return [*rows.notes, *more]


def _seconds(model: AUCClassifier) -> float:
    """That fitting took, of all models."""
    return math.fsum(x.seconds for x in model.standings_ if not math.isnan(x.seconds))


def known_share(encoder: TableEncoder, train: Columns, test: Columns) -> float:
    """Return the share of test rows that are equal to a row of training in every column.

    Columns that the encoder does not use, and those of row numbers and keys, do not matter.
    """
    values = dict(zip(train.names, train.values, strict=True))
    used = [name for name, *_ in encoder.places()]
    names = [name for name in used if not is_key(values[name])]
    return float(rows_in(test, train, names or used).mean())


def judge(
    model: AUCClassifier,
    train: Labeled,
    test: Labeled,
    scored: ScoredRows,
    *,
    file: TableFile,
    command: str,
    compare: bool,
    valid: Labeled | None = None,
) -> Evaluation:
    """All that the report says of the model, by the scores of its test rows."""
    counts = {**model.rows_, "test": test.counts}
    encoder = model.encoder_
    peers: list[Peer] = []
    notes = all_notes(train, encoder)
    bounds = metric_in_records(model.metric_).range
    objectives = dict(parts_of(model.objective_)) if model.objective_ else {}  # without a network
    if bounds and not model.loss_options and "partial" in objectives:
        said = " and ".join(f"{name} {value:g}" for name, value in bounds.items())
        notes.append(f"the objective 'partial' is trained for the metric's range, {said}")
    if compare:
        peers, more = compare_with_peers(
            encoder.transform(train.table), train.classes, scored.encoded, test.classes,
            encoder.cardinalities, scored.ranking, (train.weight, test.weight), model.metric_,
            test.group,
        )  # fmt: skip
        notes += more
    warnings = [*train.warnings]
    if (share := known_share(encoder, train.table, test.table)) > 0:
        warnings.append(
            f"{percent(share).replace(NO_BREAK, '')} of the {test.table.rows:,} test rows also "
            f"stand in training, alike in every column, so that the AUC may be inflated: remove "
            f"duplicates and fit again, unless new rows will repeat known ones as often"
        )
    auc = Interval.of_auc(scored.ranking, test.classes, weight=test.weight)
    groups = evaluate.groups_of(scored, test, file.group)
    within = groups is not None and groups.auc is not None
    compared_auc = (groups and groups.auc) or auc
    warnings += [
        f"{peer.name} is no reliable baseline where less than {RELIABLE_SHARE:.1%} of the training "
        f"rows have the rarest label: that its AUC is lower shows nothing"
        for peer in peers
        if peer.comparison(compared_auc.value) is None
    ]
    return Evaluation(
        target=file.target,
        labels=tuple(train.labels),
        parts={part: Part(sum(each), tuple(each)) for part, each in counts.items()},
        probability=scored.probability,
        classes=test.classes,
        auc=auc,
        threshold=model.threshold_ if len(test.labels) == 2 else None,
        threshold_rule=str(Rule.read(model.threshold)),
        peers=tuple(peers),
        importance=evaluate.importance(model, scored, test),
        columns=evaluate.describe_columns(encoder, train.table),
        history=tuple({k: plain_number(v) for k, v in r.items()} for r in model.history_),
        metric=model.metric_,
        notes=tuple(notes),
        warnings=tuple(warnings),
        candidates=model.candidates_,
        seconds=_seconds(model),
        command=command,
        versions=versions(),
        weight=test.weight,
        weight_column=file.weight,
        groups=groups,
        id_column=file.id_column,
        time_column=file.time,
        files=file.digest,
        **evaluate.out_of_fold(model, train, valid, within=within),
    )
