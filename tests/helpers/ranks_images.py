"""Train on pictures with two ranks together, by the command and by the classifier.

    python tests/helpers/ranks_images.py PICTURES FOLDER

Started by test_fit_images.py, without torchrun: it forks.
"""

import os
import sys
from pathlib import Path

import pytest
import torch
from image_data import OPTIONS, SMALL, paths_and_labels, run, shorten
from two_ranks import fork_into_two_ranks

from aucmax import distributed
from aucmax.images import ImageClassifier

if __name__ == "__main__":
    fork_into_two_ranks()
    for _ in range(2):  # a group does not meet the one before
        with distributed.process_group(torch.device("cpu")):
            assert distributed.total(1) == 2
    pictures, folder = map(Path, sys.argv[1:])
    places = ["--out", folder / "model", "--store", folder / "store"]
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch, steps=8)
        run("fit-images", pictures, *SMALL, *places, "--quiet")
        model = ImageClassifier(**OPTIONS, batch_size=16, random_state=0)
        model.fit(*paths_and_labels(pictures))
    model.save(folder / os.environ["RANK"])
