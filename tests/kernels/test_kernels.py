"""The GPU's kernels do what the plain operations do; on the CPU by Triton's interpreter."""

import pytest
import torch
from interpreted import DEVICE, with_kernels  # noqa: F401

from aucmax.kernels import guard, packed

# --- gradients that are not finite ---------------------------------------------------------------


@pytest.mark.usefixtures("with_kernels")
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_the_first_step_with_a_bad_gradient_or_loss_is_noted(bad):
    grads = [torch.zeros(n, device=DEVICE) for n in (3, packed.BLOCK + 5, 2)]
    since = torch.full((5,), 99, dtype=torch.int64, device=DEVICE)
    loss = torch.zeros((), dtype=torch.float64, device=DEVICE)
    table = packed.Packed(grads, guard.COLUMNS, {}, groups=[0, 1, 3]).table(
        [g.data_ptr() for g in grads]
    )
    steps = torch.zeros((), dtype=torch.int64, device=DEVICE)
    for _ in range(4):
        steps += 1
        if steps == 2:
            grads[1][-1] = bad
        if steps == 3:
            grads[2][0] = loss[...] = bad
        guard.note(table, torch.float32, loss, steps, since)
    assert since.tolist() == [99, 2, 99, 3, 3]
