"""Write the folders beside this file; run with the aucmax that the README names, not with today's.

    PYTHONPATH=that/src python tests/files/before/write.py [pictures]

The tests take :func:`run_arguments` and :func:`draw` from here to make the same calls again.
"""

import csv
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).parent
CLASSES = {"two_classes": ("stays", "leaves"), "three_classes": ("low", "middle", "high")}
OPTIONS = {"width": 8, "members": 2, "blocks": 1, "max_steps": 60, "batch_size": 32, "n_jobs": 1}


def write_table(path, labels, rows=160):
    """Numbers, a category with a rare and a missing value, a date, and missing numbers."""
    rng = np.random.default_rng(0)
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["age", "calls", "plan", "joined", "label"])
        for _ in range(rows):
            kind = int(rng.integers(len(labels)))
            age = "" if rng.random() < 0.1 else f"{rng.normal(40 + 6 * kind, 10):.2f}"
            plan = rng.choice(["basic", "gold", "silver", ""], p=[0.5, 0.3, 0.15, 0.05])
            joined = np.datetime64("2022-01-01") + int(rng.integers(900))
            lines.writerow([age, rng.poisson(1 + 2 * kind), plan, joined, labels[kind]])


def write_model(name, labels):
    """What ``aucmax fit`` writes, the rows it saw, and the probabilities of every row."""
    from aucmax.data.files import read_table
    from aucmax.data.tables import columns_of
    from aucmax.shell import fit_file

    from aucmax import AUCClassifier

    folder, table = HERE / name, HERE / f"{name}.csv"
    write_table(table, labels)
    fit_file(table, "label", out=folder, progress=False, compare=True, **OPTIONS)
    model = AUCClassifier.load(folder)
    rows = read_table(table, text=model.encoder_.text_names)
    probability = model.predict_proba(columns_of(rows))
    np.save(HERE / f"{name}.npy", probability)


def run_arguments(out):
    """Those of a call of ``aucmax.fit`` whose run lasts some seconds."""
    rng = np.random.default_rng(1)
    y = (rng.random(300) < 0.2).astype(np.float32)
    x = (rng.normal(size=(300, 4)) + y[:, None]).astype(np.float32)
    torch.manual_seed(0)
    return {
        "model": torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1)),
        "train": (x[:200], y[:200]),
        "valid": (x[200:], y[200:]),
        "steps": 20_000,
        "batch_size": 16,
        "eval_every": 1_000,
        "save_every": 1_000,
        "probe": 0,
        "out": out,
        "device": "cpu",
        "progress": False,
    }


def train(out, **options):
    import aucmax

    torch.set_num_threads(1)
    arguments = run_arguments(out) | options
    aucmax.fit(**arguments)
    return arguments["model"].eval(), arguments["valid"][0]


def write_runs():
    """One killed after its second checkpoint, and one that is over, with its scores."""
    out = HERE / "killed_run"
    process = subprocess.Popen([sys.executable, __file__, str(out)])
    while len(list((out / "checkpoints").glob("step-*.json"))) < 2:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    model, x = train(HERE / "finished_run", steps=200, eval_every=100, save_every=100)
    np.save(HERE / "finished_run.npy", model(torch.from_numpy(x)).detach().numpy())


def draw(folder):
    """Paths of pictures, in a folder for each of two labels."""
    from PIL import Image

    rng, paths = np.random.default_rng(0), []
    for label, count, level in (("healthy", 60, 80), ("sick", 20, 110)):
        (folder / label).mkdir(parents=True)
        for number in range(count):
            pixels = level + rng.integers(0, 100, size=(8, 8, 3))
            paths.append(folder / label / f"{number}.png")
            Image.fromarray(pixels.astype(np.uint8)).save(paths[-1])
    return paths


def small_network(outputs):
    from aucmax.models import Standardize

    return torch.nn.Sequential(
        Standardize(128, 64), torch.nn.Flatten(), torch.nn.Linear(192, outputs)
    )


def write_pictures():
    """What ``fit_images`` writes, and the probabilities of every picture."""
    from aucmax.images import fit_images

    with tempfile.TemporaryDirectory() as place:
        paths = draw(Path(place) / "scans")
        options = {"model": small_network, "size": 8, "quality": "fast", "device": "cpu"}
        fitted = fit_images(paths[0].parents[1], out=HERE / "pictures", progress=False, **options)
        np.save(HERE / "pictures.npy", fitted.model.predict_proba(paths))
    (HERE / "pictures" / "report.html").unlink()


def main():
    for path in HERE.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    for name, labels in CLASSES.items():
        write_model(name, labels)
    write_runs()


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    if sys.argv[1:] == ["pictures"]:
        write_pictures()
    else:
        train(sys.argv[1]) if len(sys.argv) > 1 else main()
