"""Tables for which the objective is chosen: by the held-out rows, from several."""

import math
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from fit_commands import write_rows
from sklearn.base import clone

from aucmax import AUCClassifier
from aucmax.cli import main
from aucmax.cli._words import summary
from aucmax.judge.evaluation import Evaluation
from aucmax.metrics import roc_auc
from aucmax.signals import Stopped
from aucmax.tables import fit_file

RANDOM = np.random.default_rng(0)
Y = (RANDOM.random(120) < 0.3).astype(int)
X = RANDOM.normal(Y[:, None], size=(120, 2))
SMALL = {"quality": "fast", "max_steps": 40, "members": 2, "width": 8, "n_jobs": 1}


def quick(**options):
    return AUCClassifier(**{**SMALL, "random_state": 0} | options)


def weights(model):
    return torch.cat([x.double().flatten() for x in model.network_.state_dict().values()])


@pytest.fixture(scope="module")
def chosen():
    return quick(objective=["auc+ce", "ce"]).fit(X, Y)


def test_best_objective_equals_its_own_fit(chosen, tmp_path):
    alone = [quick(objective=name).fit(X, Y) for name in ("auc+ce", "ce")]
    best = max(alone, key=lambda model: model.validation_score_)
    assert chosen.objective_ == best.objective == best.objective_
    assert best.candidates_ == ()
    assert torch.equal(weights(chosen), weights(best))
    assert [r["loss"] for r in chosen.history_] == [r["loss"] for r in best.history_]
    first, second = chosen.candidates_
    assert (first.objective, first.score) == (best.objective, best.validation_score_)
    assert second.score == min(model.validation_score_ for model in alone)
    assert 0 <= second.p_value <= 1
    loaded = AUCClassifier.load(chosen.save(tmp_path))
    assert (loaded.objective, loaded.objective_) == (["auc+ce", "ce"], chosen.objective_)
    assert loaded.candidates_[1:] == chosen.candidates_[1:]
    assert str(loaded.candidates_[0]) == str(first)
    assert math.isnan(loaded.candidates_[0].p_value)
    assert clone(chosen).objective == chosen.objective
    assert loaded.partial_fit(X[:30], Y[:30]).candidates_ == ()


def test_auto_within_groups_and_of_several_classes():
    small = {"objective": "auto", "max_steps": 2}
    model = quick(**small).fit(X, Y, groups=np.arange(120) % 12)
    assert {x.objective for x in model.candidates_} == {"ce", "auc", "pairwise"}
    model = quick(**small, metric="average_precision").fit(X, Y + (X[:, 0] > 1))
    assert {x.objective for x in model.candidates_} == {"ce", "auc", "auc+ce", "pairwise"}
    assert {x.verdict for x in model.candidates_} == {"chosen", "no test"}


def test_loss_options_by_part():
    options = {"auc": {"margin": 0.5}, "partial": {"link": "sigmoid"}}
    model = quick(objective="auto", loss_options=options)
    auc, partial = {"link": "identity", "margin": 0.5}, {"link": "sigmoid"}
    assert model._recipe().options_of_loss(1) == {"auc": auc, "partial": partial}
    model.set_params(objective=["auc", "ce"])
    assert model._recipe().options_of_loss(1)["auc"] == auc
    assert model._recipe().options_of_loss(3) == options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": ["ce"]}, "objective must name two or more to choose from"),
        ({"objective": ["ce", "rank"]}, "objective must be one of"),
        ({"validation_fraction": 0}, "objective must be one where no rows are held out .* 'auto'"),
        ({"loss_options": {"margin": 2}}, "loss_options must be mappings by objective"),
        ({"loss_options": {"auc": 2}}, "a mapping under 'auc', found 2"),
    ],
)
def test_objectives_that_cannot_be_chosen_from_raise(options, message):
    with pytest.raises(ValueError, match=message):
        quick(**{"objective": "auto"} | options).fit(X, Y)


