"""Run figure 1 on files of the official size and layout, whose images are made up.

    python tests/soak/official_files.py [cifar100 stl10]

CIFAR-100 and STL-10 need files that few have: here their images are noise, lighter for the second
half of the classes, and only the checksums are left out. Two lines take a step each, and the
positives and negatives are counted. Takes minutes. Not a test that pytest collects.
"""

import argparse
import dataclasses
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from dataset_files import CIFAR100_NAMES, STL10_NAMES

from aucmax import paper
from aucmax.paper import datasets

COUNTS = {
    "cifar100": {"train": [22_500, 2_250], "valid": [2_500, 2_500], "test": [5_000, 5_000]},
    "stl10": {"train": [2_000, 200], "valid": [500, 500], "test": [4_000, 4_000]},
}
"""Positives and negatives at 91/9 under the paper's protocol."""


def lighter(y, classes, side, seed):
    """Planes (N, 3, side, side) of noise, lighter by a quarter for the second half."""
    noise = np.random.default_rng(seed).integers(0, 192, (len(y), 3, side, side), dtype=np.uint8)
    return noise + 64 * (y >= classes // 2).astype(np.uint8)[:, None, None, None]


def labels(records, classes):
    return np.resize(np.arange(classes, dtype=np.uint8), records)


def write_cifar100(root, layout):
    for seed, member in enumerate((*layout.train, *layout.test)):
        y = labels(member.records, 100)
        rows = np.zeros((member.records, layout.label_bytes + 3072), np.uint8)
        rows[:, layout.label_bytes - 1] = y
        rows[:, layout.label_bytes :] = lighter(y, 100, 32, seed).reshape(len(y), -1)
        (root / member.name).write_bytes(rows.tobytes())
    (root / layout.names.name).write_text("\n".join(CIFAR100_NAMES))


def write_stl10(root, layout):
    for seed, (images, numbers) in enumerate((layout.train, layout.test)):
        y = labels(numbers.records, 10)
        (root / images.name).write_bytes(lighter(y, 10, 96, seed).tobytes())
        (root / numbers.name).write_bytes((y + 1).tobytes())
    (root / layout.names.name).write_text("\n".join(STL10_NAMES))


def without_sums(layout):
    def plain(member):
        return dataclasses.replace(member, md5=None)

    train, test = (tuple(map(plain, part)) for part in (layout.train, layout.test))
    return dataclasses.replace(layout, train=train, test=test, names=plain(layout.names))


def check(name, folder):
    """Write the files, run, look."""
    official = datasets._OFFICIAL[name]
    layout = without_sums(official.layouts[0])
    datasets._OFFICIAL[name] = dataclasses.replace(official, layouts=(layout,))
    root = folder / layout.folder
    root.mkdir()
    {"cifar100": write_cifar100, "stl10": write_stl10}[name](root, layout)
    out = folder / f"figure1-{name}"
    paper.reproduce(
        "figure1", dataset=name, data=folder, out=out, protocols=["paper"], lines=["ppd-sg", "sgd"],
        removed=[0.9], seeds=1, steps=1, device="cpu",
    )  # fmt: skip
    found = paper.read_results(out / "runs")
    assert [run.line for run in found] == ["ppd-sg", "sgd"]
    for run in found:
        assert run.counts == COUNTS[name], run.counts
        assert run.result is not None
        print(f"{name} {run.line}: test AUC {run.result.final}, {run.seconds:.0f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(COUNTS))
    for name in parser.parse_args().names:
        with tempfile.TemporaryDirectory() as folder:
            check(name, Path(folder))
