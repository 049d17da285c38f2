"""The study's networks for pictures, by turns on a GPU."""

import json

import pytest
import torch
from picture_files import shorten, write_pictures

from aucmax.study import run_study

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.filterwarnings("ignore:valid has one row of class 1")
def test_runs_take_turns_and_go_on(tmp_path, monkeypatch) -> None:
    data = write_pictures(tmp_path)
    shorten(monkeypatch)
    for limit in (0, None):
        folder = run_study(
            "pictures-noise", datasets=["catdog"], data=data, out=tmp_path / "out", workers=3,
            time_limit=limit, progress=False,
        )  # fmt: skip
    lines = (folder / "catdog.jsonl").read_text(encoding="utf-8").splitlines()
    records = {x["key"]: x for x in map(json.loads, lines)}
    assert len(records) == len(lines) == 2 * (2 + 6) - 2
    assert all(x["hardware"] == torch.cuda.get_device_name() for x in records.values())
    assert all(0 <= x["test"]["roc_auc"] <= 1 for x in records.values())
