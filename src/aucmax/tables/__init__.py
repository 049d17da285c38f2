"""A user's table from file to report.

The way of a table, and the modules that it passes:

1. a file is read (``files``), becomes columns (``columns``) and a target (``labeled``);
2. some rows are kept apart to judge by (``split``), and what is odd is said (``hints``);
3. columns become numbers by an encoder, fitted once (``encoder``);
4. a network (``network``) is trained on them by a classifier (``classifier``), which checks its
   input as scikit-learn does (``inputs``), learns from streams too (``online``), scores rows and
   calibrates the scores (``scoring``), and is kept in files (``store``);
5. the rows kept apart are scored once and judged (``evaluate``), and all of it is put into a
   folder (``model_folder``).

``fit`` walks it; ``search`` does so with the best options of many, ``streaming`` with files larger
than memory. ``predict``, ``export`` and ``demo`` are what other commands do.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aucmax.tables.classifier import AUCClassifier
    from aucmax.tables.columns import Columns, columns_of
    from aucmax.tables.encoder import Encoded, TableEncoder
    from aucmax.tables.evaluate import evaluate_file, write_report
    from aucmax.tables.export import export_onnx
    from aucmax.tables.files import read_table
    from aucmax.tables.fit import fit_file
    from aucmax.tables.model_folder import Fitted
    from aucmax.tables.predict import predict_file
    from aucmax.tables.search import Tuned, Tuning, tune_file
    from aucmax.tables.streaming import fit_stream

__all__ = [
    "AUCClassifier",
    "Columns",
    "Encoded",
    "Fitted",
    "TableEncoder",
    "Tuned",
    "Tuning",
    "columns_of",
    "evaluate_file",
    "export_onnx",
    "fit_file",
    "fit_stream",
    "predict_file",
    "read_table",
    "tune_file",
    "write_report",
]

_NAMES = {
    "classifier": ["AUCClassifier"],
    "columns": ["Columns", "columns_of"],
    "encoder": ["Encoded", "TableEncoder"],
    "evaluate": ["evaluate_file", "write_report"],
    "export": ["export_onnx"],
    "files": ["read_table"],
    "fit": ["fit_file"],
    "model_folder": ["Fitted"],
    "predict": ["predict_file"],
    "search": ["Tuned", "Tuning", "tune_file"],
    "streaming": ["fit_stream"],
}
"""Of each module; loaded when first used, so that the encoder needs no library but NumPy."""


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"aucmax.tables.{module}"), name)
    raise AttributeError(f"module 'aucmax.tables' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
