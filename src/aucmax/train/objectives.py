"""The objectives that models are trained on: one table.

To add one, write its loss in :mod:`aucmax.loss` and give it a row in :data:`OBJECTIVES`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from aucmax import checks
from aucmax.loss import (
    AUCLoss,
    AveragePrecisionLoss,
    CrossEntropy,
    GroupedAUCLoss,
    LossSum,
    MulticlassAUCLoss,
    MultilabelAUCLoss,
    PairwiseAUCLoss,
    PartialAUCLoss,
)
from aucmax.loss.base import Scale, loss_of


class Known(NamedTuple):
    """What is known of the data, the optimizer and the metric when a loss is made.

    Attributes:
        task: "binary", "multiclass" or "multilabel".
        prior: the share of positives, or the classes' shares, in the batches; None: nobody knows.
        data_prior: the same in the data, which balanced batches do not have.
        rows: of the training data; None for a stream.
        columns: scores per row, those of an ensemble's members too.
        groups: positives and negatives in each group, by count or weight; None without groups, and
            where they cannot be counted.
        grouped: whether rows carry groups.
        range: the rates between which the metric counts, see :attr:`Metric.range`.
    """

    task: str = "binary"
    prior: Any = None
    data_prior: Any = None
    rows: int | None = None
    columns: int = 1
    groups: tuple[Tensor, Tensor] | None = None
    grouped: bool = False
    range: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class Objective:
    """How the loss of an objective is made.

    Attributes:
        make: from what is known of the data and the options to a loss.
        compares_rows: whether it compares the rows of a batch, so that whole groups must be in it.
        has_link: whether its loss has the option ``link``.
    """

    make: Callable[[Known, Mapping[str, Any]], nn.Module]
    compares_rows: bool = False
    has_link: bool = False


def _make(kind: Callable[..., nn.Module], *arguments: Any, **options: Any) -> nn.Module:
    try:
        return kind(*arguments, **options)
    except TypeError as error:
        name = getattr(kind, "__name__", str(kind))
        known = inspect.signature(kind).parameters.values()
        allowed = ", ".join(x.name for x in known if x.kind is x.KEYWORD_ONLY)
        raise ValueError(f"loss_options must fit {name}, which has {allowed}: {error}") from None


def auc(known: Known, options: Mapping[str, Any]) -> nn.Module:
    """The paper's saddle objective, of which there is one for each task, and one for groups."""
    if known.groups is not None:
        prior = None if known.prior == known.data_prior else known.prior
        return _make(GroupedAUCLoss, *known.groups, **{"prior": prior, **options})
    _refuse_groups(known, "auc")
    kinds = {"binary": AUCLoss, "multiclass": MulticlassAUCLoss, "multilabel": MultilabelAUCLoss}
    if known.task == "multiclass" and "priors" in options:
        return _make(MulticlassAUCLoss, **options)
    if known.task != "binary" and known.prior is None:
        raise ValueError(
            f"labels must be given for a {known.task} task: their shares are its priors"
        )
    return _make(kinds[known.task], known.prior, **options)


def partial(known: Known, options: Mapping[str, Any]) -> nn.Module:
    """The saddle objective of the top of the list: of the metric's range, if nothing is said."""
    _refuse_groups(known, "partial")
    _check_two_classes(known, "partial")
    if not options.keys() & {"max_fpr", "min_tpr"}:
        options = {**known.range, **options}
    return _make(PartialAUCLoss, prior=known.prior, **options)


def pairwise(known: Known, options: Mapping[str, Any]) -> nn.Module:
    """A surrogate of the ranking, over the pairs of a batch."""
    return _make(PairwiseAUCLoss, **options)


def average_precision(known: Known, options: Mapping[str, Any]) -> nn.Module:
    """The first rows of the list; of a stream, whose rows come once, without running means."""
    return _make(
        AveragePrecisionLoss,
        known.data_prior,
        rows=known.rows,
        columns=known.columns,
        **options,
    )


def likelihood(**usual: float) -> Callable[[Known, Mapping[str, Any]], nn.Module]:
    """Cross-entropy, or one of its kin with the usual number unless the options have another."""
    return lambda known, options: _make(CrossEntropy, known.task, **{**usual, **options})


def _refuse_groups(known: Known, name: str) -> None:
    if known.grouped:
        allowed = (
            "two classes in arrays, or the objective 'pairwise'"
            if name == "auc"
            else "the objectives 'auc', 'pairwise', 'ap' and 'ce'"
        )
        raise ValueError(f"groups must go with {allowed}, found them with objective {name!r}")


