"""The loop: stages of steps, evaluations and checkpoints between them."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from typing import Any

from torch import Tensor

from aucmax import checkpoint, distributed
from aucmax.data.batches import BatchSource
from aucmax.history import History, read
from aucmax.loss import GroupedAUCLoss, Loss, PairwiseAUCLoss
from aucmax.signals import Stopped
from aucmax.stages import Stage
from aucmax.train._captured import make_step
from aucmax.train._folder import RunFolder
from aucmax.train._judge import Judge
from aucmax.train._phases import Phase
from aucmax.train._reporter import Reporter
from aucmax.train._result import DivergedError, FitResult
from aucmax.train._samples import FreshSamples
from aucmax.train._state import Progress, RunState
from aucmax.train.interrupts import Interrupts
from aucmax.train.metrics import best_value
from aucmax.train.options import Options

POLL_EVERY = 64  # steps after which a device is asked whether it had diverged when last asked
ASK_LEMMA_EVERY = 100  # steps between two looks at the stopping time of Lemma 3
MOST_STEPS_SKIPPED = 50  # in a row, by the gradient scaler, that mean divergence


class Loop:
    """A run from its beginning, or from its last checkpoint, to its end.

    Everything that it works with is told what happens, and knows nothing of the loop.

    Args:
        options: those of the run.
        source: gives the batches.
        phases: pre-training if there is any, then the method.
        judge: evaluates, and keeps the best weights.
        samples: draws the fresh samples that an evaluation and a stage's end need.
        folder: of the run's files, or None.
        reporter: shows how far it is.
        interrupts: notes Ctrl-C and SIGTERM.
    """

    def __init__(
        self,
        options: Options,
        source: BatchSource,
        phases: list[Phase],
        judge: Judge,
        samples: FreshSamples,
        folder: RunFolder | None,
        reporter: Reporter,
        interrupts: Interrupts,
    ) -> None:
        self.options, self.source, self.phases, self.judge = options, source, phases, judge
        self.samples, self.folder, self.reporter = samples, folder, reporter
        self.interrupts = interrupts
        self.total = options.pretrain + options.steps
        self.at, self.history = Progress(), History()
        self.first_step = 0  # of this process's part of the run
        self._open, self._has_begun = ExitStack(), False
        self._is_stepping = False  # whether steps to the next event have begun
        self._steps_are_out = False  # whether all of them are handed out, and not yet looked at

    @property
    def phase(self) -> Phase:
        """The one that is walked."""
        return self.phases[self.at.phase]

    @property
    def is_replaying(self) -> bool:
        """Whether the next turn draws no random numbers, for it replays a graph."""
        return self._is_stepping and not self._steps_are_out and self.step.is_replaying

    # --- from the beginning to the end ------------------------------------------------------------

    def run(self) -> FitResult:
        """Train, or go on, or see that it is all done."""
        while (result := self.advance()) is None:
            pass
        return result

    def advance(self, turn: int | None = None) -> FitResult | None:
        """A turn of the run; the result when it is over.

        Args:
            turn: so many replayed steps at the most, and a pause wherever the device has work to
                do that the host would wait for. None: until something is due.
        """
        try:
            result = self._walk(turn) if self._has_begun else self._begin()
        except BaseException as error:
            try:
                told = self._in_plain_words(error)
            finally:
                self.close()
            if told is error:
                raise
            raise told from None
        if result is not None:
            self.close()
            if self.interrupts.received:  # it came too late to stop a step
                raise self._stopped(self.interrupts.received)
        return result

    def _walk(self, turn: int | None) -> FitResult | None:
        at, options = self.at, self.options
        phase, stage = self.phase, self.phase.stages[self.at.stage]

        # Steps, until something is due. The device is not waited for while others may have a turn.
        if not self._steps_are_out:
            self._steps_are_out = self._take_steps(stage, turn)
            if turn is not None or not self._steps_are_out:
                return None
        self._steps_are_out = False
        self.step.guard.look(wait=at.step == self.due or at.step < self.target)
        seconds, self._is_stepping = time.perf_counter() - self.began, False
        at.stepping_seconds += seconds
        at.seconds += seconds

        # An evaluation of both iterates: at its time, and where a stage, the data or the time ends.
        over = self._is_over(stage)
        late = self._seconds_left() <= 0
        if at.recorded_step < at.step and (
            over or self.data_ended or late or at.step % options.evaluates_every == 0
        ):
            saturated = self._evaluate(stage)
            over = over or saturated
        if self.data_ended and not at.reason:
            at.reason = "the data came to an end"

        # A stage's end: the next stage, the next phase, or the end of the run.
        if over and not at.reason:
            if at.step >= self.total:
                at.reason = "all steps taken"
            elif at.stage + 1 < len(phase.stages):
                self.samples.end_stage(phase, stage)
                at.stage, at.stage_step = at.stage + 1, 0
                if phase.plateau is not None:
                    phase.plateau.begin_stage()
                self._begin_stage()
            elif at.phase + 1 < len(self.phases):
                at.phase, at.stage, at.stage_step = at.phase + 1, 0, 0
                self._begin_phase()
                self.samples.begin_phase(self.phase)
            else:
                at.reason = "all stages ended"

        # A checkpoint, and the end of the run or of this process's part of it.
        signal = self.interrupts.received if self.stopping else 0
        if signal or at.reason or at.step % options.saves_every == 0:
            self._save()
        if at.reason:
            return self._finish()
        if signal:
            raise self._stopped(signal)
        return None

    def _take_steps(self, stage: Stage, turn: int | None) -> bool:
        """Steps until something is due; False if it is another run's turn before that."""
        at, step, options = self.at, self.step, self.options
        if not self._is_stepping:
            self._is_stepping, self.began = True, time.perf_counter()
            self.deadline = self.began + self._seconds_left()
            self.due = self._next_event(stage)
            on_cpu = options.where.type == "cpu"
            self.target = self.due if on_cpu else min(self.due, at.step + POLL_EVERY)
            self.data_ended = self.stopping = False
        meets_every, skipped = options.meets_every, 0
        tick, heed, now = self.reporter.tick, self.interrupts.heed, time.perf_counter
        while at.step < self.target and not self.stopping:
            try:
                done = step()
            except StopIteration:
                self.data_ended = True
                break
            if done:
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
            if now() >= self.deadline:
                break
            if turn is not None and at.step % turn == 0 and step.is_replaying:
                return False
        return True

    def _next_event(self, stage: Stage) -> int:
        """The step at which something else than a step is due."""
        at, options = self.at, self.options
        intervals = (options.evaluates_every, options.saves_every)
        due = [every * (at.step // every + 1) for every in intervals]
        if stage.steps is not None:
            due.append(at.step + stage.steps - at.stage_step)
        if stage.M is not None:
            due.append(at.step + ASK_LEMMA_EVERY - at.stage_step % ASK_LEMMA_EVERY)
        return min(*due, self.total)

    def _is_over(self, stage: Stage) -> bool:
        """Whether the stage has ended, by its steps or by Lemma 3."""
        at, optimizer = self.at, self.phase.optimizer
        if at.step >= self.total:
            return True
        if stage.steps is not None:
            return at.stage_step >= stage.steps
        if stage.M is None or at.stage_step % ASK_LEMMA_EVERY:
            return False
        return bool(optimizer.should_stop(stage.M, self.options.lipschitz or 0.0))  # type: ignore[attr-defined]

    # --- what the flow above is made of -----------------------------------------------------------

    def _begin(self) -> FitResult | None:
        """Open the folder, and go on from its newest whole checkpoint if there is one."""
        at, folder, model = self.at, self.folder, self.options.model
        self._open.callback(self.source.close)
        self._open.callback(lambda: self.reporter.close(self.at.step))
        self._open.callback(lambda: self.history.close())
        saved = None
        if folder is not None:
            self._open.callback(folder.close)
            folder.open()
            if folder.is_finished():
                return self._finished()
            saved = folder.latest()
        self._open.enter_context(self.interrupts)
        if saved is None:
            self._begin_phase()
            self.samples.begin_phase(self.phase, untrained=True)
        else:
            state, best = saved
            at = self.at = state.progress
            model.load_state_dict(state.model)
            self._begin_phase()
            state.restore(self.phase, self.step, self.source, self.options)
            self.judge.best, self.history = best, History(records=state.history)
            self.reporter.note(f"going on from step {at.step:,} of {self.total:,}")
        if folder is not None and distributed.rank() == 0:
            self.history = History(folder.history, self.history.records)
        self.first_step, self._has_begun = at.step, True
        self.reporter.begin(self.phase.name, at.step, self._seconds_left())
        model.train()
        return self._finish() if at.reason else None  # killed when it was over, but for the result

    def _begin_phase(self) -> None:
        self.step = make_step(self.phase, self.source, self.options, self.reporter.note)
        self._begin_stage()

    def _begin_stage(self) -> None:
        if self.phase.sets_lr:
            self.phase.stages[self.at.stage].set_lr(self.phase.optimizer)
        self.step.begin_stage()

    def _evaluate(self, stage: Stage) -> bool:
        """Record both iterates; True if a plateau rule says that the stage has saturated."""
        began, at, options, phase = time.perf_counter(), self.at, self.options, self.phase
        self.step.meet()
        if isinstance(phase.loss, Loss):
            phase.loss.check()
        distributed.average_buffers(options.model)
        probe = self.samples.probe()
        by_group = isinstance(phase.saddle, GroupedAUCLoss)  # of thousands the mean is enough
        saddle = {
            name: None if x is None else _plain(x.mean() if by_group else x)
            for name in ("a", "b", "alpha")
            for x in [getattr(phase.saddle, name, None)]
        }
        ends = at.step >= self.total and phase.how.averages_stages
        values = self.judge.evaluate(phase, at.step, probe, end_stage=ends)
        gained = self.judge.best.step == at.step or phase is not self.phases[-1]
        at.evaluations_without_gain = 0 if gained else at.evaluations_without_gain + 1
        if at.evaluations_without_gain == options.patience:
            label = options.measure.label
            at.reason = f"no better validation {label} in {options.patience} evaluations"
        at.seconds += time.perf_counter() - began
        limit = options.time_limit
        # By the first process's clock, so that all end together.
        if limit is not None and distributed.broadcast_object(at.seconds) >= limit:
            at.reason = at.reason or f"the time limit of {limit:g} s is reached"
        steps, seconds = at.step - at.recorded_step, at.stepping_seconds
        record = {
            "step": at.step,
            "phase": phase.name,
            "stage": stage.index,
            "lr": float(phase.optimizer.param_groups[0]["lr"]),
            "seconds": round(at.seconds, 3),
            "steps_per_second": steps / seconds if seconds else math.nan,
            "loss": self.step.mean_loss(),
            **saddle,
            **values,
        }
        at.recorded_step, at.stepping_seconds = at.step, 0.0
        self.history.append(record)
        self.reporter.evaluation(record)
        options.model.train()
        value = best_value(record, options.measure)
        return phase.plateau is not None and not math.isnan(value) and phase.plateau.report(value)

    def _seconds_left(self) -> float:
        """Until the limit; processes that train together only ask at their evaluations."""
        limit = self.options.time_limit
        if limit is None or distributed.world_size() > 1:
            return math.inf
        return limit - self.at.seconds

    def _save(self) -> None:
        if self.folder is not None:
            began = time.perf_counter()
            best, records = self.judge.best, self.history.records
            run = (self.phase, self.step, self.source, self.options)
            self.folder.save(RunState.of(self.at, *run, records, best.name), best)
            self.at.seconds += time.perf_counter() - began

    def _finish(self) -> FitResult:
        """The best weights, kept in the model and in the folder."""
        best, at, model = self.judge.best, self.at, self.options.model
        model.load_state_dict(best.weights)
        model.eval()
        label, value = self.options.measure.label, best.score
        score = "" if math.isnan(value) else f", validation {label} {value:.4f}"
        result = self._result(value, best.step, best.iterate, at.step, at.reason)
        if self.folder is not None:
            self.folder.save_result(result)
        self.reporter.note(
            f"{at.reason}; kept the {best.iterate} iterate of step {best.step:,}{score}"
        )
        return result

    def _finished(self) -> FitResult:
        """The result of a run that was over before."""
        assert self.folder is not None
        notes = checkpoint.load_weights(self.options.model, self.folder.path)
        self.options.model.eval()
        self.history = History(records=read(self.folder.history))
        saved = self.folder.latest()
        if saved is not None:
            self.phases[-1].loss.load_state_dict(saved[0].parts["loss"])
        self.reporter.note(
            f"{self.folder.path} holds a finished run ({notes['reason']}), which is not run again"
        )
        score = math.nan if notes["score"] is None else notes["score"]
        return self._result(score, notes["step"], notes["iterate"], notes["steps"], notes["reason"])

    def _result(self, score: float, step: int, iterate: str, steps: int, reason: str) -> FitResult:
        return FitResult(
            model=self.options.model,
            loss=self.phases[-1].loss,
            score=score,
            metric=self.options.measure.name,
            step=step,
            iterate=iterate,
            steps=steps,
            reason=reason,
            history=self.history.records,
            out=self.options.folder,
            objective=self.options.objective_name,
        )

    def _stopped(self, signal: int) -> Stopped:
        out = self.options.folder
        how = "nothing was saved, as no out= was given"
        if out is not None:
            how = f"the same call goes on from {out}"
        is_first = distributed.rank() == 0
        return Stopped(signal, f" after step {self.at.step:,}", how, silent=not is_first)

    def _in_plain_words(self, error: BaseException) -> BaseException:
        """What has ended the run, for the user to read."""
        if isinstance(error, DivergedError):
            step, ago = self.at.step, error.steps_ago
            failed = step + 1 if self.options.where.type == "cpu" else step - ago
            batch = self.source.position(ago * self.options.accumulate)
            when = f"at step {failed:,} ({batch})"
            if error.among_fresh_samples:
                when = f"after step {step:,} (fresh samples up to {self.source.position()})"
            advice, loss = "Lower lr, or set clip_norm", self.phase.loss
            if error.bad_inputs:
                advice = "Look at that batch"
            elif isinstance(loss, PairwiseAUCLoss) and loss.surrogate.scale > 0.1:
                advice += ", or make scores smaller: loss_options={'scale': 0.1}"
            kept = self.judge.restore_good_weights(step)
            return DivergedError(
                f"training diverged {when}: {error}. "
                f"The model holds the weights of step {kept:,}. {advice}"
            )
        if isinstance(error, ValueError) and self.folder is not None:
            self.folder.abandon()
        if isinstance(error, RuntimeError) and "DataLoader worker (pid" in str(error):
            if self.interrupts.received:  # the signal that ended the workers was for this run
                return self._stopped(self.interrupts.received)
            return RuntimeError(f"a DataLoader worker died after step {self.at.step:,}: {error}")
        return error

    def close(self) -> None:
        """Leave the run where it is, and let files, workers and signals go."""
        self._open.close()


def _plain(x: Tensor) -> Any:
    """A number or a list."""
    values = x.detach().double().cpu()
    return values.item() if values.numel() == 1 else values.tolist()
