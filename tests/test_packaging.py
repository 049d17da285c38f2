"""What packages and checks the project: the workflow and the Makefile agree."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_workflow_runs_makefile_targets_only():
    path = ROOT / ".github" / "workflows" / "ci.yml"
    if not path.exists():
        pytest.skip("an sdist has no workflow")
    text = path.read_text("utf-8")
    commands = re.findall(r"\brun: (.*)", text)
    assert commands
    assert all(re.fullmatch(r"make (\w+|\$\{\{ matrix\.target \}\})", x) for x in commands)
    used = re.findall(r"(?:make |target: )(\w+)", text)
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^(\w+):.*## ", makefile, flags=re.M))
    assert set(used) <= targets
    phony = re.search(r"^\.PHONY:((?:.*\\\n)*.*)", makefile, flags=re.M)[1]
    assert targets <= set(phony.split())
