"""A run that takes turns with others on one device, and what they share there."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch import nn
from torch.utils._pytree import tree_map

from aucmax import random_state
from aucmax.data.batches import Batch, as_data, generators_of
from aucmax.train._loop import Loop
from aucmax.train._result import DivergedError, FitResult
from aucmax.train._run import make_loop, random_numbers
from aucmax.train.interrupts import Interrupts
from aucmax.train.options import Options

TURN = 8  # replayed steps, then another run's: a device takes few ahead


class TurnTaker:
    """One run, advanced a turn at a time.

    In its turns the random numbers and, on a CUDA device, the stream are its own; afterwards they
    are the caller's again.

    Args:
        number: of the run.
        options: those of the run; the model may be a function that makes one.
        stream: on which the run does all its work; None but on a CUDA device.
        arrays: those that runs share on the device.
        interrupts: notes the signals for all runs.
    """

    def __init__(
        self,
        number: int,
        options: Options,
        stream: torch.cuda.Stream | None,
        arrays: SharedArrays,
        interrupts: Interrupts,
    ) -> None:
        self.number, self.stream = number, stream
        self.saves, self.steps = options.folder is not None, 0
        self._options: Options | None = options
        self._arrays, self._interrupts = arrays, interrupts
        self._copies: dict[str, DeviceCopy] | None = None
        self._random = random_numbers(options)
        self._loop: Loop | None = None

    def is_ready(self) -> bool:
        """Whether the device has done what the last turn gave it to do."""
        return self.stream is None or self.stream.query()

    def advance(self) -> FitResult | DivergedError | None:
        """A turn; what came of the run, if it is over."""
        outcome: FitResult | DivergedError | None = None
        draws_none = self._loop is not None and self._loop.is_replaying
        with torch.cuda.stream(self.stream), nullcontext() if draws_none else self._random:
            try:
                self._loop = self._loop or self._make_loop(self._options)
                outcome = self._loop.advance(TURN)
            except DivergedError as error:
                # Without the frames it came through, which hold model, data and optimizer.
                error.__context__ = error.__cause__ = None
                outcome = error.with_traceback(None)
        if self._loop is not None:
            self.steps = self._loop.at.step - self._loop.first_step
        if isinstance(outcome, FitResult):
            for module in (outcome.model, outcome.loss):
                module.zero_grad(set_to_none=True)  # gradients may lie in a captured graph's memory
        if outcome is not None:  # free the graph, the optimizer and the data for the runs to come
            self._loop = self._options = self._copies = None
            if self.stream is not None:
                self.stream.synchronize()
                gc.collect()
        return outcome

    def _make_loop(self, options: Any) -> Loop:
        model: Any = options.model
        if not isinstance(model, nn.Module) and callable(model):
            with random_state.Isolated(options.seed, options.where):
                options.model = model()
        self._copies = {
            name: self._arrays.put(name, getattr(options, name))
            for name in ("train", "valid", "test")
        }
        for name, copy in self._copies.items():
            setattr(options, name, copy.there)
        return make_loop(options, self._interrupts)

    def close(self) -> None:
        """Leave it where it is."""
        if self._loop is not None:
            self._loop.close()


def options_of(config: Mapping[str, Any], device: torch.device) -> Options:
    """A config of a sweep as the checked arguments of :func:`aucmax.fit`."""
    if not isinstance(config, Mapping):
        raise ValueError(
            f"configs must be mappings of fit's arguments, found {type(config).__name__}"
        )
    reserved = sorted({"device", "progress"} & {*config})
    if reserved:
        raise ValueError(f"configs must leave device and progress to the sweep, found {reserved}")
    arguments = {**config, "device": device, "progress": False}
    try:
        inspect.signature(Options).bind(**arguments)
    except TypeError as error:
        raise ValueError(f"configs must be arguments of fit: {error}") from None
    options = Options(**arguments)
    if options.has_candidates:
        raise ValueError(
            f"configs must have one objective each, found {options.objective!r}: "
            f"name each in a config of its own"
        )
    options.check_processes()
    return options


# --- what is shared, and what must not be ---------------------------------------------------------


class SharedArrays:
    """Arrays on the device: one copy for all runs under way that were given the same ones."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._copies: WeakValueDictionary[tuple[int, ...], DeviceCopy] = WeakValueDictionary()

    def put(self, name: str, data: Any) -> DeviceCopy:
        """The data, there; it stays as long as somebody has what is returned."""
        key = tuple(map(id, data if isinstance(data, tuple) else (data,)))
        copy = self._copies.get(key)
        if copy is None:
            copy = self._copies[key] = DeviceCopy(name, data, self.device)
        return copy


class DeviceCopy:
    """Data as it was given, and ``there`` on the device; what is no array stays as it is."""

    def __init__(self, name: str, data: Any, device: torch.device) -> None:
        self.given = self.there = data
        arrays = None if data is None else as_data(name, data)
        if isinstance(arrays, Batch):
            self.there = tree_map(lambda x: None if x is None else x.to(device), arrays[:4])
            if device.type == "cuda":
                torch.cuda.current_stream(device).synchronize()  # others read it on theirs


class Ownership:
    """Which run has what can only be one run's: what training changes, and its folder."""

    def __init__(self) -> None:
        self._trained: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._streams: dict[int, tuple[int, Any]] = {}
        self._folders: dict[Path, int] = {}

    def claim(self, number: int, config: Mapping[str, Any]) -> None:
        """Raise if another run has it."""
        for name in ("model", "loss", "optimizer"):
            part = config.get(name)
            if isinstance(part, nn.Module | torch.optim.Optimizer):
                owner = self._trained.setdefault(part, number)
                _check_owner(name, number, owner, "make another")
        train, out = config.get("train"), config.get("out")
        # An iterator, a loader with a generator or with lasting workers, of which all who ask get
        # one iterator: data that gives other batches the second time.
        lasting = hasattr(train, "__next__") or getattr(train, "persistent_workers", False)
        if lasting or generators_of(train):
            owner, _ = self._streams.setdefault(id(train), (number, train))
            _check_owner("train", number, owner, "make another, or pass arrays")
        if out is not None:
            owner = self._folders.setdefault(Path(out).resolve(), number)
            _check_owner("out", number, owner, "name another")


def _check_owner(name: str, number: int, owner: int, advice: str) -> None:
    if owner != number:
        raise ValueError(
            f"{name} must belong to one config, found that of config {owner} again: {advice}"
        )
