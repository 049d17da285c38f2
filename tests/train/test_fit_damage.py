"""What a run meets that it must survive or refuse: broken files, full disks, numbers gone wrong."""

import hashlib
import json
import os
import pickle
import re
import shutil
import subprocess
from contextlib import nullcontext

import fit_child
import pytest
import torch
from fit_child import make_model, make_rows, train
from fit_data import one_thread  # noqa: F401
from fit_helpers import assert_same_run, configure, contents, finished, outcome_of, steps_saved
from torch import nn

import aucmax
from aucmax import checkpoint

NAME = "ppd-sg, arrays"
BEGUN = dict.fromkeys(("ppd-sg", "ppd-adagrad", "pga", "oauc"), 1)
"""How many batches a, b and alpha begin with, where as few as can be are asked for."""
METHODS = [*BEGUN, "sgd", "adagrad", "adamw"]


@pytest.fixture(autouse=True)
def go_on_again():
    yield
    fit_child.stop_at()


@pytest.fixture(scope="module")
def whole(trainer, tmp_path_factory):
    """The folder of a finished run."""
    out = tmp_path_factory.mktemp("whole") / "run"
    finished(trainer, NAME, out)
    return out


@pytest.fixture(scope="module")
def half(trainer, tmp_path_factory):
    """The folder of a run that was cut off between two checkpoints, each with best weights."""
    out = tmp_path_factory.mktemp("half") / "run"
    end = trainer.run(configure(NAME, out, save_every=6), stop={"batch": 71})
    assert "StoppedError" in end.stderr
    bests = {checkpoint.load(out / "checkpoints", step)["best"] for step in steps_saved(out)}
    assert len(steps_saved(out)) == len(bests) == 2
    return out


def copy_of(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "run")


def newest(out, kind="step"):
    """The name of the newest state, or of the best weights that it knows of."""
    step = steps_saved(out)[-1]
    return step if kind == "step" else checkpoint.load(out / "checkpoints", step)["best"]


def go_on(out, **options):
    """The same call again, in this process."""
    return train(**configure(NAME, out, save_every=6, **options))


def refused(out, match, **options):
    """The error of a call that must change nothing."""
    before = contents(out)
    with pytest.raises(ValueError, match=match) as caught:
        go_on(out, **options)
    assert contents(out) == before
    return str(caught.value)


# ---- Damaged checkpoints -----------------------------------------------------------------------


def halve(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_a_little(path):
    path.write_bytes(path.read_bytes()[:-2])


def empty(path):
    path.write_bytes(b"")


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) * 2 // 3] ^= 1
    path.write_bytes(content)


def overwrite_with_a_pickle(path):
    path.write_bytes(pickle.dumps({"weights": [1, 2, 3]}))


DAMAGES = [
    (halve, "step", ".safetensors"),
    (cut_a_little, "step", ".json"),
    (empty, "best", ".safetensors"),
    (flip_a_bit, "best", ".json"),
    (overwrite_with_a_pickle, "step", ".safetensors"),
]


@pytest.mark.parametrize(("damage", "kind", "suffix"), DAMAGES)
def test_damaged_checkpoint_is_named_and_the_one_before_it_used(
    half, whole, tmp_path, capfd, damage, kind, suffix
):
    out = copy_of(half, tmp_path)
    path = out / "checkpoints" / f"{newest(out, kind)}{suffix}"
    damage(path)
    go_on(out, progress=True)
    said = capfd.readouterr().err
    older = int(steps_saved(half)[0].removeprefix("step-"))
    assert [str(path) in line for line in said.splitlines()].count(True) == 1
    assert f"step {older} " in said
    assert_same_run(outcome_of(out), outcome_of(whole))


def test_without_a_whole_checkpoint_nothing_is_touched(half, tmp_path):
    out = copy_of(half, tmp_path)
    first, second = (out / "checkpoints" / step for step in steps_saved(out))
    paths = [first.with_suffix(".safetensors"), second.with_suffix(".json")]
    for path in paths:
        flip_a_bit(path)
    message = refused(out, "checkpoint")
    assert all(str(path) in message for path in paths)


