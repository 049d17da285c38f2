"""fit(): sets a run up and hands it to the loop."""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from aucmax import checks, distributed, random_state
from aucmax.data import BatchSampler
from aucmax.data import labels as _labels
from aucmax.data.groups import count_classes
from aucmax.data.sampling import derive
from aucmax.data.sources import (
    ArraySource,
    Batch,
    BatchSource,
    DatasetSource,
    IterableSource,
    Place,
    as_data,
    has_groups,
)
from aucmax.sharding import mesh_of, shard
from aucmax.signals import saying_so
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
from aucmax.train.options import Options, takes


@takes(Options)
def fit(options: Options) -> FitResult:  # noqa: D417
    r"""Train a model to rank: the stages, the averages, evaluation, checkpoints, resuming.

    Each step draws a batch, each stage ends as the method says: for the PPD methods the average of
    the stage's iterates becomes start and reference, batch-norm statistics are estimated at it
    from :math:`m_k` fresh samples, and alpha is set from their scores. Every evaluation looks at
    both iterates, the last one and the running average; the model ends with the weights that
    validation liked best, without validation with the iterate that the method returns.

    With ``out`` a run that was interrupted, however roughly, goes on when the same call is made
    again, and on the CPU ends with the same bits as one that was not. Under ``torchrun`` the same
    call trains data-parallel; ``batch_size`` is that of all processes together.

    Args:
        model: gives raw scores: (N,) or (N, 1) for two classes, (N, c) for c classes or labels.
            While it trains, an ensemble may give several per row, k N rows in all, the k of a row
            one after the other; each then learns the row's label. Where estimates are kept per row,
            for average precision, its attribute ``scores_per_row`` must say k. It is trained in
            place.
        train: ``(x, y)``, ``(x, y, weight)`` or ``(x, y, weight, group)`` arrays or tensors, which
            are kept on the device (x may also be a tuple or dict of arrays, weight None); a
            Dataset; a DataLoader; or any iterable of such batches, whose share of positives is
            then estimated as it goes by. Rows that carry a group (of any type: a patient, a site, a
            query) are ranked within it: pairs across groups do not count.
        valid: data of the same kinds to choose by, or None.
        test: data of the same kinds whose metric is recorded beside it; nothing is chosen by it.
        method: "ppd-sg", "ppd-adagrad", "pga" or "oauc" on the AUC loss; "sgd", "adagrad" or
            "adamw" on cross-entropy, the step size divided by 10 after 1/2 and 3/4 of the steps.
        objective: a name in :data:`aucmax.train.objectives.OBJECTIVES`, or a sum of them such as
            "auc+ce" or "pairwise+0.5*ce", in place of what the method is for.
        steps: optimizer steps of the method; ``pretrain`` comes on top.
        task: "binary", "multiclass" or "multilabel"; "auto" goes by the labels.
        metric: what weights are chosen by and training is stopped by, higher being better:
            a name in :data:`aucmax.train.metrics.METRICS`, or a function of raw scores, labels
            and weights (or None) of all rows, of shape (N,) each; for several classes it gets a
            row of probabilities each, for several labels one label at a time. None is "roc_auc",
            and "grouped_auc" for arrays that carry groups.
        loss: one of your own in place of the method's; called with scores and labels.
        optimizer: one of your own, built on the parameters of model and ``loss``; its step sizes
            are left alone unless ``stages`` are given.
        lr: the first stage's step size: 0.1, but 0.01 for "adagrad" and 0.001 for "adamw".
        stages: stages from :mod:`aucmax.stages` in place of the method's.
        restart: "average" or "last", where a stage begins; see the optimizers' ``end_stage``.
        lipschitz: for stages that end by Lemma 3, see :meth:`PPDAdaGrad.should_stop`.
        optimizer_options: more arguments of the method's optimizer, such as ``gamma``.
        loss_options: more arguments of the method's loss, such as ``margin`` or ``link``; in a sum
            those of the first part, another part's are a mapping under its name.
        pretrain: this many steps of SGD on cross-entropy before the method's own.
        pretrain_lr: their step size.
        batch_size: rows per step, for arrays and Datasets; a loader or stream has its own.
        positives: share of positives in every batch; None takes rows as they come.
        replacement: draw rows independently of each other, not round by round.
        labels: the training labels of a Dataset that has no ``targets`` or ``labels``.
        augment: changes the inputs of a training batch, on the device, with torch's random numbers.
        workers: processes that load a Dataset.
        seed: of the batches and of the random numbers drawn in training; the caller's own are left
            as they were.
        eval_every: steps between evaluations; one fortieth of the steps.
        probe: fresh training samples per evaluation, for the metric on training data and, where the
            model has batch norm, for the statistics at the average.
        patience: stop after this many evaluations without a better value of the metric.
        time_limit: evaluate and end after so many seconds, of all that the run took.
        out: a folder for checkpoints, history and result.
        save_every: steps between checkpoints; as ``eval_every``.
        tensorboard: write TensorBoard files into ``out`` too.
        progress: a bar in a terminal, lines elsewhere, on standard error.
        device: "auto" is the GPU if there is one.
        amp: "bf16" or "fp16" for mixed precision.
        clip_norm: limit of the gradient's norm.
        accumulate: parts that a batch is worked on in, to save memory; a loader's or stream's
            batches are taken this many at a time.
        local_steps: under ``torchrun``, optimizer steps that each process takes on its own part of
            the batches before all average what they have come to (CoDA); None averages gradients
            at every step. For "ppd-sg" and "sgd"; in one process it changes nothing.
        compile: compile model and loss with ``torch.compile``.
        cuda_graph: capture the whole step as a CUDA graph; None where it is possible.
        parallel: "ddp", or "fsdp" to shard the model over the processes.

    Returns:
        The chosen model and how it came about.

    Raises:
        ValueError: for arguments or data that cannot be right.
        DivergedError: if the loss or a gradient is NaN or infinite.
        SystemExit: 130 or 143 after Ctrl-C or SIGTERM, the state saved.

    Example:
        >>> import torch, aucmax
        >>> generator = torch.Generator().manual_seed(0)
        >>> y = (torch.rand(1000, generator=generator) < 0.1).float()
        >>> x = torch.randn(1000, 5, generator=generator) + y[:, None]
        >>> result = aucmax.fit(
        ...     torch.nn.Linear(5, 1), (x[:800], y[:800]), (x[800:], y[800:]),
        ...     steps=400, lr=0.3, positives=0.5, progress=False,
        ... )
        >>> result.auc > 0.85
        True
    """
    device = options.where
    on_device: AbstractContextManager[Any] = (
        torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    )  # kernels and events take the current device's stream
    with distributed.process_group(device), on_device, random_numbers(options), saying_so():
        return make_loop(options, Interrupts(options.meets_every)).run()


