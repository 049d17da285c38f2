"""What the figures lack is found and run, by processes that take it from lists."""

import importlib
import queue
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aucmax.paper import datasets
from aucmax.paper.folder import Folder
from aucmax.paper.results import read_results

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "experiments")
    return importlib.import_module("missing")


def test_runs_that_are_done_and_lines_of_another_figure_are_not_missing(script, tmp_path):
    names = ["figure1-digits", "figure1-long-digits", "figure2-digits"]
    first, whole, second = script.missing(tmp_path, names, 40)
    assert {run.options["steps"] for run in first.runs} == {40}
    assert {run.options["steps"] for run in whole.runs} == {2000}  # those of the data set
    assert {run.line for run in second.runs} == {"ppd-sg-pretrained"}
    done = first.runs[0]
    path = Folder(tmp_path / "figure1-digits").result_file(done)
    path.parent.mkdir(parents=True)
    path.write_text("{}", encoding="utf-8")
    assert script.missing(tmp_path, names[:1], 40)[0].runs == first.runs[1:]


def test_a_process_takes_runs_from_the_lists(script, tmp_path):
    (part,) = script.missing(tmp_path, ["figure1-digits"], 10)
    part.folder.store_images(datasets.load("digits"))
    wanted = queue.Queue()
    for run in part.runs[:2]:
        wanted.put(run)
    script.work([part], [wanted], 0, 1, "cpu", 2)
    found = read_results(part.folder.path / "runs")
    assert len(found) == 2
    assert all(x.at_once == 3 for x in found)  # one here, and one in each other process


def started(script, folder, *options):
    options = ["--results", folder, "--steps", 1_000_000, "--device", "cpu", *options]
    command = [sys.executable, script.__file__, "figure1-digits", "--processes", "1"]
    return subprocess.Popen([*command, *map(str, options)], stdout=subprocess.DEVNULL)


def test_what_is_under_way_is_saved_when_the_command_is_told_to_stop(script, tmp_path):
    with started(script, tmp_path) as process:
        try:
            for _ in range(600):
                if len([*tmp_path.glob("figure1-digits/unfinished/runs/*/history.jsonl")]) == 3:
                    break
                time.sleep(0.1)
            process.terminate()
            assert process.wait(60) == 143
        finally:
            process.kill()
    (part,) = script.missing(tmp_path, ["figure1-digits"], 1_000_000)
    under_way = {part.folder.checkpoints(run) for run in part.runs[:3]}
    assert {*(part.folder.path / "unfinished" / "runs").iterdir()} == under_way
    assert all(any(path.glob("checkpoints/step-*.safetensors")) for path in under_way)


def test_it_ends_when_its_time_is_over(script, tmp_path):
    with started(script, tmp_path, "--time-limit", "1") as process:
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()
