"""Maximize AUC under Lightning: a module, a callback that ends the stages, Lightning's checkpoints.

Digits 5-9 are ranked above 0-4, with a tenth of the positives to train on. Two things are new to a
LightningModule:

* the loss is a part of the module, so that its a, b and alpha are trained, moved and saved;
* :class:`Stages` ends a stage right after its last step.

Stop it in the middle of a stage and resume in a new process: it goes on bit for bit. ::

    python examples/with_lightning.py --out run --stop-after 250
    python examples/with_lightning.py --out run --resume run/step=200.ckpt
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import aucmax
from aucmax.stages import Stage, geometric


class Ranker(lightning.LightningModule):
    """A network that gives one raw score per image, its loss and its optimizer."""

    def __init__(self, prior: float, lr: float) -> None:
        super().__init__()
        self.lr = lr
        self.model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        self.loss = aucmax.AUCLoss(prior=prior)

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        """The loss of a batch."""
        x, y = batch
        return self.loss(self.model(x), y)

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        """The AUC of the whole set, which is one batch: a mean over batches is another number."""
        x, y = batch
        self.log("auc", aucmax.metrics.roc_auc(self.model(x), y))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """PPD-SG, which minimizes over the model, a and b and maximizes over alpha."""
        return aucmax.PPDSG(aucmax.minmax_groups(self.model, self.loss), lr=self.lr)


class Stages(lightning.Callback):
    """Ends every stage but the last: that one's average, in the optimizer, is the result.

    It is a callback because Lightning saves checkpoints after other callbacks and before the
    module's own hook: a checkpoint of a stage's last step must hold the end of that stage.
    """

    def __init__(self, stages: Sequence[Stage], data: TensorDataset) -> None:
        self.stages, self.data = stages, data
        self.ends = list(accumulate(stage.steps for stage in stages))[:-1]

    @torch.no_grad()
    def on_train_batch_end(self, trainer: lightning.Trainer, module: Ranker, *_: Any) -> None:
        """Go on from the average, with alpha from fresh examples and the next step size."""
        if trainer.global_step not in self.ends:
            return
        k = self.ends.index(trainer.global_step)
        stage, following = self.stages[k : k + 2]
        optimizer = trainer.optimizers[0]
        optimizer.end_stage()
        generator = torch.Generator().manual_seed(stage.index)  # the same in every process
        rows = torch.randint(len(self.data), (stage.dual_samples,), generator=generator)
        x, y = self.data[rows]
        module.eval()
        module.loss.reset_dual(module.model(x.to(module.device)), y.to(module.device))
        module.train()
        following.set_lr(optimizer)


class Draws:
    """Batches drawn with replacement, from a generator whose state is saved.

    Lightning resumes exactly within an epoch if the loader has a state. torch's DataLoader has
    none, torchdata's StatefulDataLoader has.
    """

    def __init__(self, data: TensorDataset, batches: int, batch_size: int = 64) -> None:
        self.data, self.batches, self.batch_size = data, batches, batch_size
        self.generator = torch.Generator().manual_seed(0)

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        n, size = len(self.data), (self.batch_size,)
        for _ in range(self.batches):
            yield self.data[torch.randint(n, size, generator=self.generator)]

    def state_dict(self) -> dict[str, Any]:
        """What Lightning saves."""
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what was saved."""
        self.generator.set_state(state["generator"])


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """Half of the digits to train on, with a tenth of its positives, and the other to validate."""
    images, digits = load_digits(return_X_y=True)
    x = torch.tensor(images / 16, dtype=torch.float32)
    y = torch.tensor(digits >= 5, dtype=torch.float32)
    train, valid = torch.randperm(len(y), generator=torch.Generator().manual_seed(0)).chunk(2)
    train = torch.cat([train[y[train] == 1][::10], train[y[train] == 0]])
    return TensorDataset(x[train], y[train]), TensorDataset(x[valid], y[valid])


def make_trainer(steps: int, callbacks: list[lightning.Callback]) -> lightning.Trainer:
    """A trainer that takes so many steps, quietly."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", ".*does not have many workers|Checkpoint directory .* exists")
    return lightning.Trainer(
        accelerator="cpu",
        max_steps=steps,
        callbacks=callbacks,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def parse_arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description="Maximize AUC under Lightning.")
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
    train, valid = load_data()
    stages = geometric(lr=0.5, steps=options.steps, stages=3)
    total = sum(stage.steps for stage in stages)
    loader = DataLoader(valid, batch_size=len(valid))
    module = Ranker(prior=train.tensors[1].mean().item(), lr=stages[0].lr)
    x, y = train.tensors
    module.loss.begin(module.model(x), y)  # a, b and alpha fit the scores it begins with
    saving = ModelCheckpoint(
        options.out, "{step}", every_n_train_steps=options.save_every, save_top_k=-1
    )
    trainer = make_trainer(options.stop_after or total, [Stages(stages, train), saving])

    def auc() -> float:
        return trainer.validate(module, loader, verbose=False)[0]["auc"]

    print(f"Untrained: validation AUC {auc():.3f}")
    trainer.fit(module, Draws(train, total), loader, ckpt_path=options.resume)
    print(f"Last iterate: validation AUC {auc():.3f}")
    with aucmax.averaged(module.model, trainer.optimizers[0]):
        print(f"Stage average: validation AUC {auc():.3f}")
        torch.save(module.model.state_dict(), options.out / "average.pt")


if __name__ == "__main__":
    main()
