"""Where and with what figures were measured."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parent.parent


def machine(device: torch.device, commit: str | None = None) -> dict[str, Any]:
    """The date, the device, the versions and the commit."""
    on_gpu = device.type == "cuda"
    return {
        "date": datetime.date.today().isoformat(),
        "device": torch.cuda.get_device_name(device) if on_gpu else processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit or checked_out(),
    }


def processor() -> str:
    """The CPU's name."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line for line in lines if line.startswith("model name")]
    return names[0].split(":", 1)[1].strip() if names else platform.machine()


def checked_out() -> str:
    """The commit, marked if what is measured was changed since; nothing without git."""
    try:
        commit = git("rev-parse", "--short", "HEAD")
        changed = git("status", "--porcelain", "src", "benchmarks/*.py")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return commit + ("-dirty" if changed else "")


def git(*arguments: str) -> str:
    """What git prints in this repository."""
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()
