"""The measurement of Theorem 3's rate, and the frozen records of it."""

import math
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import aucmax
from aucmax.stages import theory

adaptive_rate = pytest.importorskip("experiments.adaptive_rate", reason="an sdist has none")
pl_rates = pytest.importorskip("experiments.pl_rates")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("density", [1.0, 0.25])
def test_phi_gap_is_what_sampled_losses_say(density):
    problem, generator = pl_rates.Problem(density=density), torch.Generator().manual_seed(0)
    model, loss = pl_rates.make_units(problem, 2, 0.7, generator)
    best = problem.best_norm
    with torch.no_grad():
        model.w[1] *= best / 0.7
        norms = torch.tensor([0.7, best], dtype=torch.float64)
        sigmas = (problem.sigma_pos, problem.sigma_neg)
        for p, sigma, away in zip((loss.a, loss.b), sigmas, (0.3, -0.2), strict=True):
            p.copy_(problem.kappa * sigma * norms)
            p[0] += away
        loss.alpha.copy_(-problem.B * norms)
    gaps = adaptive_rate.phi_gap(problem, model, loss)
    assert gaps[1] == pytest.approx(0, abs=1e-14)
    differences = []
    for _ in range(100):
        x, y = problem.sample(4_000, 1, generator)
        x, y = x.expand(-1, 2, -1), y.expand(-1, 2)  # both runs see the same examples
        scores, values = model(x).detach(), []
        for run in range(2):
            own = aucmax.AUCLoss(problem.p, link="identity", normalize=False).double()
            with torch.no_grad():
                for name in ("a", "b", "alpha"):
                    getattr(own, name).copy_(getattr(loss, name)[run])
            values.append(own(scores[:, run], y[:, run]).item())
        differences.append(values[0] - values[1])
    error = np.std(differences, ddof=1) / math.sqrt(len(differences))
    assert abs(np.mean(differences) - gaps[0]) < 4 * error < gaps[0]


@pytest.mark.parametrize(
    ("alpha", "sizes"), [(0.5, [1] * 6), (0.25, [1, 2, 2, 2, 3, 3]), (0.0, [1, 2, 3, 4, 5, 6])]
)
def test_batches_grow_as_alpha_says(alpha, sizes):
    problem, generator = pl_rates.Problem(), torch.Generator().manual_seed(1)
    drawn = [y.shape for _, y in islice(adaptive_rate.batches(problem, alpha, 3, generator), 400)]
    assert drawn[:6] == [(n, 3) for n in sizes]
    assert [n for n, _ in drawn] == sorted(n for n, _ in drawn)
    assert drawn[-1][0] == round(400 ** (1 - 2 * alpha))  # blocks of steps join without a gap
    used = adaptive_rate.sum_of_batches(np.array([6, 400, 6]), alpha)
    assert used == 2 * sum(sizes) + sum(n for n, _ in drawn)


def test_a_stage_of_one_run_ends_when_the_optimizer_says():
    problem, generator = pl_rates.Problem(), torch.Generator().manual_seed(2)
    known = pl_rates.theory_constants(problem)
    constants = {"mu": known.mu, "L": known.L, "sigma": known.sigma, "p": problem.p}
    (stage,) = theory("ppd-adagrad", **constants, d=problem.d, lr=2.0, stages=1)
    model, loss = pl_rates.make_units(problem, 1, 1.0, generator)
    groups = aucmax.minmax_groups(model, loss)
    optimizer = aucmax.PPDAdaGrad(groups, lr=2.0, delta=known.G)
    answers = []
    for steps, (x, y) in enumerate(adaptive_rate.batches(problem, 0.5, 1, generator), 1):
        optimizer.zero_grad()
        pl_rates.backward(model, loss, x, y)
        optimizer.step()
        norms = adaptive_rate.square_sums(optimizer).sqrt()
        assert norms.shape == (1, problem.d + 3)
        answer = adaptive_rate.stops(norms[0], steps, stage.M, known.G, known.lipschitz)
        assert answer == optimizer.should_stop(stage.M, known.lipschitz)
        answers.append(answer)
        if steps > 10 and all(answers[-10:]):
            break
    assert 10 < answers.index(True) < 500


