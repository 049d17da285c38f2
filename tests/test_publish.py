"""The site's pages of results are what the JSON files of the runs give."""

import importlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_results_on_the_site_are_those_of_the_runs():
    command = [sys.executable, str(ROOT / "experiments" / "publish.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_page_of_tables_is_what_the_benchmark_found(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    tables = importlib.import_module("tables")
    results, times = (tables.records(path) for path in (tables.RESULTS, tables.TIMES))
    assert tables.PAGE.read_text(encoding="utf-8") == tables.page(results, times, tables.CHOSEN_ON)
    assert {r["table"] for r in results} == {*tables.CHOSEN_ON, *tables.CONFIRMED_ON}
