"""What is said and done when a run has diverged."""

from __future__ import annotations

import torch
from torch import nn

from aucmax.data.sources import BatchSource
from aucmax.train._judge import is_finite
from aucmax.train._result import DivergedError
from aucmax.train._state import Best
from aucmax.train.options import Options


def explained(
    error: DivergedError, best: Best, source: BatchSource, options: Options, step: int
) -> DivergedError:
    """The error with step and batch; the model, which may hold NaN, gets good weights back.

    Args:
        error: as it was raised.
        best: the best weights so far.
        source: knows the batch.
        options: those of the run.
        step: the last one that was taken.
    """
    ago = error.steps_ago
    failed = step + 1 if options.where.type == "cpu" else step - ago
    when = f"at step {failed:,} ({source.position(ago * options.accumulate)})"
    if error.among_fresh_samples:
        when = f"after step {step:,} (fresh samples up to {source.position()})"
    advice = "Look at that batch" if error.bad_inputs else "Lower lr, or set clip_norm"
    kept = _restore_good_weights(options.model, best, step)
    return DivergedError(
        f"training diverged {when}: {error}. The model holds the weights of step {kept:,}. {advice}"
    )


@torch.no_grad()
def _restore_good_weights(model: nn.Module, best: Best, step: int) -> int:
    """Put what is not finite back to the best weights so far; returns the weights' step."""
    if not is_finite(model.parameters()):
        model.load_state_dict(best.weights)
        return best.step
    for name, buffer in model.named_buffers():
        if name in best.weights and not is_finite([buffer]):
            buffer.copy_(best.weights[name])
    return step
