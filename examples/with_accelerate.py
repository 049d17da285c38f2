"""Maximize AUC under Accelerate: prepare model and loss, save_state, load_state.

Digits 5-9 are ranked above 0-4, with a tenth of the positives to train on. Three things are new to
a loop under Accelerate:

* the loss is prepared like a model, so that its a, b and alpha are trained, moved and saved;
* ``prepare`` wraps the optimizer, and stages are the wrapped one's: ``optimizer.optimizer``;
* a stage ends right after its last step, before that step is saved.

Stop it in the middle of a stage and resume in a new process: it goes on bit for bit. ::

    python examples/with_accelerate.py --out run --stop-after 250
    python examples/with_accelerate.py --out run --resume run/step_200
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import aucmax
from aucmax.stages import Stage, geometric


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """Half of the digits to train on, with a tenth of its positives, and the other to validate."""
    images, digits = load_digits(return_X_y=True)
    x = torch.tensor(images / 16, dtype=torch.float32)
    y = torch.tensor(digits >= 5, dtype=torch.float32)
    train, valid = torch.randperm(len(y), generator=torch.Generator().manual_seed(0)).chunk(2)
    train = torch.cat([train[y[train] == 1][::10], train[y[train] == 0]])
    return TensorDataset(x[train], y[train]), TensorDataset(x[valid], y[valid])


@dataclass
class Run:
    """What is trained, as ``prepare`` returns it, and how far it is."""

    accelerator: Accelerator
    model: nn.Module
    loss: nn.Module
    optimizer: Any
    loader: Any
    step: int = 0

    def state_dict(self) -> dict[str, int]:
        """What Accelerate saves beside model, loss and optimizer."""
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from what was saved."""
        self.step = state["step"]


def make_run(train: TensorDataset, lr: float) -> Run:
    """A network that gives one raw score per image, its loss and its optimizer, all prepared."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    x, y = train.tensors
    loss = aucmax.AUCLoss(prior=y.mean().item())
    loss.begin(model(x), y)  # a, b and alpha fit the scores that training begins with
    optimizer = aucmax.PPDSG(aucmax.minmax_groups(model, loss), lr=lr)
    loader = DataLoader(train, batch_size=64, shuffle=True)
    # With a seedable sampler an epoch's order depends on the seed and the epoch's number alone.
    order = DataLoaderConfiguration(use_seedable_sampler=True, data_seed=0)
    accelerator = Accelerator(cpu=True, dataloader_config=order)
    run = Run(accelerator, *accelerator.prepare(model, loss, optimizer, loader))
    accelerator.register_for_checkpointing(run)
    return run


def batches(run: Run) -> Iterator[tuple[Tensor, Tensor]]:
    """Epoch after epoch, from the step on that the run has reached."""
    epoch, done = divmod(run.step, len(run.loader))
    while True:
        run.loader.set_epoch(epoch)
        yield from run.accelerator.skip_first_batches(run.loader, done)
        epoch, done = epoch + 1, 0


@torch.no_grad()
def end_stage(run: Run, stage: Stage, following: Stage, data: TensorDataset) -> None:
    """Go on from the average, with alpha from fresh examples and the next step size."""
    run.optimizer.optimizer.end_stage()
    generator = torch.Generator().manual_seed(stage.index)  # the same in every process
    x, y = data[torch.randint(len(data), (stage.dual_samples,), generator=generator)]
    device = run.accelerator.device
    run.model.eval()
    run.accelerator.unwrap_model(run.loss).reset_dual(run.model(x.to(device)), y.to(device))
    run.model.train()
    following.set_lr(run.optimizer)


def train(
    run: Run, stages: Sequence[Stage], data: TensorDataset, options: argparse.Namespace
) -> None:
    """Train to the end of the last stage, whose average, in the optimizer, is the result."""
    *ends, last = accumulate(stage.steps for stage in stages)
    for x, y in islice(batches(run), (options.stop_after or last) - run.step):
        run.optimizer.zero_grad()
        run.accelerator.backward(run.loss(run.model(x), y))
        run.optimizer.step()
        run.step += 1
        if run.step in ends:
            k = ends.index(run.step)
            end_stage(run, stages[k], stages[k + 1], data)
        if run.step % options.save_every == 0:
            run.accelerator.save_state(options.out / f"step_{run.step}")


@torch.no_grad()
def auc(run: Run, data: TensorDataset) -> float:
    """The AUC in evaluation mode."""
    x, y = data.tensors
    run.model.eval()
    scores = run.model(x.to(run.accelerator.device))
    run.model.train()
    return aucmax.metrics.roc_auc(scores, y)


def parse_arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description="Maximize AUC under Accelerate.")
    parser.add_argument("--steps", type=int, default=100, help="T_0, the length of the first stage")
    parser.add_argument("--save-every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--out", type=Path, help="folder for the checkpoints; else none is kept")
    parser.add_argument("--resume", type=Path, help="a checkpoint to go on from")
    parser.add_argument("--stop-after", type=int, help="a step to stop at, to be resumed later")
    return parser.parse_args()


def main() -> None:
    """Train, and leave nothing behind unless ``--out`` says where."""
    options = parse_arguments()
    with tempfile.TemporaryDirectory() as scratch:
        options.out = options.out or Path(scratch)
        options.out.mkdir(parents=True, exist_ok=True)
        rank_digits(options)


def rank_digits(options: argparse.Namespace) -> None:
    """Train in three stages, print the validation AUC, save the averaged model."""
    torch.set_num_threads(1)  # the network is too small to share between cores
    torch.manual_seed(0)
    data, valid = load_data()
    stages = geometric(lr=0.5, steps=options.steps, stages=3)
    run = make_run(data, lr=stages[0].lr)
    run.accelerator.print(f"Untrained: validation AUC {auc(run, valid):.3f}")
    if options.resume:
        run.accelerator.load_state(options.resume)
    train(run, stages, data, options)
    run.accelerator.print(f"Last iterate: validation AUC {auc(run, valid):.3f}")
    with aucmax.averaged(run.model, run.optimizer.optimizer):
        run.accelerator.print(f"Stage average: validation AUC {auc(run, valid):.3f}")
        run.accelerator.save(run.accelerator.get_state_dict(run.model), options.out / "average.pt")


if __name__ == "__main__":
    main()
