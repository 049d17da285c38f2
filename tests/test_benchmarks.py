"""The benchmarks run, in sizes that take no time: their figures say nothing here."""

import importlib
import json
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def module(monkeypatch):
    """Imports a benchmark by its name."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def test_the_gpu_benchmark_keeps_the_sections_it_does_not_measure(module, tmp_path, monkeypatch):
    gpu, file = module("gpu"), tmp_path / "cuda.json"
    file.write_text('{"step": 1}')
    options = ["--device", "cpu", "--tiny", "--only", "optimizer", "loss", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["gpu.py", *options])
    gpu.main()
    found = json.loads(file.read_text())
    assert list(found) == ["step", "optimizer", "loss"]
    assert found["optimizer"]["errors"] == found["loss"]["errors"] == {}
    row = found["loss"]["N = 50, captured"]["AUCLoss"]
    peer = found["loss"]["N = 50, captured"]["BCEWithLogitsLoss"]
    assert row["ratio"] == pytest.approx(row["seconds"] / peer["seconds"])


def test_what_fails_is_noted_and_the_rest_is_timed(module):
    device = module("_device").Device(torch.device("cpu"), tiny=True)
    works = {"good": lambda: None, "bad": lambda: 1 / 0}
    assert set(device.compare("these", works, "good")) == {"good"}
    assert device.errors == {"these: bad": "ZeroDivisionError: division by zero"}


def test_a_section_that_breaks_off_keeps_what_it_had(module, monkeypatch):
    gpu = module("gpu")

    def broken(device):
        yield "first", {"a": {"seconds": 1.0, "ratio": 1.0}}
        raise RuntimeError("no memory")

    monkeypatch.setitem(gpu.SECTIONS, "loss", broken)
    found = gpu.measure(gpu.Device(torch.device("cpu"), tiny=True), "loss")
    assert set(found) == {"first", "errors"}
    assert found["errors"] == {"the rest": "RuntimeError: no memory"}