def test_main_writes_a_row_for_each_line_and_never_twice(tmp_path, monkeypatch, capsys):
    cases = [adaptive_rate.Case(0.0, 1.0, 400), adaptive_rate.Case(0.5, 0.5, 1000)]
    monkeypatch.setattr(adaptive_rate, "CASES", cases)
    out = tmp_path / "theorem3.parquet"
    arguments = ["--runs", "8", "--out", str(out)]
    adaptive_rate.main(arguments)
    assert capsys.readouterr().out.count("slope") == 4
    rows = pd.read_parquet(out)
    assert [*rows.method] == ["ppd-adagrad", "ppd-sg"] * 2
    assert rows.alpha.isna().tolist() == [False, True] * 2
    assert (rows.promised[1::2] == -1).all()
    assert rows.promised.between(-2, -1).all()
    assert (rows.slope_low <= rows.slope).all()
    assert (rows.slope <= rows.slope_high).all()
    for _, row in rows.iterrows():
        assert len(row.history_gap) == row.stages
        assert (np.cumsum(row.history_steps) == row.history_iterations).all()
        assert row.history_gap[-1] == row.last_gap < row.history_gap[0]
    with pytest.raises(SystemExit, match="never rewritten"):
        adaptive_rate.main(arguments)


@pytest.mark.parametrize(
    ("name", "seed"), [("theorem3", adaptive_rate.SEED), ("theorem3-repeat", 2)]
)
def test_frozen_records_are_those_of_the_plan(name, seed):
    root = Path(adaptive_rate.__file__).parent / "results"
    rows = pd.read_parquet(root / f"{name}.parquet")
    plan = [
        (method, *case[:2]) for case in adaptive_rate.CASES for method in ("ppd-adagrad", "ppd-sg")
    ]
    assert [*zip(rows.method, rows.alpha_set, rows.density, strict=True)] == plan
    assert set(rows.runs) == {adaptive_rate.RUNS}
    assert set(rows.seed) == {seed}
    ends = [case.iterations for case in adaptive_rate.CASES for _ in range(2)]
    assert (rows.iterations <= ends).all()
    assert (rows.iterations > 0.8 * np.array(ends)).all()
    assert rows.commit.nunique() == 1
    assert not rows.commit.iloc[0].endswith("dirty")
    for _, row in rows[rows.method == "ppd-adagrad"].iterrows():  # the slope from the history
        tail = row.history_iterations >= row.history_iterations[-1] / 10
        x, gap = np.log(row.history_iterations[tail]), np.log(row.history_gap[tail])
        assert np.polyfit(x, gap, 1)[0] == pytest.approx(row.slope)
        x, growth = np.log(row.history_steps[tail]), np.log(row.history_growth[tail])
        assert np.polyfit(x, growth, 1)[0] == pytest.approx(row.alpha)
        assert row.promised == -2 * (1 - min(max(row.alpha, 0), 0.5))


def test_frozen_records_bear_out_what_the_page_says_in_words():
    rows = pd.read_parquet(Path(adaptive_rate.__file__).parent / "results" / "theorem3.parquet")
    rows = rows[(rows.method == "ppd-adagrad") & (rows.density == 1)]
    for _, row in rows.iterrows():
        tail = row.history_iterations >= row.history_iterations[-1] / 10
        gap = np.log(row.history_gap[tail])
        used = [
            adaptive_rate.sum_of_batches(row.history_steps[:k], row.alpha_set)
            for k in range(1, row.stages + 1)
        ]
        assert used[-1] == row.examples
        by_examples = np.polyfit(np.log(np.array(used)[tail]), gap, 1)[0]
        assert by_examples == pytest.approx(-1, abs=0.2)
        by_length = np.polyfit(np.log(row.history_steps[tail]), gap, 1)[0]
        assert by_length < row.promised
