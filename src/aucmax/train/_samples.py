"""Fresh samples, and what a stage's end does with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from torch.utils._pytree import tree_leaves

from aucmax import distributed
from aucmax.checks import MissingClassError, NotFiniteError
from aucmax.data.batches import Batch, BatchSource, IterableSource
from aucmax.optim import update_batch_norm
from aucmax.stages import Stage
from aucmax.train._evaluate import joined
from aucmax.train._judge import Judge, Probe, is_finite
from aucmax.train._phases import Phase
from aucmax.train._result import DivergedError
from aucmax.train._step import autocast
from aucmax.train.options import Options

TRIES = 100  # to find every class among fresh samples

Drawn = list[tuple[Any, ...]]


class FreshSamples:
    """Draws samples that no step has seen, and sets alpha and batch norm from them."""

    def __init__(self, options: Options, source: BatchSource, judge: Judge) -> None:
        self.options, self.source, self.judge = options, source, judge

    def probe(self) -> Probe:
        """Samples for an evaluation; batch norm needs some in any case."""
        drawn = self._draw(max(self.options.probe, 1 if self.judge.has_norms else 0))
        return self._again(drawn)

    def end_stage(self, phase: Phase, stage: Stage) -> None:
        """Alg. 2, lines 10 to 12: the average is start and reference, alpha is set at it."""
        samples = max(stage.dual_samples, self.options.probe if self.judge.has_norms else 0)
        if phase.restart == "last":
            drawn = self._draw(samples if stage.dual_samples and phase.saddle else 0)
            if drawn:
                with self.judge.at_average(phase, self._again(drawn)):
                    self._set_saddle(phase, drawn)
            phase.average.end_stage(restart="last")
            return
        phase.average.end_stage(restart="average")
        drawn = self._draw(max(samples, 1 if self.judge.has_norms else 0))
        if self.judge.has_norms and drawn:
            self._estimate_norms(drawn)
        if stage.dual_samples and not phase.how.averages_stages:  # which has alpha's too
            self._set_saddle(phase, drawn)

    def begin_phase(self, phase: Phase, untrained: bool = False) -> None:
        """Let a, b and alpha begin by the model that the phase begins with.

        From zero they would pull every score to zero first, where a sigmoid has hardly a slope:
        large steps then never come back. Batch norm knows nothing of an ``untrained`` model.
        """
        if phase.saddle is None or self.options.loss is not None:
            return
        if untrained and isinstance(self.source, IterableSource):
            self._begin_stream(phase)
            return
        drawn = self._draw(max(phase.stages[0].dual_samples, self.options.probe, 2))
        if untrained and self.judge.has_norms and drawn:
            self._estimate_norms(drawn)
        self._set_saddle(phase, drawn, begins=True, trained=not untrained)

    def _begin_stream(self, phase: Phase) -> None:
        """The same from one batch, which is trained on too; one that lacks a class sets nothing."""
        try:
            drawn = [self.source.draw()]
        except StopIteration:
            return
        if self.judge.has_norms:
            self._estimate_norms(drawn)
        with suppress(MissingClassError):
            self._set_saddle(phase, drawn, begins=True, tries=1)
        self.source.put_back(drawn[0])

    def _estimate_norms(self, drawn: Drawn) -> None:
        with autocast(self.options):
            update_batch_norm(self.options.model, ((batch.x,) for batch in self._batches(drawn)))
        distributed.average_buffers(self.options.model)
        if not is_finite(self.options.model.buffers()):
            raise self._diverged("batch-norm statistics are not finite", drawn)

    def _set_saddle(
        self,
        phase: Phase,
        drawn: Drawn,
        begins: bool = False,
        trained: bool = False,
        tries: int = TRIES,
    ) -> None:
        """Alpha in closed form from fresh samples, more of them if a class is missing.

        Where a phase ``begins``, a and b too.
        """
        if phase.saddle is None or not drawn:
            return
        scored = self.judge.score(self._batches(drawn))
        samples = len(scored.target)
        for attempt in range(tries):
            try:
                if begins:
                    phase.saddle.begin(*scored, trained=trained)
                else:
                    phase.saddle.reset_dual(*scored)
                return
            except NotFiniteError as error:
                raise self._diverged(str(error), drawn) from None
            except MissingClassError:
                more = self._draw(samples) if attempt + 1 < tries else []
                if not more:
                    raise
                scored = joined([scored, self.judge.score(self._batches(more))])

    def _draw(self, samples: int) -> Drawn:
        """At least that many fresh samples over all ranks, or what is left of the data."""
        drawn: Drawn = []
        while samples > 0 or len(drawn) % self.options.accumulate:
            try:
                drawn.append(self.source.draw())
            except StopIteration:
                break
            samples -= distributed.total(len(tree_leaves(drawn[-1])[0]))
        return drawn

    def _again(self, drawn: Drawn) -> Probe:
        """The batches of what was drawn, as often as they are asked for."""
        return (lambda: self._batches(drawn)) if drawn else None

    def _batches(self, drawn: Drawn) -> Iterator[Batch]:
        return (self.source.load(part, self.options.augment) for part in drawn)

    def _diverged(self, what: str, drawn: Drawn) -> DivergedError:
        """Not a step diverged, but what was drawn between two of them."""
        bad_inputs = not is_finite(tree_leaves([batch.x for batch in self._batches(drawn)]))
        error = DivergedError("the inputs hold NaN or infinity" if bad_inputs else what)
        error.among_fresh_samples, error.bad_inputs = True, bad_inputs
        return error
