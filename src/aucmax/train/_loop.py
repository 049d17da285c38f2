"""The loop: stages of steps, evaluations and checkpoints between them."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Generator
from typing import Any, NoReturn, TypeAlias, TypeVar

from torch import Tensor, nn

from aucmax import checkpoint, distributed
from aucmax.data.sources import BatchSource, Place
from aucmax.history import History, read
from aucmax.optim import PGA, PPDAdaGrad
from aucmax.sharding import mesh_of, shard
from aucmax.stages import Stage
from aucmax.train._captured import CapturedStep, why_not
from aucmax.train._divergence import explained
from aucmax.train._folder import RunFolder
from aucmax.train._judge import Judge
from aucmax.train._methods import Phase, make_phases
from aucmax.train._options import Options, fingerprint
from aucmax.train._report import Reporter, better_auc
from aucmax.train._result import DivergedError, FitResult
from aucmax.train._signals import Interrupts, Stopped, saying_so
from aucmax.train._stage_end import StageEnd
from aucmax.train._state import Progress, load_state, state_of
from aucmax.train._step import Step

POLL_EVERY = 64  # steps after which a device is asked whether it had diverged when last asked
TURN = 8  # replayed steps of a run in a sweep, then another's: a device takes few ahead
ASK_LEMMA_EVERY = 100  # steps between two looks at the stopping time of Lemma 3
MOST_STEPS_SKIPPED = 50  # in a row, by the gradient scaler, that mean divergence

T = TypeVar("T")
Walk: TypeAlias = Generator[bool, None, T]
"""What pauses, and says whether the run needs its random numbers before it pauses again."""
"""Work that pauses where the host would wait for the device, so that others may have a turn."""


class Loop:
    """A run from its beginning, or from its last checkpoint, to its end."""

    def __init__(
        self,
        model: nn.Module,
        source: BatchSource,
        judged: dict[str, Any],
        place: Place,
        prior: Any,
        options: Options,
        data: dict[str, Any],
        interrupts: Interrupts,
    ) -> None:
        self.model, self.source, self.options, self.place = model, source, options, place
        self.config = fingerprint(options, model, data)
        if options.parallel == "fsdp" and distributed.world_size() > 1:
            shard(model, options.device)
        graph = options.device.type == "cuda" and options.cuda_graph is not False
        self.phases = make_phases(model, options, place.task, prior, capturable=graph)
        self.total = options.pretrain + options.steps
        self.every, meets = options.eval_every or 1, options.meets_every
        self.save_every = _next_multiple(meets, options.save_every or 1)  # one model to save
        self.at = Progress()
        self.judge = Judge(model, judged, place, options)
        self.stage_end = StageEnd(model, source, self.judge, options)
        self.history = History()
        self.folder = (
            None if options.out is None else RunFolder(options.out, self._say, mesh_of(model))
        )
        self.reporter: Reporter | None = None
        self.interrupts = interrupts
        self.stepping_seconds, self.recorded_step = 0.0, 0
        self.first_step = 0

    # --- the run ------------------------------------------------------------------------------

    def run(self) -> FitResult:
        """Train, or go on, or find that it is all done, without a pause."""
        walk = self.walk()
        with saying_so():
            try:
                while True:
                    next(walk)
            except StopIteration as end:
                result: FitResult = end.value
                return result

    def walk(self) -> Walk[FitResult]:
        """The same, with pauses: between two of them random numbers and stream may be others'."""
        try:
            if self.folder is not None:
                self.folder.open(self.config)
                if self.folder.is_finished():
                    return self._finished()
            with self.interrupts:
                return (yield from self._walk())
        except DivergedError as error:
            best, step = self.judge.best, self.at.step
            raise explained(error, self.model, best, self.source, self.options, step) from None
        except ValueError:
            if self.folder is not None:
                self.folder.abandon()
            raise
        except RuntimeError as error:
            if "DataLoader worker (pid" not in str(error):
                raise
            if self.interrupts.received:  # the signal that ended the workers was for this run
                self._interrupted(self.interrupts.received)
            raise RuntimeError(
                f"a DataLoader worker died after step {self.at.step:,}: {error}"
            ) from None
        finally:
            self._close()

    def _walk(self) -> Walk[FitResult]:
        self._resume()
        self.first_step = self.at.step
        out, limit = self.options.out, self.options.time_limit
        self.reporter = Reporter(
            self.phase.name,
            self.total,
            self.at.step,
            self.options.progress,
            out / "tensorboard" if out and self.options.tensorboard else None,
            math.inf if limit is None else limit - self.at.seconds,
        )
        self._say_whether_captured()
        self.model.train()
        while not self.at.reason:
            yield from self._walk_on(self.phase.stages[self.at.stage])
        result = self._finish()
        if self.interrupts.received:
            self._interrupted(self.interrupts.received)
        return result

    def _walk_on(self, stage: Stage) -> Walk[None]:
        """Steps up to the next event, and the event."""
        ended = yield from self._advance(stage)
        over = self._is_over(stage)
        due = over or ended or self.at.step % self.every == 0 or self._seconds_left() <= 0
        if due and self.recorded_step < self.at.step:
            saturated = self._evaluate(stage)
            over = over or saturated
        if ended and not self.at.reason:
            self.at.reason = "the data came to an end"
        if over and not self.at.reason:
            self._leave_stage(stage)
        told = self.interrupts.received if self.stopping else 0
        if told or self.at.reason or self.at.step % self.save_every == 0:
            self._save()
        if told and not self.at.reason:
            self._interrupted(told)

    def _advance(self, stage: Stage) -> Walk[bool]:
        """Take steps until something is due; True if the data came to an end."""
        due, skipped, began = self._next_event(stage), 0, time.perf_counter()
        target = due if self.options.device.type == "cpu" else min(due, self.at.step + POLL_EVERY)
        step, at, tick, heed = self.step, self.at, self.reporter.tick, self.interrupts.heed  # type: ignore[union-attr]
        meets_every, self.stopping, ended = self.options.meets_every, False, False
        deadline = began + self._seconds_left()
        while at.step < target and not self.stopping:
            try:
                taken = step()
            except StopIteration:
                ended = True
                break
            if taken:
                at.step += 1
                at.stage_step += 1
                skipped = 0
                if at.step % meets_every == 0:
                    step.meet()
            else:
                skipped += 1
                if skipped >= MOST_STEPS_SKIPPED:
                    raise DivergedError(f"the gradient scaler skipped {skipped} steps in a row")
            tick(at.step)
            self.stopping = bool(heed(at.step))
            if time.perf_counter() >= deadline:
                break
            if at.step % TURN == 0 and step.is_replaying:
                yield False
        yield True
        step.settle(all_of_it=at.step == due or at.step < target)
        self.stepping_seconds += time.perf_counter() - began
        self.at.seconds += time.perf_counter() - began
        return ended

    def _next_event(self, stage: Stage) -> int:
        """The step at which something else than a step is due."""
        at = self.at
        due = [every * (at.step // every + 1) for every in (self.every, self.save_every)]
        if stage.steps is not None:
            due.append(at.step + stage.steps - at.stage_step)
        if stage.M is not None:
            due.append(at.step + ASK_LEMMA_EVERY - at.stage_step % ASK_LEMMA_EVERY)
        return min(*due, self.total)

    def _is_over(self, stage: Stage) -> bool:
        at, optimizer = self.at, self.phase.optimizer
        if at.step >= self.total:
            return True
        if stage.steps is not None:
            return at.stage_step >= stage.steps
        if stage.M is None or at.stage_step % ASK_LEMMA_EVERY:
            return False
        assert isinstance(optimizer, PPDAdaGrad)
        return optimizer.should_stop(stage.M, self.options.lipschitz or 0.0)

    # --- stages -------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """The one that is walked."""
        return self.phases[self.at.phase]

    def enter_phase(self) -> None:
        """Make the step of the phase and set its step size."""
        reason = why_not(self.options, self.phase)
        if self.options.cuda_graph is not False and reason is None:
            self.step: Step = CapturedStep(
                self.model, self.phase, self.source, self.options, self._say
            )
        else:
            self.step = Step(self.model, self.phase, self.source, self.options)
        self._enter_stage()

    def _enter_stage(self) -> None:
        stage = self.phase.stages[self.at.stage]
        if self.phase.sets_lr:
            stage.set_lr(self.phase.optimizer)
        self.step.begin_stage()

    def _leave_stage(self, stage: Stage) -> None:
        """To the next stage, the next phase, or the end."""
        at, last = self.at, self.at.stage + 1 == len(self.phase.stages)
        if at.step >= self.total:
            at.reason = "all steps taken"
        elif not last:
            self.stage_end.end(self.phase, stage)
            at.stage, at.stage_step = at.stage + 1, 0
            if self.phase.plateau is not None:
                self.phase.plateau.begin_stage()
            self._enter_stage()
        elif at.phase + 1 < len(self.phases):
            at.phase, at.stage, at.stage_step = at.phase + 1, 0, 0
            self.enter_phase()
            self.stage_end.begin(self.phase)
        else:
            at.reason = "all stages ended"

    # --- evaluation ---------------------------------------------------------------------------

    def _evaluate(self, stage: Stage) -> bool:
        """Record both iterates; True if a plateau rule says that the stage has saturated."""
        began, at = time.perf_counter(), self.at
        self.step.meet()
        distributed.average_buffers(self.model)
        probe = self.stage_end.draw_probe()
        ends = at.step >= self.total and isinstance(self.phase.optimizer, PGA)
        saddle = {x: _plain(getattr(self.phase.saddle, x, None)) for x in ("a", "b", "alpha")}
        found = self.judge.evaluate(self.phase, at.step, probe, ends)
        gained = self.judge.best.step == at.step
        at.evaluations_without_gain = 0 if gained else at.evaluations_without_gain + 1
        if self.phase is not self.phases[-1]:
            at.evaluations_without_gain = 0  # the method has not begun
        if at.evaluations_without_gain == self.options.patience:
            at.reason = f"no better validation AUC in {self.options.patience} evaluations"
        at.seconds += time.perf_counter() - began
        if self._is_late():
            at.reason = at.reason or f"the time limit of {self.options.time_limit:g} s is reached"
        record = self._record(stage, saddle | found)
        self.history.append(record)
        assert self.reporter is not None
        self.reporter.evaluation(record)
        self.model.train()
        best = better_auc(record)
        plateau = None if math.isnan(best) else self.phase.plateau
        return plateau is not None and plateau.report(best)

    def _seconds_left(self) -> float:
        """Until the limit; processes that train together only ask at their evaluations."""
        limit = self.options.time_limit
        if limit is None or distributed.world_size() > 1:
            return math.inf
        return limit - self.at.seconds

    def _is_late(self) -> bool:
        """By the first process's clock, so that all end together."""
        limit = self.options.time_limit
        return limit is not None and distributed.broadcast_object(self.at.seconds) >= limit

    def _record(self, stage: Stage, found: dict[str, Any]) -> dict[str, Any]:
        at = self.at
        steps, seconds = at.step - self.recorded_step, self.stepping_seconds
        self.recorded_step, self.stepping_seconds = at.step, 0.0
        return {
            "step": at.step,
            "phase": self.phase.name,
            "stage": stage.index,
            "lr": float(self.phase.optimizer.param_groups[0]["lr"]),
            "seconds": round(at.seconds, 3),
            "steps_per_second": steps / seconds if seconds else math.nan,
            "loss": self.step.mean_loss(),
            **found,
        }

    # --- saving and resuming ------------------------------------------------------------------

    def _save(self) -> None:
        if self.folder is None:
            return
        began = time.perf_counter()
        self.folder.save(state_of(self), dict(vars(self.judge.best)))
        self.at.seconds += time.perf_counter() - began

    def _resume(self) -> None:
        """Go on from the folder's newest whole checkpoint, if there is one."""
        found = None if self.folder is None else self.folder.latest()
        if found is None:
            self.enter_phase()
            self.stage_end.begin(self.phase, untrained=True)
        else:
            load_state(self, *found)
            self._say(f"going on from step {self.at.step:,} of {self.total:,}")
        if self.folder is not None and distributed.rank() == 0:
            self.history = History(self.folder.history, self.history.records)

    # --- the end ------------------------------------------------------------------------------

    def _finish(self) -> FitResult:
        best = self.judge.best
        self.model.load_state_dict(best.weights)
        self.model.eval()
        if self.folder is not None:
            notes = {"step": best.step, "iterate": best.iterate, "reason": self.at.reason}
            notes |= {"steps": self.at.step, "auc": None if math.isnan(best.auc) else best.auc}
            checkpoint.save_weights(self.folder.path, "model", self.model, notes)
        auc = "" if math.isnan(best.auc) else f", validation AUC {best.auc:.4f}"
        self._say(f"{self.at.reason}; kept the {best.iterate} iterate of step {best.step:,}{auc}")
        return self._result(best.auc, best.step, best.iterate, self.at.step, self.at.reason)

    def _finished(self) -> FitResult:
        """The result of a run that was over before."""
        assert self.folder is not None
        notes = checkpoint.load_weights(self.model, self.folder.path)
        self.model.eval()
        self.history = History(records=read(self.folder.history))
        found = self.folder.latest()
        if found is not None:
            self.phases[-1].loss.load_state_dict(found[0]["parts"]["loss"])
        self._say(
            f"{self.folder.path} holds a finished run ({notes['reason']}), which is not run again: "
            f"use another folder to train anew"
        )
        auc = math.nan if notes["auc"] is None else notes["auc"]
        return self._result(auc, notes["step"], notes["iterate"], notes["steps"], notes["reason"])

    def _result(self, auc: float, step: int, iterate: str, steps: int, reason: str) -> FitResult:
        return FitResult(
            model=self.model,
            loss=self.phases[-1].loss,
            auc=auc,
            step=step,
            iterate=iterate,
            steps=steps,
            reason=reason,
            history=self.history.records,
            out=self.options.out,
        )

    def _interrupted(self, number: int) -> NoReturn:
        out = self.options.out
        how = (
            "nothing was saved, as no out= was given"
            if out is None
            else f"the same call goes on from {out}"
        )
        raise Stopped(number, f" after step {self.at.step:,}; {how}")

    def _say_whether_captured(self) -> None:
        reason = why_not(self.options, self.phase)
        wanted = self.options.cuda_graph or (
            self.options.cuda_graph is None and self.options.device.type == "cuda"
        )
        if wanted and reason is not None:
            self._say(f"the step is not captured as a CUDA graph: {reason}")

    def _say(self, text: str) -> None:
        if self.reporter is not None:
            self.reporter.note(text)
        elif self.options.progress and distributed.rank() == 0:
            print(f"aucmax: {text}", file=sys.stderr, flush=True)

    def _close(self) -> None:
        self.history.close()
        self.source.close()
        if self.reporter is not None:
            self.reporter.close(self.at.step)
            self.reporter = None
        if self.folder is not None:
            self.folder.close()


def _next_multiple(of: int, least: int) -> int:
    """The first multiple that is not less."""
    return of * math.ceil(least / of)


def _plain(x: Tensor | None) -> Any:
    """A number, a list, or None."""
    if x is None:
        return None
    values = x.detach().double().cpu()
    return values.item() if values.numel() == 1 else values.tolist()
