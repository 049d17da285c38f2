"""From a folder of pictures to a model folder with its report."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aucmax import checks, disk, distributed
from aucmax.images import sheets
from aucmax.images.classifier import ImageClassifier, in_words, same
from aucmax.images.listing import SUFFIXES, Listed, list_folder, list_labels
from aucmax.images.split import Rows, join, keep_apart
from aucmax.images.store import Store
from aucmax.judge.evaluation import Evaluation, Part, versions
from aucmax.judge.interval import Interval
from aucmax.judge.threshold import Rule
from aucmax.report import model_folder
from aucmax.report.model_folder import Fitted
from aucmax.report.unfinished import work_of_all
from aucmax.report.words import plural
from aucmax.train.options import find_device

MOST_NAMED = 10
"""Sets of the same picture with several labels that are named."""
MAY_DIFFER = ("workers", "verbose", "time_limit", "threshold", "store")
"""Options of the classifier that do not decide what its training comes to."""


def fit_images(
    source: str | Path,
    *,
    images: str | Path | None = None,
    path: str = "file",
    target: str | None = None,
    positive: str | None = None,
    group: str | None = None,
    weight: str | None = None,
    out: str | Path | None = None,
    store: str | Path | None = None,
    test_share: float = 0.2,
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
        target: the table's column of labels.
        positive: the positive label; None for the rarer one.
        group: the table's column of groups, such as patients, which are never cut.
        weight: the table's column of how much each picture counts.
        out: folder for the model; None for the source's name with "-model".
        store: folder for the decoded pictures; None for the source's name with "-pictures",
            beside it.
        test_share: share of the pictures kept apart to judge by.
        seed: of everything.
        command: what was typed, for the report.
        progress: whether to show bars.
        options: more arguments of :class:`aucmax.ImageClassifier`.

    Returns:
        The folder, the model and how good it is.

    Raises:
        ValueError: for what cannot be right; nothing is written then.
    """
    checks.count("seed", seed, least=0)
    checks.number("test_share", test_share, "a share between 0 and 1", lambda x: 0 < x < 1)
    source = Path(source)
    listed = _list(source, images, path, target, positive, group, weight)
    folder = Path(out or f"{_name(source)}-model").resolve()
    model = ImageClassifier(
        **{"threshold": "balanced", **options}, store=store or default_store(source),
        random_state=seed, verbose=progress,
    )  # fmt: skip
    model.check_options()
    settings = {
        **{k: v for k, v in options.items() if k not in MAY_DIFFER}, "command": "fit-images",
        "labels": _digest(listed), "test_share": test_share, "seed": seed,
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
            model, kept, listed, test_share, seed, work / f"{content}-{model.size_}",
            target=target or source.name, group=group, weight=weight, command=command,
        )  # fmt: skip
        distributed.gather_objects(None)  # the first removes what others may still read
        replaced = None
        if distributed.rank() == 0:
            replaced = model_folder.write(
                folder, model, evaluation, lambda fresh: sheets.write(fresh, shown)
            ).replaced
        replaced = distributed.broadcast_object(replaced)
        return Fitted(folder, model, evaluation, folder / "report.html", replaced)


def _fit(
    model: ImageClassifier,
    store: Store,
    listed: Listed,
    test_share: float,
    seed: int,
    work: Path,
    *,
    group: str | None,
    **about: Any,
) -> tuple[Evaluation, sheets.Sheets]:
    """Train the model on some pictures, and judge it by the others."""
    used = np.setdiff1d(np.arange(len(listed.files)), [*store.broken])
    notes = [*listed.notes, *_about(store, listed, used, model)]
    if listed.weight is not None:
        counted = used[listed.weight[used] > 0]
        if len(counted) < len(used):
            notes.append(f"{plural(len(used) - len(counted), 'picture')} of weight 0 left out")
        used = counted
    place = {label: number for number, label in enumerate(listed.classes)}
    classes = np.array([place[label] for label in listed.labels])
    together = _together(store, listed, used, classes[used], notes)
    model.classes_ = np.array(listed.classes)
    train, test = keep_apart(classes[used], together, test_share, seed, listed.classes)
    weights = None if listed.weight is None else listed.weight[used[train]]
    model.train_on(store.pixels, used[train], classes[used[train]], weights, together[train], work)
    scores = model.score_rows(store.pixels, used[test])
    if group is not None:
        notes.append(
            f"no {group!r} is on both sides of a split; the interval takes pictures as drawn one "
            f"by one, and is too narrow where those of one are alike"
        )
    evaluation = _judge(model, listed, scores, used[test], classes[used[test]], notes, **about)
    names = [listed.names[k] for k in used[test]]
    return evaluation, sheets.make(model, store.pixels, used[test], names, evaluation)


