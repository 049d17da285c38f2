"""A run, set up from its options: data, source, loss, optimizer and the loop that walks it."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from aucmax import checks, distributed, random_state
from aucmax.data import BatchSampler, count_classes
from aucmax.data import labels as _labels
from aucmax.data.batches import (
    ArraySource,
    Batch,
    BatchFormat,
    BatchSource,
    DatasetSource,
    IterableSource,
    as_data,
    has_groups,
)
from aucmax.data.sampling import mix_seed
from aucmax.sharding import mesh_of, shard
from aucmax.stages import Plateau
from aucmax.train._evaluate import model_dtype
from aucmax.train._fingerprint import digest, fingerprint
from aucmax.train._folder import RunFolder
from aucmax.train._judge import Judge
from aucmax.train._loop import Loop
from aucmax.train._phases import make_phases
from aucmax.train._reporter import Reporter
from aucmax.train._result import FitResult
from aucmax.train._samples import FreshSamples
from aucmax.train.interrupts import Interrupts
from aucmax.train.objectives import Known, compares_rows
from aucmax.train.options import Options


def run(options: Options) -> FitResult:
    """Train as the options say, from the beginning or from where it was left."""
    with random_numbers(options):
        return make_loop(options, Interrupts(options.meets_every)).run()


def random_numbers(options: Options) -> random_state.Isolated:
    """Those of the run, which it is made and walked with."""
    return random_state.Isolated(mix_seed(options.seed, distributed.rank()), options.where)


def make_loop(options: Options, interrupts: Interrupts) -> Loop:
    """The run that the options describe, not begun."""
    options.check_processes()
    options.check_model()
    model = options.model
    if options.local_steps is not None and mesh_of(model) is not None:
        raise ValueError(
            f"local_steps must be None for a sharded model, found {options.local_steps}"
        )
    train = as_data("train", options.train)
    y = _labels.known_labels(train, options.labels)
    task = _labels.find_task(options.task, y)
    if options.positives is not None and task != "binary":
        raise ValueError(
            f"positives must be None unless there are two classes, found {options.positives} "
            f"for a {task} task"
        )
    if y is not None:
        _labels.check_labels("train", y, task)
        _labels.warn_of_single_rows("train", y, task)
    judged = {part: _judged_rows(part, options, task) for part in ("valid", "test")}
    model.to(options.where)
    form = BatchFormat(options.where, model_dtype(model), task)
    source = _make_source(train, y, form, options)
    known = _known(train, y, source, options, task)
    data = {"task": task, "rows": None if y is None else len(y), "labels": digest(y)}
    data["inputs"] = digest(train.x) if isinstance(train, Batch) else None
    if isinstance(train, Batch):
        more = {"weights": train.weight, "groups": train.group}
        data |= {name: digest(x) for name, x in more.items() if x is not None}
    for part, rows in judged.items():
        arrays = isinstance(rows, Batch)
        data[part] = digest([x for x in rows if x is not None]) if arrays else None
    config = fingerprint(options, data)
    if options.parallel == "fsdp" and distributed.world_size() > 1:
        shard(model, options.where)

    out = options.folder
    board = out / "tensorboard" if out is not None and options.tensorboard else None
    total = options.pretrain + options.steps
    reporter = Reporter(total, options.measure, options.progress, board)
    if left_out := getattr(getattr(source, "sampler", None), "left_out", 0):
        reporter.note(f"{left_out:,} rows are left out: their groups have one class, and no pairs")
    folder = None if out is None else RunFolder(out, config, reporter.note, mesh_of(model))
    phases = make_phases(options, known)
    judge = Judge(options, form, judged)
    samples = FreshSamples(options, source, judge)
    return Loop(options, source, phases, judge, samples, folder, reporter, interrupts)


def _make_source(
    train: Any, labels: Tensor | None, form: BatchFormat, options: Options
) -> BatchSource:
    """The batches of whatever was passed as training data."""
    arrays = train if isinstance(train, Batch) else None
    if arrays is None and not isinstance(train, Dataset):
        if options.positives is not None:
            raise ValueError(
                "positives must be None for a DataLoader or a stream, which draw their own "
                f"batches, found {options.positives!r}"
            )
        return IterableSource(train, form)
    rows = len(train) if arrays is None else len(arrays.y)
    if labels is None and options.positives is not None:
        raise ValueError(
            "labels must be given for a fixed share of positives: "
            "the Dataset has neither targets nor labels"
        )
    if labels is not None and len(labels) != rows:
        raise ValueError(f"labels must be one per row of train, {rows}, found {len(labels)}")
    group = None
    if arrays is not None and arrays.group is not None:
        if options.loss is not None:
            _check_own_loss(options.loss)
        group = arrays.group if _compares_rows(options) else None
    sampler = BatchSampler(
        torch.empty(rows) if labels is None else labels,
        options.batch_size,
        group=group,
        positives=options.positives,
        replacement=options.replacement,
        seed=options.seed,
    )
    if arrays is None:
        return DatasetSource(
            train,
            sampler,
            form,
            options.accumulate,
            options.walks_apart,
            workers=options.workers,
            seed=options.seed,
        )
    if arrays.weight is not None:
        checks.check_weights(arrays.weight.double().numpy(force=True))
    return ArraySource(arrays, sampler, form, options.accumulate, options.walks_apart)


def _known(
    train: Any, labels: Tensor | None, source: BatchSource, options: Options, task: str
) -> Known:
    """What is known of the training data and the metric, for the loss."""
    groups = None
    if has_groups(train) and task == "binary":
        groups = count_classes(train.group, train.y.reshape(-1), train.weight)
        if isinstance(source, ArraySource) and source.sampler.left_out:
            positives, negatives = groups  # of what is in batches
            paired = positives * negatives > 0
            groups = positives * paired, negatives * paired
    shares = None if labels is None else _labels.shares(labels, source.weight, task)
    scores = len(shares) if isinstance(shares, list) else 1
    return Known(
        task,
        _prior(labels, source, options, task),
        shares,
        None if labels is None or isinstance(source, IterableSource) else len(labels),
        scores * getattr(options.model, "scores_per_row", 1),
        groups,
        has_groups(train),
        range=options.measure.range,
    )


def _compares_rows(options: Options) -> bool:
    """Whether the rows of a batch are compared, so that groups should come whole."""
    if options.loss is None:
        return compares_rows(options.objective_name or "")
    return any(getattr(part, "compares_rows", False) for part in options.loss.modules())


def _check_own_loss(loss: nn.Module) -> None:
    """Raise unless it can be told the rows' groups."""
    arguments = inspect.signature(loss.forward).parameters.values()
    if not any(x.name == "group" or x.kind is x.VAR_KEYWORD for x in arguments):
        raise ValueError(
            f"loss must take group=, as rows carry groups, found {type(loss).__name__}"
            f"{inspect.signature(loss.forward)}"
        )


