"""fit walks what each method's description says: plain loops reach the same bits."""

import itertools
import math

import numpy as np
import pytest
import torch
from fit_data import (
    assert_same_weights,
    binary,
    fit,
    hidden,
    linear,
    multiclass,
    multilabel,
    one_thread,  # noqa: F401
    with_batch_norm,
    with_dropout,
)
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from torch import nn

import aucmax
from aucmax import OAUC, PGA, PPDSG, BatchSampler, PPDAdaGrad, stages
from aucmax.loss.cross_entropy import CrossEntropy
from aucmax.train.methods import cut, tripled

PPD = {"ppd-sg": PPDSG, "ppd-adagrad": PPDAdaGrad}
STAGED = {**PPD, "pga": PGA, "oauc": OAUC}
BASELINES = {
    "sgd": (torch.optim.SGD, 0.1),
    "adagrad": (torch.optim.Adagrad, 0.01),
    "adamw": (torch.optim.AdamW, 0.001),
}
X, Y = binary()


class Batches:
    """The batches in the order in which fit draws them: steps, probes and stage ends alike."""

    def __init__(self, x=X, y=Y, batch_size=32, **sampling):
        sampler = BatchSampler(y, batch_size, **sampling)
        self.size, self.prior = batch_size, sampler.prior or y.double().mean().item()
        rows = map(sampler.rows, itertools.count())
        self.stream = ((x[r], y[r]) for r in rows)

    def take(self, samples):
        """As many batches as hold at least that many samples."""
        return list(itertools.islice(self.stream, math.ceil(samples / self.size)))

    def step(self, model, loss, optimizer, clip=None):
        ((x, y),) = self.take(1)
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        if clip:
            nn.utils.clip_grad_norm_([*model.parameters(), *loss.parameters()], clip)
        optimizer.step()
        return value.item()


@torch.no_grad()
def scored(model, batches):
    """Scores and labels of fresh samples, in evaluation mode."""
    model.eval()
    scores, labels = torch.cat([model(x) for x, _ in batches]), torch.cat([y for _, y in batches])
    model.train()
    return scores, labels


class Clock:
    """Says when an evaluation is due, and takes its probe out of the batches."""

    def __init__(self, batches, eval_every, probe):
        self.batches, self.every, self.probe, self.step = batches, eval_every, probe, 0

    def tick(self, stage_is_over):
        self.step += 1
        due = stage_is_over or self.step % self.every == 0
        if due:
            self.batches.take(self.probe)
        return due


def saddle_values(loss):
    return {name: getattr(loss, name).tolist() for name in ("a", "b", "alpha")}


def numbers(loss):
    """The saddle variables as records hold them."""
    return {k: v[0] if len(v) == 1 else v for k, v in saddle_values(loss).items()}


def begin(model, loss, batches, dual_samples, probe=64):
    """Before the first step: batch norm, then a, b and alpha in closed form, from fresh samples."""
    fresh = batches.take(max(dual_samples, probe))
    aucmax.update_batch_norm(model, fresh)
    found = scored(model, fresh)
    loss.reset_primal(*found)
    loss.reset_dual(*found)


def walk(model, loss, optimizer, rule, batches, eval_every=7, probe=64, end=None, clip=None):
    """Stages one after the other; what a record would hold is returned for each evaluation."""
    clock, records, rule = Clock(batches, eval_every, probe), [], list(rule)
    losses = []
    if hasattr(loss, "alpha"):
        begin(model, loss, batches, rule[0].dual_samples, probe)
    for stage in rule:
        stage.set_lr(optimizer)
        for t in range(stage.steps):
            losses.append(batches.step(model, loss, optimizer, clip))
            if clock.tick(t + 1 == stage.steps):
                mean = sum(losses) / len(losses)
                known = {"step": clock.step, "stage": stage.index, "lr": stage.lr, "loss": mean}
                records.append(known | (numbers(loss) if hasattr(loss, "alpha") else {}))
                losses = []
        if end is not None and stage is not rule[-1]:
            end(stage)
    return records


def end_of_ppd(model, loss, optimizer, batches, norms=False, probe=64):
    """Alg. 2, lines 10 to 12: the average is start and reference, alpha is set at it."""

    def end(stage):
        optimizer.end_stage()
        fresh = batches.take(max(stage.dual_samples, probe if norms else 0))
        if norms:
            aucmax.update_batch_norm(model, fresh)
        loss.reset_dual(*scored(model, fresh))

    return end


