"""Run the hypothesis tests on fresh random examples for as long as asked; stop at a failure.

    python tests/soak/fuzz.py --minutes 10 [--seed 1]

Every round has a seed of its own, which is printed with the command that repeats a failure. Not a
test that pytest collects.
"""

import argparse
import random
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.*?)(?: - .*)?$", flags=re.M)


def command(seed, *options):
    """The pytest command that draws examples with a seed."""
    return [
        sys.executable, "-m", "pytest", "-m", "hypothesis", "--hypothesis-profile=fuzz",
        f"--hypothesis-seed={seed}", *options,
    ]  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=time.time_ns(), help="of the rounds' seeds")
    parser.add_argument("--workers", type=int, default=2, help="processes that run tests")
    parser.add_argument("files", nargs="*", help="test files, by default all that use hypothesis")
    options = parser.parse_args()
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    files = options.files or [
        str(path.relative_to(ROOT)) for path in tests if "hypothesis" in path.read_text("utf-8")
    ]
    rng, end, rounds = random.Random(options.seed), time.monotonic() + 60 * options.minutes, 0
    while time.monotonic() < end:
        seed, rounds = rng.randrange(1 << 32), rounds + 1
        print(f"round {rounds}, seed {seed}", flush=True)
        round_ = command(seed, "-q", f"-n{options.workers}", *files)
        done = subprocess.run(round_, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            print(done.stdout, done.stderr, sep="\n")
            failed = FAILED.findall(done.stdout) or files
            sys.exit(f"To repeat it:\n    {shlex.join(command(seed, *failed))}")
    print(f"{rounds} rounds without a failure")


if __name__ == "__main__":
    main()