def _prior(labels: Tensor | None, source: BatchSource, options: Options, task: str) -> Any:
    """The share of positives in the batches, by weight, or the classes'; None if nobody knows."""
    sampler = getattr(source, "sampler", None)
    unknown_weights = source.weighted and source.weight is None
    if task == "binary" and unknown_weights:
        return None  # weights change the share of positives: it is estimated
    if unknown_weights and options.loss is None:
        raise ValueError(
            f"weights of a {task} task must come with arrays, found them in a Dataset: "
            f"pass arrays, or a loss of your own with the weighted priors"
        )
    if task == "binary" and isinstance(source, IterableSource):
        return None  # a loader may draw another share than the labels have
    if options.positives is not None and sampler is not None and labels is not None:
        rows = sampler.prior, 1.0 - sampler.prior
        if source.weight is None:
            return rows[0]
        weight, y = source.weight.double().cpu(), labels.cpu()
        up, down = (n * weight[y == k].mean().item() for n, k in zip(rows, (1, 0), strict=True))
        return up / (up + down)
    return None if labels is None else _labels.shares(labels, source.weight, task)


def _judged_rows(part: str, options: Options, task: str) -> Any:
    """The validation or test data, if there is any."""
    rows = getattr(options, part)
    if rows is None:
        by_metric = options.patience is not None or isinstance(options.stages, Plateau)
        if part == "valid" and by_metric:
            label = options.measure.label
            raise ValueError(f"valid must be given: patience and plateau stages go by its {label}")
        return None
    if hasattr(rows, "__next__"):
        raise ValueError(
            f"{part} must be data that can be gone through again, found an iterator: "
            f"put it in a list"
        )
    rows = as_data(part, rows)
    labels = _labels.known_labels(rows)
    if labels is not None:
        _labels.check_labels(part, labels, task, complete=False)
        _labels.warn_of_single_rows(part, labels, task)
    return rows
