"""sweep(): many small runs at once on one GPU, which take turns."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import closing, contextmanager, suppress
from typing import Any, TypeAlias

import torch

from aucmax import checks, distributed
from aucmax.signals import Stopped, saying_so
from aucmax.train._reporter import SweepReporter
from aucmax.train._result import DivergedError, FitResult
from aucmax.train._turns import Ownership, SharedArrays, TurnTaker, options_of
from aucmax.train.interrupts import Interrupts
from aucmax.train.options import find_device

REFRESH = 0.25
"""Seconds between two looks at how far the runs are."""
MOST_ON_CPU = 1
"""Runs that take turns there: on a CPU nothing would be gained by more."""
END: Any = object()
Outcome: TypeAlias = FitResult | DivergedError
"""What comes of a run."""


def sweep(
    configs: Iterable[Mapping[str, Any] | None],
    *,
    at_once: int = 8,
    device: str | torch.device = "auto",
    on_end: Callable[[int, Outcome], object] | None = None,
    progress: bool = True,
) -> list[Outcome]:
    """Many runs of :func:`aucmax.fit`, several at once on one GPU.

    A small model leaves most of a GPU idle. Here several runs share it, each on a stream of its
    own: while the device works on the steps of some, one hands it the next of its own, captured as
    CUDA graphs where fit would capture them. Arrays that several configs name are on the device
    once. Every run has random numbers of its own and ends as it would alone: on the CPU, where one
    comes after the other, with the same bits.

    Ctrl-C or SIGTERM lets every run finish its step and save, if it has an ``out``; the same call
    then goes on. An error in one run ends the sweep likewise, and says which config it was.

    Args:
        configs: a mapping of fit's arguments for each run, but for ``device`` and ``progress``.
            The ``model`` may be a function without arguments that makes one: it is called when the
            run begins, after ``torch.manual_seed`` of the run's seed, so that only models at work
            are in memory. An iterable is asked for the next config when there is room for it: what
            it is may depend on the outcomes so far. None says to ask again when a run has ended.
        at_once: how many runs share the GPU.
        device: "auto" is the GPU if there is one.
        on_end: called with a config's number, from 0, and its outcome, as runs end.
        progress: a bar in a terminal, lines elsewhere, on standard error.

    Returns:
        The outcome of each config, in their order: a FitResult or, of a run that diverged, the
        DivergedError.

    Raises:
        ValueError: for arguments or data that cannot be right, and under ``torchrun``.
        SystemExit: 130 or 143 after Ctrl-C or SIGTERM, the states saved.

    Example:
        >>> import torch, aucmax
        >>> generator = torch.Generator().manual_seed(0)
        >>> y = (torch.rand(1000, generator=generator) < 0.1).float()
        >>> x = torch.randn(1000, 5, generator=generator) + y[:, None]
        >>> data = {"train": (x[:800], y[:800]), "valid": (x[800:], y[800:])}
        >>> results = aucmax.sweep(
        ...     [
        ...         {"model": lambda: torch.nn.Linear(5, 1), **data, "steps": 200, "lr": lr}
        ...         for lr in (0.1, 0.3)
        ...     ],
        ...     progress=False,
        ... )
        >>> [result.auc > 0.8 for result in results]
        [True, True]
    """
    where, count = find_device(device), checks.count("at_once", at_once)
    total = len(configs) if isinstance(configs, Sized) else None
    runs = Sweep(configs, where, count if where.type == "cuda" else min(count, MOST_ON_CPU))
    outcomes: dict[int, Outcome] = {}
    with saying_so(), SweepReporter(total, progress) as report, closing(iter(runs)) as ended:
        runs.tick = lambda: report.tick(runs.steps)
        for number, outcome in ended:
            outcomes[number] = outcome
            report.ended(number, outcome, runs.steps)
            if on_end is not None:
                on_end(number, outcome)
    return [outcomes[number] for number in sorted(outcomes)]


class Sweep:
    """Runs that are taken in turn; gives the number and the outcome of each as it ends.

    Args:
        configs: of the runs, asked for one by one.
        device: of all of them.
        at_once: how many are under way at a time.

    Attributes:
        tick: called a few times a second.
    """

    def __init__(
        self, configs: Iterable[Mapping[str, Any] | None], device: torch.device, at_once: int
    ) -> None:
        if isinstance(configs, Mapping) or not isinstance(configs, Iterable):
            raise ValueError(
                f"configs must be an iterable of mappings, found {type(configs).__name__}"
            )
        launched = max(distributed.world_size(), int(os.environ.get("WORLD_SIZE", "1")))
        if launched > 1:
            raise ValueError(
                f"sweep must run in one process, found {launched} that train together: "
                f"start each in a process group of its own"
            )
        if isinstance(configs, Sequence):
            for number, config in enumerate(configs):
                with _naming(number):
                    if config is not None:
                        options_of(config, device)
        self.device = device
        self.tick: Callable[[], object] = lambda: None
        self._configs = iter(configs)
        on_gpu = device.type == "cuda"
        self._free: list[torch.cuda.Stream | None] = [
            torch.cuda.Stream(device) if on_gpu else None  # type: ignore[no-untyped-call]
            for _ in range(at_once)
        ]
        self._running: list[TurnTaker] = []
        self._arrays, self._owned = SharedArrays(device), Ownership()
        self._interrupts = Interrupts()
        self._stopped: list[TurnTaker] = []
        self._begun = self._ended = self._steps = 0
        self._asked_after = -1  # how many had ended when configs last had none

    @property
    def steps(self) -> int:
        """That all runs together have taken."""
        return self._steps + sum(run.steps for run in self._running)

    def __iter__(self) -> Generator[tuple[int, Outcome], None, None]:
        looked = time.perf_counter()
        with self._interrupts:
            try:
                while self._fill():
                    run = next((run for run in self._running if run.is_ready()), self._running[0])
                    outcome = self._turn(run)
                    if outcome is not None:
                        yield run.number, outcome
                        self._wait_for_caller()
                    if time.perf_counter() - looked > REFRESH:
                        looked = time.perf_counter()
                        self.tick()
            except (Exception, GeneratorExit):
                self._save_all()
                raise
            finally:
                for run in self._running:
                    run.close()
        if self._interrupts.received:
            lost = sum(not run.saves for run in self._stopped)
            how = f"; {lost} of them had no out= and begin anew" if lost else ""
            done = f" with {self._ended} runs done and {len(self._stopped)} under way"
            raise Stopped(self._interrupts.received, done, f"the same call goes on{how}")

    def _fill(self) -> bool:
        """Begin runs until no place is free, or there are no more; whether some are under way."""
        while self._free and not self._interrupts.received and self._asked_after < self._ended:
            config = next(self._configs, END)
            if config is None and not self._running:
                raise ValueError("configs must give one when no run is under way, found None")
            if config is None:
                self._asked_after = self._ended
            if config is END or config is None:
                break
            self._wait_for_caller()
            with _naming(number := self._begun):
                options = options_of(config, self.device)
                run = TurnTaker(number, options, self._free[-1], self._arrays, self._interrupts)
                self._owned.claim(number, config)
            self._free.pop()
            self._running.append(run)
            self._begun += 1
        return bool(self._running)

    def _turn(self, run: TurnTaker) -> Outcome | None:
        """Let a run take its turn and line up again, unless it is over."""
        self._running.remove(run)
        try:
            with _naming(run.number):
                outcome = run.advance()
        except Stopped:
            self._stopped.append(run)
            return None
        if outcome is None:
            self._running.append(run)
            return None
        self._free.append(run.stream)
        self._steps += run.steps
        self._ended += 1
        return outcome

    def _save_all(self) -> None:
        """Let every run that can be gone on with finish its step and save, as after a signal."""
        self._interrupts.received = self._interrupts.received or signal.SIGTERM
        for run in [run for run in self._running if run.saves]:
            with suppress(Exception, Stopped):  # what went wrong first is what counts
                while run.advance() is None:
                    pass

    def _wait_for_caller(self) -> None:
        """What the caller's code has begun is done, before memory that it let go is used again."""
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()


@contextmanager
def _naming(number: int) -> Iterator[None]:
    """Say of an error which config it comes from."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in config {number} of the sweep")
        raise
