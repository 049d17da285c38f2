"""Save mid-stage, load in a fresh process, go on: bit for bit as if nothing had happened."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import resume_child
import torch
from resume_child import CASES, LAST, STAGE_ENDS, build, load, save, train

CUTS = {"mid-stage": 8, "right-after-a-stage": STAGE_ENDS[0]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Checkpoints of every case at every cut, and where a fresh process went from there."""
    folder = tmp_path_factory.mktemp("resume")
    for case in CASES:
        for cut, step in CUTS.items():
            task, optimizer = build(case, seed=0)
            train(case, task, optimizer, 0, step)
            save(folder / f"{case}.{cut}.cut", task, optimizer, step=step)
    here = Path(resume_child.__file__).parent
    command = [sys.executable, "-W", "error", here / "resume_child.py", folder]
    path = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": path})
    return folder


def uninterrupted(case, dtype=torch.float64):
    task, optimizer = build(case, seed=0, dtype=dtype)
    train(case, task, optimizer, 0, LAST)
    return task, optimizer


def assert_same_bits(actual, expected):
    """Two state_dicts: the same keys, types, dtypes and values, all the way down."""
    assert type(actual) is type(expected)
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key in expected:
            assert_same_bits(actual[key], expected[key])
    elif isinstance(expected, list):
        for a, e in zip(actual, expected, strict=True):
            assert_same_bits(a, e)
    elif isinstance(expected, torch.Tensor):
        assert actual.dtype == expected.dtype
        assert torch.equal(actual, expected)
    else:
        assert actual == expected


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("case", CASES)
def test_resume_in_fresh_process(folder, case, cut):
    task, optimizer = uninterrupted(case)
    end = torch.load(folder / f"{case}.{cut}.end", weights_only=True)
    assert_same_bits(end["model"], task.model.state_dict())
    assert_same_bits(end["loss"], task.loss.state_dict())
    assert_same_bits(end["optimizer"], optimizer.state_dict())


@pytest.mark.parametrize("case", CASES)
def test_resumed_run_moves_every_parameter(folder, case):
    """Otherwise the comparison above would show nothing."""
    cut = torch.load(folder / f"{case}.mid-stage.cut", weights_only=True)
    end = torch.load(folder / f"{case}.mid-stage.end", weights_only=True)
    for part in ("model", "loss"):
        for name, value in cut[part].items():
            assert not torch.equal(end[part][name], value), name


@pytest.mark.parametrize("case", CASES)
def test_resume_in_bfloat16(tmp_path, case):
    step = CUTS["mid-stage"]
    task, optimizer = build(case, seed=0, dtype=torch.bfloat16)
    train(case, task, optimizer, 0, step)
    save(tmp_path / "cut", task, optimizer)

    task, optimizer = build(case, seed=99, dtype=torch.bfloat16)
    load(tmp_path / "cut", task, optimizer)
    states = [x for state in optimizer.state.values() for x in state.values() if x.ndim]
    assert {x.dtype for x in states} == {torch.float32}

    train(case, task, optimizer, step, LAST)
    expected_task, expected = uninterrupted(case, torch.bfloat16)
    assert_same_bits(task.model.state_dict(), expected_task.model.state_dict())
    assert_same_bits(task.loss.state_dict(), expected_task.loss.state_dict())
    assert_same_bits(optimizer.state_dict(), expected.state_dict())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_loaded_optimizer_copies_counters(dtype):
    task, optimizer = build("oauc", seed=0, dtype=dtype)
    train("oauc", task, optimizer, 0, 3)
    saved = optimizer.state_dict()
    task, loaded = build("oauc", seed=0, dtype=dtype)
    loaded.load_state_dict(saved)
    train("oauc", task, loaded, 3, 5)
    assert {state["step"].item() for state in saved["state"].values()} == {3}
    assert {state["step"].item() for state in loaded.state.values()} == {5}