def assert_same_records(result, expected):
    assert len(result.history) == len(expected)
    for found, record in zip(result.history, expected, strict=True):
        assert {name: found[name] for name in record} == pytest.approx(record, rel=1e-12, abs=0)


def assert_same_saddle(found, expected):
    assert saddle_values(found) == saddle_values(expected)


def run(method, model=None, **options):
    defaults = {"steps": 40, "batch_size": 32, "eval_every": 7, "probe": 64}
    return fit(model or hidden(), (X, Y), method=method, **{**defaults, **options})


# ---- The beginning -----------------------------------------------------------------------------

STILL = 1e-30  # a step size by which nothing moves
TASKS = {"binary": binary, "multiclass": multiclass, "multilabel": lambda: multilabel(missing=0.1)}


def numpy_scores(model, batches):
    """Scores of a linear model, or of one whose batch norm is estimated from these batches."""
    first, *others = ([p.detach().numpy() for p in m.parameters()] for m in layers_of(model))
    z = [x.double().numpy() @ first[0].T + first[1] for x, _ in batches]
    if not others:
        return np.concatenate(z)
    (scale, shift), _, last = others
    mean = np.mean([part.mean(0) for part in z], axis=0)
    variance = np.mean([part.var(0, ddof=1) for part in z], axis=0)
    inner = np.tanh((np.concatenate(z) - mean) / np.sqrt(variance + 1e-5) * scale + shift)
    return inner @ last[0].T + last[1]


def layers_of(model):
    return [model] if isinstance(model, nn.Linear) else list(model)


def numpy_saddle(task, scores, y):
    """The best a, b and alpha: means of h over positives and over negatives, and their distance."""
    if task == "multiclass":
        h = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        means = np.array([[h[y == k, i].mean() for k in range(3)] for i in range(3)])
        a, b = np.repeat(np.diag(means)[:, None], 3, axis=1), means
    else:
        h, y = 1 / (1 + np.exp(-scores)), y.reshape(len(y), -1)
        a, b = (
            np.array([h[y[:, j] == k, j].mean() for j in range(y.shape[1])]) for k in (1.0, 0.0)
        )
    return {"a": a, "b": b, "alpha": b - a}


def assert_saddle(loss, expected):
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(loss, name).detach(), value, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("task", "norms", "probe", "dual_samples", "drawn"),
    [
        ("binary", False, 64, 40, 2),
        ("binary", True, 10, 100, 4),
        ("multiclass", True, 64, 40, 2),
        ("multilabel", False, 10, 100, 4),
        ("multiclass", False, 0, 0, 1),
        ("multilabel", True, 0, 0, 1),
    ],
)
def test_a_b_and_alpha_begin_at_their_best(task, norms, probe, dual_samples, drawn):
    """From a probe or as many samples as set alpha later, those of the first batches."""
    x, y = TASKS[task]()
    sizes = {"columns": x.shape[1], "outputs": 1 if task == "binary" else 3}
    make = with_batch_norm if norms else linear
    rule = [stages.Stage(1, STILL, 1, dual_samples)]
    options = {"steps": 1, "stages": rule, "batch_size": 32, "probe": probe}
    result = fit(make(**sizes).double(), (x, y), **options)
    batches = Batches(x, y).take(32 * drawn)
    labels = torch.cat([labels for _, labels in batches]).numpy()
    scores = numpy_scores(make(**sizes).double(), batches)
    assert_saddle(result.loss, numpy_saddle(task, scores, labels))


@pytest.mark.parametrize("method", STAGED)
def test_every_method_on_the_auc_loss_begins_so(method):
    rule = [stages.Stage(1, STILL, 1, 0)]
    result = run(method, linear().double(), steps=1, stages=rule)
    batches = Batches().take(64)
    scores = numpy_scores(linear().double(), batches)
    labels = torch.cat([labels for _, labels in batches]).numpy()
    assert_saddle(result.loss, numpy_saddle("binary", scores, labels))


