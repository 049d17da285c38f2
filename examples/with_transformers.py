"""Maximize AUC under the transformers Trainer: an optimizer, a scheduler and a callback.

Digits 5-9 are ranked above 0-4, with a tenth of the positives to train on. Four things are new to a
Trainer:

* the loss is a part of the model, so that its a, b and alpha are trained, moved and saved;
* ``optimizers`` takes PPD-AdaGrad, and a scheduler that gives each stage its step size;
* :class:`Stages` ends a stage right after its last step, before that step is saved;
* ``max_grad_norm=0``: by default the Trainer clips gradients, which the paper does not.

Stop it in the middle of a stage and resume in a new process: it goes on bit for bit. ::

    python examples/with_transformers.py --out run --stop-after 250
    python examples/with_transformers.py --out run --resume run/checkpoint-200
"""

from __future__ import annotations

import argparse
import tempfile
from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import (
    EvalPrediction,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
)

import aucmax
from aucmax.stages import Stage, geometric

Examples = list[dict[str, Tensor]]  # under the names of the model's arguments


class Ranker(nn.Module):
    """A network that gives one raw score per image, and its loss."""

    def __init__(self, prior: float) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        self.auc_loss = aucmax.AUCLoss(prior=prior)

    def forward(self, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """What the Trainer expects of a model."""
        scores = self.net(images)
        return {"loss": self.auc_loss(scores, labels), "logits": scores}


class Stages(TrainerCallback):
    """Ends every stage but the last: that one's average, in the optimizer, is the result."""

    def __init__(self, stages: Sequence[Stage], optimizer: Any, data: Examples) -> None:
        self.stages, self.optimizer, self.data = stages, optimizer, data
        self.ends = list(accumulate(stage.steps for stage in stages))[:-1]

    def scheduler(self) -> LambdaLR:
        """The step size of the stage that a step falls in, relative to the first stage's."""
        rates = [stage.lr / self.stages[0].lr for stage in self.stages]
        return LambdaLR(self.optimizer, lambda step: rates[bisect(self.ends, step)])

    @torch.no_grad()
    def on_step_end(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:
        """Go on from the average, with alpha from fresh examples."""
        if state.global_step not in self.ends:
            return
        stage = self.stages[self.ends.index(state.global_step)]
        self.optimizer.end_stage()
        generator = torch.Generator().manual_seed(stage.index)  # the same in every process
        rows = torch.randint(len(self.data), (stage.dual_samples,), generator=generator)
        fresh = default_data_collator([self.data[row] for row in rows.tolist()])
        model.eval()
        scores = model.net(fresh["images"].to(args.device))
        model.auc_loss.reset_dual(scores, fresh["labels"].to(args.device))
        model.train()


class StopAfter(TrainerCallback):
    """Stops at a step, to be resumed later."""

    def __init__(self, step: int | None) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Ask the Trainer to stop."""
        control.should_training_stop |= state.global_step == self.step


def load_data() -> tuple[Examples, Examples]:
    """Half of the digits to train on, with a tenth of its positives, and the other to validate."""
    images, digits = load_digits(return_X_y=True)
    x = torch.tensor(images / 16, dtype=torch.float32)
    y = torch.tensor(digits >= 5, dtype=torch.float32)
    train, valid = torch.randperm(len(y), generator=torch.Generator().manual_seed(0)).chunk(2)
    train = torch.cat([train[y[train] == 1][::10], train[y[train] == 0]])
    examples = [{"images": image, "labels": label} for image, label in zip(x, y, strict=True)]
    return [examples[row] for row in train], [examples[row] for row in valid]


def metrics(prediction: EvalPrediction) -> dict[str, float]:
    """The AUC of the whole validation set."""
    return {"auc": aucmax.metrics.roc_auc(prediction.predictions, prediction.label_ids)}


def make_trainer(
    model: Ranker, stages: Sequence[Stage], data: Examples, valid: Examples, options: Any
) -> tuple[Trainer, aucmax.PPDAdaGrad]:
    """A quiet trainer, and its optimizer as it is: the trainer's own attribute is wrapped."""
    optimizer = aucmax.PPDAdaGrad(aucmax.minmax_groups(model, model.auc_loss), lr=stages[0].lr)
    callback = Stages(stages, optimizer, data)
    arguments = TrainingArguments(
        str(options.out),
        max_steps=sum(stage.steps for stage in stages),
        per_device_train_batch_size=64,
        max_grad_norm=0.0,
        save_steps=options.save_every,
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(
        model,
        arguments,
        train_dataset=data,
        eval_dataset=valid,
        compute_metrics=metrics,
        callbacks=[callback, StopAfter(options.stop_after)],
        optimizers=(optimizer, callback.scheduler()),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer, optimizer


def parse_arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description="Maximize AUC under the transformers Trainer.")
    parser.add_argument("--steps", type=int, default=100, help="T_0, the length of the first stage")
    parser.add_argument("--save-every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--out", type=Path, help="folder for the checkpoints; else none is kept")
    parser.add_argument("--resume", help="a checkpoint to go on from")
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
    model = Ranker(prior=sum(example["labels"].item() for example in data) / len(data))
    whole = default_data_collator(data)
    model.auc_loss.begin(model.net(whole["images"]), whole["labels"])  # a, b, alpha fit the scores
    stages = geometric(lr=0.2, steps=options.steps, stages=3)
    trainer, optimizer = make_trainer(model, stages, data, valid, options)

    def auc() -> float:
        return trainer.evaluate()["eval_auc"]

    print(f"Untrained: validation AUC {auc():.3f}")
    trainer.train(resume_from_checkpoint=options.resume)
    print(f"Last iterate: validation AUC {auc():.3f}")
    with aucmax.averaged(model, optimizer):
        print(f"Stage average: validation AUC {auc():.3f}")
        torch.save(model.net.state_dict(), options.out / "average.pt")


if __name__ == "__main__":
    main()
