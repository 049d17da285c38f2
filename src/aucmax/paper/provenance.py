"""Where a result comes from: commit, versions, hardware and day."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from aucmax.version import __version__


def provenance(device: str) -> dict[str, Any]:
    """Commit, versions, hardware and day of what is computed now and here."""
    cpu = f"{platform.machine()} CPU, {os.cpu_count()} cores"
    return {
        "commit": commit(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "aucmax": __version__,
        },
        "hardware": torch.cuda.get_device_name(device) if device.startswith("cuda") else cpu,
        "date": datetime.date.today().isoformat(),
    }


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
