"""The whole state of a loop, as it is saved, and the way back."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from aucmax import distributed, random_state
from aucmax.history import History
from aucmax.train._judge import Best

if TYPE_CHECKING:
    from aucmax.train._loop import Loop


@dataclass
class Progress:
    """Where a run stands."""

    step: int = 0
    phase: int = 0
    stage: int = 0
    stage_step: int = 0
    seconds: float = 0.0
    evaluations_without_gain: int = 0
    reason: str = ""


def state_of(loop: Loop) -> dict[str, Any]:
    """What it takes to go on as if nothing had been; of all ranks, on each of them."""
    own = {
        "source": loop.source.state_dict(),
        "random": random_state.get_state(loop.options.device),
        "step": loop.step.state_dict(),
        "buffers": {name: x.cpu() for name, x in loop.model.named_buffers()},
    }
    return {
        "progress": asdict(loop.at),
        "recorded": [loop.recorded_step, loop.stepping_seconds],
        "model": loop.model.state_dict(),
        "parts": {name: part.state_dict() for name, part in loop.phase.modules().items()},
        "ranks": distributed.gather_objects(own),
        "history": loop.history.records,
        "best": loop.judge.best.name,
    }


def load_state(loop: Loop, state: dict[str, Any], best: dict[str, Any]) -> None:
    """Put a loop that has not begun to where a state was saved, with its best weights."""
    loop.at = Progress(**state["progress"])
    loop.recorded_step, loop.stepping_seconds = state["recorded"]
    loop.model.load_state_dict(state["model"])
    loop.enter_phase()
    for name, part in loop.phase.modules().items():
        part.load_state_dict(state["parts"][name])
    loop.judge.best = Best(**best)
    loop.history = History(records=state["history"])
    _load_own(loop, state["ranks"])


def _load_own(loop: Loop, ranks: list[dict[str, Any]]) -> None:
    """What differs from rank to rank; as near as can be if their number is another now."""
    same = len(ranks) == distributed.world_size()
    own = ranks[distributed.rank() if same else 0]
    if not same:
        sums = torch.stack([rank["step"]["loss_sum"] for rank in ranks])
        own["step"]["loss_sum"] = sums.mean()
    loop.step.load_state_dict(own["step"])
    for name, buffer in loop.model.named_buffers():
        if same and name in own["buffers"]:
            buffer.copy_(own["buffers"][name])
    loop.source.load_state_dict(own["source"])
    if same or distributed.rank() == 0:
        random_state.set_state(own["random"], loop.options.device)
