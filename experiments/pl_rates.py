r"""Rates of convergence, measured where every constant of the theory is known.

The paper proves that PPD-SG needs :math:`\tilde O(1/\epsilon)` iterations for a gap
:math:`\epsilon` if the objective has the Polyak-Lojasiewicz (PL) property. This script measures
the rate on a problem that has it: the slope of log gap against log iterations should be near -1.
PGA runs beside it. It returns the average of a stage drawn at random, early ones as likely as late
ones: after k stages the expected gap falls like 1/k, and k grows like the cube root of the
iterations, a slope of -1/3. Its last average is better than what it returns. On 40,000 iterations
it comes to the same gap as PPD-SG's; its slope is steeper there because it still pays for its
start, a stage at a time. In the long run it should be -2/3: stage k averages
:math:`T_k \propto T^{2/3}` points.

The problem
    One hidden unit, :math:`h(w; x) = s(w^\top x)` with the leaky ReLU :math:`s(z) = z` for
    :math:`z > 0`, :math:`s(z) = c z` else, identity link. Positives are
    :math:`x \sim N(0, \sigma_+^2 I)`, negatives :math:`x \sim N(0, \sigma_-^2 I)`, with
    :math:`\sigma_+ > \sigma_-`.

The gap in closed form
    Given the class, :math:`w^\top x` is :math:`N(0, \sigma^2 r^2)` with :math:`r = \|w\|`, half of
    it on each side of zero, so

    .. math::

        E[h] = \kappa \sigma r, \quad \kappa = \frac{1 - c}{\sqrt{2 \pi}}, \qquad
        E[h^2] = q \sigma^2 r^2, \quad q = \frac{1 + c^2}{2}.

    The classes being independent, the pairwise risk :math:`P(w) = E (1 - h^+ + h^-)^2` is

    .. math::

        P(w) = 1 - 2 B r + A r^2, \qquad B = \kappa (\sigma_+ - \sigma_-), \qquad
        A = q (\sigma_+^2 + \sigma_-^2) - 2 \kappa^2 \sigma_+ \sigma_-,

    least on the sphere :math:`r_* = B / A`, and :math:`P(w) - P_* = A (r - r_*)^2`. It is not
    convex, and has a kink at zero, but :math:`\tfrac12 \|\nabla P\|^2 = 2 A (P - P_*)` wherever
    :math:`w \ne 0`: the PL property with :math:`\mu' = 2 A`. Hence a start away from zero.

The theory's constants
    With :math:`Q = q (\sigma_+^2 + \sigma_-^2) + B^2`, the objective
    :math:`\phi = \max_\alpha f` is

    .. math::

        \frac{\phi(w, a, b)}{p (1-p)}
        = a^2 + b^2 - 2 \kappa r (a \sigma_+ + b \sigma_-) + Q r^2 - 2 B r,

    a quadratic in :math:`(r, a, b)` with a positive definite Hessian :math:`H`, and its gradient in
    :math:`(w, a, b)` is as long as that in :math:`(r, a, b)`. So, exactly and for all
    :math:`w \ne 0`, :math:`\mu = p(1-p) \lambda_{\min}(H)`. Along the sphere the curvature is
    :math:`2 p(1-p) (Q - (B + \kappa (a \sigma_+ + b \sigma_-)) / r)`. Where :math:`r \ge r_* / 2`,
    :math:`0 \le a \le a_*` and :math:`0 \le b \le b_*` it lies between :math:`\pm 2 p(1-p) Q`, so
    the smoothness there is :math:`L = p(1-p) \lambda_{\max}(H)`; early, noisy iterates may leave
    this region. All that the proof asks of :math:`\tilde L` is that the best dual variable, here
    :math:`-B r`, be :math:`2 \tilde L`-Lipschitz: :math:`\tilde L = B / 2`. Gaussian gradients have
    no bound :math:`G`, but the proof needs that of their mean square only: :math:`G` is its root at
    the start or at the optimum, whichever is larger. It sets the number of samples for alpha, as
    does :math:`\sigma`, taken at the start. That scores lie in [0, 1] is used only where these
    samples lack a class; here they are too many for that.

Many runs at once
    The theorem bounds an expectation, so the gap is averaged over hundreds of independent runs.
    They are the labels of one :class:`aucmax.MultilabelAUCLoss`, each exactly an
    :class:`aucmax.AUCLoss` with its own weights, start and samples; the optimizers work coordinate
    by coordinate, so one optimizer moves them all and none knows of another.

The theorem as printed
    The appendix claims the PL property for any two zero-mean classes. It fails for the covariances
    diag(9, 4) and I and the slopes 1 and 0.1: by symmetry the gradient on the second axis points
    along it, and vanishes at the best point of that axis, :math:`\|w\| = 0.179`, where P = 0.936;
    the minimum, on the first axis, is 0.879. The point is a saddle: the curvature across is -5.6.
    (The proof gives a sample the same slope at w and at the optimum, where :math:`w^\top x` may
    have another sign.)
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor, nn

import aucmax
from aucmax.stages import Stage, polynomial, theory, theory_gamma
from experiments.figures import LOOKS, STYLE, save
from experiments.provenance import commit, describe

BLUE, ORANGE, GREEN = (LOOKS[line][0] for line in ("sgd", "ppd-sg", "pga"))

LR = 0.2  # eta_0 of both methods
PGA_FIRST = 1  # T_0
FEWEST_DUAL_SAMPLES = 100  # more than the theorem asks for is allowed; 100 hold both classes
BLOCK = 128  # steps whose samples are drawn together


class Problem(NamedTuple):
    """Two isotropic Gaussian classes and a leaky ReLU unit; the names are the docstring's."""

    sigma_pos: float = 1.3
    sigma_neg: float = 0.3
    leak: float = 0.1
    p: float = 0.25
    d: int = 4
    start: float = 1.0  # norm of the weights at the start
    density: float = 1.0  # share of the examples that are not zero; these are longer by its root

    @property
    def kappa(self) -> float:
        """The mean of h over sigma r."""
        return math.sqrt(self.density) * (1.0 - self.leak) / math.sqrt(2.0 * math.pi)

    @property
    def q(self) -> float:
        """The mean square of h over sigma^2 r^2."""
        return (1.0 + self.leak**2) / 2.0

    @property
    def B(self) -> float:  # noqa: N802
        """Minus half the risk's slope at r = 0."""
        return self.kappa * (self.sigma_pos - self.sigma_neg)

    @property
    def A(self) -> float:  # noqa: N802
        """Half the risk's curvature in r."""
        squares = self.sigma_pos**2 + self.sigma_neg**2
        return self.q * squares - 2.0 * self.kappa**2 * self.sigma_pos * self.sigma_neg

    @property
    def best_norm(self) -> float:
        """The norm of the best weights."""
        return self.B / self.A

    def risk(self, w: Tensor) -> Tensor:
        """P(w) for weights along the last dimension."""
        r = torch.linalg.vector_norm(w, dim=-1)
        return 1.0 - 2.0 * self.B * r + self.A * r.square()

    def gap(self, w: Tensor) -> Tensor:
        """P(w) - P_*, without cancellation."""
        return self.A * (torch.linalg.vector_norm(w, dim=-1) - self.best_norm).square()

    def hessian(self) -> np.ndarray:
        """H, of phi / (p (1-p)) in (r, a, b)."""
        Q = self.q * (self.sigma_pos**2 + self.sigma_neg**2) + self.B**2
        positive, negative = self.kappa * self.sigma_pos, self.kappa * self.sigma_neg
        return 2.0 * np.array(
            [[Q, -positive, -negative], [-positive, 1.0, 0.0], [-negative, 0.0, 1.0]]
        )

    def sample(self, n: int, runs: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Fresh examples, x of shape (n, runs, d) and y of shape (n, runs)."""
        y = (torch.rand(n, runs, generator=generator) < self.p).double()
        sigma = self.sigma_neg + (self.sigma_pos - self.sigma_neg) * y
        x = torch.randn(n, runs, self.d, generator=generator, dtype=torch.float64)
        if self.density < 1.0:
            kept = torch.rand(n, runs, generator=generator) < self.density
            sigma = sigma * kept / math.sqrt(self.density)
        return x * sigma[..., None], y


class Constants(NamedTuple):
    """What the theorem asks to be known."""

    mu: float
    L: float
    lipschitz: float
    G: float
    sigma: float


class Units(nn.Module):
    """A leaky ReLU unit for each run; scores of shape (N, runs) from x of shape (N, runs, d)."""

    def __init__(self, w: Tensor, leak: float) -> None:
        super().__init__()
        self.w = nn.Parameter(w)
        self.leak = leak

    def forward(self, x: Tensor) -> Tensor:
        """One score for each example and run."""
        return nn.functional.leaky_relu((x * self.w).sum(-1), self.leak)


class Rate(NamedTuple):
    """Gaps at the ends of the stages, (stages, runs), and the slope fitted to their mean."""

    name: str
    color: str
    iterations: np.ndarray
    gaps: np.ndarray
    slope: float
    low: float
    high: float

    @property
    def tail(self) -> np.ndarray:
        """The stages that the slope is fitted to: those that end in the last decade."""
        return self.iterations >= self.iterations[-1] / 10


def make_units(
    problem: Problem, runs: int, norm: float, generator: torch.Generator
) -> tuple[Units, aucmax.MultilabelAUCLoss]:
    """Units that begin at random directions, and their loss, the paper's F."""
    w = torch.randn(runs, problem.d, generator=generator, dtype=torch.float64)
    w *= norm / torch.linalg.vector_norm(w, dim=-1, keepdim=True)
    priors = [problem.p] * runs
    loss = aucmax.MultilabelAUCLoss(priors, link="identity", normalize=False)
    return Units(w, problem.leak), loss.double()


def backward(model: Units, loss: nn.Module, x: Tensor, y: Tensor) -> None:
    """Gradients of the sum over runs, which for each run is the gradient of its own loss."""
    (y.shape[1] * loss(model(x), y)).backward()


def gradient_size(problem: Problem, norm: float, runs: int = 20_000) -> float:
    """Root mean square of one example's gradient at weights of this norm; a, b, alpha at best."""
    generator = torch.Generator().manual_seed(0)
    model, loss = make_units(problem, runs, norm, generator)
    with torch.no_grad():
        loss.a += problem.kappa * problem.sigma_pos * norm
        loss.b += problem.kappa * problem.sigma_neg * norm
        loss.alpha -= problem.B * norm
    backward(model, loss, *problem.sample(1, runs, generator))
    squares = [p.grad.square().sum().item() for p in (model.w, loss.a, loss.b, loss.alpha)]
    return math.sqrt(sum(squares) / runs)


def theory_constants(problem: Problem) -> Constants:
    """The constants, as the docstring of this file derives them."""
    scale = problem.p * (1.0 - problem.p)
    eigenvalues = np.linalg.eigvalsh(problem.hessian())
    spread = math.sqrt(problem.q - problem.kappa**2)  # of h over sigma r
    return Constants(
        mu=scale * float(eigenvalues[0]),
        L=scale * float(eigenvalues[-1]),
        lipschitz=problem.B / 2.0,
        G=max(gradient_size(problem, norm) for norm in (problem.start, problem.best_norm)),
        sigma=spread * problem.sigma_pos * problem.start,
    )


def stages_within(rule: Sequence[Stage], iterations: int) -> list[Stage]:
    """The first stages of a rule, as many as fit into so many iterations."""
    ends = np.cumsum([stage.steps for stage in rule])
    return list(rule[: int((ends <= iterations).sum())])


def run_stage(
    problem: Problem,
    model: Units,
    loss: nn.Module,
    optimizer: torch.optim.Optimizer,
    stage: Stage,
    generator: torch.Generator,
) -> None:
    """One stage: as in both algorithms, a fresh example for each step."""
    stage.set_lr(optimizer)
    for first in range(0, stage.steps, BLOCK):
        block = problem.sample(min(BLOCK, stage.steps - first), len(model.w), generator)
        for x, y in zip(*block, strict=True):
            optimizer.zero_grad()
            backward(model, loss, x[None], y[None])
            optimizer.step()
    optimizer.end_stage()


def ppd_sg(
    problem: Problem, iterations: int, runs: int, seed: int, tick: Callable[[int], None]
) -> tuple[np.ndarray, np.ndarray]:
    """PPD-SG under Theorem 2: iterations at the stages' ends, and the averages' gaps there."""
    generator = torch.Generator().manual_seed(seed)
    constants = theory_constants(problem)
    rule = theory("ppd-sg", **constants._asdict(), p=problem.p, lr=LR, stages=200)
    model, loss = make_units(problem, runs, problem.start, generator)
    gamma = theory_gamma(constants.L)
    optimizer = aucmax.PPDSG(aucmax.minmax_groups(model, loss), gamma=gamma)
    stages, gaps = stages_within(rule, iterations), []
    for stage in stages:
        run_stage(problem, model, loss, optimizer, stage, generator)
        fresh = max(stage.dual_samples, FEWEST_DUAL_SAMPLES)
        x, y = problem.sample(fresh, runs, generator)
        loss.reset_dual(model(x), y)
        gaps.append(problem.gap(model.w.detach()).numpy())
        tick(stage.steps)
    return np.cumsum([stage.steps for stage in stages]), np.array(gaps)


def pga(
    problem: Problem, iterations: int, runs: int, seed: int, tick: Callable[[int], None]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """PGA: iterations at the stages' ends, the gaps of the averages and of the one drawn so far."""
    generator = torch.Generator().manual_seed(seed)
    model, loss = make_units(problem, runs, problem.start, generator)
    gamma = theory_gamma(theory_constants(problem).L)
    optimizer = aucmax.PGA(aucmax.minmax_groups(model, loss), gamma=gamma, seed=seed)
    stages = stages_within(polynomial(LR, PGA_FIRST, stages=200), iterations)
    gaps, drawn = [], []
    for stage in stages:
        run_stage(problem, model, loss, optimizer, stage, generator)
        gaps.append(problem.gap(model.w.detach()).numpy())
        with aucmax.averaged(model, optimizer):
            drawn.append(problem.gap(model.w.detach()).numpy())
        tick(stage.steps)
    return np.cumsum([stage.steps for stage in stages]), np.array(gaps), np.array(drawn)


def fit_slope(
    x: np.ndarray, values: np.ndarray, resamples: int = 1000
) -> tuple[float, float, float]:
    """Fit a line to log mean value against log x; values are of shape (x, runs).

    The 95 % interval comes from drawing the runs anew, with replacement (bootstrap).
    """
    runs = values.shape[1]
    weights = np.random.default_rng(0).multinomial(runs, [1 / runs] * runs, size=resamples) / runs
    means = np.column_stack([values.mean(1), values @ weights.T])
    slopes = np.polyfit(np.log(x), np.log(means), 1)[0]
    low, high = np.quantile(slopes[1:], [0.025, 0.975])
    return float(slopes[0]), float(low), float(high)


def fit_rate(name: str, color: str, iterations: np.ndarray, gaps: np.ndarray) -> Rate:
    """Fit the slope over the last decade of iterations."""
    rate = Rate(name, color, iterations, gaps, math.nan, math.nan, math.nan)
    slope, low, high = fit_slope(iterations[rate.tail], gaps[rate.tail])
    return rate._replace(slope=slope, low=low, high=high)


def measure(
    iterations: int, runs: int, seed: int, tick: Callable[[int], None] = lambda steps: None
) -> tuple[list[Rate], np.ndarray]:
    """Run both methods; the rates of what they give, and the gaps of the stages that PGA drew.

    What PGA returns is a stage average drawn uniformly, so given the run its expected gap is the
    mean over the stages so far. Its rate is measured on that: one draw would tell little.
    """
    problem = Problem()
    ends, gaps = ppd_sg(problem, iterations, runs, seed, tick)
    pga_ends, pga_gaps, drawn = pga(problem, iterations, runs, seed, tick)
    expected = np.cumsum(pga_gaps, axis=0) / np.arange(1, len(pga_gaps) + 1)[:, None]
    rates = [
        fit_rate("PPD-SG, stage average", ORANGE, ends, gaps),
        fit_rate("PGA, stage drawn at random", BLUE, pga_ends, expected),
        fit_rate("PGA, last stage average", GREEN, pga_ends, pga_gaps),
    ]
    return rates, drawn


def slopes_table(rates: Sequence[Rate]) -> Table:
    """The slopes with their intervals, and where each method ended."""
    runs = rates[0].gaps.shape[1]
    table = Table(
        title="Slope of log gap against log iterations",
        caption=f"Gap P(w) - P*, mean of {runs} runs; lines fitted to the last decade of "
        f"iterations; 95 % intervals by bootstrap over the runs.",
        caption_justify="left",
    )
    for column in ("what is returned", "iterations", "slope", "95 % interval", "last gap"):
        table.add_column(column, justify="left" if column == "what is returned" else "right")
    for rate in rates:
        table.add_row(
            rate.name,
            f"{rate.iterations[-1]:,}",
            f"{rate.slope:.2f}",
            f"[{rate.low:.2f}, {rate.high:.2f}]",
            f"{rate.gaps[-1].mean():.1e}",
        )
    return table


def draw_figure(rates: Sequence[Rate], drawn: np.ndarray, out: Path) -> list[Path]:
    """Mean gap by iterations, both logarithmic, with the fitted lines."""
    with mpl.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    ax.set_title(
        "PPD-SG closes the gap like 1/T, as the theory says\n"
        f"Mean of {drawn.shape[1]} runs at the stages' ends. Lines: fitted to the last decade.\n"
        "Dotted: the stage PGA drew.",
        fontsize=9,
    )
    for rate in rates:
        mean, x = rate.gaps.mean(1), rate.iterations[rate.tail]
        ax.plot(rate.iterations, mean, "o", color=rate.color, markersize=4, alpha=0.4)
        line = np.polyfit(np.log(x), np.log(mean[rate.tail]), 1)
        slope = f"{rate.slope:.2f}".replace("-", "\N{MINUS SIGN}")
        fitted = np.exp(np.polyval(line, np.log(x)))
        ax.plot(x, fitted, color=rate.color, linewidth=2, label=f"{rate.name}, slope {slope}")
    ax.step(rates[1].iterations, drawn.mean(1), ":", where="post", color=BLUE, linewidth=1)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(rates[0].iterations[0], rates[0].iterations[-1] * 1.05)
    ax.set_xlabel("iterations T, one example each")
    ax.set_ylabel("gap P(w) - P*")
    ax.legend()
    return save(fig, out, "pl_rates")


def write_rates(path: Path, rates: Sequence[Rate], seed: int) -> None:
    """The slopes with their intervals as a JSON file, and what they were measured with."""
    measured = [
        {
            "name": rate.name,
            "iterations": int(rate.iterations[-1]),
            "slope": rate.slope,
            "low": rate.low,
            "high": rate.high,
            "last_gap": float(rate.gaps[-1].mean()),
        }
        for rate in rates
    ]
    runs = rates[0].gaps.shape[1]
    record = {"runs": runs, "seed": seed, "rates": measured, "commit": commit(), **describe()}
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, write and draw what ``--json`` and ``--out`` ask for."""
    parser = argparse.ArgumentParser(description="Measure the rates of PPD-SG and PGA.")
    parser.add_argument("--iterations", type=int, default=40_000, help="of each method, at most")
    parser.add_argument("--runs", type=int, default=512, help="independent runs to average over")
    parser.add_argument("--seed", type=int, default=0, help="of starts, samples and PGA's draw")
    parser.add_argument("--out", type=Path, help="folder for the figure; else none is drawn")
    parser.add_argument("--json", type=Path, help="file for the slopes; else none is written")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the tensors are too small to share between cores
    console = Console(highlight=False)
    began = time.perf_counter()
    constants = theory_constants(Problem())
    console.print(", ".join(f"{name} = {x:.3g}" for name, x in constants._asdict().items()))
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("PPD-SG, then PGA", total=2 * options.iterations)
        rates, drawn = measure(
            options.iterations,
            options.runs,
            options.seed,
            lambda steps: progress.advance(task, steps),
        )
    console.print(slopes_table(rates))
    if options.json is not None:
        write_rates(options.json, rates, options.seed)
        console.print(f"Slopes: {options.json}", soft_wrap=True)
    if options.out is not None:
        for path in draw_figure(rates, drawn, options.out):
            console.print(f"Figure: {path}", soft_wrap=True)
    console.print(f"Took {time.perf_counter() - began:.0f} s.")


if __name__ == "__main__":
    main()
