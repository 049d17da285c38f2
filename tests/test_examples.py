"""The example of a loop by hand runs as a reader would run it; test_frameworks has the others."""

from pathlib import Path

import pytest
from process import Scripts

DIGITS = Path(__file__).parents[1] / "examples" / "digits.py"
if not DIGITS.exists():
    pytest.skip("the folder examples is absent", allow_module_level=True)


def test_digits_prints_the_same_table_twice(tmp_path, tmp_path_factory):
    with Scripts([DIGITS], tmp_path_factory.mktemp("said")) as scripts:
        runs = [scripts.run(DIGITS, "--steps", 3, "--seeds", 2, cwd=tmp_path) for _ in range(2)]
    for done in runs:
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
    assert runs[0].stdout == runs[1].stdout
    _, *rows = runs[0].stdout.splitlines()
    assert [row[:20].strip() for row in rows] == [
        "cross-entropy, SGD",
        "AUC, PPD-SG",
        "AUC, PPD-AdaGrad",
    ]
    assert all(0.5 < float(row.split()[-2]) < 1 for row in rows)
    assert not list(tmp_path.iterdir())
