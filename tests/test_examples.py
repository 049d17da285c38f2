"""The example scripts run as a reader would run them, and write where they are told to."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.xdist_group("examples")
EXAMPLES = Path(__file__).parents[1] / "examples"
DIGITS = ["digits.py", "--steps", "2"]
PL_RATES = ["pl_rates.py", "--iterations", "300", "--runs", "8"]


def run(script, *options, cwd, terminal=False):
    environment = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "NO_COLOR")}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8", "COLUMNS": "90"}
    if terminal:
        environment["FORCE_COLOR"] = "1"  # rich draws its live bar
    return subprocess.run(
        [sys.executable, EXAMPLES / script, *options],
        cwd=cwd,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )


def files_below(folder):
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )


def check_figures(folder, name):
    assert files_below(folder) == [f"{name}.png", f"{name}.svg"]
    png = (folder / f"{name}.png").read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert png[-8:-4] == b"IEND"
    svg = ElementTree.parse(folder / f"{name}.svg").getroot()
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(list(svg.iter())) > 50


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A folder with the figures of the digits, what its script said, and the examples' files."""
    folder, before = tmp_path_factory.mktemp("plain"), files_below(EXAMPLES)
    return folder, run(*DIGITS, "--out", "figures", cwd=folder), before


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            DIGITS,
            [
                "448 positives, 45 negatives to train",
                "448 positives, 451 negatives",
                "Cross-entropy SGD",
                "PPD-SG",
                "PPD-AdaGrad",
                "stage average",
                "95 %",
            ],
        ),
        (PL_RATES, ["PPD-SG, stage average", "PGA, stage drawn at random", "slope", "95 %"]),
    ],
    ids=["digits", "pl_rates"],
)
def test_script_draws_its_figure_and_nothing_else(tmp_path, plain, command, words):
    if command is DIGITS:
        tmp_path, result, before = plain
    else:
        before = files_below(EXAMPLES)
        result = run(*command, "--out", "figures", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert [word for word in words if word not in result.stdout] == []
    check_figures(tmp_path / "figures", Path(command[0]).stem)
    assert [path.name for path in tmp_path.iterdir()] == ["figures"]
    assert files_below(EXAMPLES) == before


def test_digits_repeats_itself_and_has_a_bar_in_a_terminal(tmp_path, plain):
    folder, result, _ = plain
    live = run(*DIGITS, "--out", "live", cwd=tmp_path, terminal=True)
    assert live.returncode == 0, live.stderr
    assert "━" in live.stdout
    assert "80/80" in live.stdout
    assert "step     80" in result.stdout
    assert files_below(tmp_path / "live") == files_below(folder / "figures")
    for name in files_below(folder / "figures"):
        assert (folder / "figures" / name).read_bytes() == (tmp_path / "live" / name).read_bytes()
