"""The benchmarks run, in sizes that take no time: their figures say nothing here."""

import argparse
import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def module(monkeypatch):
    """Imports a benchmark by its name."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def test_the_gpu_benchmark_keeps_the_sections_it_does_not_measure(module, tmp_path, monkeypatch):
    gpu, file = module("gpu"), tmp_path / "cuda.json"
    file.write_text('{"step": 1}')
    options = [
        "--device",
        "cpu",
        "--tiny",
        "--only",
        "optimizer",
        "loss",
        "pairs",
        "--json",
        str(file),
    ]
    monkeypatch.setattr(sys, "argv", ["gpu.py", *options])
    gpu.main()
    found = json.loads(file.read_text())
    assert list(found) == ["step", "optimizer", "loss", "pairs"]
    assert not any(found[x]["errors"] for x in ("optimizer", "loss", "pairs"))
    row = found["loss"]["N = 128, captured"]["AUCLoss"]
    peer = found["loss"]["N = 128, captured"]["BCEWithLogitsLoss"]
    assert row["ratio"] == pytest.approx(row["seconds"] / peer["seconds"])
    page, rows = module("performance_page"), module("performance_rows").GPU_ROWS
    measured = [row for row in rows if row.place[0] in ("optimizer", "loss", "pairs")]
    assert [row for row, _ in page.shown(found, measured)] == measured  # the names agree


def test_what_fails_is_noted_and_the_rest_is_timed(module):
    device = module("_device").Device(torch.device("cpu"), tiny=True)
    works = {"good": lambda: None, "bad": lambda: 1 / 0}
    assert set(device.compare("these", works, "good")) == {"good"}
    assert device.errors == {"these: bad": "ZeroDivisionError: division by zero"}


def test_a_section_that_breaks_off_keeps_what_it_had(module, monkeypatch):
    gpu = module("gpu")

    def broken(device):
        yield "first", {"a": {"seconds": 1.0, "ratio": 1.0}}
        raise RuntimeError("no memory")

    monkeypatch.setitem(gpu.SECTIONS, "loss", broken)
    found = gpu.measure(gpu.Device(torch.device("cpu"), tiny=True), "loss")
    assert set(found) == {"first", "errors"}
    assert found["errors"] == {"the rest": "RuntimeError: no memory"}


def test_the_page_judges_goals_and_shows_peers_where_they_were_measured(module):
    page, rows = module("performance_page"), module("performance_rows")
    about = {"date": "d", "device": "D", "cores": 2, "python": "3", "torch": "2", "commit": ""}
    found = {"a": {"machine": about, "x": {"seconds": 0.0012}, "y": {"seconds": 0.002},
                   "errors": {"z": "KeyError: 'z'"}}}  # fmt: skip
    beside = (("theirs", ("a", "y", "seconds")), ("absent", ("b", "y", "seconds")))
    lines = [
        rows.Row("fast", ("a", "x", "seconds"), rows.Goal(1.2, unit="ms"), beside),
        rows.Row("slow", ("a", "y", "seconds"), rows.Goal(1.2, unit="ms")),
        rows.Row("not there", ("a", "z", "seconds"), rows.Goal(1.2, unit="ms")),
    ]
    assert page.judged(found, lines) == [True, False]
    said = page.table(found, lines)
    assert "- 1.2 ms\n     - <= 1.2 ms\n     - yes\n     - theirs 2 ms\n" in said
    assert "- 2 ms\n     - <= 1.2 ms\n     - **no**\n" in said
    assert "absent" not in said
    assert "not there" not in said
    assert page.measured(found).endswith("Not measured: a, z (KeyError: 'z').\n")
    assert rows.Goal(1.2).reached(1.20012)  # shown as 1.2
    assert not rows.Goal(1.2).reached(1.2006)  # shown as 1.201
    assert rows.NO_SLOWER.reached(1.053)  # shown as <= 1.053
    assert rows.LINEAR.reached(1.04)
    assert not rows.LINEAR.reached(0.9)


def test_two_trees_are_compared_in_turn(module, monkeypatch):
    against, calls = module("against"), []

    class Worker:
        def __init__(self, source, given, name):
            self.source = source

        def answer(self):
            return "ready"

        def work(self):
            calls.append(self.source)
            return {"old": 0.1, "new": 0.2}[self.source]

        def end(self):
            pass

    monkeypatch.setattr(against, "Worker", Worker)
    given = argparse.Namespace(old="old", new="new", processes=2, rounds=2)
    found = against.compare(given, "any")
    assert found["ratio"] == found["low"] == found["high"] == pytest.approx(2)
    assert found["n"] == 4
    assert calls == ["old", "new", "new", "old"] * 2


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_what_two_trees_are_compared_on_can_be_done(module, kind):
    device = module("_device").Device(torch.device("cpu"), tiny=True)
    for name, make in module("against").WORKLOADS[kind].items():
        if any(part in name for part in ("step,", "AUCLoss", "roc_auc")):
            make(device)()


def test_a_tree_is_counted(module, tmp_path):
    tree, root = module("tree"), tmp_path / "package"
    (root / "part").mkdir(parents=True)
    (root / "__init__.py").write_text(
        "from package.part.one import offered\n__all__ = ['offered']\n"
    )
    (root / "part" / "one.py").write_text(
        "from package.part import two\n"
        "def offered():\n    return helper() + two.shared() + two.shared()\n"
        "def helper():\n    return helper\n"
    )
    (root / "part" / "two.py").write_text("def shared():\n    return 1\n")
    assert tree.count(root) == {
        "": {"files": 1, "lines": 2},
        "part": {"files": 2, "imported once": 2, "lines": 7, "functions": 3, "used once": 1},
    }


@pytest.mark.parametrize("by_log", [False, True])
def test_the_exponent_is_that_of_the_curve(module, by_log):
    growth = module("bench_growth")
    sizes = np.array([16, *growth.SIZES])
    times = 1e-4 + 3e-9 * sizes**1.02 * (np.log(sizes) if by_log else 1)
    found = growth.exponent(dict(zip(sizes.tolist(), times.tolist(), strict=True)), by_log)
    assert found == pytest.approx(1.02, abs=1e-4)


def test_flaws_of_files_are_shown_as_a_tree_sees_them(module, capsys):
    real_files = module("real_files")
    real_files.run(["Labels 1 and 1.0", "A workbook called .csv"])
    labels, workbook = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert labels[1].startswith("2 labels: '0', '1'; note: ")
    assert "'workbook.csv' is a ZIP file" in workbook[1]
    assert real_files.cell("a|b" + "c" * 500).startswith("a\\|bcc")


def test_the_wait_for_pictures_is_timed(module):
    device = module("_device").Device(torch.device("cpu"), tiny=True)
    found = module("gpu_pictures").measure(device, 32, 16, 8, (1, 2))
    assert not found["errors"]
    whole, near_by, _ = found["seconds"].values()
    assert found["waited"] == pytest.approx((whole - near_by) / whole)


def test_the_limits_of_copies_are_measured(module, tmp_path, capsys):
    duplicates, random = module("duplicates"), np.random.default_rng(0)
    files = [tmp_path / f"{number}.png" for number in range(12)]
    for path in files:
        coarse = Image.fromarray(random.integers(0, 256, (5, 5, 3), dtype=np.uint8))
        coarse.resize((32, 32)).save(path)
    files[1].write_bytes(files[0].read_bytes())
    found = duplicates.measure(files, 32, 5)
    assert "12 pictures of 32 pixels, 11 of them different" in capsys.readouterr().out
    assert {len(x["bits"]) for name, x in found.items() if name in duplicates.COPIES} == {5}
    assert max(found["JPEG of quality 80"]["bits"]) <= 7
    lines = duplicates.table(found, "bits", [0, 64], "bits at most").splitlines()
    assert len(lines) == 2 + len(duplicates.COPIES)
    assert lines[1].endswith("  100.0%")


def test_pairs_of_near_hashes_are_all_found(module):
    duplicates = module("duplicates")
    hashes = np.random.default_rng(0).integers(1, 2**63, 40, dtype=np.uint64)
    hashes[7], hashes[30] = hashes[3] ^ np.uint64(0b101), hashes[20]
    assert sorted(duplicates.near_pairs(hashes)) == [(3, 7, 2), (20, 30, 0)]
