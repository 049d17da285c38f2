"""The script that trains the objectives side by side."""

import argparse
import importlib.util
import json
import sys
from pathlib import Path

import pytest

from aucmax.paper import datasets
from aucmax.train.objectives import Known, make_loss

SCRIPT = Path(__file__).parents[2] / "experiments" / "objectives.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("experiment_of_objectives", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_every_line_has_a_loss(script):
    known = Known(prior=0.5, data_prior=0.09, rows=100)
    for line in script.LINES.values():
        make_loss(line.objective, known, line.options)


def test_it_goes_on_where_it_was_stopped(script, tmp_path, monkeypatch):
    given = argparse.Namespace(
        dataset="digits", removed=0.9, steps=2, timed=4, seeds=1, at_once=1, device="cpu",
        json=tmp_path / "found.json", lines=["partial AUC, saddle"],
    )  # fmt: skip
    images = datasets.load("digits")
    script.Study(given, images).run()
    found = json.loads(given.json.read_text())["lines"]["partial AUC, saddle"]["0"]
    assert found["iterate"] == "average"
    assert all(0 <= found[key] <= 1 for key in script.MEASURES)
    given.lines = ["cross-entropy", *given.lines]
    again = script.Study(given, images)
    asked = []
    monkeypatch.setattr(again, "seconds_alone", lambda name: asked.append(name) or 0.002)
    again.run()
    assert asked == ["cross-entropy"]
    assert again.found["lines"]["partial AUC, saddle"] == {"0": found}
    assert "2.000" in "\n".join(again.table())
    given.steps = 3
    with pytest.raises(SystemExit, match="of other settings"):
        script.Study(given, images)