def test_every_flipped_bit_is_noticed(half, tmp_path):
    """One of each byte of the newest state's JSON, and of some of its tensors' bytes."""
    folder, step = half / "checkpoints", newest(half)
    state, tensors = ((folder / f"{step}{x}").read_bytes() for x in (".json", ".safetensors"))
    tasks = [(".json", state, 23), (".safetensors", tensors, 997)]
    for suffix, content, stride in tasks:
        for number, x in enumerate((".json", ".safetensors")):
            (tmp_path / f"{step}{x}").write_bytes((state, tensors)[number])
        for position in range(0, len(content), stride):
            flipped = bytearray(content)
            flipped[position] ^= 1 << position % 8
            (tmp_path / f"{step}{suffix}").write_bytes(flipped)
            with pytest.raises(checkpoint.DamagedError, match=step):
                checkpoint.load(tmp_path, step)


# ---- Full disks --------------------------------------------------------------------------------


def assert_the_old_state_is_whole(out, before):
    """What the last two checkpoints were made of is all there, and nothing half-written."""
    now = contents(out)
    assert not [name for name in now if name.endswith(".tmp")]
    step = newest(out)
    assert {name: now[name] for name in before if step in name} == {
        name: content for name, content in before.items() if step in name
    }
    state = checkpoint.load(out / "checkpoints", step)
    checkpoint.load(out / "checkpoints", state["best"])


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", disk]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a small disk may not be mounted here")
    yield disk
    subprocess.run(["umount", disk], check=True)


def fill(disk, free):
    """Leave so many bytes."""
    space = os.statvfs(disk)
    (disk / "ballast").write_bytes(b"\0" * (space.f_bavail * space.f_bsize - free))


@pytest.mark.parametrize("pages", [0, 2, 10])
def test_full_disk_leaves_the_old_state_whole(trainer, half, whole, small_disk, pages):
    """However far a save comes; a page is what a small disk hands out at a time."""
    out = shutil.copytree(half, small_disk / "run")
    before = contents(out)
    fill(small_disk, pages * 4096)
    end = trainer.run(configure(NAME, out, save_every=6))
    assert end.returncode == 1
    assert "No space left" in end.stderr
    assert_the_old_state_is_whole(out, before)
    (small_disk / "ballast").unlink()
    assert_same_run(finished(trainer, NAME, out, save_every=6), outcome_of(whole))


def test_files_that_may_not_grow_leave_the_old_state_whole(trainer, half, whole, tmp_path):
    out = copy_of(half, tmp_path)
    before = contents(out)
    limit = (out / "checkpoints" / f"{newest(out)}.safetensors").stat().st_size // 2
    end = trainer.run(configure(NAME, out, save_every=6), file_limit=limit)
    assert end.returncode == 1
    assert "File too large" in end.stderr
    assert_the_old_state_is_whole(out, before)
    assert_same_run(finished(trainer, NAME, out, save_every=6), outcome_of(whole))


# ---- Pickles -----------------------------------------------------------------------------------