def test_beginning_draws_until_it_has_both_classes():
    """Two rows at a time, of which the first four or more are negatives with this seed."""
    rule = [stages.Stage(1, STILL, 1, 0)]
    options = {"steps": 1, "stages": rule, "batch_size": 2, "probe": 0, "seed": 5}
    result = fit(linear().double(), (X, Y), **options)
    batches = Batches(batch_size=2, seed=5)
    drawn = batches.take(4)
    assert not any(y.any() for _, y in drawn)
    while not drawn[-1][1].any():
        drawn += batches.take(2)
    labels = torch.cat([labels for _, labels in drawn]).numpy()
    scores = numpy_scores(linear().double(), drawn)
    assert_saddle(result.loss, numpy_saddle("binary", scores, labels))


def test_beginning_heeds_weights():
    weight = torch.tensor(np.random.default_rng(0).uniform(0.2, 3, len(Y)))
    rule = [stages.Stage(1, STILL, 1, 0)]
    options = {"steps": 1, "stages": rule, "batch_size": 400, "probe": 400}
    loss = fit(linear().double(), (X, Y, weight), **options).loss
    h = linear().double()(X.double()).sigmoid().squeeze(-1).detach().numpy()
    a, b = (np.average(h[rows], weights=weight[rows]) for rows in (Y == 1, Y == 0))
    assert_saddle(loss, {"a": [a], "b": [b], "alpha": [b - a]})


@pytest.mark.parametrize(
    ("method", "make"),
    [(x, (linear, with_batch_norm)[k % 2]) for k, x in enumerate((*STAGED, "adamw"))],
)
def test_loss_of_the_callers_own_begins_where_they_left_it(method, make):
    """And training with the first batch."""
    loss = aucmax.AUCLoss(0.25).double()
    with torch.no_grad():
        loss.a.fill_(0.3), loss.b.fill_(0.2), loss.alpha.fill_(-0.4)
    rule = [stages.Stage(1, STILL, 1, 100)]
    result = run(method, make().double(), loss=loss, steps=1, stages=rule)
    assert saddle_values(result.loss) == {"a": [0.3], "b": [0.2], "alpha": [-0.4]}
    ((x, y),) = Batches().take(1)
    model = make().double().train()
    assert result.history[0]["loss"] == pytest.approx(loss(model(x.double()), y).item(), rel=1e-12)


class StoppedError(Exception):
    """In place of a crash."""


class Watched:
    """Keeps the inputs of all batches, and may stop the run when it has seen so many."""

    def __init__(self, most=math.inf):
        self.most, self.seen = most, []

    def __call__(self, x):
        if len(self.seen) >= self.most:
            raise StoppedError
        self.seen.append(x.clone())
        return x


