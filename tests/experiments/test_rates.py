"""The rates of convergence, and the mathematics of the script that measures them."""

import json
import math

import numpy as np
import pytest
import torch
from torch.autograd.functional import hessian as hessian_of

import aucmax


@pytest.fixture(scope="module")
def pl_rates():
    """The script as a module; one thread, for its tensors are tiny."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield pytest.importorskip("experiments.pl_rates", reason="an sdist has none")
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def problem(pl_rates):
    return pl_rates.Problem()


def phi(problem, w, a, b):
    """The closed form of max over alpha of the paper's f, as the example's docstring has it."""
    r = torch.linalg.vector_norm(w)
    Q = problem.q * (problem.sigma_pos**2 + problem.sigma_neg**2) + problem.B**2
    cross = problem.kappa * r * (a * problem.sigma_pos + b * problem.sigma_neg)
    value = a**2 + b**2 - 2 * cross + Q * r**2 - 2 * problem.B * r
    return problem.p * (1 - problem.p) * value


def random_point(problem, generator, *, near):
    """Weights with a, b; with ``near`` inside the region for which the smoothness is claimed."""
    low, high = (problem.best_norm / 2, 3.0) if near else (0.01, 3.0)
    draw = torch.rand(3, generator=generator, dtype=torch.float64)
    w = torch.randn(problem.d, generator=generator, dtype=torch.float64)
    w *= (low + (high - low) * draw[0]) / torch.linalg.vector_norm(w)
    best = problem.kappa * problem.best_norm
    sigmas = torch.tensor([problem.sigma_pos, problem.sigma_neg], dtype=torch.float64)
    a, b = draw[1:] * best * sigmas if near else draw[1:] * 4 - 2
    return w, a, b


def test_risk_is_what_sampled_pairs_say(problem):
    generator = torch.Generator().manual_seed(0)
    w = torch.tensor([0.5, -0.2, 0.1, 0.3], dtype=torch.float64)
    x = torch.randn(2, 400_000, problem.d, generator=generator, dtype=torch.float64)
    h = torch.nn.functional.leaky_relu(x @ w, problem.leak)  # positively homogeneous in sigma
    pairs = (1 - problem.sigma_pos * h[0] + problem.sigma_neg * h[1]).square()
    error = pairs.std() / math.sqrt(pairs.numel())
    assert abs(pairs.mean() - problem.risk(w)) < 4 * error


def test_gap_is_the_risk_above_its_least_value_and_has_the_pl_property(problem):
    generator = torch.Generator().manual_seed(1)
    w = torch.randn(50, problem.d, generator=generator, dtype=torch.float64, requires_grad=True)
    least = 1 - problem.B**2 / problem.A
    torch.testing.assert_close(problem.gap(w), problem.risk(w) - least, rtol=0, atol=1e-12)
    (gradient,) = torch.autograd.grad(problem.risk(w).sum(), w)
    half_square = gradient.square().sum(-1) / 2
    torch.testing.assert_close(half_square, 2 * problem.A * problem.gap(w), rtol=1e-9, atol=1e-12)


def test_phi_is_the_loss_at_the_best_alpha(problem):
    generator = torch.Generator().manual_seed(2)
    w, a, b = random_point(problem, generator, near=False)
    loss = aucmax.AUCLoss(problem.p, link="identity", normalize=False).double()
    with torch.no_grad():
        loss.a.fill_(a)
        loss.b.fill_(b)
        loss.alpha.fill_(-problem.B * torch.linalg.vector_norm(w))
    values = []
    for _ in range(40):
        x, y = problem.sample(10_000, 1, generator)
        scores = torch.nn.functional.leaky_relu(x[:, 0] @ w, problem.leak)
        values.append(loss(scores, y[:, 0]).item())
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    assert abs(np.mean(values) - phi(problem, w, a, b).item()) < 4 * error


def test_constants_bound_phi(pl_rates, problem):
    constants = pl_rates.theory_constants(problem)
    generator = torch.Generator().manual_seed(3)
    optimum = torch.zeros(problem.d, dtype=torch.float64)
    optimum[0] = problem.best_norm
    centres = [
        problem.kappa * s * problem.best_norm for s in (problem.sigma_pos, problem.sigma_neg)
    ]
    least = phi(problem, optimum, *centres)
    largest = 0.0
    for _ in range(200):
        v = torch.hstack(random_point(problem, generator, near=False)).requires_grad_()
        value = phi(problem, v[:-2], v[-2], v[-1])
        (gradient,) = torch.autograd.grad(value, v)
        assert gradient.square().sum() / 2 >= constants.mu * (value - least) - 1e-12
        v = torch.hstack(random_point(problem, generator, near=True))
        hessian = hessian_of(lambda v: phi(problem, v[:-2], v[-2], v[-1]), v)
        largest = max(largest, torch.linalg.eigvalsh(hessian).abs().max().item())
    assert largest == pytest.approx(constants.L, rel=1e-9)


def test_printed_theorem_has_a_counterexample():
    covariances = torch.tensor([[9.0, 4.0], [1.0, 1.0]], dtype=torch.float64)
    kappa, q = 0.9 / math.sqrt(2 * math.pi), (1 + 0.1**2) / 2

    def risk(w):
        positive, negative = (covariances * w.square()).sum(-1).sqrt()
        mixed = q * (positive**2 + negative**2) - 2 * kappa**2 * positive * negative
        return 1 - 2 * kappa * (positive - negative) + mixed

    stationary = torch.tensor([0.0, kappa / (5 * q - 4 * kappa**2)], dtype=torch.float64)
    better = torch.tensor([2 * kappa / (10 * q - 6 * kappa**2), 0.0], dtype=torch.float64)
    assert torch.func.grad(risk)(stationary).norm() < 1e-12
    assert stationary[1].item() == pytest.approx(0.179, abs=5e-4)
    assert risk(stationary).item() == pytest.approx(0.936, abs=5e-4)
    assert risk(better).item() == pytest.approx(0.879, abs=5e-4)
    curvature = hessian_of(risk, stationary)
    assert curvature[0, 0].item() == pytest.approx(-5.6, abs=0.05)
    assert curvature[1, 1] > 0

    generator = torch.Generator().manual_seed(4)
    x = torch.randn(2, 400_000, 2, generator=generator, dtype=torch.float64)
    for w in (stationary, better):
        h = torch.nn.functional.leaky_relu(((x * covariances.sqrt()[:, None]) @ w), 0.1)
        pairs = (1 - h[0] + h[1]).square()
        assert abs(pairs.mean() - risk(w)) < 4 * pairs.std() / math.sqrt(pairs.numel())


@pytest.mark.parametrize("method", ["PPDSG", "PGA"])
def test_each_run_is_one_of_the_binary_loss(pl_rates, problem, method):
    """Column 1 of three runs at once, against AUCLoss on that column's samples alone."""
    make, generator = getattr(aucmax, method), torch.Generator().manual_seed(5)
    model, losses = pl_rates.make_units(problem, 3, 1.0, generator)
    single = pl_rates.Units(model.w.detach()[1:2].clone(), problem.leak)
    loss = aucmax.AUCLoss(problem.p, link="identity", normalize=False).double()
    together = make(aucmax.minmax_groups(model, losses), lr=0.2, gamma=0.9)
    alone = make(aucmax.minmax_groups(single, loss), lr=0.2, gamma=0.9)
    for _ in range(3):
        for _ in range(20):
            x, y = problem.sample(1, 3, generator)
            together.zero_grad()
            pl_rates.backward(model, losses, x, y)
            together.step()
            alone.zero_grad()
            loss(single(x[:, 1:2]), y[:, 1:2]).backward()
            alone.step()
        together.end_stage()
        alone.end_stage()
        x, y = problem.sample(100, 3, generator)
        losses.reset_dual(model(x), y)
        loss.reset_dual(single(x[:, 1:2]), y[:, 1:2])
    torch.testing.assert_close(model.w[1:2], single.w, rtol=0, atol=1e-12)
    torch.testing.assert_close(losses.alpha[1:2], loss.alpha, rtol=0, atol=1e-12)


