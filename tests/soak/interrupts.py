"""Stop ``aucmax fit`` at random moments, in a terminal; the same command must end as if left alone.

    python tests/soak/interrupts.py --moments 20 [--seed 1]

Each round stops a fresh command once, by Ctrl-C in its terminal, SIGTERM or SIGKILL, anywhere from
its start to its end, now and then twice in a row; then the same command is left alone, and model
and predictions are compared. Not a test that pytest collects.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from fit_commands import COMMAND, SIGNALS, FitCommand, outcome_of, write_rows
from process import run


def left_alone(folder):
    """The command from where it is to its end; nothing but the model is left."""
    code, _, said = run(COMMAND, cwd=folder)
    assert code == 0, said
    assert {path.name for path in folder.iterdir()} == {"rows.csv", "rows-model"}


def one_round(folder, expected, rng, longest):
    """The signal, when it came, what was under way, and how the command ended."""
    how, wait = rng.choice(list(SIGNALS)), rng.uniform(0, longest)
    again = how != "SIGKILL" and rng.random() < 0.25
    with FitCommand(folder) as command:
        time.sleep(wait)
        phase = command.phase()
        command.stop(how)
        if again:
            time.sleep(rng.uniform(0, 0.05))
            command.stop(how)
        command.assert_ended_by(how, phase)
    left_alone(folder)
    assert outcome_of(folder) == expected, "the model is another"
    return f"{how}{' twice' if again else ''} at {wait:.2f} s, {phase}", phase


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--seed", type=int, default=time.time_ns())
    options = parser.parse_args()
    rng, folder = random.Random(options.seed), Path(tempfile.mkdtemp(prefix="soak-"))
    write_rows(folder / "whole")
    began = time.monotonic()
    left_alone(folder / "whole")
    longest, expected = time.monotonic() - began, outcome_of(folder / "whole")
    print(f"seed {options.seed}; left alone it takes {longest:.1f} s", flush=True)
    phases = Counter()
    for number in range(options.moments):
        place = folder / str(number)
        write_rows(place)
        try:
            told, phase = one_round(place, expected, rng, longest)
        except AssertionError as error:
            raise SystemExit(f"round {number + 1}, see {place}: {error}") from None
        phases[phase] += 1
        print(f"{number + 1:>3}  {told}: the same model", flush=True)
        shutil.rmtree(place)
    print(", ".join(f"{count} {phase}" for phase, count in phases.items()))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
