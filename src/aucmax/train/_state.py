"""The whole state of a run, as it is saved, and the way back."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from aucmax import distributed, random_state
from aucmax.data.batches import BatchSource
from aucmax.train._phases import Phase
from aucmax.train._step import Step
from aucmax.train.options import Options


@dataclass
class Progress:
    """Where a run stands.

    Attributes:
        reason: why it is over, if it is.
        recorded_step: the last one that was evaluated.
        stepping_seconds: that the steps since then have taken.
    """

    step: int = 0
    phase: int = 0
    stage: int = 0
    stage_step: int = 0
    seconds: float = 0.0
    evaluations_without_gain: int = 0
    reason: str = ""
    recorded_step: int = 0
    stepping_seconds: float = 0.0


@dataclass
class Best:
    """The best weights so far, with where they come from.

    Attributes:
        leader: the validation scores of the weights with the highest value of all that were kept.
        highest: that value.
    """

    weights: dict[str, Tensor]
    score: float = math.nan
    step: int = 0
    iterate: str = "last"
    leader: Tensor | None = None
    highest: float = math.nan

    @property
    def name(self) -> str:
        """Of its checkpoint."""
        return f"best-{self.step:010d}"


@dataclass
class RunState:
    """What it takes to go on as if nothing had been.

    Attributes:
        progress: where the run stands.
        model: its ``state_dict``.
        parts: those of loss, optimizer, average and plateau.
        ranks: what differs from rank to rank.
        history: the records so far.
        best: the name of the checkpoint of the best weights.
    """

    progress: Progress
    model: dict[str, Any]
    parts: dict[str, dict[str, Any]]
    ranks: list[dict[str, Any]]
    history: list[dict[str, Any]] = field(default_factory=list)
    best: str = ""

    @classmethod
    def of(
        cls,
        progress: Progress,
        phase: Phase,
        step: Step,
        source: BatchSource,
        options: Options,
        history: list[dict[str, Any]],
        best: str,
    ) -> RunState:
        """The state now; of all ranks, on each of them."""
        own = {
            "source": source.state_dict(),
            "random": random_state.get_state(options.where),
            "step": step.state_dict(),
            "buffers": {name: x.cpu() for name, x in options.model.named_buffers()},
            "loss": {},
        }
        if options.walks_apart:  # what a loss remembers is then of the rank's own batches
            own["loss"] = {name: x.cpu() for name, x in phase.loss.named_buffers()}
        parts = {name: part.state_dict() for name, part in phase.parts().items()}
        ranks = distributed.gather_objects(own)
        return cls(progress, options.model.state_dict(), parts, ranks, history, best)

    @property
    def name(self) -> str:
        """Of its checkpoint."""
        return f"step-{self.progress.step:010d}"

    def to_dict(self) -> dict[str, Any]:
        """As it is saved."""
        return {**vars(self), "progress": asdict(self.progress)}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> RunState:
        """As it was saved."""
        return cls(**{**state, "progress": Progress(**state["progress"])})

    def restore(self, phase: Phase, step: Step, source: BatchSource, options: Options) -> None:
        """Put a phase that has not begun, and what goes with it, to where this was saved.

        What differs from rank to rank comes back as near as can be if their number is another now.
        """
        for name, part in phase.parts().items():
            part.load_state_dict(self.parts[name])
        same = len(self.ranks) == distributed.world_size()
        own = self.ranks[distributed.rank() if same else 0]
        if not same:
            sums = torch.stack([rank["step"]["loss_sum"] for rank in self.ranks])
            own["step"]["loss_sum"] = sums.mean()
        step.load_state_dict(own["step"])
        for module, part in ((options.model, "buffers"), (phase.loss, "loss")):
            for name, buffer in module.named_buffers():
                if same and name in own.get(part, {}):
                    buffer.copy_(own[part][name])
        source.load_state_dict(own["source"])
        if same or distributed.rank() == 0:
            random_state.set_state(own["random"], options.where)