class Creates:
    """Unpickling it creates a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def plant(path, canary, container):
    """A pickle with code in place of the weights; its digest is put right if asked for."""
    if container == "zip":
        torch.save({"weights": Creates(canary)}, path)
    else:
        path.write_bytes(pickle.dumps(Creates(canary)))


def forge(path):
    """Make the JSON beside a file say that the file is what was written."""
    notes = json.loads(path.with_suffix(".json").read_text())
    notes["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    del notes["self"]
    checkpoint._write_notes(path.parent, path.stem, notes)


@pytest.mark.parametrize(("container", "forged"), [("plain", False), ("zip", True)])
def test_pickle_in_place_of_the_model_is_refused(whole, tmp_path, container, forged):
    out, canary = copy_of(whole, tmp_path), tmp_path / "canary"
    plant(out / "model.safetensors", canary, container)
    if forged:
        forge(out / "model.safetensors")
    refused(out, r"model\.safetensors")
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        aucmax.load_weights(make_model(), out)
    assert not canary.exists()


def test_pickle_would_have_run(tmp_path):
    """Otherwise the test above would show nothing."""
    plant(tmp_path / "file", tmp_path / "canary", "plain")
    pickle.loads((tmp_path / "file").read_bytes())
    assert (tmp_path / "canary").exists()


# ---- Folders that are taken --------------------------------------------------------------------


def test_finished_run_is_not_run_again(whole, tmp_path):
    out = copy_of(whole, tmp_path)
    before, times = contents(out), modified(out)
    fit_child.stop_at(batch=1)
    result = go_on(out)
    assert contents(out) == before
    assert modified(out) == times
    notes = json.loads((out / "model.json").read_text())
    assert (result.auc, result.step, result.steps) == (notes["auc"], notes["step"], 48)
    assert [record["step"] for record in result.history][-1] == 48
    model = make_model(seed=1)
    aucmax.load_weights(model, out)
    for name, value in model.state_dict().items():
        assert torch.equal(result.model.state_dict()[name], value), name


def modified(out):
    """When each file was last written to, but for the lock, which is taken by opening it."""
    files = (p for p in out.rglob("*") if p.is_file() and p.name != ".lock")
    return {p: p.stat().st_mtime_ns for p in files}


OTHERS = {
    "seed": (0, 1),
    "method": ("ppd-sg", "ppd-adagrad"),
    "clip_norm": (None, 1.0),
}


@pytest.mark.parametrize("folder", ["half", "whole"])
def test_another_configuration_is_refused(request, tmp_path, folder):
    out = copy_of(request.getfixturevalue(folder), tmp_path)
    for name, (there, now) in OTHERS.items():
        message = refused(out, name, **{name: now})
        assert f"{name} ({there!r} there, {now!r} now)" in message
        assert not [other for other in OTHERS if other != name and f" {other} (" in message]
    message = refused(out, "seed.*clip_norm|clip_norm.*seed", seed=1, clip_norm=1.0)
    assert all(f"{name} (" in message for name in ("seed", "clip_norm"))


def test_run_of_another_format_is_refused(half, tmp_path):
    out = copy_of(half, tmp_path)
    config = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps({**config, "format": 1}))
    refused(out, "another version")


@pytest.mark.parametrize("batch", [71, None], ids=["half", "whole"])
def test_other_test_data_is_refused(tmp_path, batch):
    """It is told from what the run was begun with as validation data is."""
    out, test = tmp_path / "run", make_rows(40, seed=2)
    fit_child.stop_at(batch=batch)
    with pytest.raises(fit_child.StoppedError) if batch else nullcontext():
        go_on(out, test=test)
    assert steps_saved(out)
    fit_child.stop_at()
    for other in (make_rows(40, seed=3), (test[0], 1 - test[1]), None):
        refused(out, "data .*'test'", test=other)
    history = go_on(out, test=test).history
    assert all(0 <= record["test_auc_last"] <= 1 for record in history)


def test_right_call_works_after_a_refused_one(half, whole, tmp_path):
    """In the same process, where the error and all it refers to may still be at hand."""
    out = copy_of(half, tmp_path)
    with pytest.raises(ValueError, match="configuration") as caught:
        go_on(out, seed=1)
    go_on(out)
    assert_same_run(outcome_of(out), outcome_of(whole))
    assert caught.value is not None


def test_right_call_works_after_one_that_failed(whole, tmp_path):
    out = copy_of(whole, tmp_path)
    weights = (out / "model.safetensors").read_bytes()
    empty(out / "model.safetensors")
    with pytest.raises(ValueError, match=r"model\.safetensors") as caught:
        go_on(out)
    (out / "model.safetensors").write_bytes(weights)
    assert go_on(out).steps == 48
    assert caught.value is not None


def test_second_process_is_refused(trainer, whole, tmp_path):
    out = tmp_path / "run"
    run = trainer.start(configure(NAME, out), stop={"batch": 20, "how": "hold"})
    held = trainer.folder / "held"
    run.wait_until(held.exists)
    with pytest.raises(ValueError, match="another process"):
        go_on(out)
    held.unlink()
    assert run.wait().returncode == 0
    assert_same_run(outcome_of(out), outcome_of(whole))


# ---- Numbers gone wrong ------------------------------------------------------------------------


def finite(values):
    return all(x.isfinite().all() for x in values if x.is_floating_point())


def tensors(tree):
    """All tensors of a state."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    children = tree.values() if isinstance(tree, dict) else tree
    nested = isinstance(tree, dict | list | tuple)
    return [x for child in children for x in tensors(child)] if nested else []


def assert_checkpoints_are_sound(out):
    names = {path.stem for path in (out / "checkpoints").iterdir()}
    assert names
    for name in names:
        assert finite(tensors(checkpoint.load(out / "checkpoints", name))), name


