"""A walk through what needs torch, NumPy, safetensors and rich alone, and what says it needs more.

It is run where nothing else is installed, or as if nothing else were.
"""

import contextlib
import io
import pydoc
import tempfile
from pathlib import Path

import torch

import aucmax
from aucmax.cli import main
from aucmax.progress import ProgressBar
from aucmax.version import __version__

EXTRA = {"AUCClassifier": "tables", "ImageClassifier": "images"}
COMMANDS = {
    "fit": "tables", "demo": "tables", "tune": "tables,tune", "export": "tables,onnx",
    "fit-images": "images", "evaluate-images": "images",
}  # fmt: skip


def what_works() -> None:
    """A loop of one's own, ``fit``, its files, and metrics."""
    generator = torch.Generator().manual_seed(0)
    y = (torch.rand(400, generator=generator) < 0.2).float()
    x = torch.randn(400, 5, generator=generator) + y[:, None]
    model = aucmax.models.mlp(5, [8], generator=generator)
    loss = aucmax.AUCLoss()
    optimizer = aucmax.PPDSG(aucmax.minmax_groups(model, loss), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    for name in ("PairwiseAUCLoss", "PartialAUCLoss", "AveragePrecisionLoss"):
        getattr(aucmax, name)()(model(x), y).backward()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        result = aucmax.fit(model, (x, y), (x, y), steps=200, out=out, progress=False)
        assert aucmax.load_weights(model, out)["step"] == result.step
        assert aucmax.history.read(out / "history.jsonl")
    assert ProgressBar(True, "count", terminal=False).live
    assert aucmax.evaluate(model, (x, y)) > 0.8
    assert aucmax.metrics.interval(model(x), y).low > 0.7


def names_that_need_more() -> None:
    """Each public name is there or says in one line what to install."""
    said = {}
    for name in {*aucmax.__all__, *EXTRA}:
        try:
            getattr(aucmax, name)
        except ImportError as error:
            said[name] = str(error)
    assert said.keys() == EXTRA.keys(), said
    assert "PPDSG" in pydoc.render_doc(aucmax)
    exec("from aucmax import *", {})
    for name, line in said.items():
        assert line.startswith(f"{name} needs "), line
        assert line.endswith(f": pip install 'aucmax[{EXTRA[name]}]'"), line


def commands_that_need_more() -> None:
    """Each says so in one line and ends with exit code 2."""
    for name, extra in COMMANDS.items():
        said, code = io.StringIO(), None
        try:
            with contextlib.redirect_stderr(said):
                main([name])
        except SystemExit as end:
            code = end.code
        assert code == 2, code
        (line,) = said.getvalue().splitlines()
        assert line.startswith(f"aucmax: error: aucmax {name} needs "), line
        assert line.endswith(f": pip install 'aucmax[{extra}]'"), line
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        main(["--version"])
    assert said.getvalue() == f"aucmax {__version__}\n"


if __name__ == "__main__":
    what_works()
    names_that_need_more()
    commands_that_need_more()
    print("light install: works")
