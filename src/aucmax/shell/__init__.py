"""What the commands for tables do: files in, a model folder, predictions or a report out."""

from aucmax.shell.evaluate import evaluate_file, write_report
from aucmax.shell.export import export_onnx
from aucmax.shell.fit import Fitted, fit_file
from aucmax.shell.predict import predict_file
from aucmax.shell.stream import fit_stream
from aucmax.shell.tune import Tuned, tune_file

__all__ = [
    "Fitted",
    "Tuned",
    "evaluate_file",
    "export_onnx",
    "fit_file",
    "fit_stream",
    "predict_file",
    "tune_file",
    "write_report",
]
