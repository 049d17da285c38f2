"""The options of fit: once in code, once in the documentation, and all of them guard a run."""

import dataclasses
import inspect
import re

import pytest
import torch
from fit_data import assert_same_weights, binary, fit, linear

import aucmax
from aucmax.train._captured import why_not
from aucmax.train._fingerprint import DATA, fingerprint
from aucmax.train._phases import make_phases
from aucmax.train._run import make_loop
from aucmax.train.interrupts import Interrupts
from aucmax.train.objectives import Known
from aucmax.train.options import Options

NAMES = [field.name for field in dataclasses.fields(Options)]
FREE = [f.name for f in dataclasses.fields(Options) if f.metadata.get("may_differ")]


def test_fit_takes_the_options_and_describes_each_once():
    signature = inspect.signature(aucmax.fit)
    assert list(signature.parameters) == NAMES
    assert signature.return_annotation == "FitResult"
    described = inspect.getdoc(aucmax.fit).split("Args:")[1].split("Returns:")[0]
    assert sorted(re.findall(r"^    (\w+): ", described, flags=re.M)) == sorted(NAMES)


def test_every_option_that_is_not_marked_is_in_the_fingerprint():
    options = Options(linear(), binary(), steps=4)
    config = fingerprint(options, {})
    assert {*config} == ({*NAMES} - {*DATA} - {*FREE}) | {"format", "data"}


@dataclasses.dataclass
class MoreOptions(Options):
    """As the next version may have them."""

    temperature: float = dataclasses.field(default=1.0, kw_only=True)


def test_a_new_option_guards_a_run_without_being_named_elsewhere(tmp_path):
    """The proof that one cannot be forgotten: it is added to the dataclass, and nowhere else."""

    def run(**more):
        torch.manual_seed(0)
        given = {"steps": 4, "batch_size": 8, "out": tmp_path, "progress": False, **more}
        options = MoreOptions(linear(), binary(), **given)
        return make_loop(options, Interrupts()).run()

    assert run(temperature=2.0).steps == 4
    assert run(temperature=2.0).steps == 4
    with pytest.raises(ValueError, match=r"temperature \(2.0 there, 3.0 now\)"):
        run(temperature=3.0)


@pytest.mark.parametrize(
    "more", [{"time_limit": 1e6, "save_every": 2, "task": "binary", "cuda_graph": False}]
)
def test_options_that_are_marked_may_differ_and_change_nothing(more, tmp_path):
    class StopError(Exception):
        pass

    def stop_after(batches):
        left = iter(range(batches))

        def same(x):
            if next(left, None) is None:
                raise StopError
            return x

        return same

    given = {"method": "oauc", "steps": 12, "batch_size": 8, "eval_every": 3, "probe": 0}
    whole = fit(linear(), binary(), augment=stop_after(1000), **given)
    with pytest.raises(StopError):
        fit(linear(), binary(), out=tmp_path, augment=stop_after(9), **given)
    assert list(tmp_path.glob("checkpoints/step-*"))
    on = fit(linear(seed=3), binary(), out=tmp_path, augment=stop_after(1000), **given, **more)
    assert_same_weights(on.model, whole.model)


@pytest.mark.parametrize(
    ("objective", "options", "keeps"),
    [
        ("ce", {}, False),
        ("pairwise", {}, False),
        ("partial", {}, True),
        ("ap", {}, True),
        ("auc", {}, False),
    ],
)
def test_what_a_compiled_loss_keeps_cannot_be_captured(objective, options, keeps):
    given = {"objective": objective, "loss_options": options, "method": "sgd"}
    run = Options(linear(2), None, steps=2, device="cpu", compile=True, **given)
    (phase,) = make_phases(run, Known(prior=0.3, data_prior=0.3, rows=20))
    run.where = torch.device("cuda")  # as it would be there
    reason = why_not(run, phase)
    assert (reason is not None and "what it keeps of the batches" in reason) == keeps
