"""What the losses share: checks of what they are given, exact state, and sums by ``+``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from aucmax import checks, distributed

DIVERGED = "; if training diverged, lower the learning rate"
NO_DEBUG = "call loss.check() where bad values are to raise"


# ---- Shapes and dtypes ---------------------------------------------------------------------------


def computable(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype to compute in: single precision or better."""
    return torch.float32 if dtype in checks.LOW_PRECISION else dtype


def flatten(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return ``x`` in one dimension and the given dtype, detached; copy only if needed."""
    x = x.detach() if x.requires_grad else x
    x = x if x.ndim == 1 else x.reshape(-1)
    return x if x.dtype == dtype else x.to(dtype)


def as_shares(priors: Sequence[float] | Tensor, name: str = "priors") -> list[float]:
    """Return shares as plain numbers, each checked."""
    values = priors.tolist() if isinstance(priors, Tensor) else priors
    if not isinstance(values, Sequence) or not values or isinstance(values, str):
        raise ValueError(f"{name} must be a sequence of shares in (0, 1), found {priors!r}")
    return [checks.share(f"{name}[{i}]", value) for i, value in enumerate(values)]


def check_tensors(scores: object, target: object) -> None:
    """Raise unless both are tensors."""
    for name, x in (("scores", scores), ("target", target)):
        if not isinstance(x, Tensor):
            raise ValueError(f"{name} must be a tensor, found {type(x).__name__}")


def check_binary_shapes(scores: Tensor, target: Tensor, weight: Tensor | None) -> None:
    """Raise unless there are one score, one label and at most one weight per row."""
    if not (isinstance(scores, Tensor) and isinstance(target, Tensor)):
        check_tensors(scores, target)
    shape = scores.shape
    rows = shape[:1]
    if not (scores.is_floating_point() and shape in (rows, (*rows, 1)) and scores.numel() > 0):
        raise ValueError(
            f"scores must be floating point of shape (N,) or (N, 1), N >= 1, "
            f"found {scores.dtype} of shape {tuple(shape)}"
        )
    if target.shape not in (shape, rows):
        allowed = " or ".join(map(str, dict.fromkeys([tuple(rows), tuple(shape)])))
        raise ValueError(
            f"target must have shape {allowed} to go with these scores, found {tuple(target.shape)}"
        )
    if weight is not None:
        check_weight_shape(weight, tuple(rows), tuple(shape))


def binary_rows(
    scores: Tensor, target: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return scores, labels and weights flat, detached and in the dtype of the computation.

    Raises:
        ValueError: unless there are one score, one label and at most one weight per row.
    """
    check_binary_shapes(scores, target, weight)
    dtype = torch.float32 if scores.dtype in checks.LOW_PRECISION else scores.dtype
    given = (scores, target) if weight is None else (scores, target, weight)
    flat = []
    for x in given:  # without an operation that is not needed: on a short batch they are what costs
        x = x.detach() if x.requires_grad else x
        x = x if x.ndim == 1 else x.reshape(-1)
        flat.append(x if x.dtype == dtype else x.to(dtype))
    return flat[0], flat[1], None if weight is None else flat[2]


def check_table(scores: Tensor, columns: int) -> None:
    """Raise unless there is a row of ``columns`` real scores for each example."""
    right_shape = scores.ndim == 2 and scores.shape[1] == columns and len(scores) > 0
    if not (scores.is_floating_point() and right_shape):
        raise ValueError(
            f"scores must be floating point of shape (N, {columns}), N >= 1, "
            f"found {scores.dtype} of shape {tuple(scores.shape)}"
        )


def check_weight_shape(weight: Tensor, *allowed: tuple[int, ...]) -> None:
    """Raise unless the weights have one of the allowed shapes."""
    if not isinstance(weight, Tensor):
        raise ValueError(f"weight must be a tensor, found {type(weight).__name__}")
    if tuple(weight.shape) not in allowed:
        choices = " or ".join(map(str, dict.fromkeys(allowed)))
        raise ValueError(f"weight must have shape {choices}, found {tuple(weight.shape)}")


def check_row_numbers(name: str, values: object, rows: int) -> None:
    """Raise unless ``values`` is None or holds an integer for each row."""
    if values is None:
        return
    if not isinstance(values, Tensor) or values.shape != (rows,):
        found = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(f"{name} must be a tensor of shape ({rows},), found {found}")
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise ValueError(f"{name} must hold integers, found dtype {values.dtype}")


def check_class_shapes(scores: Tensor, target: Tensor, weight: Tensor | None) -> None:
    """Raise unless there are a row of scores, a class and at most one weight per example."""
    check_tensors(scores, target)
    check_table(scores, scores.shape[-1] if scores.ndim else 1)
    if target.shape != scores.shape[:1]:
        raise ValueError(f"target must have shape ({len(scores)},), found {tuple(target.shape)}")
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise ValueError(f"target must hold integer classes, found dtype {target.dtype}")
    if weight is not None:
        check_weight_shape(weight, (len(scores),))


def known_labels(scores: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the labels of a table of scores and their weights, both 0 where a label is NaN.

    They have the dtype of the computation and the shape of the scores.
    """
    check_tensors(scores, target)
    check_table(scores, scores.shape[-1] if scores.ndim else 1)
    if target.shape != scores.shape:
        raise ValueError(
            f"target must have the shape of scores, {tuple(scores.shape)}, "
            f"found {tuple(target.shape)}"
        )
    dtype = computable(scores.dtype)
    labels = target.to(dtype)
    known = (~labels.isnan()).to(dtype)
    labels = labels.nan_to_num(nan=0.0, posinf=math.inf, neginf=-math.inf)
    if weight is None:
        return labels, known
    check_weight_shape(weight, (len(scores),), tuple(scores.shape))
    return labels, known * weight.detach().to(dtype).reshape(len(scores), -1)


def means_of_classes(
    h: Tensor, labels: Tensor, weight: Tensor, whose: str
) -> tuple[Tensor, Tensor]:
    """Return the weighted means of h over positives and over negatives, along the first axis."""
    positive, negative = weight * labels, weight * (1.0 - labels)
    mass = torch.stack([positive.sum(0), negative.sum(0)])
    if bool((mass == 0).any()):
        raise checks.MissingClassError(
            f"target must hold both classes among the {whose}, found weights "
            f"{mass[0].tolist()} of positives and {mass[1].tolist()} of negatives: "
            f"draw more, or as many of each class"
        )
    return (positive * h).sum(0) / mass[0], (negative * h).sum(0) / mass[1]


# ---- State ---------------------------------------------------------------------------------------


class ExactState(nn.Module):
    """A module whose own state follows ``.to(device)`` but keeps its digits.

    Buffers stay in double precision: counts do not fit in ``half()``, and a prior that went through
    single precision is another one. Parameters stay in single precision or better: in half they
    would stand still, since a step of 1e-3 is lost beside a value of 0.5.

    Attributes:
        follows_batches: whether a training batch changes its buffers.
    """

    follows_batches = False

    def _keep(self, name: str, value: Tensor) -> None:
        """Give a buffer the value that it has after a batch."""
        if torch.compiler.is_compiling():
            # A compiled backward may read the buffer again: it must find the value of before.
            setattr(self, name, value)
        else:
            getattr(self, name).copy_(value)  # in place, as a captured graph needs it

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        buffers = {name: buffer for name, buffer in self._buffers.items() if buffer is not None}
        values = {name: p.detach().clone() for name, p in self.named_parameters(recurse=False)}
        self._buffers.clear()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, value in values.items():
            p = getattr(self, name)
            if p.dtype in checks.LOW_PRECISION:
                p.data = value.to(p.device)
        for name, buffer in buffers.items():
            device = fn(torch.empty(0, device=buffer.device)).device
            if device.type == "mps":  # which has no float64
                self._buffers[name] = buffer.to(device, torch.float32)
            else:
                moved = fn(buffer)
                self._buffers[name] = moved if moved.dtype == buffer.dtype else buffer.to(device)
        return self


# ---- Losses --------------------------------------------------------------------------------------


class Loss(ExactState):
    """A loss of scores and labels, and perhaps of weights, groups and row numbers.

    Losses add by ``+`` and scale by ``*``: ``AUCLoss(0.1) + 0.5 * CrossEntropy()``.

    To write one, check the shapes and then the values in ``forward``, and return a scalar. A CPU
    raises at the batch with a bad value. Elsewhere, and in compiled code, a flag on the device
    remembers the first bad batch, so that no step waits. The flag is read at the first batch, at
    every 2^k-th, by :meth:`check`, and before the loss is evaluated or its state saved.

    Attributes:
        needs_index: whether it wants each row's number in the training data.
        compares_rows: whether rows are compared with each other, so that it is no mean over rows.
        is_likelihood: whether the scale and the shift of the scores matter to it, so that in a sum
            with others it gets those of its own.
        has_saddle: whether it has parameters a, b and alpha, of which alpha is maximized.
        hint: what the error about scores that are not finite advises.

    Example:
        >>> import torch
        >>> from aucmax.loss.base import Loss, check_binary_shapes, computable, flatten
        >>> class SquaredError(Loss):
        ...     def forward(self, scores, target, weight=None, *, group=None, index=None):
        ...         check_binary_shapes(scores, target, weight)
        ...         s = scores.flatten().to(computable(scores.dtype))
        ...         y = flatten(target, s.dtype)
        ...         w = torch.ones_like(s) if weight is None else flatten(weight, s.dtype)
        ...         self.check_values(s.detach(), y, w)
        ...         return (w * (s - y).square()).sum() / w.sum()
        >>> SquaredError()(torch.tensor([1.0, 0.0]), torch.tensor([1, 2]))
        Traceback (most recent call last):
        ValueError: target must hold 0 and 1 only, found 1, 2
    """

    needs_index = False
    compares_rows = False
    is_likelihood = False
    has_saddle = False
    hint = DIVERGED

    FLAGS = ("scores", "target", "weight", "sign of weight", "group", "index")

    def __init__(self) -> None:
        super().__init__()
        # No buffer: data-parallel training would overwrite it with the first rank's. Entry 0 counts
        # batches; the others are the number of the first batch with such a fault, 0 for none.
        self._flags = torch.zeros(1 + len(self.FLAGS), dtype=torch.int64)
        self._allowed: dict[str, str] = {}
        self._calls = 0

    def check_values(
        self,
        scores: Tensor,
        labels: Tensor,
        weight: Tensor | None = None,
        *,
        classes: int | None = None,
        zero_weights: bool = False,
        **numbers: tuple[Tensor, int],
    ) -> int | None:
        """Check the values of a batch: now on an eager CPU, by the flag on the device elsewhere.

        Args:
            scores: finite; in the dtype of the computation.
            labels: 0 or 1, or integers below ``classes``.
            weight: finite and not negative.
            classes: how many there are, if labels are classes.
            zero_weights: whether all weights may be zero.
            numbers: ``group`` or ``index``, each with the number below which it must be.

        Returns:
            The number of positives, 0 for classes; None if the values were not looked at.

        Raises:
            ValueError: names the argument, what was found and what is allowed.
        """
        if checks.host_readable(scores):
            return self.look(scores, labels, weight, classes, zero_weights, numbers)
        if not torch.compiler.is_compiling() and checks.transforming():
            return None
        ranges = numbers if classes is None else {"target": (labels, classes), **numbers}
        self._allowed = {
            "target": "target must hold 0 and 1 only",
            "sign of weight": f"weight must be {checks.WEIGHTS[zero_weights]}",
            **{name: f"{name} must hold 0 to {size - 1}" for name, (_, size) in ranges.items()},
        }
        with torch.no_grad():  # each fault is an expression that is 0 if there is none
            faults = dict.fromkeys(self.FLAGS, torch.zeros_like(scores[:0]).sum())
            faults["scores"] = (scores * 0.0).sum()
            if classes is None:
                faults["target"] = (labels * labels - labels).abs().sum()
            for name, (values, size) in ranges.items():
                faults[name] = ((values < 0) | (values >= size)).any().to(scores.dtype)
            if weight is not None:
                weight = weight.to(scores.dtype)
                none = 0.0 if zero_weights else (weight.amax() == 0).to(weight.dtype)
                faults["weight"] = (weight * 0.0).sum()
                faults["sign of weight"] = weight.clamp(max=0.0).sum() - none
            self._set_flags(torch.stack(list(faults.values())) != 0)  # NaN is not 0 either
        if torch.compiler.is_compiling() or not checks.readable(self._flags):
            return None
        self._calls += 1
        if self._calls & (self._calls - 1) == 0:
            batch, *firsts = self._flags.tolist()
            if min((first for first in firsts if first), default=0) == batch:
                self._flags.zero_()  # for the error in the words of a CPU
                self.look(scores, labels, weight, classes, zero_weights, numbers)
            self._report_own()
        return None

    def look(
        self,
        scores: Tensor,
        labels: Tensor,
        weight: Tensor | None = None,
        classes: int | None = None,
        zero_weights: bool = False,
        numbers: Mapping[str, tuple[Tensor, int]] = MappingProxyType({}),
    ) -> int:
        """Check the values of a batch now, wherever it is; see :meth:`check_values`."""
        checks.check_finite("scores", scores.numpy(force=True), hint=self.hint)
        positives = 0
        if classes is None:
            positives = checks.check_labels(labels.numpy(force=True))
        else:
            numbers = {"target": (labels, classes), **numbers}
        if weight is not None:
            checks.check_weights(weight.double().numpy(force=True), zero_weights)
        for name, (values, size) in numbers.items():
            low, high = (int(x) for x in values.long().aminmax())
            if low < 0 or high >= size:
                raise ValueError(f"{name} must hold 0 to {size - 1}, found {low} to {high}")
        return positives

    def _set_flags(self, bad: Tensor) -> None:
        """Count a batch on the device, and remember the first with each fault."""
        if self._flags.device != bad.device:
            with torch.inference_mode(False):
                self._flags = self._flags.to(bad.device)
        batch, first = self._flags[0] + 1, self._flags[1:]
        first = torch.where(bad & (first == 0), batch, first)
        self._flags.copy_(torch.cat([batch[None], first]))

    def _report(self, flags: Sequence[int]) -> None:
        """Raise if a flag is set, once."""
        found = {name: batch for name, batch in zip(self.FLAGS, flags[1:], strict=True) if batch}
        if not found:
            return
        self._flags.zero_()
        name, batch = min(found.items(), key=lambda item: item[1])
        place = f"in batch {batch} of {flags[0]} since the last check"
        if name in ("scores", "weight"):
            hint = self.hint if name == "scores" else ""
            raise checks.NotFiniteError(
                f"{name} must be finite, found NaN or infinity {place}{hint}"
            )
        raise ValueError(f"{self._allowed[name]}, found other values {place}")

    def _report_own(self) -> None:
        """Raise if this rank's flag is set, where it can be read."""
        if checks.readable(self._flags):
            self._report(self._flags.tolist())

    def check(self) -> None:
        """Raise if a batch since the last check had bad values, on any rank.

        On an accelerator, and in compiled code, that is how bad values come to light between the
        batches that are looked at. Under a process group all ranks must call it together.

        Raises:
            ValueError: names the argument and the first bad batch.
        """
        for part in self.modules():
            if isinstance(part, Loss) and checks.readable(part._flags):
                part._report(_over_ranks(part._flags.tolist()))
                part._report_own()

    def train(self, mode: bool = True) -> Self:
        """Set training or evaluation mode; before evaluation the flag of this rank is read."""
        if not mode:
            self._report_own()
        return super().train(mode)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the state to save; before that the flag of this rank is read."""
        self._report_own()
        return super().state_dict(*args, **kwargs)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        device = fn(torch.empty(0, device=self._flags.device)).device
        if "meta" in (device.type, self._flags.device.type):
            self._flags = torch.zeros_like(self._flags, device=device)
        else:
            self._flags = self._flags.to(device)
        return self

    def __add__(self, other: Loss) -> LossSum:
        if not isinstance(other, Loss):
            return NotImplemented
        return _sum_of([*_terms(self), *_terms(other)])

    def __radd__(self, other: int) -> Self:
        if isinstance(other, int) and other == 0:  # what sum() begins with
            return self
        return NotImplemented

    def __mul__(self, weight: float) -> LossSum:
        if not isinstance(weight, int | float):
            return NotImplemented
        return _sum_of([(part, weight * own) for part, own in _terms(self)])

    __rmul__ = __mul__


def _over_ranks(flags: list[int]) -> list[int]:
    """Return the most batches of any rank, and the first bad batch of any for each fault."""
    ranks = distributed.gather_objects(flags)
    firsts = ([batch for batch in column if batch] for column in list(zip(*ranks, strict=True))[1:])
    return [max(rank[0] for rank in ranks), *(min(batches, default=0) for batches in firsts)]


# ---- Sums ----------------------------------------------------------------------------------------


class Scale(NamedTuple):
    """How much a part of a batch counts in the whole: means over rows, and what compares rows."""

    means: Any
    comparisons: Any


class LossSum(Loss):
    r"""A weighted sum of losses of the same scores, which ``+`` and ``*`` make.

    A likelihood in it, such as cross-entropy, gets the scores as :math:`|c| \cdot s + d` with the
    scale c and the shift d learned, so that no part asks its scale of the scores of the others: the
    AUC objective wants a margin of one, a likelihood whatever the classes' overlap says. For
    several classes d has one entry per class; with the softmax link there is none.

    Args:
        parts: the losses, by name; at most one of them with saddle variables.
        weights: one for each.

    Example:
        >>> from aucmax.loss import AUCLoss, CrossEntropy
        >>> loss = AUCLoss(0.1, link="identity") + 0.5 * CrossEntropy()
        >>> [name for name, _ in loss.named_parameters()]
        ['scale', 'shift', 'part0.a', 'part0.b', 'part0.alpha']
    """

    def __init__(self, parts: Mapping[str, nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        self.weights = tuple(checks.positive("weight", weight) for weight in weights)
        for name, part in parts.items():
            self.add_module(name, part)
        self.names = tuple(parts)
        saddles = [part for part in parts.values() if getattr(part, "has_saddle", False)]
        if len(saddles) > 1:
            kinds = ", ".join(type(part).__name__ for part in saddles)
            raise ValueError(
                f"a sum must have at most one loss with saddle variables, found {kinds}"
            )
        likely = [part for part in parts.values() if getattr(part, "is_likelihood", False)]
        mapped = 0 < len(likely) < len(parts)
        self.scale = nn.Parameter(torch.ones(1)) if mapped else None
        size = _shifts(saddles, likely) if mapped else 0
        self.shift = nn.Parameter(torch.zeros(size)) if size else None

    @property
    def parts(self) -> dict[str, nn.Module]:
        """The losses, by name."""
        return {name: getattr(self, name) for name in self.names}

    def forward(
        self,
        scores: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        group: Tensor | None = None,
        index: Tensor | None = None,
        scale: Scale | None = None,
        members: int = 1,
    ) -> Tensor:
        """Return the weighted sum of one batch."""
        check_tensors(scores, target)
        # Of a negative scale the likelihood would be least where the ranking is upside down.
        mapped = scores if self.scale is None else scores * self.scale.abs()
        mapped = mapped if self.shift is None else mapped + self.shift
        total: Any = 0.0
        for part, share in zip(self.parts.values(), self.weights, strict=True):
            own = mapped if getattr(part, "is_likelihood", False) else scores
            value = loss_of(part, own, target, weight, group, index, scale, members)
            total = total + (value if share == 1 else share * value)
        return total  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """Show the weights."""
        return f"weights={self.weights}"


def loss_of(
    loss: nn.Module,
    scores: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    group: Tensor | None = None,
    index: Tensor | None = None,
    scale: Scale | None = None,
    members: int = 1,
) -> Tensor:
    """Call any loss with what there is and what it takes.

    Args:
        loss: a :class:`Loss`, or another module that is called with scores and labels.
        scores: (N,) or (N, c); of an ensemble (N k,) or (N k, c), a row's k after each other.
        target: of N rows.
        weight: (N,), or (N, k) for each of a row's k scores.
        group: (N,) integers.
        index: (N,) integers.
        scale: how much the value counts.
        members: k. In a mean over rows each score learns its row's label; a loss that compares rows
            compares the scores of each member, which are columns to it.
    """
    compares = getattr(loss, "compares_rows", False)
    if isinstance(loss, LossSum):
        return loss(  # type: ignore[no-any-return]
            scores, target, weight, group=group, index=index, scale=scale, members=members
        )
    more = {"group": group} if group is not None else {}
    if index is not None and getattr(loss, "needs_index", False):
        more["index"] = index
    if members > 1 and compares:
        scores, target, weight = _columns_of_members(scores, target, weight, members)
    elif members > 1:
        if weight is None:
            weight = torch.ones(len(target), device=scores.device, dtype=computable(scores.dtype))
        by_member = target.ndim == 1 and weight.shape == (len(target), members)
        weight = weight.flatten() if by_member else weight.repeat_interleave(members, dim=0)
        target = target.repeat_interleave(members, dim=0)
        more = {name: x.repeat_interleave(members, dim=0) for name, x in more.items()}
    if weight is not None and scale is not None and not compares:
        # Of weights that are all zero there is no mean: it is one of ones, of which the scale
        # lets nothing count.
        weight = weight + (weight.sum() == 0)
    given = (scores, target) if weight is None else (scores, target, weight)
    value: Tensor = loss(*given, **more)
    if scale is None:
        return value
    scaled: Tensor = value * (scale.comparisons if compares else scale.means)
    return scaled


def _columns_of_members(
    scores: Tensor, target: Tensor, weight: Tensor | None, members: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return an ensemble's scores as columns of labels, those of a member side by side."""
    rows, classes = len(target), scores[0].numel()
    labels = target.reshape(rows, -1)
    if classes > 1 and target.ndim == 1:
        labels = (labels == torch.arange(classes, device=target.device)).to(scores.dtype)
    if weight is not None:
        weight = weight.reshape(rows, -1)
        if target.ndim == 1 and weight.shape[1] == members:
            weight = weight.repeat_interleave(classes, dim=1)
        else:
            weight = weight.expand(rows, classes).repeat(1, members)
    return scores.reshape(rows, members * classes), labels.repeat(1, members), weight


def _terms(loss: Loss) -> list[tuple[nn.Module, float]]:
    if isinstance(loss, LossSum):
        return list(zip(loss.parts.values(), loss.weights, strict=True))
    return [(loss, 1.0)]


def _sum_of(terms: list[tuple[nn.Module, float]]) -> LossSum:
    parts = {f"part{k}": part for k, (part, _) in enumerate(terms)}
    return LossSum(parts, [weight for _, weight in terms])


def _shifts(saddles: list[nn.Module], likely: list[nn.Module]) -> int:
    """Return how many shifts the scores get before a likelihood: one per class where known.

    Under a softmax scores of classes are compared already: a shift would undo that.
    """
    saddle = saddles[0] if saddles else None
    if getattr(saddle, "link", "") == "softmax":
        return 0
    priors = getattr(saddle, "priors", None)
    if isinstance(priors, Tensor):
        return len(priors)
    return 0 if getattr(likely[0], "task", "binary") == "multiclass" else 1