def test_balanced_batches_of_groups_raise():
    with pytest.raises(ValueError, match=r"balanced must be False .* 'auto'"):
        quick(objective="auto", balanced=True).fit(X, Y, groups=np.arange(120) % 12)


# ---- from a file ---------------------------------------------------------------------------------


def test_command_reports_the_chosen_objective(tmp_path, capsys, monkeypatch):
    write_rows(tmp_path / "run")
    monkeypatch.chdir(tmp_path / "run")
    command = ["fit", "rows.csv", "--target", "y", "--objective", "auto", "--time-limit", "0.4"]
    command += ["--quality", "fast"]
    main([*command, "--metric", "partial_auc@0.3", "--threads", "1"])
    out, err = capsys.readouterr()
    model = AUCClassifier.load("rows-model")
    names = {x.objective for x in model.candidates_}
    assert names == {"ce", "ap", "ap+ce", "pairwise"}
    assert [line for line in err.splitlines() if line.startswith("aucmax: objective")] == [
        f"aucmax: {x}" for x in model.candidates_
    ]
    assert f"note: objective {model.objective_!r} was chosen from 4 by the rows to stop by" in out
    evaluation = Evaluation.read(tmp_path / "run" / "rows-model")
    assert list(map(str, evaluation.candidates)) == list(map(str, model.candidates_))
    assert evaluation.seconds == pytest.approx(sum(x.seconds for x in model.candidates_))
    assert summary(evaluation) in out
    page = (tmp_path / "run" / "rows-model" / "report.html").read_text("utf-8")
    for x in model.candidates_:
        assert f'data-head="Objective">{x.objective}</th>' in page
        assert f"{x.score:.4f}</td>" in page
        assert f'data-head="In words">{x.verdict}</td>' in page


CALLS = []


def stopping(scores, labels, weights):
    """A metric at whose last call somebody presses Ctrl-C."""
    if CALLS and CALLS.pop():
        os.kill(os.getpid(), signal.SIGINT)
    return roc_auc(scores, labels, weights)


def test_interrupted_choice_resumes_bit_for_bit(tmp_path):
    write_rows(tmp_path / "run")
    options = {"objective": ["auc+ce", "ce"], "metric": stopping, "compare": False, **SMALL}

    def fit(out):
        return fit_file(
            tmp_path / "run" / "rows.csv", "y", out=out, progress=False, device="cpu", **options
        )

    fit(tmp_path / "undisturbed")
    before = (tmp_path / "undisturbed" / "model.safetensors").read_bytes()
    CALLS[:] = [True, *10 * [False]]  # the first candidate calls it eight times
    with pytest.raises(Stopped):
        fit(tmp_path / "m")
    assert not CALLS
    (work,) = (path for path in (tmp_path / "m.unfinished").iterdir() if path.is_dir())
    work /= "network"
    assert (work / "auc+ce" / "model.json").exists()
    assert (work / "ce").exists()
    assert not (work / "ce" / "model.json").exists()
    (work / "auc+ce" / "model.json").unlink()  # as if it was killed before the first was over
    fitted = fit(tmp_path / "m")
    assert (tmp_path / "m" / "model.safetensors").read_bytes() == before
    assert not (tmp_path / "m.unfinished").exists()
    assert len(fitted.model.candidates_) == 2


def test_partial_metric_needs_no_network(tmp_path, capsys, monkeypatch):
    write_rows(tmp_path / "run")
    monkeypatch.chdir(tmp_path / "run")
    command = ["fit", "rows.csv", "--target", "y", "--models", "logistic"]
    main([*command, "--metric", "partial_auc@0.3"])
    assert "the objective 'partial'" not in capsys.readouterr().out
    evaluation = Evaluation.read(Path("rows-model"))
    assert evaluation.metric == "partial_auc@0.3"
    assert 0 <= evaluation.score <= 1
