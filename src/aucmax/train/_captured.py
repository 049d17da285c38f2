"""The whole step as one CUDA graph: forward, loss, backward, clipping, optimizer, average."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from aucmax import distributed, random_state
from aucmax.data.batches import ArraySource, BatchSource
from aucmax.optim.staged import StagedOptimizer
from aucmax.train._phases import Phase
from aucmax.train._step import Step
from aucmax.train.options import Options

WARM_UP = 3
"""Steps of a stage that run operation by operation before the capture: they begin the optimizer's
state and let the libraries choose their algorithms."""


class CapturedStep(Step):
    """Replays one captured graph per step; a new one for every stage.

    What the host decides, the rows or the batch, is copied into the tensors that the graph reads.
    If the capture fails, steps go on operation by operation, and ``note`` is told why.
    """

    def __init__(
        self, phase: Phase, source: BatchSource, options: Options, note: Callable[[str], None]
    ) -> None:
        super().__init__(phase, source, options)
        self.note = note
        self.failed = False
        self.stream = _side_stream(options.where)
        self.begin_stage()

    def begin_stage(self) -> None:
        """The step size and the optimizer's state are new, and so must be the graph."""
        self.graph: torch.cuda.CUDAGraph | None = None
        self.static: list[tuple[Any, ...]] = []
        self.leaves: list[Any] = []
        self.warm = 0

    @property
    def is_replaying(self) -> bool:
        return self.graph is not None and isinstance(self.source, ArraySource)

    def __call__(self) -> bool:
        drawn = [self.source.draw() for _ in range(self.options.accumulate)]
        self.losses += 1
        if self.failed or self.warm < WARM_UP:
            return self._warm_up(drawn)
        if self.graph is None and not self._capture(drawn):
            return self.run(drawn)
        if not self._fill(drawn):
            return self.run(drawn)  # a batch of another shape, such as the last of an epoch
        assert self.graph is not None
        self.graph.replay()
        return True

    def _warm_up(self, drawn: list[tuple[Any, ...]]) -> bool:
        self.warm += 1
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            is_done = self.run(drawn)
        torch.cuda.current_stream().wait_stream(self.stream)
        return is_done

    def _capture(self, drawn: list[tuple[Any, ...]]) -> bool:
        """Record the step, which does not run it; say why not if that fails."""
        self.static = tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, drawn)
        self.phase.optimizer.zero_grad(set_to_none=True)
        graph, random = torch.cuda.CUDAGraph(), torch.cuda.get_rng_state(self.options.where)
        try:
            # Another thread may pin memory for a loader meanwhile: only this one must not.
            mode = "thread_local"
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode=mode):
                self.run(self.static)
        except Exception as error:  # whatever the model does that a graph cannot hold
            torch.cuda.synchronize()
            # The failure leaves the generator's state waiting for the end of a capture.
            random_state.renew_cuda(self.options.where).set_state(random)
            self.phase.optimizer.zero_grad(set_to_none=True)
            # Tables that kernels work on: what was to fill them may have been recorded, not done.
            self.guard.forget_tables()
            if isinstance(self.phase.optimizer, StagedOptimizer):
                self.phase.optimizer.forget_tables()
            self.failed = True
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            self.note(f"the step is not captured as a CUDA graph: {reason}")
            return False
        self.graph, self.leaves = graph, _leaves(self.static)
        return True

    def _fill(self, drawn: list[tuple[Any, ...]]) -> bool:
        """Copy what was drawn to where the graph reads; False if the shapes are others."""
        pairs = zip(self.leaves, _leaves(drawn), strict=False)
        tensors = [(a, b) for a, b in pairs if isinstance(a, Tensor)]
        if any(a.shape != b.shape for a, b in tensors):
            return False
        for static, new in tensors:
            static.copy_(new, non_blocking=True)
        return True


def _leaves(drawn: list[tuple[Any, ...]]) -> list[Any]:
    """All tensors of what was drawn; rows are found without a walk through trees."""
    flat = [x for part in drawn for x in part]
    return flat if all(isinstance(x, Tensor) for x in flat) else tree_leaves(flat)


def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One that a graph can be captured on: the current one, if it is not the default.

    A run that was given a stream does all its work there, so memory that it frees is never taken
    by itself too soon, and never by others.
    """
    current = torch.cuda.current_stream(device)
    if current != torch.cuda.default_stream(device):
        return current
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def make_step(
    phase: Phase, source: BatchSource, options: Options, note: Callable[[str], None]
) -> Step:
    """The step of a phase, captured where it is wanted and possible; ``note`` is told why not."""
    if options.cuda_graph is False or (options.cuda_graph is None and options.where.type == "cpu"):
        return Step(phase, source, options)
    reason = why_not(options, phase)
    if reason is None:
        return CapturedStep(phase, source, options, note)
    note(f"the step is not captured as a CUDA graph: {reason}")
    return Step(phase, source, options)


def why_not(options: Options, phase: Phase) -> str | None:
    """Why the step of a phase cannot be captured; None if it can be tried."""
    if options.where.type != "cuda":
        return "it needs a CUDA device"
    if options.amp == "fp16":
        return "the gradient scaler of amp='fp16' decides on the host"
    if distributed.world_size() > 1:
        return "several processes train together"
    if options.compile and any(getattr(m, "follows_batches", 0) for m in phase.loss.modules()):
        return "a compiled loss gives what it keeps of the batches new memory at every step"
    groups = phase.optimizer.param_groups
    if phase.how.capture != "free" and not all(group.get("capturable") for group in groups):
        return f"{type(phase.optimizer).__name__} counts its steps on the host"
    if any(group.get("lr_decay") for group in groups):  # of torch's Adagrad
        return "lr_decay goes by steps that are counted on the host"
    return None