@pytest.mark.parametrize(
    ("method", "make"),
    [(x, (hidden, with_batch_norm)[k % 2]) for k, x in enumerate(STAGED)],
)
def test_run_that_goes_on_does_not_begin_again(method, make, tmp_path):
    rule = [stages.Stage(1, 0.1, 40, 0)]

    def walked(out, most=math.inf):
        watched = Watched(most)
        return watched.seen, run(method, make(), stages=rule, out=out, augment=watched)

    seen, whole = walked(tmp_path / "whole")
    with pytest.raises(StoppedError):
        walked(tmp_path / "cut", len(seen) // 2)
    rest, resumed = walked(tmp_path / "cut")
    assert 0 < len(rest) < len(seen)
    assert all(map(torch.equal, rest, seen[-len(rest) :]))
    assert_same_saddle(resumed.loss, whole.loss)
    assert_same_weights(resumed.model, whole.model)


@pytest.fixture(scope="module")
def digits():
    """Training and validation data: is it an eight? Pixels from 0 to 3."""
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(3 * x / 16, dtype=torch.float32), torch.tensor(y == 8).float()
    return (x[:1200], y[:1200]), (x[1200:], y[1200:])


@pytest.mark.parametrize("seed", [0])
def test_large_steps_learn_that_never_come_back_from_a_beginning_at_zero(digits, seed):
    """From a = b = 0 they drive all scores to where the sigmoid is flat: the loss stays at 1."""

    def ended(**options):
        layers = nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            for layer in (layers[0], layers[2]):
                layer.reset_parameters()
        rule = [stages.Stage(1, 0.1, 100, 128)]
        options |= {"stages": rule, "positives": 0.5, "optimizer_options": {"momentum": 0.9}}
        result = fit(nn.Sequential(*layers), *digits, steps=100, eval_every=100, **options)
        (last,) = result.history
        return last["valid_auc_last"], last["loss"]

    auc, mean_loss = ended(loss_options={"link": "sigmoid", "normalize": True})
    assert auc > 0.97
    assert mean_loss < 0.25
    auc, mean_loss = ended(loss=aucmax.AUCLoss(0.5, link="sigmoid", normalize=True))
    assert auc < 0.75
    assert mean_loss > 0.95


# ---- PPD-SG and PPD-AdaGrad --------------------------------------------------------------------


def forty_steps(lr, dual_samples=384):
    """T_k = 1, 3, 9 and 27: T_k - 1 steps each, at least one, and what is left in the last."""
    return [
        stages.Stage(k + 1, lr / 3**k, steps, dual_samples * 3**k)
        for k, steps in enumerate([1, 2, 8, 29])
    ]


@pytest.mark.parametrize(
    ("method", "sampling"),
    [
        ("ppd-sg", {}),
        ("ppd-sg", {"positives": 0.5}),
        ("ppd-adagrad", {}),
        ("ppd-adagrad", {"replacement": True, "seed": 5}),
    ],
)
def test_ppd_walks_the_papers_stages(method, sampling):
    result = run(method, **sampling)
    batches = Batches(**sampling)
    model, loss = hidden(), aucmax.AUCLoss(batches.prior)
    optimizer = PPD[method](aucmax.minmax_groups(model, loss), lr=0.1)
    rule = forty_steps(0.1)
    records = walk(
        model, loss, optimizer, rule, batches, end=end_of_ppd(model, loss, optimizer, batches)
    )
    assert_same_records(result, records)
    assert_same_saddle(result.loss, loss)
    assert (result.iterate, result.step) == ("average", 40)
    with aucmax.averaged(model, optimizer):
        assert_same_weights(result.model, model)


def test_methods_stages_are_cut_to_the_steps():
    """50 steps begin with T_0 = ceil(50 / 40) = 2: stages of 1, 5 and 17, and 27 of the last 53."""
    history = run("ppd-sg", steps=50, eval_every=1).history
    assert [sum(r["stage"] == k for r in history) for k in (1, 2, 3, 4)] == [1, 5, 17, 27]
    assert [r["lr"] for r in history[::26]] == pytest.approx([0.1, 0.1 / 27])


@pytest.mark.parametrize("method", PPD)
def test_options_of_the_optimizer_and_the_loss(method):
    result = run(
        method,
        lr=0.3,
        optimizer_options={"gamma": 5.0},
        loss_options={"margin": 0.5, "normalize": False},
        clip_norm=0.05,
    )
    batches = Batches()
    model, loss = hidden(), aucmax.AUCLoss(batches.prior, margin=0.5, normalize=False)
    optimizer = PPD[method](aucmax.minmax_groups(model, loss), lr=0.3, gamma=5.0)
    rule = forty_steps(0.3)
    end = end_of_ppd(model, loss, optimizer, batches)
    records = walk(model, loss, optimizer, rule, batches, end=end, clip=0.05)
    assert_same_records(result, records)
    with aucmax.averaged(model, optimizer):
        assert_same_weights(result.model, model)


@pytest.mark.parametrize("method", PPD)
def test_stages_of_the_callers_own(method):
    rule = [
        stages.Stage(index=1, lr=0.2, steps=11, dual_samples=40),
        stages.Stage(index=2, lr=0.05, steps=29, dual_samples=10),
    ]
    result = run(method, stages=rule)
    batches = Batches()
    model, loss = hidden(), aucmax.AUCLoss(batches.prior)
    optimizer = PPD[method](aucmax.minmax_groups(model, loss))
    end = end_of_ppd(model, loss, optimizer, batches)
    assert_same_records(result, walk(model, loss, optimizer, rule, batches, end=end))
    with aucmax.averaged(model, optimizer):
        assert_same_weights(result.model, model)


@pytest.mark.parametrize("method", PPD)
def test_restart_at_the_last_iterate(method):
    """Alpha is set at the average all the same, which is the reference from then on."""
    result = run(method, restart="last", optimizer_options={"gamma": 5.0})
    batches = Batches()
    model, loss = hidden(), aucmax.AUCLoss(batches.prior)
    optimizer = PPD[method](aucmax.minmax_groups(model, loss), gamma=5.0)

    def end(stage):
        fresh = batches.take(stage.dual_samples)
        with aucmax.averaged(model, optimizer):
            found = scored(model, fresh)
        optimizer.end_stage(restart="last")
        loss.reset_dual(*found)

    rule = forty_steps(0.1)
    assert_same_records(result, walk(model, loss, optimizer, rule, batches, end=end))
    with aucmax.averaged(model, optimizer):
        assert_same_weights(result.model, model)


@pytest.mark.parametrize("dual_samples", [10, 384])
def test_batch_norm_is_estimated_at_the_average_when_a_stage_ends(dual_samples):
    """From as many samples as alpha, and no fewer than a probe."""
    rule = forty_steps(0.1, dual_samples)
    result = run("ppd-sg", with_batch_norm(), stages=rule)
    batches = Batches()
    model, loss = with_batch_norm(), aucmax.AUCLoss(batches.prior)
    optimizer = PPDSG(aucmax.minmax_groups(model, loss), lr=0.1)
    end = end_of_ppd(model, loss, optimizer, batches, norms=True)
    probes = []
    take, batches.take = batches.take, lambda samples: probes.append(take(samples)) or probes[-1]
    assert_same_records(result, walk(model, loss, optimizer, rule, batches, end=end))
    with aucmax.averaged(model, optimizer, probes[-1]):  # the last evaluation's probe
        assert_same_weights(result.model, model)


def test_stages_that_end_by_lemma_3():
    rule = stages.theory("ppd-adagrad", mu=0.3, L=0.3, sigma=0.5, p=0.25, lr=1, stages=3, d=5)
    options = {"stages": rule, "lipschitz": 0.2, "steps": 3000, "eval_every": 150}
    result = run("ppd-adagrad", linear(), **options)

    batches = Batches()
    model, loss = linear(), aucmax.AUCLoss(batches.prior)
    optimizer = PPDAdaGrad(aucmax.minmax_groups(model, loss))
    end = end_of_ppd(model, loss, optimizer, batches)
    clock, lengths = Clock(batches, 150, 64), []
    begin(model, loss, batches, rule[0].dual_samples)
    for stage in rule:
        stage.set_lr(optimizer)
        for t in itertools.count(1):
            batches.step(model, loss, optimizer)
            over = t % 100 == 0 and optimizer.should_stop(stage.M, 0.2)
            clock.tick(over)
            if over:
                lengths.append(t)
                break
        if stage is not rule[-1]:
            end(stage)
    assert len(set(lengths)) > 1  # otherwise it would not show much
    assert (result.steps, result.reason) == (sum(lengths), "all stages ended")
    with aucmax.averaged(model, optimizer):
        assert_same_weights(result.model, model)


# ---- Plateau stages ----------------------------------------------------------------------------


def test_stages_that_end_when_validation_saturates():
    valid_x, valid_y = binary(seed=1)

    def rule():
        return stages.plateau(lr=0.5, factor=4, patience=2, stages=3, dual_samples=50)

    result = fit(
        hidden(), (X, Y), (valid_x, valid_y), stages=rule(), steps=400, batch_size=32,
        eval_every=6, probe=64,
    )  # fmt: skip

    batches, own = Batches(), rule()
    model, loss = hidden(), aucmax.AUCLoss(batches.prior)
    optimizer = PPDSG(aucmax.minmax_groups(model, loss))
    end = end_of_ppd(model, loss, optimizer, batches)
    clock, aucs = Clock(batches, 6, 64), []
    begin(model, loss, batches, 50)

    def both_aucs():
        def auc():
            return roc_auc_score(valid_y, scored(model, [(valid_x, valid_y)])[0])

        last = auc()
        with aucmax.averaged(model, optimizer):
            return last, auc()

    for stage in own:
        stage.set_lr(optimizer)
        while True:
            batches.step(model, loss, optimizer)
            if clock.tick(False):
                aucs.append((stage.index, *both_aucs()))
                if own.report(max(aucs[-1][1:])):
                    break
        if stage.index < 3:
            end(stage)
    found = [(r["stage"], r["valid_auc_last"], r["valid_auc_average"]) for r in result.history]
    assert torch.equal(torch.tensor(found).float(), torch.tensor(aucs).float())
    assert (result.steps, result.reason) == (clock.step, "all stages ended")
    assert result.auc == pytest.approx(max(max(x[1:]) for x in aucs), rel=1e-12)


def test_plateau_stages_stop_at_the_steps_at_the_latest():
    rule = stages.plateau(patience=100)
    result = fit(hidden(), (X, Y), (X, Y), stages=rule, steps=20)
    assert (result.steps, result.reason) == (20, "all steps taken")


def test_plateau_stages_can_be_used_for_another_run():
    """A run begins with a stage that nothing has been reported of yet."""
    rule = stages.plateau(lr=0.5, patience=2, stages=2, dual_samples=50)
    first, second = (
        fit(hidden(), (X, Y), (X, Y), stages=rule, steps=200, eval_every=5) for _ in range(2)
    )
    assert len({r["stage"] for r in first.history}) == 2
    assert [r["stage"] for r in second.history] == [r["stage"] for r in first.history]
    assert_same_weights(second.model, first.model)


# ---- PGA and OAUC ------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [None, "average"])
def test_pga_walks_stages_of_k_squared_steps(restart):
    """400 steps begin with ceil(400 / 385) = 2: stages of 2, 8, 18, 32, ..., step size 0.1 / k."""
    result = run("pga", linear(), steps=400, eval_every=25, restart=restart)
    batches = Batches()
    model, loss = linear(), aucmax.AUCLoss(batches.prior)
    optimizer = PGA(aucmax.minmax_groups(model, loss))
    lengths = [2 * k**2 for k in range(1, 9)]  # 408 steps: the last stage is cut
    lengths[-1] -= sum(lengths) - 400
    rule = [stages.Stage(k, 0.1 / k, n, 0) for k, n in enumerate(lengths, start=1)]
    end = lambda stage: optimizer.end_stage()  # noqa: E731
    records = walk(model, loss, optimizer, rule, batches, eval_every=25, end=end)
    assert_same_records(result, records)
    assert (result.iterate, result.step) == ("average", 400)
    optimizer.end_stage()  # the last stage may be drawn too
    with aucmax.averaged(model, optimizer):
        assert_same_weights(result.model, model)


@pytest.mark.parametrize("seed", range(3))
def test_pga_draws_its_last_stage_as_likely_as_any_other(seed):
    """Algorithm 1 draws from all stages."""
    rule = [stages.Stage(1, 0.1, 10, 0), stages.Stage(2, 0.05, 30, 0)]
    result = run("pga", linear(), stages=rule, optimizer_options={"seed": seed})
    batches = Batches()
    model, loss = linear(), aucmax.AUCLoss(batches.prior)
    optimizer = PGA(aucmax.minmax_groups(model, loss), seed=seed)
    walk(model, loss, optimizer, rule, batches, end=lambda stage: optimizer.end_stage())
    optimizer.end_stage()
    with aucmax.averaged(model, optimizer):
        assert_same_weights(result.model, model)


def test_pga_draws_another_stage_with_another_seed():
    """What is drawn in training goes by the seed, the stage that PGA returns too."""
    x, y = binary(40)
    options = {"method": "pga", "steps": 100, "batch_size": 40, "probe": 0, "eval_every": 100}
    steps_after = []
    for seed in range(5):  # whole batches: the order of rows hardly changes the iterates
        result = fit(linear().double(), (x, y), seed=seed, **options)
        steps_after.append(round(result.model.weight.norm().item(), 6))
    assert len(set(steps_after)) > 1


def test_oauc_is_one_stage():
    result = run("oauc", optimizer_options={"foreach": False})
    batches = Batches()
    model, loss = hidden(), aucmax.AUCLoss(batches.prior)
    optimizer = OAUC(aucmax.minmax_groups(model, loss), lr=0.1, foreach=False)
    records = walk(model, loss, optimizer, [stages.Stage(1, 0.1, 40, 0)], batches)
    assert_same_records(result, records)
    assert_same_saddle(result.loss, loss)
    assert (result.iterate, result.step) == ("average", 40)
    with aucmax.averaged(model, optimizer):
        assert_same_weights(result.model, model)


# ---- The baselines -----------------------------------------------------------------------------


def thirds(lr, *lengths):
    """The step size divided by ten after each."""
    return [stages.Stage(k + 1, lr / 10**k, n, 0) for k, n in enumerate(lengths)]


@pytest.mark.parametrize("method", BASELINES)
def test_baselines_drop_the_step_size_after_one_half_and_three_quarters(method):
    result = run(method)
    kind, lr = BASELINES[method]
    batches, model = Batches(), hidden()
    optimizer = kind(model.parameters(), lr=lr)
    records = walk(model, CrossEntropy(), optimizer, thirds(lr, 20, 10, 10), batches)
    assert_same_records(result, records)
    assert all(r["a"] is r["b"] is r["alpha"] is None for r in result.history)
    assert (result.iterate, result.step) == ("last", 40)
    assert_same_weights(result.model, model)


def test_baseline_with_options_and_a_step_size():
    options = {"momentum": 0.9, "weight_decay": 0.01}
    result = run("sgd", lr=0.02, optimizer_options=options)
    batches, model = Batches(), hidden()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, **options)
    batches.stream = ((x, y[:, None]) for x, y in batches.stream)  # as torch's loss wants them
    walk(model, nn.BCEWithLogitsLoss(), optimizer, thirds(0.02, 20, 10, 10), batches)
    torch.testing.assert_close(result.model.state_dict(), model.state_dict())


