"""Small pictures that brightness tells apart, and networks and trainings short for them."""

import numpy as np
from PIL import Image
from torch import nn

from aucmax.cli import main
from aucmax.images import classifier
from aucmax.models import Standardize

SMALL = ["--size", "8", "--quality", "fast", "--device", "cpu"]
OPTIONS = {"size": 8, "quality": "fast", "device": "cpu"}


def shorten(patch, steps=40):
    """Let quality "fast" take this many steps, whatever the number of pictures."""
    patch.setattr(classifier, "EPOCHS", {**classifier.EPOCHS, "fast": 1})
    patch.setattr(classifier, "LEAST_STEPS", {**classifier.LEAST_STEPS, "fast": steps})


def write_picture(path, level, random):
    """Noise around a level of grey, brighter to the right."""
    slope = np.linspace(0, 60, 8)[None, :, None]
    pixels = level + slope + random.integers(0, 60, size=(8, 8, 3))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)


def write_classes(folder, seed=0, **classes):
    """Write a folder for each class, given as its number of pictures and their level of grey."""
    random = np.random.default_rng(seed)
    for label, (count, level) in classes.items():
        for number in range(count):
            write_picture(folder / label / f"{number}.png", level, random)
    return folder


def write_scans(folder, healthy=60, sick=20, seed=0):
    """Write two classes, of which the sick are a little brighter."""
    return write_classes(folder, seed, healthy=(healthy, 80), sick=(sick, 110))


def paths_and_labels(folder):
    paths = sorted(folder.rglob("*.png"))
    return paths, [path.parent.name for path in paths]


def linear_network(outputs):
    """A network that trains in no time."""
    return nn.Sequential(Standardize(128, 64), nn.Flatten(), nn.Linear(192, outputs))


def run(*arguments):
    main([str(x) for x in arguments])
