"""Pictures for the report: likely mistakes, what scores mean, and where the network looked."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from aucmax import checkpoint
from aucmax.images.classifier import ImageClassifier
from aucmax.images.listing import Listed
from aucmax.images.reading import BrokenPicture, read_picture
from aucmax.images.split import Rows
from aucmax.images.store import Store
from aucmax.judge.calibration import are_alike
from aucmax.judge.evaluation import Evaluation
from aucmax.judge.multilabel import LabelEvaluations

NAME = "pictures"
MOST_MISTAKES, QUANTILES, PER_QUANTILE, LOOKED = 9, 6, 9, 6
MOST_IN_ALL = 120
"""Likely mistakes of all labels."""
LARGEST, EXACT = 160, 64
"""Pixels of a side in the report, and up to how many they are written exactly."""
COPIES, NOISE = 8, 12.0
"""Noisy copies of a picture that its map is averaged over, and the noise's deviation."""


class Shown(NamedTuple):
    """A picture in the report.

    Attributes:
        name: of its file.
        label: the place of its label among the evaluation's.
        probability: of the second of two labels, or of its own label.
        picture: a PNG or JPEG of at most :data:`LARGEST` pixels a side.
        lit: the same in grey, red where its score depends on it; empty if nobody looked.
    """

    name: str
    label: int
    probability: float
    picture: bytes
    lit: bytes = b""


class Sheets(NamedTuple):
    """All pictures of a report.

    Attributes:
        mistakes: of each label, in their order, those that look least like it; of several labels
            that a picture may have at once, those without it and those with it, of each in turn.
        quantiles: some pictures of each part of the scores, the lowest first; none of several
            labels.
        looked: some with what their score depends on; none of labels that a picture may have at
            once.
        fitted_to: digests of the files that the model was trained on or chosen by, so that it is
            noticed if they judge it.
    """

    mistakes: list[list[Shown]]
    quantiles: list[list[Shown]]
    looked: list[Shown]
    fitted_to: frozenset[str]


def make(
    model: ImageClassifier,
    store: Store,
    listed: Listed,
    rows: Rows,
    evaluation: Evaluation | LabelEvaluations,
    fitted_to: frozenset[str],
) -> Sheets:
    """Choose the pictures of a report.

    Args:
        model: fitted.
        store: all pictures.
        listed: their files.
        rows: of the pictures that judged the model.
        evaluation: of the model by them.
        fitted_to: digests of the others' files.
    """
    if isinstance(evaluation, LabelEvaluations):
        mistakes = _mistakes_by_label(model, store, listed, rows, evaluation)
        return Sheets(mistakes, [], [], fitted_to)
    p, classes, labels = evaluation.probability, evaluation.classes, evaluation.labels
    binary, own = p.ndim == 1, _of_own_label(evaluation)

    def shown(k: int, is_lit: bool = False) -> Shown:
        value = float(p[k] if binary else own[k])
        return _shown(model, store, listed, int(rows[k]), int(classes[k]), value, is_lit)

    mistakes = [
        [shown(k) for k in sheet] for sheet in _least_like(evaluation, _per_label(len(labels)))
    ]
    quantiles = []
    if binary and not are_alike(p):
        for part in parts_by_score(p):
            places = np.linspace(0, len(part) - 1, min(PER_QUANTILE, len(part))).round().astype(int)
            quantiles.append([shown(k) for k in part[np.unique(places)].tolist()])
    predicted = (p >= (evaluation.threshold or 0.5)).astype(int) if binary else p.argmax(axis=1)
    surest = own.argsort(kind="stable")[::-1]
    right = surest[predicted[surest] == classes[surest]]
    nth = np.array([(classes[right[:place]] == classes[k]).sum() for place, k in enumerate(right)])
    first = right[nth.argsort(kind="stable")][:LOOKED].tolist()  # of each label in turn
    return Sheets(mistakes, quantiles, [shown(k, is_lit=True) for k in first], fitted_to)


