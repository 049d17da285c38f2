"""A user's table from file to report.

The way of a table, and the modules that it passes:

1. a file is read (``files``), becomes columns (``columns``) and a target (``labeled``);
2. some rows are kept apart to judge by (``split``), and what is odd is said (``hints``);
3. columns become numbers by an encoder, fitted once (``encoder``);
4. a network (``network``) is trained on them by a classifier (``classifier``), which checks its
   input as scikit-learn does (``inputs``), learns from streams too (``online``), scores rows and
   calibrates the scores (``scoring``), and is kept in files (``store``);
5. the rows kept apart are scored once and judged (``evaluate``), and all of it is put into a
   folder (``report.model_folder``).

``fit`` walks it; ``search`` does so with the best options of many, ``streaming`` with files larger
than memory. ``predict``, with ``explain``, and ``export`` are what other commands do.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aucmax.extras import needed

if TYPE_CHECKING:
    from aucmax.report.model_folder import Fitted as Fitted
    from aucmax.tables.classifier import AUCClassifier as AUCClassifier
    from aucmax.tables.columns import Columns as Columns
    from aucmax.tables.columns import columns_of as columns_of
    from aucmax.tables.encoder import Encoded as Encoded
    from aucmax.tables.encoder import TableEncoder as TableEncoder
    from aucmax.tables.evaluate import evaluate_file as evaluate_file
    from aucmax.tables.evaluate import write_report as write_report
    from aucmax.tables.explain import Explanation as Explanation
    from aucmax.tables.explain import explain_rows as explain_rows
    from aucmax.tables.export import export_onnx as export_onnx
    from aucmax.tables.files import read_table as read_table
    from aucmax.tables.fit import Preview as Preview
    from aucmax.tables.fit import fit_file as fit_file
    from aucmax.tables.fit import preview_file as preview_file
    from aucmax.tables.predict import predict_file as predict_file
    from aucmax.tables.read_options import ReadOptions as ReadOptions
    from aucmax.tables.search import Tuned as Tuned
    from aucmax.tables.search import Tuning as Tuning
    from aucmax.tables.search import tune_file as tune_file
    from aucmax.tables.streaming import fit_stream as fit_stream
    from aucmax.tables.streaming import preview_stream as preview_stream

_NAMES = {
    "classifier": ["AUCClassifier"],
    "columns": ["Columns", "columns_of"],
    "encoder": ["Encoded", "TableEncoder"],
    "evaluate": ["evaluate_file", "write_report"],
    "explain": ["Explanation", "explain_rows"],
    "export": ["export_onnx"],
    "files": ["read_table"],
    "fit": ["Fitted", "Preview", "fit_file", "preview_file"],
    "predict": ["predict_file"],
    "read_options": ["ReadOptions"],
    "search": ["Tuned", "Tuning", "tune_file"],
    "streaming": ["fit_stream", "preview_stream"],
}
"""Of each module; loaded when first used, so that the encoder needs no library but NumPy."""

__all__ = sorted(name for names in _NAMES.values() for name in names)


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            with needed(name, "tables"):
                return getattr(import_module(f"aucmax.tables.{module}"), name)
    raise AttributeError(f"module 'aucmax.tables' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
