"""The losses in one table: how each is made, what it is given, and what it refuses."""

import copy
import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from aucmax import (
    AUCLoss,
    AveragePrecisionLoss,
    GroupedAUCLoss,
    MulticlassAUCLoss,
    MultilabelAUCLoss,
    PairwiseAUCLoss,
    PartialAUCLoss,
)
from aucmax.loss import CrossEntropy

ROWS = 24
NAN, INF = math.nan, math.inf


# ---- Batches -----------------------------------------------------------------------------------


class Batch(NamedTuple):
    scores: torch.Tensor
    target: torch.Tensor
    weight: torch.Tensor | None
    more: dict[str, torch.Tensor]

    def to(self, *args, **kwargs):
        """The same batch with scores and weights in another dtype, or all on another device."""
        moved = (x if x is None else x.detach().to(*args, **kwargs) for x in (self[0], self[2]))
        scores, weight = moved
        device = scores.device
        more = {name: x.to(device) for name, x in self.more.items()}
        return Batch(scores.requires_grad_(), self.target.to(device), weight, more)

    def rows(self, index):
        weight = None if self.weight is None else self.weight[index]
        more = {name: x[index] for name, x in self.more.items()}
        return Batch(self.scores.detach()[index].requires_grad_(), self.target[index], weight, more)


def _batch(columns, target, n, seed, **more):
    generator = torch.Generator().manual_seed(seed)
    shape = (n,) if columns is None else (n, columns)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    weight = 0.2 + torch.rand(n, generator=generator, dtype=torch.float64)
    order = torch.randperm(n, generator=generator)
    return Batch(scores.requires_grad_(), target[order], weight, more)


def binary(n=ROWS, seed=0):
    """A quarter of the labels is positive."""
    return _batch(None, (torch.arange(n) % 4 == 1).double(), n, seed)


def classes(n=ROWS, seed=0):
    """Half of the rows are of class 0, a third of class 1, a sixth of class 2."""
    return _batch(3, torch.tensor([0, 0, 0, 1, 1, 2])[torch.arange(n) % 6], n, seed)


def labels(n=ROWS, seed=0):
    """Three labels, of which some entries are missing."""
    target = (torch.arange(n)[:, None] % torch.tensor([2, 3, 4]) == 0).double()
    target[torch.arange(n) % 5 == 2, 1] = NAN
    return _batch(3, target, n, seed)


def in_groups(n=ROWS, seed=0):
    batch = binary(n, seed)
    return batch._replace(more={"group": torch.arange(n) % 3})


def numbered(n=ROWS, seed=0):
    batch = binary(n, seed)
    return batch._replace(more={"index": torch.arange(n)})


# ---- The table ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class LossInfo:
    """A loss and its contracts.

    Attributes:
        name: of the class, or of the sum.
        make: the loss for some options.
        sample: a batch it takes.
        options: settings that take different paths through the code.
        bad_options: options that must raise, each with the argument that is wrong.
        bad_more: groups or row numbers that must raise.
        has_dual: whether it has a, b and alpha.
        differentiable: how often, in scores and parameters.
        smooth: whether finite differences see no jump of its selection.
        repeats: whether a weight of two is a row twice.
        compiled: whether its compilation is tested, with the third of the options or the last; the
            others add no path of their own.
        offset: options under which a shift of all scores changes nothing, if there are any.
    """

    name: str
    make: Callable[..., torch.nn.Module]
    sample: Callable[..., Batch]
    options: tuple[dict[str, Any], ...] = ({},)
    bad_options: tuple[tuple[dict[str, Any], str], ...] = ()
    bad_more: tuple[tuple[dict[str, Any], str], ...] = ()
    has_dual: bool = False
    differentiable: int = 2
    smooth: bool = True
    repeats: bool = True
    compiled: bool = True
    offset: dict[str, Any] | None = None


def bad(**values):
    """Each value of each argument by itself."""
    return tuple(({name: value}, name) for name, each in values.items() for value in each)


SADDLE = bad(margin=[0, -1.0, NAN, INF, None], link=["logit", None], alpha_min=["x", NAN, -INF])

NUMBERS = torch.arange(ROWS) % 3
NO_GROUPS = bad(group=[NUMBERS])
BAD_GROUPS = bad(group=[NUMBERS[:5], NUMBERS.double()])