def test_rates(pl_rates):
    rates, drawn = pl_rates.measure(iterations=5_000, runs=256, seed=0)
    ppd_sg, pga_drawn, pga_last = rates
    assert -1.25 < ppd_sg.slope < -0.8  # -1 in the long run, a little steeper this early
    assert ppd_sg.low < ppd_sg.slope < ppd_sg.high
    assert -0.45 < pga_drawn.slope < -0.25  # -1/3
    # What PGA holds is better than what it returns, and near what PPD-SG has.
    last = [rate.gaps[-1].mean() for rate in rates]
    assert last[2] < 3 * last[0] < 0.1 * last[1]
    # What averaged() shows is always the average of one of the stages ended so far.
    for k in range(len(drawn)):
        assert (drawn[k] == pga_last.gaps[: k + 1]).all(axis=1).any()


def test_the_script_writes_its_figure_and_its_rates(pl_rates, tmp_path, capsys):
    json_file = tmp_path / "rates.json"
    arguments = ["--iterations", "300", "--runs", "8", "--out", tmp_path, "--json", json_file]
    pl_rates.main([str(argument) for argument in arguments])
    assert "slope" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {
        "pl_rates.png", "pl_rates.svg", "rates.json",
    }  # fmt: skip
    assert [rate["name"] for rate in json.loads(json_file.read_text())["rates"]]
