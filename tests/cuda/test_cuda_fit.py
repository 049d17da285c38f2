"""fit on a GPU: a captured step trains as an eager one, and falls back where it must."""

import math

import pytest
import torch
from torch import nn

import aucmax
from aucmax.images.augment import Chain, ColorJitter, CropAndFlip, MixWithinClass
from aucmax.models import Standardize

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

METHODS = ["ppd-sg", "ppd-adagrad", "pga", "oauc", "sgd", "adagrad", "adamw"]


def data(n: int = 4000, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    y = (torch.rand(n, generator=g) < 0.15).float()
    return torch.randn(n, 12, generator=g) + 0.6 * y[:, None], y


def make_model(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(32, 1))


def fit(model: nn.Module, **options):
    options = {"steps": 160, "eval_every": 80, "progress": False, "device": "cuda", **options}
    return aucmax.fit(model, data(), data(1000, seed=1), **options)


@pytest.mark.parametrize("method", METHODS)
def test_a_captured_run_is_an_eager_run(method: str, capfd) -> None:
    runs = [
        fit(make_model().double(), method=method, cuda_graph=graph, progress=True)
        for graph in (None, False)
    ]
    said = capfd.readouterr().err
    assert "not captured" not in said
    # A bias before batch norm has no gradient but rounding noise, which Adam makes whole steps of.
    close = 1e-2 if method == "adamw" else 1e-6
    for x, y in zip(*(run.model.state_dict().values() for run in runs), strict=True):
        torch.testing.assert_close(x, y, rtol=close, atol=close)
    for record, other in zip(*(run.history for run in runs), strict=True):
        for name in ("loss", "valid_auc_last", "valid_auc_average", "alpha"):
            assert (record[name] or 0.0) == pytest.approx(other[name] or 0.0, rel=close)


def test_changes_of_pictures_are_captured(capfd) -> None:
    """Each replay has random numbers of its own: the losses of one batch differ."""
    y = (torch.arange(64) % 4 == 0).float()
    x = torch.randint(0, 256, (64, 3, 8, 8), dtype=torch.uint8)
    augment = Chain(CropAndFlip(1), ColorJitter(0.4), MixWithinClass(0.5))
    model = nn.Sequential(Standardize(127.5, 60.0), nn.Flatten(), nn.Linear(192, 1))
    result = aucmax.fit(
        model, (x, y), method="sgd", lr=1e-9, batch_size=64, steps=20, eval_every=1, probe=0,
        augment=augment, device="cuda",
    )  # fmt: skip
    assert "not captured" not in capfd.readouterr().err
    assert len({record["loss"] for record in result.history[5:]}) > 10


def test_a_step_size_that_decays_on_the_host_is_not_captured(capfd) -> None:
    options = {"optimizer_options": {"lr_decay": 0.1}, "progress": True}
    fit(make_model(), method="adagrad", steps=20, eval_every=20, **options)
    assert "not captured as a CUDA graph: lr_decay goes by steps" in capfd.readouterr().err


@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize(
    "options",
    [
        {"amp": "bf16"},
        {"clip_norm": 0.5},
        {"accumulate": 2},
        {"positives": 0.5},
        {"pretrain": 40},
        {"choose": "steady"},
        {"augment": lambda x: x + 0.1 * torch.randn_like(x)},
        {"compile": True},
        {"amp": "fp16"},
    ],
    ids=lambda options: next(iter(options)) + str(options.get("amp", "")),
)
def test_options_train_on_the_device(options) -> None:
    assert fit(make_model(dropout=0.1), **options).auc > 0.75


def test_dropout_draws_anew_at_every_replay() -> None:
    class Noise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(12, 1)
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            if self.training:
                self.seen.copy_(torch.rand((), device=x.device))
            return self.line(x)

    seen = []
    for steps in (50, 51):
        model = Noise()
        aucmax.fit(model, data(), steps=steps, method="oauc", progress=False, device="cuda")
        seen.append(model.seen.item())
    assert seen[0] != seen[1]


class Reads(nn.Module):
    """Reads a number back to the host, which no graph can hold."""

    def __init__(self) -> None:
        super().__init__()
        self.line, self.drop = nn.Linear(12, 1), nn.Dropout(0.1)

    def forward(self, x):
        return self.line(self.drop(x)) * (1.0 if x.sum().item() > -math.inf else 0.0)


def test_a_model_that_waits_for_the_device_falls_back_with_a_reason(capfd) -> None:
    result = fit(Reads(), progress=True)
    assert "not captured as a CUDA graph" in capfd.readouterr().err
    assert result.steps == 160
    assert result.auc > 0.75


class Breaks(nn.Module):
    """Divides by zero from a step on."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.line = nn.Linear(12, 1)
        self.register_buffer("left", torch.tensor(float(step)))

    def forward(self, x):
        if self.training:
            self.left -= 1
        return self.line(x) + torch.where(self.left < 0, torch.inf, 0.0) * self.line.weight.sum()


@pytest.mark.parametrize("graph", [None, False])
def test_divergence_names_step_and_parameters_and_leaves_good_weights(graph) -> None:
    model = Breaks(100)
    with pytest.raises(aucmax.DivergedError, match=r"step 101 .*line\.weight"):
        fit(model, cuda_graph=graph)
    assert all(bool(p.isfinite().all()) for p in model.parameters())


class StopError(Exception):
    """In the middle of a run."""


class StopsAt:
    """Augments nothing and stops the run at one of its calls."""

    def __init__(self, call: int) -> None:
        self.left = call

    def __call__(self, x):
        self.left -= 1
        if self.left == 0:
            raise StopError
        return x

    def __repr__(self) -> str:
        return "StopsAt"


@pytest.mark.parametrize("method", ["ppd-sg", "pga", "adamw"])
def test_a_run_goes_on_where_it_stopped(method: str, tmp_path) -> None:
    def run(out, call):
        options = {"method": method, "save_every": 20, "cuda_graph": False, "out": out}
        return fit(make_model(dropout=0.1), augment=StopsAt(call), **options)

    whole = run(tmp_path / "whole", -1)
    with pytest.raises(StopError):
        run(tmp_path / "cut", 130)
    resumed = run(tmp_path / "cut", -1)
    for x, y in zip(*(r.model.state_dict().values() for r in (whole, resumed)), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)
    assert [r["step"] for r in whole.history] == [r["step"] for r in resumed.history]


def test_odd_batches_of_a_loader_run_beside_the_graph() -> None:
    x, y = data(1000)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(x, y), batch_size=96, shuffle=True
    )
    result = aucmax.fit(
        make_model(), loader, data(500, 1), steps=100, device="cuda", progress=False
    )
    assert result.auc > 0.7


def test_the_step_is_captured_while_workers_read_ahead(capfd) -> None:
    """A thread copies their batches to pinned memory, which must not end the capture."""
    rows = torch.utils.data.TensorDataset(*data())
    options = {"steps": 60, "eval_every": 60, "workers": 2, "batch_size": 64, "device": "cuda"}
    aucmax.fit(make_model(), rows, method="sgd", progress=True, **options)
    assert "not captured" not in capfd.readouterr().err


@pytest.mark.parametrize("classes", [2, 3])
def test_a_classifier_trained_on_the_device_scores_there_as_on_the_cpu(classes) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(600, 4, generator=generator).double().numpy()
    x[:, 3] = x[:, 3] > 0
    y = (x[:, 0] + x[:, 1] > 0.5).astype(int) + (classes - 2) * (x[:, 2] > 1)
    model = aucmax.AUCClassifier(quality="fast", max_steps=60, device="cuda", random_state=0).fit(
        x, y
    )
    there = model.predict_proba(x)
    assert model.score(x, y) > 0.9
    here = model.set_params(device="cpu").predict_proba(x)
    assert abs(there - here).max() < 1e-3


# ---- Sweeps ------------------------------------------------------------------------------------


def in_float64(dropout: float = 0.2) -> nn.Module:
    return make_model(dropout).double()


def config(**options):
    train, valid = data(), data(1000, seed=1)
    given = {"model": in_float64, "train": train, "valid": valid, "steps": 160, "eval_every": 40}
    return {**given, **options}


def noise(x):
    return x + 0.1 * torch.randn_like(x)


def assert_same(actual, expected, close: float = 1e-6) -> None:
    for x, y in zip(actual.model.parameters(), expected.model.parameters(), strict=True):
        torch.testing.assert_close(x, y, rtol=close, atol=close)
    for record, other in zip(actual.history, expected.history, strict=True):
        for name in ("loss", "valid_auc_last", "valid_auc_average", "alpha"):
            assert (record[name] or 0.0) == pytest.approx(other[name] or 0.0, rel=max(close, 1e-5))


SWEPT = [
    {"method": "ppd-sg", "seed": 1, "pretrain": 20},
    {"method": "ppd-adagrad", "seed": 2, "augment": noise},
    {"method": "pga", "seed": 3, "positives": 0.5},
    {"method": "oauc", "seed": 4},
    {"method": "adagrad", "seed": 5},
    {"method": "sgd", "seed": 6, "augment": noise},
]


@pytest.mark.parametrize("at_once", [2, 4])
def test_runs_of_a_sweep_end_as_each_alone(at_once: int) -> None:
    """Captured, with dropout and noise that each run draws from a state of its own."""
    torch.manual_seed(3)
    expected = torch.rand(4, device="cuda")
    torch.manual_seed(3)
    results = aucmax.sweep(
        [config(**options) for options in SWEPT], at_once=at_once, device="cuda", progress=False
    )
    assert torch.equal(torch.rand(4, device="cuda"), expected)
    for options, result in zip(SWEPT, results, strict=True):
        alone = {**config(**options), "model": in_float64(), "device": "cuda", "progress": False}
        assert_same(result, aucmax.fit(**alone))


def test_seeds_of_a_sweep_draw_other_numbers() -> None:
    results = aucmax.sweep(
        [config(method="sgd", seed=seed, model=in_float64()) for seed in (0, 0, 1)],
        device="cuda",
        progress=False,
    )
    first, again, other = ([r["loss"] for r in result.history] for result in results)
    assert first == pytest.approx(again, rel=1e-6)
    assert first != pytest.approx(other, rel=1e-3)


def test_one_that_diverges_or_cannot_be_captured_does_not_disturb_the_others() -> None:
    configs = [
        config(method="sgd"),
        config(model=lambda: Breaks(100).double()),
        config(model=lambda: Reads().double()),
        config(method="adamw", model=lambda: Breaks(70).double()),
        config(method="ppd-sg", seed=1),
    ]
    good, broken, reads, broken_too, last = aucmax.sweep(configs, device="cuda", progress=False)
    assert "step 101" in str(broken)
    assert "step 71" in str(broken_too)
    assert reads.steps == 160
    for result, i in ((good, 0), (last, 4)):
        alone = {**configs[i], "model": in_float64(), "device": "cuda", "progress": False}
        assert_same(result, aucmax.fit(**alone))


def test_a_sweep_frees_what_its_runs_used() -> None:
    """Many runs, one after the other in two places, need no more memory than a few."""
    large = (torch.randn(20_000, 500), (torch.arange(20_000) % 9 == 0).float())
    used = []

    def configs():
        for seed in range(8):
            x, y = large
            wide = nn.Sequential(nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 1))
            own = {"train": (x.clone(), y), "steps": 70, "probe": 2, "seed": seed, "model": wide}
            yield {**own, "method": "ppd-sg", "eval_every": 70}

    def ended(*_) -> None:
        used.append(torch.cuda.memory_allocated())

    aucmax.sweep(configs(), at_once=2, device="cuda", on_end=ended, progress=False)
    assert max(used[4:]) < max(used[:4]) + 30e6  # a run's data alone are 40 MB
    torch.cuda.empty_cache()


def test_a_sweep_that_is_cut_goes_on(tmp_path) -> None:
    def configs(call: int):
        return [
            config(augment=StopsAt(call if i == 1 else -1), cuda_graph=False, seed=i,
                   out=tmp_path / str(i), method="ppd-sg")
            for i in range(3)
        ]  # fmt: skip

    with pytest.raises(StopError) as caught:
        aucmax.sweep(configs(120), device="cuda", progress=False)
    assert caught.value.__notes__ == ["in config 1 of the sweep"]
    results = aucmax.sweep(configs(-1), device="cuda", progress=False)
    for i, result in enumerate(results):
        alone = configs(-1)[i] | {"out": None, "model": in_float64()}
        assert_same(result, aucmax.fit(**alone, device="cuda", progress=False), close=1e-4)


def test_a_search_over_a_tables_options_runs_in_this_process(tmp_path, monkeypatch) -> None:
    from aucmax.tables import search, tune_file

    monkeypatch.setattr(search, "WorkerPool", None)
    x, y = data(600)
    rows = [",".join(map(str, [*a, int(b)])) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    names = ",".join([*(f"x{i}" for i in range(12)), "y"])
    (tmp_path / "data.csv").write_text("\n".join([names, *rows]))
    _, tuning = tune_file(
        tmp_path / "data.csv", "y", out=tmp_path / "m", trials=5, max_steps=120, workers=2,
        compare=False, progress=False,
    )  # fmt: skip
    assert len(tuning.trials) == 5
    assert tuning.best.validation_score > 0.8
