"""fit(): one run, or one for each objective to choose from."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from aucmax import distributed
from aucmax.signals import saying_so
from aucmax.train._candidates import fit_candidates
from aucmax.train._result import FitResult
from aucmax.train._run import run
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
            While it trains, an ensemble whose attribute ``scores_per_row`` is k gives k per row,
            k N rows in all, the k of a row one after the other; each then learns the row's label.
            It is trained in place.
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
            "auc+ce" or "pairwise+0.5*ce", in place of what the method is for. Several names, or
            "auto" for those that suit the metric, are tried side by side from the same weights,
            and validation chooses: ``candidates`` of the result has all of them. "partial" is for
            the range of a metric such as "partial_auc@0.05", unless ``loss_options`` name one.
        steps: optimizer steps of the method; ``pretrain`` comes on top.
        task: "binary", "multiclass" or "multilabel"; "auto" goes by the labels.
        metric: what weights are chosen by and training is stopped by, higher being better:
            a name in :data:`aucmax.train.metrics.METRICS`, or a function of raw scores, labels
            and weights (or None) of all rows, of shape (N,) each; for several classes it gets a
            row of probabilities each, for several labels one label at a time. None is "roc_auc",
            and "grouped_auc" where ``valid`` is arrays that carry groups.
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
        augment: changes the inputs of a training batch, on the device, with torch's random numbers;
            one whose attribute ``takes_labels`` is True is called with the labels, too.
        workers: processes that load a Dataset.
        seed: of the batches and of the random numbers drawn in training; the caller's own are left
            as they were.
        eval_every: steps between evaluations; one fortieth of the steps.
        probe: fresh training samples per evaluation, for the metric on training data and, where the
            model has batch norm, for the statistics at the average.
        choose: "best" keeps the weights of the highest validation value, of either iterate and any
            evaluation. "steady" keeps the latest average, unless a paired test (p < 0.05) sees it
            behind the highest value that was kept, and a last iterate only if the test sees it
            ahead: of few validation positives the highest value is mostly chance, and the average
            of more steps mostly better. The test is for two classes; of more, and for a metric
            without one, the average of the highest value is kept.
        patience: stop after this many evaluations that bring no weights to keep.
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
    with distributed.process_group(device), on_device, saying_so():
        return fit_candidates(options) if options.has_candidates else run(options)
