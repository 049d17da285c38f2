"""The site's pages of results are what the JSON files of the runs give."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_results_on_the_site_are_those_of_the_runs():
    command = [sys.executable, str(ROOT / "experiments" / "publish.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
