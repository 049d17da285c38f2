"""Where a result comes from: commit, versions, hardware and day."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import torch

from aucmax._version import __version__


@dataclass(frozen=True)
class Provenance:
    """Where a result comes from, as far as that is known."""

    commit: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    hardware: str | None = None
    date: str | None = None


def provenance(device: str) -> Provenance:
    """Of what is computed now and here."""
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "aucmax": __version__,
    }
    hardware = (
        torch.cuda.get_device_name(device)
        if device.startswith("cuda")
        else f"{platform.machine()} CPU, {os.cpu_count()} cores"
    )
    return Provenance(commit(), versions, hardware, datetime.date.today().isoformat())


def commit() -> str | None:
    """What AUCMAX_COMMIT says, or the source's commit, "-dirty" if it was changed since."""
    if os.environ.get("AUCMAX_COMMIT"):
        return os.environ["AUCMAX_COMMIT"]
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    try:
        described = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None  # installed, not run from its repository
    return described.stdout.strip()
