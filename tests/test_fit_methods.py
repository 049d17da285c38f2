"""fit walks what each method's description says: plain loops reach the same bits."""

import itertools
import math

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
from sklearn.metrics import roc_auc_score
from torch import nn

import aucmax
from aucmax import OAUC, PGA, PPDSG, BatchSampler, PPDAdaGrad, stages
from aucmax.loss.cross_entropy import CrossEntropy

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


def walk(model, loss, optimizer, rule, batches, eval_every=7, probe=64, end=None, clip=None):
    """Stages one after the other; what a record would hold is returned for each evaluation."""
    clock, records, rule = Clock(batches, eval_every, probe), [], list(rule)
    losses = []
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


# ---- PPD-SG and PPD-AdaGrad --------------------------------------------------------------------


@pytest.mark.parametrize("method", PPD)
@pytest.mark.parametrize(
    "sampling", [{}, {"positives": 0.5}, {"replacement": True}, {"seed": 5}], ids=str
)
def test_ppd_walks_the_papers_stages(method, sampling):
    """40 steps in stages of 1, 3, 9 and 27, each with a third of the step size."""
    result = run(method, **sampling)
    batches = Batches(**sampling)
    model, loss = hidden(), aucmax.AUCLoss(batches.prior)
    optimizer = PPD[method](aucmax.minmax_groups(model, loss), lr=0.1)
    rule = stages.geometric(0.1, 1, factor=3, stages=4)
    records = walk(
        model, loss, optimizer, rule, batches, end=end_of_ppd(model, loss, optimizer, batches)
    )
    assert_same_records(result, records)
    assert_same_saddle(result.loss, loss)
    assert (result.iterate, result.step) == ("average", 40)
    with aucmax.averaged(model, optimizer):
        assert_same_weights(result.model, model)


def test_the_methods_stages_are_cut_to_the_steps():
    """50 steps begin with ceil(50 / 40) = 2: stages of 2, 6 and 18, and 24 of the last 54."""
    history = run("ppd-sg", steps=50, eval_every=1).history
    assert [sum(r["stage"] == k for r in history) for k in (1, 2, 3, 4)] == [2, 6, 18, 24]
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
    rule = stages.geometric(0.3, 1, factor=3, stages=4)
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

    rule = stages.geometric(0.1, 1, factor=3, stages=4)
    assert_same_records(result, walk(model, loss, optimizer, rule, batches, end=end))
    with aucmax.averaged(model, optimizer):
        assert_same_weights(result.model, model)


@pytest.mark.parametrize("dual_samples", [10, 384])
def test_batch_norm_is_estimated_at_the_average_when_a_stage_ends(dual_samples):
    """From as many samples as alpha, and no fewer than a probe."""
    rule = stages.geometric(0.1, 1, factor=3, stages=4, dual_samples=dual_samples)
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
    assert torch.tensor(found).tolist() == torch.tensor(aucs).tolist()
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


@pytest.mark.parametrize("seed", range(6))
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
    options = {"method": "pga", "steps": 385, "batch_size": 40, "probe": 0, "eval_every": 385}
    steps_after = []
    for seed in range(6):  # whole batches: the order of rows hardly changes the iterates
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


def test_a_baseline_with_options_and_a_step_size():
    options = {"momentum": 0.9, "weight_decay": 0.01}
    result = run("sgd", lr=0.02, optimizer_options=options)
    batches, model = Batches(), hidden()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, **options)
    batches.stream = ((x, y[:, None]) for x, y in batches.stream)  # as torch's loss wants them
    walk(model, nn.BCEWithLogitsLoss(), optimizer, thirds(0.02, 20, 10, 10), batches)
    torch.testing.assert_close(result.model.state_dict(), model.state_dict())


def test_a_baseline_that_restarts_from_the_average():
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
    fresh = scored(model, batches.take(rule[0].dual_samples))
    loss.reset_primal(*fresh)
    loss.reset_dual(*fresh)
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
    rule = stages.geometric(0.1, 1, factor=3, stages=4)
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