ONE_STAGE = [aucmax.stages.Stage(index=1, lr=0.1, steps=48, dual_samples=0)]
BAD_ROW = 77


def rows_with(value):
    x, y = make_rows()
    x[BAD_ROW, 2] = value
    return x, y


def bad_batch():
    """The number of the first batch with the bad row."""
    sampler = aucmax.BatchSampler(make_rows()[1], fit_child.BATCH)
    return next(k for k in range(100) if BAD_ROW in sampler.rows(k))


def diverge(model, rows, method, **options):
    """The message of a run that must fail; but for the first, batches are steps' until it does."""
    defaults = {"stages": ONE_STAGE, "steps": 48, "eval_every": 48, "batch_size": 16, "probe": 2}
    options = defaults | options
    with pytest.raises(aucmax.DivergedError) as caught:
        aucmax.fit(model, rows, method=method, progress=False, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("method", "value"),
    [(method, (torch.nan, torch.inf)[k % 2]) for k, method in enumerate(METHODS)],
)
def test_bad_row_stops_the_run_at_its_step(tmp_path, method, value):
    """The model and the checkpoints are good; the folder is for the data it was begun with."""
    model, k = make_model(), bad_batch()
    assert 3 <= k <= 9  # after some good ones
    options = {"save_every": 2, "out": tmp_path / "run"}
    message = diverge(model, rows_with(value), method, **options)
    assert re.search(rf"\bstep {k + 1 - BEGUN.get(method, 0)}\b", message), message
    assert re.search(rf"\bbatch {k}\b", message), message
    assert "model.0.weight" in message
    assert finite(model.state_dict().values())
    assert_checkpoints_are_sound(tmp_path / "run")

    arguments = {"stages": ONE_STAGE, "steps": 48, "eval_every": 48, "batch_size": 16, "probe": 2}
    with pytest.raises(ValueError, match="'inputs'"):
        aucmax.fit(make_model(), make_rows(), method=method, **options, **arguments)


@pytest.mark.parametrize(("method", "probe"), [("ppd-sg", 0), ("oauc", 32), ("adamw", 32)])
def test_bad_row_among_fresh_samples_spoils_no_weights(method, probe):
    """Evaluations and the ends of stages draw samples too, and batch norm remembers them."""
    for row in range(0, fit_child.ROWS, 32):
        x, y = make_rows()
        x[row, 2] = torch.nan
        model, options = make_model(), {"eval_every": 7, "probe": probe, "stages": None}
        diverge(model, (x, y), method, **options)
        assert finite(model.state_dict().values()), row


class Explosion(torch.autograd.Function):
    @staticmethod
    def forward(context, x, factor):
        context.factor = factor
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        return gradient * context.factor, None


class ExplodesOnce(nn.Module):
    """The gradient of one training step gets infinite on its way through."""

    def __init__(self, step):
        super().__init__()
        self.step, self.steps = step, 0

    def forward(self, x):
        self.steps += self.training
        exploding = self.training and self.steps == self.step
        return Explosion.apply(x, torch.inf if exploding else 1.0)


@pytest.mark.parametrize("method", METHODS)
def test_infinite_gradient_stops_the_run_at_its_step(tmp_path, method):
    """The parameters that it reached are named, and the model is as the step before left it."""
    step, out = 9, tmp_path / "run"
    torch.manual_seed(0)
    layers = nn.Linear(fit_child.COLUMNS, 4), ExplodesOnce(step), nn.Tanh(), nn.Linear(4, 1)
    model, seen = nn.Sequential(*layers), []

    @model.register_forward_pre_hook
    def see(*_):
        if model.training:
            seen.append(layers[0].weight.detach().clone())

    message = diverge(model, make_rows(), method, save_every=2, out=out)
    assert re.search(rf"\bstep {step}\b", message)
    assert re.search(rf"\bbatch {step - 1 + BEGUN.get(method, 0)}\b", message)
    assert "model.0.weight" in message
    assert "model.0.bias" in message
    assert "model.3" not in message
    assert torch.equal(layers[0].weight, seen[step - 1])
    assert not torch.equal(seen[step - 1], seen[step - 2])
    assert finite(model.state_dict().values())
    assert_checkpoints_are_sound(out)
    assert steps_saved(out)[-1].endswith(f"{step - 1:010d}")
