"""Run the core's tests on the oldest versions that pyproject.toml allows, and on the newest.

    python tests/release/compat.py oldest
    python tests/release/compat.py newest --python python3.13

Each has an environment of its own (``.venv-oldest``, ``.venv-newest``), of several GB, as torch
comes with CUDA's libraries. The oldest torch names a Triton that the kernels are too new for, and
cannot export: Triton and ONNX are left out there, and with them the tests of both. Packages of
different ages call each other deprecated, which is not looked at here.
"""

import argparse
import re
import shutil
import sys
import tomllib
from pathlib import Path

from environment import ROOT, Environment, Log

EXTRAS = ("tables", "images", "tune", "onnx", "tensorboard")
FOR_TESTS = (
    "expecttest", "hypothesis", "lightgbm", "pandas", "polars", "pytest", "pytest-xdist",
)  # fmt: skip
SHOWN = (
    "torch", "triton", "numpy", "safetensors", "rich", "scikit-learn", "scipy", "pyarrow",
    "matplotlib", "tyro", "pandas", "polars", "optuna", "onnx", "pytest",
)  # fmt: skip
LEFT_OUT = (
    "paper", "study", "test_benchmarks.py", "test_documents.py", "test_examples.py",
    "test_frameworks.py", "test_publish.py", "test_rates.py",
)  # fmt: skip
SAID = (  # by packages of each other, and by torch of Python 3.13.0
    "ignore::DeprecationWarning",
    "ignore:Guards may run slower:RuntimeWarning",
)
SPACE = 15e9


def bounds():
    """Of each package the lowest version that is allowed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    own = [*project["dependencies"], *(line for extra in EXTRAS for line in extras[extra])]
    lines = own + [line for line in extras["dev"] if re.split("[>;]", line)[0] in FOR_TESTS]
    return dict(line.split(">=") for line in lines if not line.startswith("aucmax["))


def install(environment, which):
    """What the tests need, at the lowest version allowed or the highest there is."""
    lowest = bounds()
    if which == "oldest":
        pins = [f"{name}=={version}" for name, version in lowest.items()]
        environment.install(*(pin for pin in pins if not pin.startswith("onnx")))
        environment.run("python", "-m", "pip", "uninstall", "-y", "-q", "triton", cwd=ROOT)
    else:
        environment.install("--upgrade", *lowest)
    environment.install("--no-deps", "--editable", ROOT)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("which", choices=["oldest", "newest"])
    parser.add_argument("--python", default=sys.executable, help="the interpreter")
    parser.add_argument("--workers", default="2", help="processes that run tests")
    options = parser.parse_args()
    if shutil.disk_usage(ROOT).free < SPACE:
        sys.exit(f"{SPACE / 1e9:.0f} GB of the disk must be free")
    environment = Environment(ROOT / f".venv-{options.which}", options.python)
    install(environment, options.which)
    log = Log(Path(__file__).with_name(f"{options.which}.log"))
    versions = environment.versions()
    log.say(environment.run("python", "--version", cwd=ROOT).stdout.strip())
    log.say(", ".join(f"{name} {versions[name]}" for name in SHOWN if name in versions))
    done = environment.run(
        "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", options.workers,
        *(f"-W{warning}" for warning in SAID),
        *(f"--ignore=tests/{name}" for name in LEFT_OUT), cwd=ROOT, check=False,
    )  # fmt: skip
    if done.returncode:
        print(done.stdout)
    for line in done.stdout.splitlines():
        if line.startswith(("FAILED", "ERROR", "SKIPPED")) or re.match(
            r"\d+ (passed|failed)", line
        ):
            log.say(line)
    log.close()
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