def default_store(source: Path) -> Path:
    """Beside the pictures."""
    return source.resolve().with_name(f"{_name(source)}-pictures")


def _name(source: Path) -> str:
    """Of a folder, or of a table without its suffix."""
    source = source.resolve()
    return source.name if source.is_dir() else source.stem


def _list(
    source: Path,
    images: str | Path | None,
    path: str,
    target: str | None,
    positive: str | None,
    group: str | None,
    weight: str | None,
) -> Listed:
    """A folder says its labels by its folders, a table in a column."""
    if source.is_dir():
        given = {"images": images, "target": target, "group": group, "weight": weight}
        if wrong := [name for name, value in given.items() if value is not None]:
            raise ValueError(
                f"{wrong[0]} must go with a table of labels, found it with the folder {source}"
            )
        return list_folder(source, positive=positive)
    if not source.is_file():
        raise ValueError(f"source must be a folder or a table of labels, found none at {source}")
    if source.suffix.lower() in SUFFIXES:
        raise ValueError(f"source must be a folder or a table of labels, found a picture, {source}")
    if target is None:
        raise ValueError(f"target must name the column of labels in {source}, found none")
    where = source.parent if images is None else Path(images)
    return list_labels(
        source, where, path=path, target=target, positive=positive, group=group, weight=weight
    )


def _digest(listed: Listed) -> str:
    """Of which files have which labels; what is in them, the store knows."""
    rows = [listed.names, listed.labels, listed.classes, listed.group]
    rows.append(None if listed.weight is None else tuple(listed.weight.tolist()))
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _together(store: Store, listed: Listed, used: Rows, classes: Rows, notes: list[str]) -> Rows:
    """Sets that no split cuts: pictures that show the same, and groups; odd ones are noted."""
    alike = same(store, used)
    repeated = np.bincount(alike) > 1
    if repeated.any():
        labels = np.zeros((len(repeated), len(listed.classes)), bool)
        labels[alike, classes] = True
        torn = np.flatnonzero(labels.sum(axis=1) > 1)
        said = ""
        if len(torn):
            names = np.array(listed.names)[used]
            some = "; ".join(" = ".join(names[alike == k][:3]) for k in torn[:MOST_NAMED])
            more = ", ..." if len(torn) > MOST_NAMED else ""
            said = f", {len(torn):,} of them with several labels, to be checked ({some}{more})"
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
                f"source must hold pictures that can be read, found {named}: skip_broken leaves "
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
    classes: Rows,
    notes: list[str],
    *,
    target: str,
    weight: str | None,
    command: str,
) -> Evaluation:
    """All that the report says of the model but for pictures, by the scores of the test ones."""
    probability = model.calibration_(scores)
    weights = None if listed.weight is None else listed.weight[rows]
    counts = {**model.counts_, "test": np.bincount(classes, minlength=len(listed.classes)).tolist()}
    return Evaluation(
        target=target,
        labels=listed.classes,
        parts={part: Part(sum(each), tuple(each)) for part, each in counts.items()},
        probability=probability,
        classes=classes,
        auc=Interval.of_auc(scores if scores.ndim == 1 else probability, classes, weight=weights),
        threshold=float(model.threshold_) if len(listed.classes) == 2 else None,
        threshold_rule=str(Rule.read(model.threshold)),
        history=tuple(plain(record) for record in model.history_),
        metric=model.metric_,
        notes=tuple(notes),
        seconds=model.seconds_,
        command=command,
        versions=versions(),
        weight=weights,
        weight_column=weight,
        files=_digest(listed),
    )


def plain(record: dict[str, Any]) -> dict[str, Any]:
    """A record as JSON has it, without nan."""
    return {k: None if isinstance(v, float) and v != v else v for k, v in record.items()}