def _mistakes_by_label(
    model: ImageClassifier, store: Store, listed: Listed, rows: Rows, judged: LabelEvaluations
) -> list[list[Shown]]:
    """Of each label those without it, then those with it; of many labels only of the hardest."""
    most = _per_label(2 * len(judged.by_label))
    hardest, known = judged.best_first[-MOST_IN_ALL // 2 :], ~np.isnan(listed.numbers[rows])
    mistakes = []
    for evaluation, knows in zip(judged.by_label, known.T, strict=True):
        columns = rows[knows], evaluation.classes, evaluation.probability
        values = [*zip(*(x.tolist() for x in columns), strict=True)]
        for sheet in _least_like(evaluation, most if evaluation in hardest else 0):
            mistakes += [[_shown(model, store, listed, *values[k]) for k in sheet]]
    return mistakes


def _of_own_label(evaluation: Evaluation) -> NDArray[np.float64]:
    """The probability of each row's own label."""
    p, classes = evaluation.probability, evaluation.classes
    return np.where(classes == 1, p, 1 - p) if p.ndim == 1 else p[np.arange(len(p)), classes]


def _least_like(evaluation: Evaluation, most: int) -> Iterator[list[int]]:
    """Of each label the rows that look least like it."""
    own = _of_own_label(evaluation)
    for label in range(len(evaluation.labels)):
        wrong = np.flatnonzero(evaluation.classes == label)
        yield wrong[own[wrong].argsort(kind="stable")][:most].tolist()


def _shown(
    model: ImageClassifier,
    store: Store,
    listed: Listed,
    row: int,
    label: int,
    probability: float,
    is_lit: bool = False,
) -> Shown:
    small, lit = _small(model, store, listed.files[row], row), b""
    if is_lit:
        lit = _encoded(_lit(small, _inside(store, row, _heat(model, store.pixels[row], label))))
    return Shown(listed.names[row], label, probability, _encoded(small), lit)


def parts_by_score(probability: NDArray[np.float64]) -> list[Rows]:
    """Rows by their probability, in parts of as many each, the lowest first."""
    order = probability.argsort(kind="stable")
    return np.array_split(order, min(QUANTILES, len(order)))


def _per_label(labels: int) -> int:
    """Likely mistakes of each label, fewer if there are many."""
    return max(1, min(MOST_MISTAKES, MOST_IN_ALL // labels))


def _small(model: ImageClassifier, store: Store, file: Path, row: int) -> NDArray[np.uint8]:
    """A picture as its file has it, but for its size; as the network has it if the file is gone."""
    side = min(LARGEST, int(max(store.widths[row], store.heights[row])))
    try:
        return _inside(store, row, read_picture(file, side, depth=model.depth).pixels)
    except BrokenPicture:
        return _inside(store, row, np.asarray(store.pixels[row]))


def _inside(store: Store, row: int, square: NDArray[Any]) -> NDArray[Any]:
    """What of a square is the picture, without the black around it."""
    width, height, side = int(store.widths[row]), int(store.heights[row]), len(square)
    wide, high = (max(1, round(x * side / max(width, height))) for x in (width, height))
    left, top = (side - wide) // 2, (side - high) // 2
    return square[top : top + high, left : left + wide]


def _heat(model: ImageClassifier, pixels: NDArray[np.uint8], label: int) -> NDArray[np.float32]:
    r"""What a picture's score depends on: :math:`|x \cdot \partial s / \partial x|`, averaged.

    The average is over copies with a little noise, since a network's gradient changes from pixel
    to pixel, and over pixels nearby.
    """
    device = next(model.network_.parameters()).device
    generator = torch.Generator().manual_seed(0)
    copies = torch.from_numpy(np.array(pixels)).permute(2, 0, 1).float().repeat(COPIES, 1, 1, 1)
    x = copies + NOISE * torch.randn(copies.shape, generator=generator)
    x = x.to(device).requires_grad_()
    scores = model.network_(x)
    scores = scores.reshape(len(x), -1)
    of_label = scores[:, label if scores.shape[1] > 1 else 0].sum()
    (gradient,) = torch.autograd.grad(of_label, x)
    heat = (gradient * x).detach().abs().sum(1, keepdim=True).mean(0, keepdim=True)
    side = 2 * (len(pixels) // 32) + 1
    heat = torch.nn.functional.avg_pool2d(heat, side, 1, side // 2)[0, 0].cpu()
    most = max(float(heat.quantile(0.99)), 1e-12)
    return np.asarray((heat / most).clamp(0, 1).numpy())


def _lit(pixels: NDArray[np.uint8], heat: NDArray[np.float32]) -> NDArray[np.uint8]:
    """A picture in grey, red where its score depends on it."""
    high, wide = pixels.shape[:2]
    fitting = Image.fromarray(heat).resize((wide, high), Image.Resampling.BILINEAR)
    share = 0.85 * np.asarray(fitting)[:, :, None]
    grey = pixels.mean(axis=2, keepdims=True).repeat(3, axis=2) * 0.6 + 60
    red = np.array([230.0, 40.0, 30.0])
    return np.asarray((1 - share) * grey + share * red).clip(0, 255).astype(np.uint8)


def _encoded(pixels: NDArray[np.uint8]) -> bytes:
    """Small ones exactly, others as JPEG."""
    buffer = io.BytesIO()
    exact = max(pixels.shape) <= EXACT
    kind, options = ("png", {"optimize": True}) if exact else ("jpeg", {"quality": 85})
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()


# ---- The files -----------------------------------------------------------------------------------


def write(folder: Path, sheets: Sheets) -> None:
    """Write the pictures into a model's folder."""

    def tree(x: Shown) -> dict[str, Any]:
        pictures = {"picture": x.picture, "lit": x.lit}
        return {**x._asdict(), **{k: torch.tensor([*v]).byte() for k, v in pictures.items()}}

    content = {
        "mistakes": [[tree(x) for x in sheet] for sheet in sheets.mistakes],
        "quantiles": [[tree(x) for x in sheet] for sheet in sheets.quantiles],
        "looked": [tree(x) for x in sheets.looked],
        "fitted_to": torch.tensor([[*bytes.fromhex(x)] for x in sorted(sheets.fitted_to)]).byte(),
    }
    checkpoint.save(folder, NAME, content)


def read(folder: Path) -> Sheets:
    """The pictures that :func:`write` has put into a model's folder."""
    content = checkpoint.load(folder, NAME)

    def shown(x: dict[str, Any]) -> Shown:
        return Shown(**{**x, **{k: x[k].numpy().tobytes() for k in ("picture", "lit")}})

    mistakes, quantiles = (
        [[shown(x) for x in sheet] for sheet in content[name]] for name in ("mistakes", "quantiles")
    )
    looked = [shown(x) for x in content["looked"]]
    return Sheets(mistakes, quantiles, looked, _digests(content))


def read_fitted_to(folder: Path) -> frozenset[str]:
    """The digests in a model's folder."""
    return _digests(checkpoint.load(folder, NAME))


def _digests(content: dict[str, Any]) -> frozenset[str]:
    return frozenset(bytes(x).hex() for x in content["fitted_to"].tolist())
