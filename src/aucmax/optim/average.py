"""The average of any optimizer's iterates, and a model that shows an average."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from aucmax.optim.staged import StagedOptimizer, check_restart, copy_of, local


class IterateAverage:
    r"""The mean of the iterates :math:`v_1, \ldots, v_t` of any optimizer since a stage began.

    It gives torch's optimizers what aucmax's have built in, so that a baseline is compared on
    equal terms. Two copies of the parameters are kept, in single precision or better: the stage's
    first iterate, and the sum of the distances to it.

    Args:
        optimizer: the optimizer of the parameters; groups with ``maximize=True`` are left out.

    Example:
        >>> import torch, aucmax
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.AdamW(model.parameters())
        >>> average = aucmax.IterateAverage(optimizer)
        >>> for _ in range(3):
        ...     optimizer.zero_grad()
        ...     model(torch.ones(4, 2)).square().mean().backward()
        ...     optimizer.step()
        ...     average.update()
        >>> with aucmax.averaged(model, average):
        ...     scores = model(torch.ones(4, 2))
    """

    def __init__(self, optimizer: Optimizer) -> None:
        if not hasattr(optimizer, "param_groups"):
            raise ValueError(f"optimizer must be an optimizer, found {type(optimizer).__name__}")
        self.optimizer = optimizer
        self.first: list[Tensor] = []
        self.drift: list[Tensor] = []
        self.points = torch.zeros((), dtype=torch.int64)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The optimizer's parameter groups."""
        return self.optimizer.param_groups

    def _parameters(self) -> list[Tensor]:
        groups = [g for g in self.param_groups if not g.get("maximize")]
        return [p for g in groups for p in g["params"] if p.requires_grad]

    @torch.no_grad()
    def update(self) -> None:
        """Add the parameters' current values to the average; call it after every step."""
        parameters = self._parameters()
        if not parameters or (self.first and len(parameters) != len(self.first)):
            raise ValueError(
                f"optimizer must train the same parameters, one at least, until the average ends, "
                f"found {len(parameters)} after {len(self.first)}: call end_stage() where "
                f"parameters are frozen or freed"
            )
        if not self.first:
            self.first = [copy_of(p) for p in parameters]
            self.drift = [torch.zeros_like(x) for x in self.first]
            self.points = torch.zeros((), dtype=torch.int64, device=parameters[0].device)
        drift = [local(x) for x in self.drift]
        torch._foreach_add_(drift, [local(p) for p in parameters])
        torch._foreach_sub_(drift, [local(x) for x in self.first])
        self.points += 1  # on the device, where a captured graph counts its replays

    def averages(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Iterate over the parameters with their averages since the stage began."""
        if self.first:
            share = 1.0 / self.points.item()
            for p, first, drift in zip(self._parameters(), self.first, self.drift, strict=True):
                yield p, torch.add(first, drift, alpha=share)

    @torch.no_grad()
    def end_stage(self, restart: str = "last") -> None:
        """Begin a new average; with ``restart="average"`` the parameters start from this one."""
        check_restart(restart)
        if restart == "average":
            for p, average in self.averages():
                p.copy_(average)
        self.first, self.drift = [], []

    def state_dict(self) -> dict[str, Any]:
        """Return the sums and the number of points in them."""
        return {"first": self.first, "drift": self.drift, "points": self.points}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a saved state."""
        places = [p.device for p in self._parameters()]
        for name in ("first", "drift"):
            saved = [x.to(place, copy=True) for x, place in zip(state[name], places, strict=False)]
            setattr(self, name, saved)
        self.points = state["points"].to(torch.int64).to(places[0], copy=True)


@contextmanager
def averaged(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | IterateAverage,
    batches: Iterable[Any] | None = None,
) -> Iterator[nn.Module]:
    """Put the optimizer's average into the model for the length of a ``with`` block.

    For PPD-SG and PPD-AdaGrad that is the running average of the stage; for PGA the stage average
    it drew; for OAUC the step-weighted average. Afterwards parameters, batch-norm statistics and
    training modes are what they were, bit for bit.

    Args:
        model: the model that ``optimizer`` trains.
        optimizer: one of aucmax's, or the :class:`IterateAverage` of another.
        batches: inputs, or tuples that begin with inputs, from which batch-norm statistics are
            estimated at the average. Needed if the model has batch norm: the statistics it holds
            are those of other weights.

    Raises:
        ValueError: if the model has batch norm and there are no batches.

    Example:
        >>> import torch, aucmax
        >>> model, loss = torch.nn.Linear(2, 1), aucmax.AUCLoss(prior=0.5)
        >>> x, y = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 1])
        >>> loss.begin(model(x), y)
        >>> optimizer = aucmax.PPDSG(aucmax.minmax_groups(model, loss))
        >>> loss(model(x), y).backward()
        >>> optimizer.step()
        >>> with aucmax.averaged(model, optimizer):
        ...     scores = model(x)
    """
    if not isinstance(optimizer, IterateAverage):
        optimizer = getattr(optimizer, "optimizer", optimizer)  # a framework may have wrapped it
    if not isinstance(optimizer, StagedOptimizer | IterateAverage):
        raise ValueError(
            f"optimizer must be one of aucmax's, found {type(optimizer).__name__}: "
            f"others are averaged by aucmax.IterateAverage"
        )
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if not any(id(p) in trained for p in model.parameters()):
        raise ValueError("model must be the one that optimizer trains, found no common parameter")
    norms = batch_norms(model)
    if norms and batches is None:
        raise ValueError(
            f"batches must be given: the model has {len(norms)} batch-norm layers, whose "
            f"statistics are not those of the averaged weights"
        )
    buffers = [(b, b.clone()) for norm in norms for b in norm.buffers(recurse=False)]
    iterates = [(p, p.detach().clone()) for p, _ in optimizer.averages()]
    with keeping_modes(model):
        try:
            _assign(optimizer.averages())
            if batches is not None:
                update_batch_norm(model, batches)
            yield model
        finally:
            _assign(iterates + buffers)


@torch.no_grad()
def update_batch_norm(model: nn.Module, batches: Iterable[Any]) -> None:
    """Estimate batch-norm statistics anew, as the mean over the batches.

    Unlike :func:`torch.optim.swa_utils.update_bn` it leaves all other layers in evaluation mode:
    dropout neither distorts the statistics nor draws random numbers.

    Args:
        model: the model whose running statistics are replaced.
        batches: inputs, or tuples that begin with inputs; at least one.

    Example:
        >>> import torch, aucmax
        >>> model = torch.nn.Sequential(torch.nn.BatchNorm1d(1))
        >>> aucmax.update_batch_norm(model, [torch.tensor([[1.0], [3.0]])])
        >>> model[0].running_mean
        tensor([2.])
    """
    norms = batch_norms(model)
    if not norms:
        return
    if isinstance(batches, Tensor):
        raise ValueError(
            "batches must be an iterable of batches, found one tensor: put it in a list"
        )
    batches = iter(batches)
    first = next(batches, None)
    if first is None:
        raise ValueError("batches must hold at least one batch, found none")
    momenta = [(norm, norm.momentum) for norm in norms]
    with keeping_modes(model):
        model.eval()
        for norm in norms:
            norm.train()
            norm.reset_running_stats()  # type: ignore[operator]
            norm.momentum = None  # type: ignore[assignment]  # the plain mean over batches
        try:
            for batch in chain([first], batches):
                model(batch[0] if isinstance(batch, list | tuple) else batch)
        finally:
            for norm, momentum in momenta:
                norm.momentum = momentum


@contextmanager
def keeping_modes(model: nn.Module) -> Iterator[None]:
    """Restore the training mode of every layer afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def batch_norms(model: nn.Module) -> list[nn.Module]:
    """Return the layers that keep running statistics."""
    return [m for m in model.modules() if getattr(m, "running_mean", None) is not None]


@torch.no_grad()
def _assign(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    for destination, source in pairs:
        destination.copy_(source)
