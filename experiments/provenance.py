"""Where a number comes from: the code, the commit, the versions and the hardware."""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TRAINING = ("data", "libauc", "plan", "prepare", "run", "train_image", "train_table")
"""The scripts here that decide what a run gives; what draws and counts is not among them."""


def code() -> str:
    """Return the SHA-256 of the code that trains: all of aucmax, and the scripts that call it.

    It is the same in a clone, an archive and a copy. Compute it once when a command starts and hand
    it on: files may change while runs are under way.
    """
    spec = find_spec("aucmax")
    if spec is None or spec.origin is None:
        raise RuntimeError("aucmax must be importable: set PYTHONPATH=src")
    package, here = Path(spec.origin).parent, Path(__file__).resolve().parent
    files = {path.relative_to(package.parent): path for path in package.rglob("*.py")}
    own = [here / f"{name}.py" for name in TRAINING] + [*(here / "resnet20").rglob("*.py")]
    files |= {path.relative_to(here.parent): path for path in own if path.exists()}
    digest = hashlib.sha256()
    for name in sorted(files, key=Path.as_posix):
        content = hashlib.sha256(files[name].read_bytes()).hexdigest()
        digest.update(f"{name.as_posix()} {content}\n".encode())
    return digest.hexdigest()[:16]


def commit(root: Path = ROOT) -> str:
    """Return the commit of the code, with "-dirty" if anything differs from it.

    It is that of the repository whose top is ``root``, or else what ``git archive`` has written
    into the file COMMIT.

    Raises:
        RuntimeError: if neither is known.
    """
    environment = {key: x for key, x in os.environ.items() if not key.startswith("GIT_")}

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        is_top = Path(git("rev-parse", "--show-toplevel")).resolve() == root.resolve()
    except (OSError, subprocess.CalledProcessError):
        is_top = False
    if is_top:
        changed = git("status", "--porcelain", "--untracked-files=normal")
        return git("rev-parse", "HEAD") + ("-dirty" if changed else "")
    file = root / "COMMIT"
    text = file.read_text(encoding="utf-8").strip() if file.exists() else ""
    if not text or text.startswith("$Format"):
        raise RuntimeError(
            f"{root} must be the top of a git repository or come from git archive, which fills "
            f"the file COMMIT; found {text or 'no such file'!r}"
        )
    return text


def describe(device: str = "cpu") -> dict[str, Any]:
    """Return versions, hardware and date of what is computed now and here."""
    versions = {"python": platform.python_version()}
    for package in ("torch", "triton", "numpy", "scikit-learn", "lightgbm", "libauc", "aucmax"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    hardware = f"{platform.machine()} CPU, {os.cpu_count()} cores"
    if device.startswith("cuda"):
        import torch

        hardware = torch.cuda.get_device_name(device)
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"versions": versions, "hardware": hardware, "date": date}