def _check_two_classes(known: Known, name: str) -> None:
    if known.task != "binary":
        raise ValueError(f"objective {name!r} must have two classes, found a {known.task} task")


OBJECTIVES: dict[str, Objective] = {
    "auc": Objective(auc, has_link=True),
    "pairwise": Objective(pairwise, compares_rows=True),
    "partial": Objective(partial, has_link=True),
    "ap": Objective(average_precision, compares_rows=True),
    "ce": Objective(likelihood()),
    "smoothed": Objective(likelihood(smoothing=0.1)),
    "focal": Objective(likelihood(focus=2.0)),
    "gce": Objective(likelihood(q=0.7)),
}
"""Of the likelihood there are kin to compare with: labels smoothed by 0.1, focal loss (2), and
generalized cross-entropy (0.7), each unless ``loss_options`` say otherwise."""


ObjectiveName = (
    Literal["auc+ce", "auc", "pairwise", "partial", "ap", "ce", "smoothed", "focal", "gce", "auto"]
    | str
)
"""A name, a sum of names or "auto"; those spelled out are what a shell suggests."""


def parts_of(objective: str) -> list[tuple[str, float]]:
    """The names in a sum such as "auc+ce" or "pairwise+0.5*ce", and how much each counts."""
    parts = []
    for text in objective.replace(" ", "").split("+") if isinstance(objective, str) else [""]:
        factor, _, name = text.rpartition("*")
        if name not in OBJECTIVES:
            raise ValueError(
                f"objective must be one of {', '.join(map(repr, OBJECTIVES))}, a sum of them such "
                f"as 'auc+ce' or 'pairwise+0.5*ce', or 'auto', found {objective!r}"
            )
        try:
            weight = float(factor or 1)
        except ValueError:
            weight = math.nan
        parts.append((name, checks.positive(f"the factor of {name!r}", weight)))
    if len({name for name, _ in parts}) < len(parts):
        raise ValueError(f"objective must name each part once, found {objective!r}")
    return parts


def names_of(objective: str | Sequence[str]) -> list[str]:
    """What is chosen from, checked: one name if nothing is, and none of "auto".

    What "auto" chooses from depends on the metric and the rows.
    """
    if objective == "auto":
        return []
    if isinstance(objective, str) or not isinstance(objective, Sequence):
        parts_of(objective)
        return [objective]
    names = list(objective)
    if len({tuple(sorted(parts_of(name))) for name in names}) < max(2, len(names)):
        raise ValueError(f"objective must name two or more to choose from, found {names}")
    return names


def compares_rows(objective: str) -> bool:
    """Whether any part of it compares the rows of a batch with each other."""
    return any(OBJECTIVES[name].compares_rows for name, _ in parts_of(objective))


def make_loss(objective: str, known: Known, options: Mapping[str, Any]) -> nn.Module:
    """The loss of an objective.

    A part's options are a mapping under its name; others are those of the first part.
    """
    parts = parts_of(objective)
    for name, _ in parts:
        if not isinstance(options.get(name, {}), Mapping):
            raise ValueError(
                f"loss_options must have a mapping under {name!r}, found {options[name]!r}"
            )
    own = {name: dict(options.get(name, {})) for name, _ in parts}
    own[parts[0][0]] |= {key: value for key, value in options.items() if key not in own}
    losses = {name: OBJECTIVES[name].make(known, own[name]) for name, _ in parts}
    weights = tuple(weight for _, weight in parts)
    if len(losses) == 1 and weights == (1.0,):
        return losses[parts[0][0]]
    return LossSum(losses, weights)


class ModelWithLoss(nn.Module):
    """Model and loss as one module: what is compiled, captured and kept in step over ranks."""

    def __init__(self, model: nn.Module, loss: nn.Module) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(
        self,
        x: Any,
        y: Tensor,
        weight: Tensor | None = None,
        group: Tensor | None = None,
        index: Tensor | None = None,
        scale: Scale | None = None,
    ) -> Tensor:
        """Return the loss of a batch, or of a part of one that counts as ``scale`` says.

        An ensemble gives several scores per row, one after the other: ``scores_per_row`` of them.
        It may say by its ``score_weights`` how much each counts.
        """
        scores = self.model(x)
        members = getattr(self.model, "scores_per_row", 1) if self.model.training else 1
        if (counts := getattr(self.model, "score_weights", None)) is not None:
            weight = counts(x) if weight is None else counts(x) * weight[:, None]
        return loss_of(self.loss, scores, y, weight, group, index, scale, members)