def random_numbers(options: Options) -> random_state.Isolated:
    """Those of the run, which it is made and walked with."""
    return random_state.Isolated(derive(options.seed, distributed.rank()), options.where)


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
        _labels.check(y, task)
        _labels.warn_of_single_rows("train", y, task)
    judged = {part: _judged_rows(part, options, task) for part in ("valid", "test")}
    model.to(options.where)
    place = Place(options.where, model_dtype(model), task)
    source = _make_source(train, y, place, options)
    known = _known(train, y, source, options, task)
    data = {"task": task, "rows": None if y is None else len(y), "labels": digest(y)}
    data["inputs"] = digest(train.x) if isinstance(train, Batch) else None
    if has_groups(train):
        data["groups"] = digest(train.group)
    for part, rows in judged.items():
        data[part] = digest((rows.x, rows.y)) if isinstance(rows, Batch) else None
    config = fingerprint(options, data)
    if options.parallel == "fsdp" and distributed.world_size() > 1:
        shard(model, options.where)

    out = options.folder
    board = out / "tensorboard" if out is not None and options.tensorboard else None
    total = options.pretrain + options.steps
    reporter = Reporter(total, options.measure, options.progress, board)
    folder = None if out is None else RunFolder(out, config, reporter.note, mesh_of(model))
    phases = make_phases(options, known)
    losses = [part for phase in phases for part in phase.loss.modules()]
    source.numbered = any(getattr(part, "needs_index", False) for part in losses)
    judge = Judge(options, place, judged)
    samples = FreshSamples(options, source, judge)
    return Loop(options, source, phases, judge, samples, folder, reporter, interrupts)