def test_baseline_that_restarts_from_the_average():
    result = run("sgd", linear(), restart="average")
    batches, model = Batches(), linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rule, seen = thirds(0.1, 20, 10, 10), []
    optimizer.register_step_post_hook(
        lambda *_: seen.append([p.detach().double() for p in model.parameters()])
    )

    @torch.no_grad()
    def end(stage):
        for p, *iterates in zip(model.parameters(), *seen, strict=True):
            p.copy_(torch.stack(iterates).mean(0))
        seen.clear()

    walk(model, CrossEntropy(), optimizer, rule, batches, end=end)
    torch.testing.assert_close(result.model.state_dict(), model.state_dict())


# ---- Pre-training ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [*PPD, "oauc"])
def test_pretraining_hands_over_to_the_method(method):
    """SGD on cross-entropy, then a, b and alpha in closed form at what it has learned."""
    rule = [stages.Stage(1, 0.1, 12, 40), stages.Stage(2, 0.05, 28, 40)]
    if method == "oauc":
        rule = [stages.Stage(1, 0.1, 40, 40)]
    result = run(method, pretrain=15, pretrain_lr=0.3, stages=rule)

    batches, model = Batches(), hidden()
    sgd = torch.optim.SGD(model.parameters(), lr=0.3)
    clock = Clock(batches, 7, 64)
    for t in range(15):
        batches.step(model, CrossEntropy(), sgd)
        clock.tick(t == 14)
    loss = aucmax.AUCLoss(batches.prior)
    optimizer = STAGED[method](aucmax.minmax_groups(model, loss))
    begin(model, loss, batches, rule[0].dual_samples)
    end = end_of_ppd(model, loss, optimizer, batches)
    for stage in rule:
        stage.set_lr(optimizer)
        for t in range(stage.steps):
            batches.step(model, loss, optimizer)
            clock.tick(t + 1 == stage.steps)
        if stage is not rule[-1]:
            end(stage)
    assert_same_saddle(result.loss, loss)
    assert result.steps == 55
    with aucmax.averaged(model, optimizer):
        assert_same_weights(result.model, model)


