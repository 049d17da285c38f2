"""Pictures trained on by every rank together, by the command and by the classifier.

    torchrun --nproc-per-node 2 tests/helpers/ranks_images.py PICTURES FOLDER

Started by test_fit_images.py.
"""

import os
import sys
from pathlib import Path

import torch

from aucmax import distributed
from aucmax.cli import main
from aucmax.images import ImageClassifier, classifier

if __name__ == "__main__":
    for _ in range(5):  # a group does not meet the one before
        with distributed.process_group(torch.device("cpu")):
            assert distributed.total(1) == 2
    classifier.EPOCHS, classifier.LEAST_STEPS = {"fast": 1}, {"fast": 8}
    pictures, folder = map(Path, sys.argv[1:])
    options = [
        "--size",
        "8",
        "--quality",
        "fast",
        "--device",
        "cpu",
        "--out",
        str(folder / "model"),
    ]
    main(["fit-images", str(pictures), *options, "--store", str(folder / "store"), "--quiet"])
    paths = sorted(pictures.rglob("*.png"))
    model = ImageClassifier(size=8, quality="fast", time_limit=60, device="cpu", batch_size=16)
    model.fit(paths, [path.parent.name for path in paths])
    model.save(folder / os.environ["RANK"])
