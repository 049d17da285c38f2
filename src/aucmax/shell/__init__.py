"""What the commands for tables do: files in, a model folder, predictions or a report out."""

from aucmax.shell.evaluate import evaluate_file, write_report
from aucmax.shell.fit import Fitted, fit_file
from aucmax.shell.predict import predict_file
from aucmax.shell.stream import fit_stream

__all__ = ["Fitted", "evaluate_file", "fit_file", "fit_stream", "predict_file", "write_report"]
