"""``aucmax fit`` in a terminal of its own, stopped at some moment, and what it makes."""

import os
import re
import signal
import time

import numpy as np
import pyarrow as pa
import pyarrow.csv
from process import Command

from aucmax.tables import predict_file

COMMAND = ["fit", "rows.csv", "--target", "y", "--quality", "fast"]
SIGNALS = {"Ctrl-C": signal.SIGINT, "SIGTERM": signal.SIGTERM, "SIGKILL": signal.SIGKILL}
STARTING = 0.3
"""Seconds in which Python itself may not have begun to listen."""


def write_rows(folder, rows=160):
    """The table of the command, in a folder of its own."""
    folder.mkdir()
    random = np.random.default_rng(0)
    y = random.random(rows) < 0.3
    columns = {"a": random.normal(y), "b": random.normal(size=rows), "y": y.astype(int)}
    pa.csv.write_csv(pa.table(columns), folder / "rows.csv")


class FitCommand(Command):
    """The command under way in a folder, in a terminal of 100 columns."""

    def __init__(self, folder):
        super().__init__(COMMAND, columns=100, cwd=folder)
        self.folder, self.began = folder, time.monotonic()

    def works(self):
        """What training has left so far."""
        return list(self.folder.glob("rows-model.unfinished/*/network/history.jsonl"))

    def records(self):
        return sum(len(path.read_text().splitlines()) for path in self.works())

    def phase(self):
        """What is under way."""
        if self.is_over():
            return "over"
        if any(path.with_name("model.json").exists() for path in self.works()):
            return "judging"
        if self.works():
            return "training"
        if (self.folder / "rows-model").exists():
            return "ending"
        return "starting" if time.monotonic() - self.began < STARTING else "loading"

    def stop(self, how):
        if how == "Ctrl-C":
            self.type("\x03")
        elif not self.is_over():
            os.kill(self.process.pid, SIGNALS[how])

    def assert_ended_by(self, how, phase):
        """One line and the signal's code, or it was over before; never a traceback."""
        code, text = self.wait(), re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.text())
        number = SIGNALS[how]
        if how == "SIGKILL":
            assert code in (-number, 0), f"code {code}, {text}"
            return
        unheard = phase == "starting" and code == -number
        assert code in (0, 128 + number) or unheard, f"{how} while {phase}: code {code}, {text}"
        if phase == "starting":
            return
        assert "Traceback" not in text, text
        said = [line for line in text.splitlines() if line.startswith("aucmax: stopped by ")]
        assert len(said) == (code == 128 + number), text
        if phase in ("training", "judging") and not (self.folder / "rows-model").exists():
            assert said[0].endswith("; the same command goes on"), text


def outcome_of(folder):
    """The weights as they are on disk, and the predictions."""
    model = folder / "rows-model"
    text, _ = predict_file(model, folder / "rows.csv")
    return (model / "model.safetensors").read_bytes(), text
