"""How much longer two fits at once take than one, and a fit beside another busy process.

``python benchmarks/two_fits.py`` prints medians over rounds that are taken in turn, and their
ratios to one fit alone; on two cores, two fits that share them well take about twice as long. The
same fit with one core to use is beside that with ``n_jobs=1``, which it should be as fast as.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

BUSY = "while True: pass"


class Fitter:
    """A process that fits the same table whenever it is told to.

    Args:
        n_jobs: threads of the fit.
        core: the only one that the process may use; None for all.
        options: of this script, for the process.
    """

    def __init__(self, n_jobs: int | None, core: int | None, options: list[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--child", repr(n_jobs), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}),
        )
        self.seconds()  # of the first fit, which loads libraries

    def begin(self) -> None:
        """Fit."""
        assert self.process.stdin is not None
        print(file=self.process.stdin, flush=True)

    def seconds(self) -> float:
        """That the fit took, when it is over."""
        assert self.process.stdout is not None
        return float(self.process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def fit_when_told(n_jobs: int | None, quality: str, steps: int) -> None:
    """What a :class:`Fitter`'s process does."""
    from sklearn.datasets import make_classification

    from aucmax import AUCClassifier

    x, y = make_classification(6_000, 20, n_informative=8, weights=[0.9], random_state=0)
    options = {"quality": quality, "random_state": 0, "n_jobs": n_jobs, "patience": steps}
    model = AUCClassifier(max_steps=20, **options)
    model.fit(x, y)
    print(0.0, flush=True)
    model.max_steps = steps
    for _ in sys.stdin:
        began = time.perf_counter()
        model.fit(x, y)
        print(time.perf_counter() - began, flush=True)


def together(*fitters: Fitter) -> float:
    """Seconds of fits that begin at once, the longest."""
    for fitter in fitters:
        fitter.begin()
    return max(fitter.seconds() for fitter in fitters)


@contextmanager
def busy() -> Iterator[None]:
    """Another process takes a core in the block."""
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def demo() -> float:
    """Seconds of ``aucmax demo``."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        command = [sys.executable, "-m", "aucmax", "demo", "--out", f"{folder}/model"]
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - began


def main() -> None:
    """Take turns, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quality", default="fast", help="of a fit")
    parser.add_argument("--steps", type=int, default=200, help="of a fit")
    parser.add_argument("--no-demo", action="store_true", help="leave the demo out")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        fit_when_told(
            None if given.child == "None" else int(given.child), given.quality, given.steps
        )
        return
    options = ["--quality", given.quality, "--steps", str(given.steps)]
    times: dict[str, list[float]] = {}
    core = min(os.sched_getaffinity(0))
    with ExitStack() as processes:

        def fitter(n_jobs: int | None = None, core: int | None = None) -> Fitter:
            made = Fitter(n_jobs, core, options)
            processes.callback(made.close)
            return made

        first, second, single = fitter(), fitter(), fitter(n_jobs=1)
        confined, confined_single = fitter(core=core), fitter(n_jobs=1, core=core)
        for _ in range(given.rounds):
            taken = {
                "one fit": together(first),
                "two fits at once": together(first, second),
                "one fit, n_jobs=1": together(single),
                "one core": together(confined),
                "one core, n_jobs=1": together(confined_single),
            }
            with busy():
                taken["one fit beside a busy process"] = together(first)
            for name, seconds in taken.items():
                times.setdefault(name, []).append(seconds)
    middle = {name: statistics.median(values) for name, values in times.items()}
    for name, seconds in middle.items():
        each = " ".join(f"{x:.2f}" for x in times[name])
        print(f"{name}: {seconds:.2f} s, {seconds / middle['one fit']:.2f} times one ({each})")
    print(f"one core over n_jobs=1: {middle['one core'] / middle['one core, n_jobs=1']:.2f}")
    if not given.no_demo:
        alone = demo()
        with busy():
            beside = demo()
        print(
            f"demo: {alone:.1f} s, beside a busy process {beside:.1f} s, {beside / alone:.2f} times"
        )


if __name__ == "__main__":
    main()