def _make_source(train: Any, labels: Tensor | None, place: Place, options: Options) -> BatchSource:
    """The batches of whatever was passed as training data."""
    arrays = train if isinstance(train, Batch) else None
    if arrays is None and not isinstance(train, Dataset):
        if options.positives is not None:
            raise ValueError(
                "positives must be None for a DataLoader or a stream, which draw their own "
                f"batches, found {options.positives!r}"
            )
        return IterableSource(train, place)
    rows = len(train) if arrays is None else len(arrays.y)
    if labels is None and options.positives is not None:
        raise ValueError(
            "labels must be given for a fixed share of positives: "
            "the Dataset has neither targets nor labels"
        )
    if labels is not None and len(labels) != rows:
        raise ValueError(f"labels must be one per row of train, {rows}, found {len(labels)}")
    grouped = {}
    if arrays is not None and arrays.group is not None:
        if options.loss is not None:
            _check_own_loss(options.loss)
        grouped = {"group": arrays.group} if _compares_rows(options) else {}
    sampler = BatchSampler(
        torch.empty(rows) if labels is None else labels,
        options.batch_size,
        **grouped,
        positives=options.positives,
        replacement=options.replacement,
        seed=options.seed,
    )
    if arrays is None:
        return DatasetSource(
            train, sampler, place, options.accumulate, options.workers, options.seed
        )
    if arrays.weight is not None:
        checks.check_weights(arrays.weight.double().numpy(force=True))
    return ArraySource(arrays, sampler, place, options.accumulate)


def _known(
    train: Any, labels: Tensor | None, source: BatchSource, options: Options, task: str
) -> Known:
    """What is known of the training data, for the loss."""
    groups = None
    if isinstance(train, Batch) and train.group is not None and task == "binary":
        groups = count_classes(train.group, train.y.reshape(-1), train.weight)
    shares = None if labels is None else _labels.shares(labels, source.weight, task)
    scores = len(shares) if isinstance(shares, list) else 1
    return Known(
        task,
        _prior(labels, source, options, task),
        shares,
        None if labels is None or isinstance(source, IterableSource) else len(labels),
        scores * getattr(options.model, "scores_per_row", 1),
        groups,
    )


def _compares_rows(options: Options) -> bool:
    """Whether the rows of a batch are compared, so that groups should come whole."""
    if options.loss is None:
        return compares_rows(options.objective or options.how.objective)
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
    """The share of positives in the batches, or the classes' shares; None if nobody knows."""
    sampler = getattr(source, "sampler", None)
    unknown_weights = source.weighted and source.weight is None
    if task == "binary" and (unknown_weights or (source.weighted and options.positives)):
        return None  # weights change the share of positives: it is estimated
    if unknown_weights and options.loss is None:
        raise ValueError(
            f"weights of a {task} task must come with arrays, found them in a Dataset: "
            f"pass arrays, or a loss of your own with the weighted priors"
        )
    if task == "binary" and isinstance(source, IterableSource):
        return None  # a loader may draw another share than the labels have
    if options.positives is not None and sampler is not None:
        return sampler.prior
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
    if labels is not None and task != "multiclass":
        known = labels.double()
        _labels.check_values(part, known[~known.isnan()] if task == "multilabel" else known)
    if labels is not None:
        _labels.warn_of_single_rows(part, labels, task)
    return rows
