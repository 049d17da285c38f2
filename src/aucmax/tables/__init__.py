"""A user's table from file to report: reading, columns, encoder, classifier, search, streaming."""

from aucmax.tables.classifier import AUCClassifier
from aucmax.tables.columns import Columns, columns_of
from aucmax.tables.encoder import Encoded, TableEncoder
from aucmax.tables.evaluate import evaluate_file, write_report
from aucmax.tables.export import export_onnx
from aucmax.tables.files import read_table
from aucmax.tables.fit import Fitted, fit_file
from aucmax.tables.predict import predict_file
from aucmax.tables.stream import fit_stream
from aucmax.tables.tune import Tuned, tune_file

__all__ = [
    "AUCClassifier",
    "Columns",
    "Encoded",
    "Fitted",
    "TableEncoder",
    "Tuned",
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
