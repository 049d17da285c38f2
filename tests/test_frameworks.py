"""The scripts for other frameworks train, and resume in a new process bit for bit."""

import importlib.util
import re
import shutil
from pathlib import Path

import pytest
import torch
from process import Scripts
from sklearn.datasets import load_digits

from aucmax.stages import geometric

EXAMPLES = Path(__file__).parents[1] / "examples"
if not EXAMPLES.exists():
    pytest.skip("the folder examples is absent", allow_module_level=True)
CHECKPOINTS = {
    "lightning": "step={}.ckpt",
    "accelerate": "step_{}",
    "transformers": "checkpoint-{}",
}
FRAMEWORKS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            importlib.util.find_spec(name) is None, reason=f"{name} is not installed"
        ),
    )
    for name in CHECKPOINTS
]

# Stages end after 24, 98 and 322 steps, an epoch has 8: both cuts fall into the middle of one.
FIRST_STAGE, SAVE_EVERY, MID_STAGE, STAGE_END, LAST = 25, 14, 42, 98, 322


class Script:
    """One framework's script, run in a folder."""

    def __init__(self, framework, folder, scripts):
        self.path = EXAMPLES / f"with_{framework}.py"
        self.framework, self.folder, self.scripts = framework, folder, scripts

    def __call__(self, out, *options):
        """Run it in a process of its own."""
        result = self.scripts.run(
            self.path,
            "--steps",
            FIRST_STAGE,
            "--save-every",
            SAVE_EVERY,
            "--out",
            out,
            *options,
            cwd=self.folder,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    def checkpoint(self, out, step):
        return self.folder / out / CHECKPOINTS[self.framework].format(step)

    def saved(self, out, step):
        return contents(self.checkpoint(out, step))

    def resume(self, out, step, *options):
        """Resume from a checkpoint that is all there is; the steps up to it are not run again."""
        for path in (self.folder / out).iterdir():
            if path != self.checkpoint(out, step):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        printed = self(out, "--resume", self.checkpoint(out, step), *options)
        assert not self.checkpoint(out, step - SAVE_EVERY).exists()
        return printed


def contents(checkpoint):
    """The weights, and the optimizer's state, of any framework's checkpoint."""
    if checkpoint.is_file():
        saved = torch.load(checkpoint, weights_only=True)
        return saved["state_dict"], saved["optimizer_states"][0]
    from safetensors.torch import load_file

    weights = {}
    for path in sorted(checkpoint.glob("model*.safetensors")):
        weights |= load_file(path)
    (optimizer,) = checkpoint.glob("optimizer.*")
    return weights, torch.load(optimizer, weights_only=True)


def one(weights, ending):
    """The one tensor whose name ends so."""
    (value,) = [value for name, value in weights.items() if name.endswith(ending)]
    return value


def assert_same_bits(actual, expected):
    assert type(actual) is type(expected)
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key in expected:
            assert_same_bits(actual[key], expected[key])
    elif isinstance(expected, list | tuple):
        for a, e in zip(actual, expected, strict=True):
            assert_same_bits(a, e)
    elif isinstance(expected, torch.Tensor):
        assert actual.dtype == expected.dtype
        assert torch.equal(actual, expected)
    else:
        assert actual == expected


def check_that_it_learned_to_rank(printed):
    found = re.findall(r"^(.+): validation AUC ([\d.]+)$", printed, flags=re.M)
    aucs = {name: float(auc) for name, auc in found}
    assert list(aucs) == ["Untrained", "Last iterate", "Stage average"]
    assert aucs["Untrained"] < 0.65
    assert min(aucs["Last iterate"], aucs["Stage average"]) > 0.88


def closed_form(weights, stage):
    """Alpha as reset_dual sets it, from the examples that the scripts draw at the stage's end."""
    images, digits = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(digits >= 5)
    train, _ = torch.randperm(len(y), generator=torch.Generator().manual_seed(0)).chunk(2)
    train = torch.cat([train[y[train]][::10], train[~y[train]]])
    generator = torch.Generator().manual_seed(stage.index)
    rows = train[torch.randint(len(train), (stage.dual_samples,), generator=generator)]
    w1, b1, w2, b2 = (one(weights, key) for key in ("0.weight", "0.bias", "2.weight", "2.bias"))
    h = ((x[rows] @ w1.T + b1).relu() @ w2.T + b2).sigmoid()
    return (h[~y[rows]].mean() - h[y[rows]].mean()).item()


def check_the_dual(script, out):
    """Alpha moves within a stage, and begins the next one in closed form."""
    steps = (MID_STAGE, MID_STAGE + SAVE_EVERY, STAGE_END, LAST)
    alphas = [one(script.saved(out, step)[0], "alpha").item() for step in steps]
    assert len(set(alphas)) == len(steps)
    assert all(-1.0 < alpha < -0.1 for alpha in alphas)
    weights, _ = script.saved(out, STAGE_END)
    assert alphas[2] == pytest.approx(closed_form(weights, geometric(stages=3)[1]), abs=1e-5)


def check_the_average(script, out):
    """What the script saves last is the average of the last stage, not its last point."""
    weights, optimizer = script.saved(out, LAST)
    average = torch.load(script.folder / out / "average.pt")
    points = LAST - STAGE_END + 1
    for i, (key, value) in enumerate(average.items()):
        state = optimizer["state"][i]
        torch.testing.assert_close(value, state["reference"] + state["drift"] / points)
        assert not torch.equal(value, one(weights, key))


def check_the_stages(script, out):
    """A stage's last checkpoint holds its end: a new count, a new step size, no average yet."""
    steps = (SAVE_EVERY, MID_STAGE, STAGE_END, LAST)
    optimizers = [script.saved(out, step)[1] for step in steps]
    groups = [optimizer["param_groups"][0] for optimizer in optimizers]
    lr = groups[0]["lr"]
    assert [group["lr"] for group in groups] == pytest.approx([lr, lr / 3, lr / 9, lr / 9])
    expected = [SAVE_EVERY, MID_STAGE - (FIRST_STAGE - 1), 0, LAST - STAGE_END]
    steps = [optimizer["state"].get(0, {}).get("step", 0) for optimizer in optimizers]
    assert steps == expected
    assert [bool(optimizer["state"]) for optimizer in optimizers] == [True, True, False, True]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_script_trains_in_stages_and_resumes_bit_for_bit(framework, tmp_path, tmp_path_factory):
    """A warning of aucmax, or of the framework about its use, is an error."""
    path, folder = EXAMPLES / f"with_{framework}.py", tmp_path_factory.mktemp("said")
    with Scripts([path], folder, flags=["-W", "error::UserWarning"]) as scripts:
        check_script(Script(framework, tmp_path, scripts), tmp_path)


def check_script(script, tmp_path):
    printed = script("cut")
    shutil.copytree(tmp_path / "cut", tmp_path / "whole")
    check_that_it_learned_to_rank(printed)
    check_the_dual(script, "whole")
    check_the_stages(script, "whole")
    check_the_average(script, "whole")

    script.resume("cut", MID_STAGE, "--stop-after", STAGE_END + 8)
    assert not script.checkpoint("cut", STAGE_END + SAVE_EVERY).exists()
    for step in (MID_STAGE + SAVE_EVERY, STAGE_END):
        assert_same_bits(script.saved("cut", step), script.saved("whole", step))
    assert script.resume("cut", STAGE_END) == printed
    assert_same_bits(script.saved("cut", LAST), script.saved("whole", LAST))
    averages = [torch.load(tmp_path / out / "average.pt") for out in ("cut", "whole")]
    assert_same_bits(*averages)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut", "whole"]
