"""Plans: options that a run does not use raise, and those that it uses change its steps."""

from pathlib import Path

import pytest

plan = pytest.importorskip("experiments.plan", reason="an sdist has none")
from experiments.train_image import make_stages, train  # noqa: E402

PAPER = Path(plan.__file__).with_name("paper.toml")

ROWS = {
    "kind": "image", "dataset": "digits", "line": "x", "seed": 0, "partition": "halves",
    "removed": 0.5, "valid": 0.2, "hold_out": "before", "wrong": [0.2, 0.06], "model": "mlp",
    "batch_size": 32, "steps": 40, "eval_every": 20, "probe": 64, "precision": "float32",
}  # fmt: skip
SAME_FOR_ALL = {
    "seed": 1, "partition": "random", "removed": 0.6, "valid": 0.3, "hold_out": "after",
    "wrong": [0.1, 0.1], "model": "resnet20", "batch_size": 16, "steps": 48, "precision": "bf16",
    "positives": 0.5, "augment": True, "pretraining": 8,
}  # fmt: skip
AUC = {"objective": "auc", "normalize": True}
GEOMETRIC = {"schedule": "geometric", "lr": 0.3, "first_stage": 16, "factor": 3}
DROPS = {"schedule": "drops", "lr": 0.1, "drops": [0.5]}
CE = {"objective": "ce", "normalize": None}
LINES = {
    "ppd-sg": (
        {**AUC, **GEOMETRIC, "gamma": 100},
        {"gamma": 2, "momentum": 0.9, "weight_decay": 0.1, "restart": "last", "normalize": False,
         "lr": 0.1, "first_stage": 0.2, "factor": 2, "objective": CE},
    ),
    "ppd-adagrad": (
        {**AUC, **GEOMETRIC, "lr": 0.05, "gamma": 100, "delta": 0.1},
        {"gamma": 2, "delta": 1.0, "restart": "last", "normalize": False, "lr": 0.1,
         "first_stage": 0.2, "factor": 2, "objective": CE},
    ),
    "pga": (
        {**AUC, "schedule": "polynomial", "lr": 0.1, "first_stage": 8, "gamma": 100},
        {"gamma": 2, "lr": 0.3, "first_stage": 16, "normalize": False, "objective": CE},
    ),
    "oauc": (
        {**AUC, "schedule": "power", "lr": 0.3, "power": 0.5},
        {"power": 0.9, "lr": 0.1, "normalize": False, "objective": CE},
    ),
    "sgd": (
        {"objective": "ce", **DROPS},
        {"momentum": 0.9, "weight_decay": 0.1, "lr": 0.3, "drops": [0.25, 0.5], "objective": AUC,
         "schedule": {"schedule": "cosine", "drops": None}, **SAME_FOR_ALL},
    ),
    "adagrad": (
        {"objective": "ce", **DROPS},
        {"weight_decay": 0.1, "lr": 0.3, "drops": [], "objective": AUC,
         "schedule": {**GEOMETRIC, "drops": None}},
    ),
}  # fmt: skip
"""For each method its own settings, and for each option another value; a mapping changes several
settings at once, None takes one away."""

CASES = [(method, option) for method, (_, changes) in LINES.items() for option in changes]


def settings_of(method, option=None):
    own, changes = LINES[method]
    settings = {**ROWS, "method": method, **own}
    if option is not None:
        value = changes[option]
        settings |= value if isinstance(value, dict) else {option: value}
    return {name: value for name, value in settings.items() if value is not None}


def curves(settings, folder):
    run = plan.Plan({}, code="", torch="").run(settings)
    record = train(run, Path(), "cpu", folder)
    assert record["error"] is None
    return [record["history"][f"test_auc_{iterate}"] for iterate in ("last", "average")]


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory):
    return {
        method: curves(settings_of(method), tmp_path_factory.mktemp(method)) for method in LINES
    }


@pytest.mark.parametrize(("method", "option"), CASES)
def test_every_option_changes_the_steps(method, option, unchanged, tmp_path):
    assert curves(settings_of(method, option), tmp_path) != unchanged[method]


