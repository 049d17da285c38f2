"""Kill training runs at random moments for as long as asked; stop at the first difference.

    python tests/soak/resume.py --minutes 60 [--seed 1]

Every round takes a random case and a random seed of fit, kills the run up to five times, finishes
it and compares it with one that was left alone. Not a test that pytest collects.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from fit_helpers import CASES, Trainer, assert_same_run, configure, finished, kill_at_random


def one_round(trainers, folder, rng):
    """A run left alone and one that is killed, in folders that are removed if they agree."""
    name, seed = rng.choice(list(CASES)), rng.randrange(1 << 30)
    expected = finished(trainers[0], name, folder / "whole", seed=seed)
    out, kills = folder / "killed", []
    for _ in range(rng.randint(1, 5)):
        config = configure(name, out, seed=seed)
        kills.append(kill_at_random(trainers[1], config, out, rng, len(expected["history"])))
        if not kills[-1].landed:
            break
    try:
        assert_same_run(finished(trainers[1], name, out, seed=seed), expected)
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
    end, rounds, kills = time.monotonic() + 60 * options.minutes, 0, []
    for number in (0, 1):
        (folder / str(number)).mkdir()
    with Trainer(folder / "0") as first, Trainer(folder / "1") as second:
        while time.monotonic() < end:
            kills += one_round((first, second), folder / "runs", rng)
            rounds += 1
            landed = sum(kill.landed for kill in kills)
            in_a_save = sum(kill.in_a_save for kill in kills)
            print(f"{rounds} rounds, {landed} kills, {in_a_save} of them in a save", flush=True)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