@pytest.mark.parametrize("method", STAGED)
def test_after_pretraining_a_and_b_are_the_classes_means(method):
    """Near the means of h when the method begins, not at zero."""
    result = run(method, pretrain=200, pretrain_lr=0.5, steps=1, eval_every=1, lr=1e-6)
    first = next(r for r in result.history if r["phase"] == method)
    h = result.model(X).sigmoid().squeeze(-1)
    means = h[Y == 1].mean().item(), h[Y == 0].mean().item()
    assert (first["a"], first["b"]) == pytest.approx(means, abs=0.1)
    assert first["alpha"] == pytest.approx(means[1] - means[0], abs=0.1)


def test_pretraining_is_a_phase_of_its_own_in_the_records():
    history = run("ppd-sg", pretrain=15).history
    names = [(r["phase"], r["step"] <= 15) for r in history]
    assert set(names) == {("pretrain", True), ("ppd-sg", False)}
    assert {r["lr"] for r in history if r["phase"] == "pretrain"} == {0.1}
    assert [r["step"] for r in history][-1] == 55


def test_pretraining_before_a_baseline():
    result = run("adamw", pretrain=15, pretrain_lr=0.2)
    batches, model = Batches(), hidden()
    clock = Clock(batches, 7, 64)
    for rule, optimizer in [
        ([stages.Stage(0, 0.2, 15, 0)], torch.optim.SGD(model.parameters(), lr=0.2)),
        (thirds(0.001, 20, 10, 10), torch.optim.AdamW(model.parameters(), lr=0.001)),
    ]:
        for stage in rule:
            stage.set_lr(optimizer)
            for t in range(stage.steps):
                batches.step(model, CrossEntropy(), optimizer)
                clock.tick(t + 1 == stage.steps)
    assert_same_weights(result.model, model)


