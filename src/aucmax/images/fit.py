"""From a folder of pictures to a model folder with its report."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aucmax import checks, disk, distributed
from aucmax.images import sheets
from aucmax.images.classifier import ImageClassifier, in_words, same
from aucmax.images.listing import Listed, list_source
from aucmax.images.page import write_report
from aucmax.images.split import Rows, join, keep_apart, kinds
from aucmax.images.store import Store
from aucmax.judge.evaluation import Evaluation, Part, versions
from aucmax.judge.interval import Interval
from aucmax.judge.multilabel import LabelEvaluations, evaluate_labels
from aucmax.judge.threshold import Rule
from aucmax.report import model_folder
from aucmax.report.model_folder import Fitted
from aucmax.report.unfinished import work_of_all
from aucmax.report.words import plural
from aucmax.train.options import find_device

MOST_NAMED = 10
CLEAR = 5
"""Standard errors by which shares of positives differ clearly."""
"""Sets of the same picture with labels that differ, that are named."""
TEST_SHARE = 0.2
MAY_DIFFER = ("workers", "time_limit", "threshold")
"""Options of the classifier that do not decide what its training comes to."""


def fit_images(
    source: str | Path,
    *,
    images: str | Path | None = None,
    path: str = "file",
    target: str | Sequence[str] | None = None,
    positive: str | None = None,
    group: str | None = None,
    weight: str | None = None,
    out: str | Path | None = None,
    store: str | Path | None = None,
    test: str | Path | None = None,
    test_share: float = TEST_SHARE,
    seed: int = 0,
    command: str = "",
    progress: bool = True,
    **options: Any,
) -> Fitted:
    """Train on pictures, judge the model by pictures kept apart, and write model and report.

    Stopped or killed, the same call goes on: what was decoded is in the store, and the training in
    ``OUT.unfinished`` until the model is written. Under ``torchrun`` all processes train together,
    and the first writes.

    Args:
        source: a folder with a folder per class, or a table of files and their labels.
        images: the folder that the table's files are in; None for that of the table.
        path: the table's column of files.
        target: the table's column of labels; or several columns, of labels that a picture may have
            at once: 1 and 0, or yes and no, and nothing where that is not known.
        positive: the positive label; None for the rarer one.
        group: the table's column of groups, such as patients, which are never cut.
        weight: the table's column of how much each picture counts.
        out: folder for the model; None for the source's name with "-model".
        store: folder for the decoded pictures; None for the source's name with "-pictures",
            beside it.
        test: pictures to judge by, as ``source`` is: a folder, or a table with the same columns;
            none of ``source`` are then kept apart, and those of it that show the same as a picture
            there, or are of a group there, are not trained on.
        test_share: share of the pictures kept apart to judge by, if ``test`` does not say which.
        seed: of everything.
        command: what was typed, for the report.
        progress: whether to show bars.
        options: more arguments of :class:`aucmax.ImageClassifier`.

    Returns:
        The folder, the model and how good it is, of several columns by label.

    Raises:
        ValueError: for what cannot be right; nothing is written then.
    """
    source, target = Path(source), one_or_several(target)
    model = _unfitted(
        options, test, test_share, seed, store=store or default_store(source), verbose=progress
    )
    listed, judges = _list(
        source, test, positive, images=None if images is None else Path(images), path=path,
        target=target, group=group, weight=weight,
    )  # fmt: skip
    folder = Path(out or f"{_name(source)}-model").resolve()
    settings = {
        **{k: v for k, v in options.items() if k not in MAY_DIFFER}, "command": "fit-images",
        "labels": _digest(listed), "test_share": test_share, "seed": seed,
        "judges": judges,
        "device": find_device(model.device).type,  # decides the precision
    }  # fmt: skip
    if model.weights is not None:
        settings["weights"] = disk.sha256(Path(model.weights))
    with (
        distributed.process_group(find_device(model.device)),
        work_of_all(folder, {**settings, "processes": distributed.world_size()}, progress) as work,
        model.opened_store(listed.files) as kept,
    ):
        content = hashlib.sha256(kept.digests.tobytes()).hexdigest()[:12]
        evaluation, shown = _fit(
            model, kept, listed, judges or test_share, seed, work / f"{content}-{model.size_}",
            target=target if isinstance(target, str) else _named(source, listed), group=group,
            weight=weight, command=command,
        )  # fmt: skip
        distributed.gather_objects(None)  # the first removes what others may still read
        replaced = None
        if distributed.rank() == 0:

            def write_more(fresh: Path) -> None:
                sheets.write(fresh, shown)
                write_report(fresh)

            replaced = model_folder.write(folder, model, evaluation, write_more).replaced
        replaced = distributed.broadcast_object(replaced)
        return Fitted(folder, model, evaluation, folder / "report.html", replaced)


def _fit(
    model: ImageClassifier,
    store: Store,
    listed: Listed,
    judges: int | float,
    seed: int,
    work: Path,
    *,
    group: str | None,
    **about: Any,
) -> tuple[Evaluation | LabelEvaluations, sheets.Sheets]:
    """Train the model on some pictures, and judge it by the others: the last, or a share."""
    notes = [*listed.notes]
    used, classes, together = _usable(model, store, listed, notes)
    model.classes_ = np.array(listed.classes)
    train, test = _split(listed, used, classes[used], together, judges, seed, notes)
    notes += _shares(listed, classes[used[train]], classes[used[test]])
    weights = None if listed.weight is None else listed.weight[used[train]]
    given = store.pixels, used[train], classes[used[train]], weights, together[train]
    if model.verbose and distributed.rank() == 0:  # before hours are spent on what was not meant
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
    model.train_on(*given, work, is_grouped=group is not None)
    notes += [model._ended_early] if model._ended_early else []
    scores = model.score_rows(store.pixels, used[test])
    if group is not None:
        notes.append(
            f"no {group!r} is on both sides of a split, and the interval of the AUC takes each as "
            f"drawn whole; intervals of shares take pictures one by one, and are too narrow where "
            f"those of one are alike"
        )
    evaluation = _judge(
        model, listed, scores, used[test], classes[used[test]], together[test], notes,
        fitted_to=len(train), **about,
    )  # fmt: skip
    fitted_to = frozenset(digest.decode() for digest in store.digests[used[train]].tolist())
    return evaluation, sheets.make(model, store, listed, used[test], evaluation, fitted_to)


def _shares(listed: Listed, train: NDArray[Any], test: NDArray[Any]) -> list[str]:
    """A note if far more or fewer of the test pictures are positive than chance would have it."""
    if train.ndim == 2 or len(listed.classes) > 2:
        return []
    share, tested, all_ = train.mean(), test.mean(), np.concatenate([train, test]).mean()
    error = math.sqrt(all_ * (1 - all_) * (1 / len(train) + 1 / len(test)))
    if abs(share - tested) <= CLEAR * error:
        return []
    return [
        f"{tested:.1%} of the test pictures are {listed.classes[1]!r}, of those to train on "
        f"{share:.1%}: precision, calibration and costs are those where {tested:.1%} are"
    ]


class Preview(NamedTuple):
    """What is understood of pictures before anything is trained.

    Attributes:
        pictures: how many there are, and how many of these were given to judge by.
        labels: how many of the others have each, the negative first of two; of several columns
            how many have each value of each.
        test: the same of those given to judge by; none if a share is kept apart.
        sizes: how many pictures are so wide and high, the most frequent first.
        groups: how many pictures each group has, the largest first; none without groups.
        notes: what a person should know.
    """

    pictures: tuple[int, int]
    labels: dict[str, int]
    test: dict[str, int]
    sizes: dict[tuple[int, int], int]
    groups: dict[str, int]
    notes: tuple[str, ...]


def preview_images(
    source: str | Path,
    *,
    images: str | Path | None = None,
    path: str = "file",
    target: str | Sequence[str] | None = None,
    positive: str | None = None,
    group: str | None = None,
    weight: str | None = None,
    test: str | Path | None = None,
    test_share: float = TEST_SHARE,
    seed: int = 0,
    skip_broken: bool = False,
    progress: bool = True,
    **options: Any,
) -> Preview:
    """Say what is understood of pictures, and train nothing.

    All of them are decoded, so that broken ones and copies are found, but nothing is kept. What
    :func:`fit_images` would refuse is refused, but for broken files.

    Args:
        source: as in :func:`fit_images`, as are ``images`` to ``seed``.
        images: likewise.
        path: likewise.
        target: likewise.
        positive: likewise.
        group: likewise.
        weight: likewise.
        test: likewise.
        test_share: likewise.
        seed: likewise.
        skip_broken: whether to leave out files that cannot be read; they are noted in any case.
        progress: whether to show a bar.
        options: more arguments of :class:`aucmax.ImageClassifier`, such as ``size``.
    """
    model = _unfitted(options, test, test_share, seed, skip_broken=True, verbose=progress)
    listed, judges = _list(
        Path(source), test, positive, images=None if images is None else Path(images), path=path,
        target=one_or_several(target), group=group, weight=weight,
    )  # fmt: skip
    notes = [*listed.notes]
    with model.opened_store(listed.files) as store:
        if store.broken and not skip_broken:
            notes.append("broken files are an error unless --skip-broken leaves them out")
        used, classes, together = _usable(model, store, listed, notes)
        _split(listed, used, classes[used], together, judges or test_share, seed, notes)
        of_test = used >= len(listed.files) - judges
        sizes = Counter(zip(store.widths[used].tolist(), store.heights[used].tolist(), strict=True))
    has, names = kinds(classes[used], listed.classes)
    counts = [has[part].sum(axis=0).tolist() for part in (~of_test, of_test)]
    labels, tested = (dict(zip(names, each, strict=True)) for each in counts)
    pictures, tested = (len(used), int(of_test.sum())), tested if judges else {}
    groups = Counter[str]()
    if listed.group is not None:
        groups.update(str(listed.group[k]) for k in used)
    by_size, by_group = dict(sizes.most_common()), dict(groups.most_common())
    return Preview(pictures, labels, tested, by_size, by_group, tuple(notes))


def default_store(source: Path) -> Path:
    """Beside the pictures."""
    return source.resolve().with_name(f"{_name(source)}-pictures")


def _name(source: Path) -> str:
    """Of a folder, or of a table without its suffix."""
    source = source.resolve()
    return source.name if source.is_dir() else source.stem


def one_or_several(target: str | Sequence[str] | None) -> str | tuple[str, ...] | None:
    """One column of labels by its name, also if it is alone in a list."""
    if target is None or isinstance(target, str):
        return target
    return tuple(target) if len(target) > 1 else next(iter(target), None)


def _list(
    source: Path, test: str | Path | None, positive: str | None, **columns: Any
) -> tuple[Listed, int]:
    """The pictures, last those that were given to judge by, and how many these are."""
    listed = list_source(source, positive=positive, **columns)
    if test is None:
        return listed, 0
    given = _list_test(Path(test), source, listed.classes, columns)
    return listed.and_also(given), len(given.files)


def _list_test(test: Path, source: Path, classes: Sequence[str], columns: Any) -> Listed:
    """Pictures to judge by, named so that they are told from those to train on."""
    if test.exists() and test.is_dir() != source.is_dir():
        kind = "a folder" if source.is_dir() else "a table of labels"
        raise ValueError(f"test must be {kind}, as {source} is, found {test}")
    if not test.exists():
        raise ValueError(f"test must be a folder or a table of labels, found none at {test}")
    listed = list_source(test, classes=classes, **columns)
    names = listed.names
    if test.is_dir():
        names = tuple(f"{test.resolve().name}/{name}" for name in names)
    return listed._replace(names=names, notes=tuple(f"{test}: {note}" for note in listed.notes))


def _unfitted(
    options: dict[str, Any], test: str | Path | None, test_share: float, seed: int, **more: Any
) -> ImageClassifier:
    """The classifier of some options; raises for what cannot be right, before files are read."""
    checks.count("seed", seed, least=0)
    checks.number("test_share", test_share, "a share between 0 and 1", lambda x: 0 < x < 1)
    if test is not None and test_share != TEST_SHARE:
        raise ValueError(f"test_share must not be given with test, found {test_share}")
    for name, ours in (("random_state", "seed"), ("verbose", "progress")):
        if name in options:
            raise ValueError(f"{name} must be given as {ours}, found {name}={options[name]!r}")
    given = {"threshold": "balanced", **options, **more}
    model = ImageClassifier(**given, random_state=seed)
    model.check_options()
    return model


def _split(
    listed: Listed,
    used: Rows,
    classes: NDArray[Any],
    together: Rows,
    judges: int | float,
    seed: int,
    notes: list[str],
) -> tuple[Rows, Rows]:
    """Rows to train on, and those to judge by: the last, or a share."""
    has, labels = kinds(classes, listed.classes)
    if not isinstance(judges, int):
        return keep_apart(has, together, judges, seed, labels)
    train, test = _given_apart(used >= len(listed.files) - judges, together, notes)
    check_labels("test", "that can be read and count", has[test], labels)
    check_labels("source", "that are not those to judge by", has[train], labels)
    return train, test


def _given_apart(judges: NDArray[np.bool_], together: Rows, notes: list[str]) -> tuple[Rows, Rows]:
    """Rows to train on, and those that were given to judge by; no set is cut."""
    known = ~judges & np.isin(together, together[judges])
    if known.any():
        notes.append(
            f"{plural(int(known.sum()), 'picture')} not trained on: what they show, or their "
            f"group, is among the pictures to judge by"
        )
    return np.flatnonzero(~judges & ~known), np.flatnonzero(judges)


def check_labels(argument: str, which: str, has: Rows, labels: Sequence[str]) -> None:
    """Raise unless there are pictures of every label, or of every value of several."""
    counts = has.sum(axis=0)
    if not counts.all():
        raise ValueError(
            f"{argument} must have pictures of every label {which}, found none of "
            f"{labels[int(counts.argmin())]!r}"
        )


def _named(source: Path, listed: Listed) -> str:
    """What is predicted, where no column names it: the positive label, or what the folder holds."""
    return listed.classes[1] if len(listed.classes) == 2 else source.resolve().name


def _digest(listed: Listed) -> str:
    """Of which files have which labels; what is in them, the store knows."""
    rows = [listed.names, listed.labels, listed.classes, listed.group]
    rows.append(None if listed.weight is None else tuple(listed.weight.tolist()))
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _usable(
    model: ImageClassifier, store: Store, listed: Listed, notes: list[str]
) -> tuple[Rows, NDArray[Any], Rows]:
    """Rows that are used, the classes of all, and the sets of those used that no split cuts."""
    used = np.setdiff1d(np.arange(len(listed.files)), [*store.broken])
    notes += _about(store, listed, used, model)
    if listed.weight is not None:
        counted = used[listed.weight[used] > 0]
        if len(counted) < len(used):
            notes.append(f"{plural(len(used) - len(counted), 'picture')} of weight 0 left out")
        used = counted
    classes = listed.numbers
    return used, classes, _together(store, listed, used, classes[used], notes)


def _together(
    store: Store, listed: Listed, used: Rows, classes: NDArray[Any], notes: list[str]
) -> Rows:
    """Sets that no split cuts: pictures that show the same, and groups; odd ones are noted."""
    alike = same(store, used)
    repeated = np.bincount(alike) > 1
    if repeated.any():
        low, high = np.full((2, len(repeated), *classes.shape[1:]), np.nan)
        np.fmin.at(low, alike, classes)  # of several labels those that are known
        np.fmax.at(high, alike, classes)
        torn = np.flatnonzero((low < high).reshape(len(low), -1).any(axis=1))
        said = ""
        if len(torn):
            names = np.array(listed.names)[used]
            some = "; ".join(" = ".join(names[alike == k][:3]) for k in torn[:MOST_NAMED])
            more = ", ..." if len(torn) > MOST_NAMED else ""
            said = f", {len(torn):,} of them with labels that differ, to be checked ({some}{more})"
        notes.append(
            f"{plural(int(np.bincount(alike)[repeated].sum()), 'picture')} show the same as "
            f"another, {plural(int(repeated.sum()), 'set')}{said}; no set is cut by a split"
        )
    return join(alike, None if listed.group is None else [listed.group[k] for k in used])


def _about(store: Store, listed: Listed, used: Rows, model: ImageClassifier) -> list[str]:
    """What a person should know of the files."""
    notes = [store.streamed] if store.streamed else []
    if store.broken:
        broken = {Path(listed.names[row]): reason for row, reason in store.broken.items()}
        named = in_words(broken)
        if not model.skip_broken or not len(used):
            raise ValueError(
                f"source must hold pictures that can be read, found {named}: --skip-broken leaves "
                f"them out"
            )
        notes.append(f"left out: {named}")
    widths, heights, size = store.widths[used], store.heights[used], model.size_
    if (widths != size).any() or (heights != size).any():
        sizes = {f"{w} x {h}" for w, h in zip(widths.tolist(), heights.tolist(), strict=True)}
        which = f"{len(sizes):,} sizes, {widths.min()} to {widths.max()} wide,"
        around = " and black around those that are not square" if (widths != heights).any() else ""
        notes.append(
            f"pictures of {sizes.pop() if len(sizes) == 1 else which} are scaled to {size} x "
            f"{size} pixels, whole{around}"
        )
    if several := int((store.frames[used] > 1).sum()):
        notes.append(f"of {plural(several, 'file')} with several frames the first is used")
    deep = store.brightest[used] > 255
    if deep.any() and store.brightest[used].max() < 2 ** (model.depth - 1):
        notes.append(
            f"the brightest value of {plural(int(deep.sum()), 'picture')} of 16 bits is "
            f"{store.brightest[used].max():,} of {2**model.depth - 1:,}: they are dark unless "
            f"--depth says how many bits are used"
        )
    return notes


def _judge(
    model: ImageClassifier,
    listed: Listed,
    scores: NDArray[np.float64],
    rows: Rows,
    classes: NDArray[Any],
    together: Rows,
    notes: list[str],
    *,
    fitted_to: int,
    target: str,
    weight: str | None,
    command: str,
) -> Evaluation | LabelEvaluations:
    """All that the report says of the model but for pictures, by the scores of the test ones."""
    probability = model.calibration_(scores)
    weights = None if listed.weight is None else listed.weight[rows]
    about: dict[str, Any] = {
        "threshold_rule": str(Rule.read(model.threshold)),
        "history": tuple(plain(record) for record in model.history_),
        "metric": model.metric_,
        "steady": model.kept_ if math.isfinite(model.kept_.score) else None,
        "notes": tuple(notes),
        "seconds": model.seconds_,
        "command": command,
        "versions": versions(),
        "weight_column": weight,
        "files": _digest(listed),
        "noun": "picture",
    }
    if classes.ndim == 2:
        return evaluate_labels(
            listed.classes, scores, probability, classes, counts=model.counts_,
            thresholds=np.asarray(model.threshold_).tolist(), weight=weights, group=together,
            rows={"fit": fitted_to, "test": len(rows)}, **about,
        )  # fmt: skip
    counts = {**model.counts_, "test": np.bincount(classes, minlength=len(listed.classes)).tolist()}
    return Evaluation(
        target=target,
        labels=listed.classes,
        parts={part: Part(sum(each), tuple(each)) for part, each in counts.items()},
        probability=probability,
        classes=classes,
        auc=Interval.of_auc(
            scores if scores.ndim == 1 else probability, classes, weight=weights, group=together
        ),
        threshold=float(model.threshold_) if len(listed.classes) == 2 else None,
        weight=weights,
        **about,
    )


def plain(record: dict[str, Any]) -> dict[str, Any]:
    """A record as JSON has it, without nan."""
    return {k: None if isinstance(v, float) and v != v else v for k, v in record.items()}
