"""The example scripts run as a reader would run them, and write where they are told to."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from process import Scripts

pytestmark = pytest.mark.xdist_group("examples")
EXAMPLES = Path(__file__).parents[1] / "examples"
DIGITS = [EXAMPLES / "digits.py", "--steps", "2"]
PL_RATES = [EXAMPLES / "pl_rates.py", "--iterations", "300", "--runs", "8"]


TERMINAL = {"FORCE_COLOR": "1", "NO_COLOR": None, "COLUMNS": "90"}  # rich draws its live bar
PLAIN = TERMINAL | {"FORCE_COLOR": None}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    imported = [DIGITS[0], PL_RATES[0]]
    with Scripts(imported, tmp_path_factory.mktemp("said")) as scripts:
        yield scripts


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
def plain(tmp_path_factory, scripts):
    """A folder with the figures of the digits, what its script said, and the examples' files."""
    folder, before = tmp_path_factory.mktemp("plain"), files_below(EXAMPLES)
    return folder, scripts.run(*DIGITS, "--out", "figures", cwd=folder, env=PLAIN), before


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
def test_script_draws_its_figure_and_nothing_else(tmp_path, scripts, plain, command, words):
    if command is DIGITS:
        tmp_path, result, before = plain
    else:
        before = files_below(EXAMPLES)
        result = scripts.run(*command, "--out", "figures", cwd=tmp_path, env=PLAIN)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert [word for word in words if word not in result.stdout] == []
    check_figures(tmp_path / "figures", command[0].stem)
    assert [path.name for path in tmp_path.iterdir()] == ["figures"]
    assert files_below(EXAMPLES) == before


def test_without_a_folder_nothing_is_left_behind(tmp_path, scripts):
    before = files_below(EXAMPLES)
    result = scripts.run(*PL_RATES, cwd=tmp_path, env=PLAIN)
    assert result.returncode == 0, result.stderr
    assert "slope" in result.stdout
    assert "Figure" not in result.stdout
    assert not list(tmp_path.iterdir())
    assert files_below(EXAMPLES) == before


def test_rates_are_written_where_they_are_wanted(tmp_path, scripts):
    result = scripts.run(*PL_RATES, "--json", "rates.json", cwd=tmp_path, env=PLAIN)
    assert result.returncode == 0, result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["rates.json"]
    written = json.loads((tmp_path / "rates.json").read_text("utf-8"))
    assert (written["runs"], written["seed"]) == (8, 0)
    assert written["rates"][0]["name"] == "PPD-SG, stage average"
    for rate in written["rates"]:
        assert rate["low"] < rate["slope"] < rate["high"] < 0
        assert f"{rate['slope']:.2f}" in result.stdout
        assert 200 < rate["iterations"] <= 300


def test_digits_repeats_itself_and_has_a_bar_in_a_terminal(tmp_path, scripts, plain):
    folder, result, _ = plain
    live = scripts.run(*DIGITS, "--out", "live", cwd=tmp_path, env=TERMINAL)
    assert live.returncode == 0, live.stderr
    assert "━" in live.stdout
    assert "80/80" in live.stdout
    assert "step     80" in result.stdout
    assert files_below(tmp_path / "live") == files_below(folder / "figures")
    for name in files_below(folder / "figures"):
        assert (folder / "figures" / name).read_bytes() == (tmp_path / "live" / name).read_bytes()