def test_every_option_is_tried():
    tried = {*SAME_FOR_ALL} | {name for own, changes in LINES.values() for name in (*own, *changes)}
    labels = {"kind", "dataset", "ratio", "protocol", "condition", "line", "method"}
    evaluations = {"eval_every", "probe"}
    for condition, names in plan.OPTIONS.items():
        if condition.startswith(("kind=image", "dataset=", "method=", "objective=", "schedule=")):
            known = {name.rstrip("?") for name in names.split()} - labels - evaluations
            assert known <= tried or condition == "method=libauc"


@pytest.mark.parametrize(
    ("method", "unused"),
    [
        ("sgd", {"gamma": 10}),
        ("sgd", {"delta": 0.1}),
        ("sgd", {"normalize": True}),
        ("oauc", {"first_stage": 10}),
        ("oauc", {"momentum": 0.9}),
        ("ppd-sg", {"delta": 0.1}),
        ("ppd-sg", {"drops": [0.5]}),
        ("ppd-adagrad", {"momentum": 0.9}),
        ("pga", {"restart": "last"}),
        ("adagrad", {"learning_rate": 0.1}),
    ],
)
def test_an_option_that_a_run_does_not_use_raises(method, unused):
    with pytest.raises(ValueError, match=next(iter(unused))):
        plan.check({**settings_of(method), **unused})


def test_an_option_that_a_run_lacks_raises():
    settings = settings_of("ppd-sg")
    del settings["gamma"]
    with pytest.raises(ValueError, match="gamma"):
        plan.check(settings)


def test_ids_depend_on_settings_code_and_torch():
    settings = settings_of("sgd")
    known = plan.Plan({}, "code", "2.13").run(settings)
    same = plan.Plan({}, "code", "2.13").run(dict(reversed(settings.items())))
    assert known == same
    assert known.id == same.id
    others = [
        plan.Plan({}, "other", "2.13").run(settings),
        plan.Plan({}, "code", "2.14").run(settings),
        plan.Plan({}, "code", "2.13").run({**settings, "lr": 0.2}),
    ]
    assert len({run.id for run in (known, *others)}) == 4


def test_the_paper_is_planned_whole_and_no_run_twice():
    content = plan.Plan.read(PAPER, "code", "2.13")
    for part in content.content["parts"]:
        runs = content.runs(part)
        assert runs
        assert len({run.id for run in runs}) == len(runs)


def test_a_part_overrides_its_lines():
    content = {
        "datasets": {"digits": ROWS},
        "lines": {"a": {"label": "A", **settings_of("sgd")}},
        "parts": {
            "p": {
                "set": {"dataset": "digits"},
                "each": {"seed": [3, 4], "line": ["a"]},
                "lines": {"a": {"lr": 7.0}},
            }
        },
    }
    runs = plan.Plan(content, "code", "2.13").runs("p")
    assert [(run.settings["seed"], run.settings["lr"]) for run in runs] == [(3, 7.0), (4, 7.0)]
    assert "label" not in runs[0].settings


@pytest.mark.parametrize("schedule", ["geometric", "polynomial", "drops", "cosine", "power"])
@pytest.mark.parametrize("steps", [7, 1000, 20_000])
def test_stages_have_all_the_steps(schedule, steps):
    settings = {"method": "oauc", "schedule": schedule, "lr": 0.5, "first_stage": 0.1, "factor": 3,
                "drops": [0.5, 0.75], "power": 0.8}  # fmt: skip
    lengths = [stage.steps for stage in make_stages(settings, steps)]
    assert sum(lengths) >= steps
    assert schedule in ("geometric", "polynomial") or sum(lengths) == steps


def test_the_power_of_a_step_size_is_met_within_a_few_per_cent():
    stages = make_stages({"method": "oauc", "schedule": "power", "lr": 0.5, "power": 0.8}, 20_000)
    step = 1
    for stage in stages:
        for _ in range(stage.steps):
            size, exact = stage.lr / step**0.5, 0.5 / step**0.8
            assert abs(size / exact - 1) < 0.03
            step += 1