# ---- Other tasks -------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_ppd_on_several_classes_or_labels(task):
    x, y = multiclass() if task == "multiclass" else multilabel(missing=0.1)
    options = {"steps": 40, "batch_size": 32, "eval_every": 7, "probe": 64}
    result = fit(linear(3, 3), (x, y), **options)

    model, batches = linear(3, 3), Batches(x, y)
    if task == "multiclass":
        loss = aucmax.MulticlassAUCLoss([1 / 3] * 3)
    else:
        loss = aucmax.MultilabelAUCLoss([c[~c.isnan()].double().mean().item() for c in y.T])
    optimizer = PPDSG(aucmax.minmax_groups(model, loss), lr=0.1)
    rule = forty_steps(0.1)
    walk(model, loss, optimizer, rule, batches, end=end_of_ppd(model, loss, optimizer, batches))
    torch.testing.assert_close(result.loss.state_dict(), loss.state_dict(), rtol=1e-6, atol=1e-7)
    with aucmax.averaged(model, optimizer):
        torch.testing.assert_close(result.model.state_dict(), model.state_dict())


# ---- Random numbers of the model ---------------------------------------------------------------


def test_dropout_draws_the_seeds_numbers():
    """The walk is the same for the same seed and another for another."""
    first, again, other = (
        run("ppd-sg", with_dropout(), seed=seed, batch_size=400) for seed in (0, 0, 1)
    )
    assert_same_weights(first.model, again.model)
    assert not torch.equal(first.model[0].weight, other.model[0].weight)


