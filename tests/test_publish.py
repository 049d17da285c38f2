"""The site's pages of results are what the JSON files of the runs give."""

import importlib
import json
from pathlib import Path

import pytest

from aucmax.paper.folder import Folder

ROOT = Path(__file__).parent.parent


def test_the_results_on_the_site_are_those_of_the_runs(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "experiments")
    publish = importlib.import_module("publish")
    assert publish.differences() == [], "make results"


def test_costs_are_by_what_a_training_shared_and_count_what_was_taken_over_once(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "experiments")
    costs = importlib.import_module("costs")
    assert costs.Cost.of(7200, "x86_64 CPU, 2 cores", at_once=2) == costs.Cost(1, core=2.0)
    assert costs.Cost.of(7200, "NVIDIA H200", at_once=16) == costs.Cost(1, gpu=0.125)
    assert costs.Cost.of(7200, "NVIDIA H200", at_once=None) == costs.Cost(1, shared=2.0)
    with pytest.raises(ValueError, match="hardware must be known"):
        costs.Cost.of(7200, None, at_once=1)
    figures = [Folder(ROOT / "experiments" / "results" / f"figure{n}-digits") for n in (1, 2)]
    alone, both = (costs._of_figures(x)["figure2-digits"] for x in (figures[1:], figures))
    assert alone.trainings - both.trainings == 60  # of 84 runs, those of the lines of figure 1
    assert alone.core > both.core > 0


def test_the_page_of_tables_is_what_the_benchmark_found(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    tables = importlib.import_module("tables")
    assert tables.PAGE.read_text(encoding="utf-8") == tables.published(), "tables.py --publish"
    for part in (part for part in tables.PARTS.values() if part.file.exists()):
        assert {r["table"] for r in tables.records(part.file)} == {*part.tables}


def test_the_table_of_objectives_is_what_the_experiment_found(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "experiments")
    objectives = importlib.import_module("objectives")
    found = json.loads(objectives.RESULT.read_text(encoding="utf-8"))
    assert objectives.TABLE.read_text(encoding="utf-8") == objectives.page(found)
    saddle = found["lines"]["AUC saddle, momentum, no prox"].values()
    assert sum(result["auc"] for result in saddle) / len(saddle) >= 0.944


def test_the_performance_page_is_what_the_newest_results_give(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    page = importlib.import_module("performance_page")
    wanted = page.page(page.newest("cpu"), page.newest("cuda"))
    assert page.TABLE.read_text(encoding="utf-8") == wanted


def test_the_paragraph_on_fit_images_is_what_the_benchmark_found(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    quality = importlib.import_module("image_quality")
    found = json.loads(quality.OUT.read_text(encoding="utf-8"))
    assert quality.TEXT.read_text(encoding="utf-8") == quality.text(found)
    assert (found["line"], found["strong"]) == quality.strong_line(quality.STRONG, 3)
    assert found["difference"] >= -quality.MOST_BEHIND


def test_the_page_on_scaling_is_what_its_inputs_give(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    scaling = importlib.import_module("scaling")
    assert scaling.TABLE.read_text(encoding="utf-8") == scaling.page(*scaling.measured())


def test_more_local_steps_cost_less_and_faster_links_too(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    scaling = importlib.import_module("scaling")
    for work in scaling.workloads(0.004, 0.012):
        node, infiniband, ethernet = (
            [scaling.exposed_by_local_steps(work, cluster, steps) for steps in scaling.LOCAL_STEPS]
            for cluster in scaling.CLUSTERS
        )
        assert node == sorted(node, reverse=True)
        assert all(a < b < c for a, b, c in zip(node, infiniband, ethernet, strict=True))
    link = scaling.Link(bandwidth=100.0, latency=0.5)
    assert scaling.ring(4, 1000.0, link) == 15.0 + 3.0  # 3/4 of the bytes twice, 6 hops
    assert scaling.tree(4, 1000.0, link) == 20.0 + 2.0  # all of them twice, 4 hops
