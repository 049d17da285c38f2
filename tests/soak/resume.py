"""Kill training runs at random moments for as long as asked; stop at the first difference.

    python tests/soak/resume.py --minutes 60 [--seed 1]

Every round takes a random case and a random seed of fit, kills the run up to five times, finishes
it and compares it with one that was left alone. Not a test that pytest collects.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from fit_helpers import CASES, assert_same_run, configure, finished, make_trainer, steps_saved


def kill(trainer, name, out, seed, seconds, rng):
    """Begin a run or resume it, and kill it within so many seconds, if it is not over by then."""
    init = rng.randrange(1, 100) if steps_saved(out) else 0
    run = trainer.start(configure(name, out, seed=seed), init=init)
    if not run.is_over(rng.uniform(0, seconds)):
        os.kill(run.pid, signal.SIGKILL)
    return run.wait().returncode


def one_round(trainers, folder, rng):
    """Compare a run left alone with one that is killed; return how often it was."""
    name, seed = rng.choice(list(CASES)), rng.randrange(1 << 30)
    began = time.monotonic()
    expected = finished(trainers[0], name, folder / "whole", seed=seed)
    seconds, kills = time.monotonic() - began, 0
    for _ in range(rng.randint(1, 5)):
        if kill(trainers[1], name, folder / "killed", seed, seconds, rng) == 0:
            break
        kills += 1
    try:
        assert_same_run(finished(trainers[1], name, folder / "killed", seed=seed), expected)
    except AssertionError as error:
        raise SystemExit(f"{name}, seed {seed}, see {folder}: {error}") from None
    shutil.rmtree(folder)
    return kills


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=time.time_ns())
    options = parser.parse_args()
    rng, folder = random.Random(options.seed), Path(tempfile.mkdtemp(prefix="soak-"))
    print(f"seed {options.seed}", flush=True)
    end, rounds, kills = time.monotonic() + 60 * options.minutes, 0, 0
    with ExitStack() as stack:
        trainers = []
        for number in (0, 1):
            (folder / str(number)).mkdir()
            trainers.append(stack.enter_context(make_trainer(folder / str(number), number)))
        while time.monotonic() < end:
            kills += one_round(trainers, folder / "runs", rng)
            rounds += 1
            print(f"{rounds} rounds, {kills} kills", flush=True)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