INFOS = [
    LossInfo(
        "AUCLoss",
        lambda **options: AUCLoss(**{"prior": 0.25, "guard": False, **options}),
        binary,
        options=(
            {},
            {"prior": None},
            {"prior": None, "alpha_min": -0.1},
            {"link": "identity", "margin": 0.7},
            {"normalize": False},
        ),
        bad_options=(*SADDLE, *bad(prior=[0, 1, -0.1, 1.5, NAN, "x", [0.5, 0.5]])),
        bad_more=NO_GROUPS,
        has_dual=True,
        offset={"link": "identity"},
    ),
    LossInfo(
        "MulticlassAUCLoss",
        lambda **options: MulticlassAUCLoss(
            **{"priors": [1 / 2, 1 / 3, 1 / 6], "guard": False, **options}
        ),
        classes,
        options=(
            {},
            {"link": "identity", "margin": 0.7},
            {"normalize": False, "alpha_min": -0.1},
        ),
        bad_options=(
            *SADDLE,
            *bad(
                link=["sigmoid"],
                priors=[
                    [],
                    [0.5],
                    [0.5, 0.4],
                    [0.5, 0.5, 0.0],
                    [1.0, 0.0],
                    [0.5, NAN],
                    [0.5, "x"],
                    torch.full((2, 2), 0.25),
                    0.5,
                    torch.tensor(0.5),
                    None,
                ],
            ),
        ),
        bad_more=NO_GROUPS,
        has_dual=True,
        offset={"link": "identity"},
    ),
    LossInfo(
        "MultilabelAUCLoss",
        lambda **options: MultilabelAUCLoss(
            **{"priors": [0.5, 0.3, 0.25], "guard": False, **options}
        ),
        labels,
        options=(
            {},
            {"link": "identity", "margin": 0.7},
            {"normalize": False, "alpha_min": -0.1},
        ),
        bad_options=(
            *SADDLE,
            *bad(link=["softmax"], priors=[[], [0.5, 1.0], [0.5, NAN], [0.5, "x"], 0.5]),
        ),
        bad_more=NO_GROUPS,
        compiled=False,
        has_dual=True,
        offset={"link": "identity"},
    ),
    LossInfo(
        "GroupedAUCLoss",
        lambda **options: GroupedAUCLoss(
            **{"positives": [2.0] * 3, "negatives": [6.0] * 3, "guard": False, **options}
        ),
        in_groups,
        options=({}, {"link": "identity", "prior": 0.4}, {"alpha_min": -0.1}),
        bad_options=(
            *SADDLE,
            *bad(prior=[1.0], link=["softmax"], positives=[[1.0], [], 3.0, [1, -1, 1], [0, 0, 0]]),
        ),
        bad_more=(*BAD_GROUPS, *bad(group=[None, NUMBERS.tolist(), NUMBERS + 1, NUMBERS - 1])),
        has_dual=True,
    ),
    LossInfo(
        "PartialAUCLoss",
        lambda **options: PartialAUCLoss(
            **{"max_fpr": 0.3, "prior": 0.25, "guard": False, **options}
        ),
        binary,
        options=({}, {"max_fpr": 0.2, "min_tpr": 0.6, "prior": None}, {"link": "identity"}),
        bad_options=(
            *SADDLE,
            *bad(max_fpr=[0.0, 1.5, "x"], min_tpr=[1.0, -0.1], prior=[1.0], link=["softmax"]),
        ),
        bad_more=NO_GROUPS,
        has_dual=True,
        smooth=False,
        repeats=False,
    ),
    LossInfo(
        "PairwiseAUCLoss",
        PairwiseAUCLoss,
        binary,
        options=({}, {"surrogate": "hinge"}, {"surrogate": "logistic", "scale": 1.5}),
        bad_options=bad(
            surrogate=["log"],
            max_fpr=[0.0, 1.5],
            min_tpr=[1.0, -0.1],
            margin=[-1, 0.0],
            scale=[INF],
            q=[1.5],
        ),
        differentiable=1,
        offset={},
    ),
    LossInfo(
        "PairwiseAUCLoss in groups",
        PairwiseAUCLoss,
        in_groups,
        options=({}, {"surrogate": "logistic", "max_fpr": 0.5, "min_tpr": 0.25}),
        bad_more=BAD_GROUPS,
        differentiable=1,
        compiled=False,
        offset={"max_fpr": 0.5},
    ),
    LossInfo(
        "AveragePrecisionLoss",
        AveragePrecisionLoss,
        numbered,
        options=(
            {},
            {"data_prior": 0.1, "rows": ROWS},
            {"surrogate": "squared_hinge", "scale": 1.5},
        ),
        bad_options=(
            *bad(
                data_prior=[0.0, "0.1", [0.1, 2.0], [0.1, 0.2]],
                rows=[0],
                columns=[1.5],
                decay=[1.0],
                surrogate=["cubic"],
                margin=[0],
            ),
        ),
        bad_more=bad(index=[NUMBERS[:5], NUMBERS + ROWS, NUMBERS - 1]),
        differentiable=1,
        repeats=False,
    ),
    LossInfo(
        "CrossEntropy",
        CrossEntropy,
        binary,
        compiled=False,
        options=({}, {"smoothing": 0.1}, {"focus": 0.5, "q": 0.3}),
        bad_options=bad(task=["ranking"], smoothing=[1.0, -0.1], focus=[-1.0], q=[1.5, -0.1, "x"]),
    ),
    LossInfo(
        "CrossEntropy of classes",
        lambda **options: CrossEntropy("multiclass", **options),
        classes,
        compiled=False,
        options=({}, {"smoothing": 0.1}, {"focus": 0.5, "q": 0.3}),
    ),
    LossInfo("CrossEntropy of labels", lambda: CrossEntropy("multilabel"), labels, compiled=False),
    LossInfo(
        "AUCLoss + CrossEntropy",
        lambda weight=1.0: AUCLoss(0.25, link="identity") + weight * CrossEntropy(),
        binary,
        options=({}, {"weight": 0.5}),
        bad_options=bad(weight=[0.0, -1.0, NAN]),
        compiled=False,
    ),
]

CASES = [(info, options) for info in INFOS for options in info.options]


# ---- What tests do with them -------------------------------------------------------------------


def make(info, options=None, dtype=torch.float64, seed=0):
    """Return a loss whose parameters are near zero and in range, no two of their entries alike."""
    loss = info.make(**(options or {})).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    if info.has_dual:
        loss.project()
    return loss


def value_of(loss, batch):
    return loss(batch.scores, batch.target, batch.weight, **batch.more)


def value_and_gradients(loss, batch, **options):
    """The value, and its gradients in the scores and in each parameter."""
    value = value_of(loss, batch)
    inputs = [batch.scores, *loss.parameters()]
    return value, *torch.autograd.grad(value, inputs, **options)


def assert_same(found, expected, rtol=0.0, atol=0.0):
    """Equal in value and dtype, bit for bit unless there is a tolerance."""
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, equal_nan=True)


def state_of(loss):
    return copy.deepcopy(dict(loss.state_dict()))


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)