# ---- Lengths of stages -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "lengths"),
    [
        (1, [1]),
        (12, [1, 2, 9]),  # one step of the last stage is left, which joins the third
        (40, [1, 2, 8, 29]),
        (41, [1, 5, 17, 18]),
        (400, [9, 29, 89, 273]),
        (4_400, [109, 329, 989, 2973]),
        (20_000, [499, 1499, 4499, 13_503]),
    ],
)
def test_lengths_of_ppd_stages(steps, lengths):
    """T_k - 1 steps each, at least one; the last is lengthened by at most one step a stage."""
    assert [stage.steps for stage in tripled(0.1, steps)] == lengths
    assert sum(lengths) == steps


@pytest.mark.parametrize(
    ("given", "steps", "expected"),
    [
        ([9, 29, 89], 127, [9, 29, 89]),
        ([9, 29, 89], 130, [9, 29, 92]),  # a step a stage is added
        ([9, 29, 89], 48, [9, 29, 10]),  # ten steps are a stage
        ([9, 29, 89], 47, [9, 38]),
        ([9, 29, 89], 39, [9, 30]),
        ([9, 29, 89], 38, [9, 29]),
        ([9, 29, 89], 10, [10]),
        ([9, 29, 89], 4, [4]),  # none is before it
        ([199, 599], 219, [199, 20]),  # a tenth of T_0 = 200
        ([199, 599], 218, [218]),
        ([5, 3, 200], 17, [5, 12]),  # once: a whole stage is as short as it was given
    ],
)
def test_stages_are_cut(given, steps, expected):
    rule = [stages.Stage(k, 0.1 / k, n, 10 * k) for k, n in enumerate(given, start=1)]
    found = cut(rule, steps)
    assert [stage.steps for stage in found] == expected
    assert [(s.index, s.lr, s.dual_samples) for s in found] == [
        (s.index, s.lr, s.dual_samples) for s in rule[: len(found)]
    ]


def test_too_short_stages_raise():
    with pytest.raises(ValueError, match="stages must have at least steps=131 steps in all"):
        cut([stages.Stage(k, 0.1, n, 10) for k, n in enumerate([9, 29, 89], start=1)], 131)


def test_stages_that_end_by_another_rule_are_not_cut():
    rule = list(stages.plateau(stages=3))
    assert cut(rule, 5) == rule
