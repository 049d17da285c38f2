"""Which weights are best so far: both iterates, judged on the validation data."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor

from aucmax import distributed
from aucmax.data.batches import Batch, BatchFormat, evaluation_batches
from aucmax.optim import averaged
from aucmax.optim.average import batch_norms, keeping_modes
from aucmax.optim.staged import local
from aucmax.sharding import mesh_of
from aucmax.train._evaluate import score
from aucmax.train._phases import Phase
from aucmax.train._state import Best
from aucmax.train._step import autocast
from aucmax.train.metrics import ITERATES, Scored
from aucmax.train.options import Options

SHAPING = ("view", "squeeze", "reshape", "select", "slice", "alias", "clone", "copy")
"""What the names of autograd's nodes hold that change no value."""

Probe: TypeAlias = Callable[[], Iterator[Batch]] | None
"""Gives some training batches, as often as it is asked; None if there are none."""


class Judge:
    """Evaluates the last iterate and the average, and keeps the weights of the better ones.

    Args:
        options: those of the run.
        place: device and precision of the model.
        data: "valid", which decides, and "test", which is only looked at; None where there is none.
    """

    def __init__(self, options: Options, place: BatchFormat, data: dict[str, Any]) -> None:
        self.options, self.place, self.model = options, place, options.model
        self.metric = options.measure
        self.data = {
            part: place.convert(rows) if isinstance(rows, Batch) else rows
            for part, rows in data.items()
            if rows is not None
        }
        self.warned: set[str] = set()
        self.order: Tensor | None = None  # the validation labels, as they came first
        # Scores in [0, 1] are as they should be where they are taken as they are.
        as_they_are = (options.loss_options or {}).get("link") == "identity"
        self.doubts_scores = options.loss is None and not as_they_are
        self.has_norms = bool(batch_norms(self.model))
        self.best = Best(self._weights())

    def evaluate(
        self, phase: Phase, step: int, probe: Probe, end_stage: bool = False
    ) -> dict[str, float]:
        """The metric of both iterates on training, validation and test data.

        ``end_stage`` ends the stage between them: PGA draws its average from the stages ended.
        Without a probe, for the data has come to an end, an average whose batch-norm statistics
        cannot be estimated is left out.
        """
        values = self._judge("last", phase, step, probe)
        if end_stage:
            phase.average.end_stage(restart="average")
        if probe is not None or not self.has_norms:
            with self.at_average(phase, probe):
                values |= self._judge("average", phase, step, probe)
        parts = dict.fromkeys(["train", "valid", *self.data])
        keys = [self.metric.history_key(part, which) for which in ITERATES for part in parts]
        return {key: values.get(key, math.nan) for key in keys}

    @contextmanager
    def at_average(self, phase: Phase, probe: Probe) -> Iterator[None]:
        """The average in place of the last iterate, batch norm estimated at it."""
        inputs = ((batch.x,) for batch in probe()) if self.has_norms and probe else None
        with autocast(self.options), averaged(self.model, phase.average, inputs):
            distributed.average_buffers(self.model)
            yield

    def score(self, batches: Iterator[Batch]) -> Scored:
        """Scores of all ranks' rows."""
        with autocast(self.options):
            return score(self.model, batches)

    def _judge(self, iterate: str, phase: Phase, step: int, probe: Probe) -> dict[str, float]:
        """One iterate, which is in the model, on all data."""
        values = {}
        if self.options.probe and probe is not None:
            scored = self.score(probe())
            self._look_at_range(scored.scores, probe())
            if scored.group is not None or not self.metric.needs_group:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # a probe may lack a class
                    values["train"] = self.metric(scored, self.place.task)
        rows = {part: self._scored(part) for part in self.data}
        values |= {part: self._value(part, scored) for part, scored in rows.items()}
        value, best = values.get("valid", math.nan), self.best
        if math.isnan(value) and math.isnan(best.score):
            better = iterate == phase.how.returns and is_finite(self.model.state_dict().values())
        elif math.isnan(value) or math.isnan(best.score):
            better = math.isnan(best.score)
        elif self.options.choose == "best":
            better = value > best.score
        else:
            better = self._is_steady(iterate, value, rows["valid"])
        if better:
            leader, highest = best.leader, best.highest
            if self.options.choose == "steady" and "valid" in rows and not value <= highest:
                leader, highest = rows["valid"].scores, value
            self.best = Best(self._weights(), value, step, iterate, leader, highest)
        return {self.metric.history_key(part, iterate): x for part, x in values.items()}

    def _is_steady(self, iterate: str, value: float, scored: Scored) -> bool:
        """Whether an average is not seen behind the highest value kept, or a last one ahead."""
        assert self.best.leader is not None
        labels = scored.target.nan_to_num(nan=-1.0)  # unknown ones, which equal nothing
        if self.order is None:
            self.order = labels
        if not torch.equal(self.order, labels):
            raise ValueError(
                'valid must come in the same order every time for choose="steady", found labels in '
                "another: pass arrays, or a loader that does not shuffle"
            )
        seen = self.metric.compare(scored, self.best.leader, self.place.task)
        if seen is None:
            is_first = self.best.iterate == "last"
            return iterate == "average" and (is_first or value > self.best.score)
        return seen == 1 if iterate == "last" else seen >= 0

    def _scored(self, part: str) -> Scored:
        """The rows of a part of the data."""
        size = max(256, 4 * self.options.batch_size)  # less than training needs with its gradients

        def rows() -> Iterator[Batch]:
            return evaluation_batches(self.data[part], self.place, size, self.options.workers)

        scored = self.score(rows())
        self._look_at_range(scored.scores, rows())
        return scored

    def _value(self, part: str, scored: Scored) -> float:
        """The metric of a part of the data; what there is to say of that part is said once."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            value = self.metric(scored, self.place.task)
        own = not self.metric.is_known and bool(scored.scores.isfinite().all())
        if part == "valid" and own and math.isnan(value) and math.isnan(self.best.score):
            raise ValueError(
                f"metric must give a number, found nan of {self.metric.name} at the first "
                f"evaluation"
            )
        if caught and part not in self.warned:
            self.warned.add(part)
            name = "validation" if part == "valid" else part
            result = f"the {name} {self.metric.label}"
            text = str(caught[0].message).replace("the result", result, 1)
            warnings.warn(text, UserWarning, stacklevel=2)
        return value

    def _look_at_range(self, scores: Tensor, batches: Iterator[Batch]) -> None:
        """Warn, once, of a sigmoid or softmax at the end: the loss would take its own of it.

        Scores in [0, 1] may be those of a model that has hardly trained, so its last layer is
        asked; a sharded model, which computes on all ranks together, is not.
        """
        if not self.doubts_scores:
            return
        self.doubts_scores = False
        low, high = torch.stack(scores.aminmax()).tolist()
        if not 0 <= low < high <= 1 or mesh_of(self.model) is not None:
            return
        with keeping_modes(self.model), autocast(self.options), torch.enable_grad():
            layer = squashed_by(self.model.eval()(next(batches).x))
        if layer is not None:
            warnings.warn(
                f"the model ends in a {layer}: fit takes raw scores, so remove that layer, or, on "
                f"the AUC objective alone, pass loss_options={{'link': 'identity'}}",
                UserWarning,
                stacklevel=2,
            )

    @torch.no_grad()
    def restore_good_weights(self, step: int) -> int:
        """Put what is not finite back to the best weights so far; returns the weights' step."""
        model, best = self.model, self.best
        if not is_finite(model.parameters()):
            model.load_state_dict(best.weights)
            return best.step
        for name, buffer in model.named_buffers():
            if name in best.weights and not is_finite([buffer]):
                buffer.copy_(best.weights[name])
        return step

    @torch.no_grad()
    def _weights(self) -> dict[str, Tensor]:
        return {name: x.clone() for name, x in self.model.state_dict().items()}


def squashed_by(scores: Tensor) -> str | None:
    """Sigmoid or softmax, if that is the last that was done to the scores but for their shape."""
    node = scores.grad_fn
    while node is not None:
        name = node.name().lower()
        for layer in ("sigmoid", "softmax"):
            if name.startswith(layer):
                return layer
        if not any(part in name for part in SHAPING):
            return None
        node = node.next_functions[0][0]
    return None


def is_finite(tensors: Iterable[Any]) -> bool:
    """Whether all real numbers in them are finite; of sharded ones, this rank's."""
    reals = [local(x) for x in tensors if isinstance(x, Tensor) and x.is_floating_point()]
    return all(bool(x.isfinite().all()) for x in reals)
