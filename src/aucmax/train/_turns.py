"""A run that takes turns with others on one device, and what they share there."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch import nn
from torch.utils._pytree import tree_map

from aucmax import random_state
from aucmax.data.sources import Batch, as_data, generators_of
from aucmax.train._fit import fit, make_loop, random_numbers
from aucmax.train._loop import Loop, Walk
from aucmax.train._options import Options
from aucmax.train._result import DivergedError, FitResult
from aucmax.train._signals import Interrupts

Outcome: TypeAlias = FitResult | DivergedError
"""What comes of a run."""


class Turns:
    """One run, walked a turn at a time.

    In its turns the random numbers and, on a CUDA device, the stream are its own; afterwards they
    are the caller's again.

    Args:
        number: of the run.
        config: arguments of :func:`aucmax.fit`.
        device: of all runs.
        stream: on which the run does all its work; None but on a CUDA device.
        shelf: has the arrays that runs share.
        interrupts: notes the signals for all runs.
    """

    def __init__(
        self,
        number: int,
        config: Mapping[str, Any],
        device: torch.device,
        stream: torch.cuda.Stream | None,
        shelf: Shelf,
        interrupts: Interrupts,
    ) -> None:
        self.number, self.stream, self.shelf = number, stream, shelf
        given, options = options_of(config, device)
        self.saves, self.steps = options.out is not None, 0
        self._loop: Loop | None = None
        self._random, self._draws = random_numbers(options), True
        self._walk = self._begin(given, options, interrupts)

    def _begin(
        self, given: dict[str, Any], options: Options, interrupts: Interrupts
    ) -> Walk[FitResult]:
        model = given["model"]
        if not isinstance(model, nn.Module) and callable(model):
            with random_state.Isolated(options.seed, options.device):
                model = model()
        # Copies stay on the shelf as long as this frame has them.
        train, *judged = (self.shelf.put(name, given[name]) for name in ("train", "valid", "test"))
        names = dict(zip(("valid", "test"), (copy.there for copy in judged), strict=True))
        self._loop = make_loop(model, train.there, names, given["labels"], options, interrupts)
        return (yield from self._loop.walk())

    def is_ready(self) -> bool:
        """Whether the device has done what the last turn gave it to do."""
        return self.stream is None or self.stream.query()

    def take(self) -> Outcome | None:
        """A turn; what came of the run, if it is over."""
        outcome: Outcome | None = None
        with torch.cuda.stream(self.stream), self._random if self._draws else nullcontext():
            try:
                self._draws = next(self._walk)
            except StopIteration as end:
                outcome = _without_gradients(end.value)
            except DivergedError as error:
                outcome = _without_frames(error)
        if self._loop is not None:
            self.steps = self._loop.at.step - self._loop.first_step
        if outcome is not None:
            self._let_go()
        return outcome

    def close(self) -> None:
        """Leave it where it is."""
        self._walk.close()

    def _let_go(self) -> None:
        """Free the memory of the graph, the optimizer and the data for the runs to come."""
        self._loop = None
        if self.stream is not None:
            self.stream.synchronize()
            gc.collect()  # a step and its guard know each other, and hold all of this


def options_of(config: Mapping[str, Any], device: torch.device) -> tuple[dict[str, Any], Options]:
    """All arguments of :func:`aucmax.fit`, and those of them that are a run's options, checked."""
    given = arguments_of(config, device)
    return given, Options(**{field.name: given[field.name] for field in fields(Options)})


def arguments_of(config: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """All arguments of :func:`aucmax.fit`, those that a config leaves out too."""
    if not isinstance(config, Mapping):
        raise ValueError(
            f"configs must be mappings of fit's arguments, found {type(config).__name__}"
        )
    found = sorted({"device", "progress"} & {*config})
    if found:
        raise ValueError(f"configs must leave device and progress to the sweep, found {found}")
    try:
        call = inspect.signature(fit).bind(**config, device=device, progress=False)
    except TypeError as error:
        raise ValueError(f"configs must be arguments of fit: {error}") from None
    call.apply_defaults()
    return call.arguments


# --- what is shared, and what must not be ---------------------------------------------------------


class Shelf:
    """Arrays on the device: one copy for all runs under way that were given the same ones."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._copies: WeakValueDictionary[tuple[int, ...], Copy] = WeakValueDictionary()

    def put(self, name: str, data: Any) -> Copy:
        """The data, there; it stays as long as somebody has what is returned."""
        key = tuple(map(id, data if isinstance(data, tuple) else (data,)))
        found = self._copies.get(key)
        if found is None:
            found = self._copies[key] = Copy(name, data, self.device)
        return found


class Copy:
    """Data as it was given, and ``there`` on the device; what is no array stays as it is."""

    def __init__(self, name: str, data: Any, device: torch.device) -> None:
        self.given = self.there = data
        arrays = None if data is None else as_data(name, data)
        if isinstance(arrays, Batch):
            parts = [part for part in arrays if part is not None]
            self.there = tuple(tree_map(lambda x: x.to(device), parts))
            if device.type == "cuda":
                torch.cuda.current_stream(device).synchronize()  # others read it on theirs


class Owners:
    """Which run has what can only be one run's: what training changes, and its folder."""

    def __init__(self) -> None:
        self._trained: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._streams: dict[int, tuple[int, Any]] = {}
        self._folders: dict[Path, int] = {}

    def claim(self, number: int, config: Mapping[str, Any]) -> None:
        """Raise if another run has it."""
        for name in ("model", "loss", "optimizer"):
            found = config.get(name)
            if isinstance(found, nn.Module | torch.optim.Optimizer):
                _refuse(name, number, self._trained.setdefault(found, number), "make another")
        train, out = config.get("train"), config.get("out")
        if _remembers(train):
            other, _ = self._streams.setdefault(id(train), (number, train))
            _refuse("train", number, other, "make another, or pass arrays")
        if out is not None:
            other = self._folders.setdefault(Path(out).resolve(), number)
            _refuse("out", number, other, "name another")


def _refuse(name: str, number: int, other: int, advice: str) -> None:
    if other != number:
        raise ValueError(
            f"{name} must belong to one config, found that of config {other} again: {advice}"
        )


def _remembers(data: Any) -> bool:
    """Whether data gives other batches the second time: an iterator, a loader with a generator.

    A loader that keeps its workers has one iterator for all who ask.
    """
    lasting = hasattr(data, "__next__") or getattr(data, "persistent_workers", False)
    return lasting or bool(generators_of(data))


def _without_gradients(result: FitResult) -> FitResult:
    """They may lie in a captured graph's memory, all of which would stay for them."""
    for module in (result.model, result.loss):
        module.zero_grad(set_to_none=True)
    return result


def _without_frames(error: DivergedError) -> DivergedError:
    """The error without the frames it came through, which hold model, data and optimizer."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)
