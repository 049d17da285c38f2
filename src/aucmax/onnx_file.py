"""A network as one ONNX file, for other runtimes than torch."""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aucmax import checks
from aucmax.disk import atomic_write
from aucmax.extras import needed
from aucmax.version import __version__


def check_onnx(path: str | Path) -> Path:
    """The path, if it can be one of an ONNX file and the packages that write one are there."""
    path = Path(path)
    checks.choice("onnx", path.suffix, (".onnx",))
    if torch.__version__ < "2.7":
        raise ValueError(f"export must have a torch newer than 2.6, found {torch.__version__}")
    with needed("export", "onnx"):
        for name in ("onnx", "onnxscript"):
            importlib.import_module(name)
    return path


def write_onnx(
    path: Path,
    network: nn.Module,
    example: Mapping[str, Tensor],
    rows: str,
    output: str,
    metadata: Mapping[str, str],
) -> Path:
    """Write a network, and beside it what a reader should know.

    Args:
        path: see :func:`check_onnx`.
        network: takes the example's tensors by their names.
        example: some rows; the file takes any number.
        rows: what the first dimension is called.
        output: what the network's tensor is called.
        metadata: by name; the version of aucmax comes with it.
    """
    shapes = {name: {0: torch.export.Dim(rows)} for name in example}
    with _quiet(), torch.no_grad():
        traced = torch.export.export(network, (), dict(example), dynamic_shapes=shapes)
        program: Any = torch.onnx.export(
            traced, dynamo=True, verbose=False, dynamic_shapes=shapes,
            input_names=list(example), output_names=[output],
        )  # fmt: skip
    program.model.metadata_props.update({"aucmax": __version__, **metadata})
    with atomic_write(path) as temporary:
        program.save(temporary)
    return path


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says of itself and of packages that are not needed."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
