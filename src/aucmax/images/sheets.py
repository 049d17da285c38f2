"""Pictures for the report: likely mistakes, what scores mean, and where the network looked."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from aucmax import checkpoint
from aucmax.images.classifier import ImageClassifier
from aucmax.images.split import Rows
from aucmax.judge.evaluation import Evaluation
from aucmax.report.page import write_model_page
from aucmax.report.sections import Content, Section, section
from aucmax.report.words import percent, quoted, short

NAME = "pictures"
TEMPLATES = Path(__file__).parent / "templates"
MOST_MISTAKES, QUANTILES, PER_QUANTILE, LOOKED = 9, 6, 9, 6
MOST_IN_ALL = 120
"""Likely mistakes of all labels."""
LARGEST = 128
"""Pixels of a side in the report."""
COPIES, NOISE = 8, 12.0
"""Noisy copies of a picture that its map is averaged over, and the noise's deviation."""


class Shown(NamedTuple):
    """A picture in the report.

    Attributes:
        name: of its file.
        label: the place of its label among the evaluation's.
        probability: of the second of two labels, or of its own label.
        pixels: (height, width, 3), at most :data:`LARGEST` a side.
        heat: (height, width) from 0 to 1, what the score depends on; None if nobody looked.
    """

    name: str
    label: int
    probability: float
    pixels: NDArray[np.uint8]
    heat: NDArray[np.float32] | None = None


class Sheets(NamedTuple):
    """All pictures of a report.

    Attributes:
        mistakes: of each label, in their order, those that look least like it.
        quantiles: some pictures of each part of the scores, the lowest first; none of several
            labels.
        looked: some with what their score depends on.
        fitted_to: digests of the files that the model was trained on or chosen by, so that it is
            noticed if they judge it.
    """

    mistakes: list[list[Shown]]
    quantiles: list[list[Shown]]
    looked: list[Shown]
    fitted_to: frozenset[str]


def make(
    model: ImageClassifier,
    pixels: NDArray[np.uint8],
    rows: Rows,
    names: Sequence[str],
    evaluation: Evaluation,
    fitted_to: frozenset[str],
) -> Sheets:
    """Choose the pictures of a report.

    Args:
        model: fitted.
        pixels: of all pictures.
        rows: of the pictures that judged the model.
        names: of their files.
        evaluation: of the model by them.
        fitted_to: digests of the others' files.
    """
    p, classes, labels = evaluation.probability, evaluation.classes, evaluation.labels
    binary = p.ndim == 1
    own = np.where(classes == 1, p, 1 - p) if binary else p[np.arange(len(p)), classes]

    def shown(k: int, heat: Any = None) -> Shown:
        value = float(p[k] if binary else own[k])
        return Shown(names[k], int(classes[k]), value, _smaller(pixels[rows[k]]), heat)

    mistakes = []
    for label in range(len(labels)):
        wrong = np.flatnonzero(classes == label)
        wrong = wrong[own[wrong].argsort(kind="stable")][: _per_label(len(labels))]
        mistakes.append([shown(k) for k in wrong.tolist()])
    quantiles = []
    if binary:
        order = p.argsort(kind="stable")
        for part in np.array_split(order, min(QUANTILES, len(order))):
            places = np.linspace(0, len(part) - 1, min(PER_QUANTILE, len(part))).round().astype(int)
            quantiles.append([shown(k) for k in part[np.unique(places)].tolist()])
    predicted = (p >= (evaluation.threshold or 0.5)).astype(int) if binary else p.argmax(axis=1)
    surest = own.argsort(kind="stable")[::-1]
    right = surest[predicted[surest] == classes[surest]]
    nth = np.array([(classes[right[:place]] == classes[k]).sum() for place, k in enumerate(right)])
    first = right[nth.argsort(kind="stable")][:LOOKED].tolist()  # of each label in turn
    looked = [shown(k, _heat(model, pixels[rows[k]], int(classes[k]))) for k in first]
    return Sheets(mistakes, quantiles, looked, fitted_to)


def _per_label(labels: int) -> int:
    """Likely mistakes of each label, fewer if there are many."""
    return max(1, min(MOST_MISTAKES, MOST_IN_ALL // labels))


def _smaller(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    if len(pixels) <= LARGEST:
        return np.array(pixels)
    return np.asarray(Image.fromarray(pixels).resize((LARGEST, LARGEST), Image.Resampling.BOX))


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
    whole = (255 * (heat / most).clamp(0, 1)).byte().numpy()
    small = _smaller(np.repeat(whole[:, :, None], 3, axis=2))[:, :, 0]
    return np.asarray(small / np.float32(255))


# ---- The files -----------------------------------------------------------------------------------


def write(folder: Path, sheets: Sheets) -> None:
    """Write the pictures and the report into a model's folder, which has its evaluation."""

    def tree(x: Shown) -> dict[str, Any]:
        heat = None if x.heat is None else torch.from_numpy(x.heat)
        return {**x._asdict(), "pixels": torch.from_numpy(x.pixels), "heat": heat}

    content = {
        "mistakes": [[tree(x) for x in sheet] for sheet in sheets.mistakes],
        "quantiles": [[tree(x) for x in sheet] for sheet in sheets.quantiles],
        "looked": [tree(x) for x in sheets.looked],
        "fitted_to": torch.tensor([[*bytes.fromhex(x)] for x in sorted(sheets.fitted_to)]).byte(),
    }
    checkpoint.save(folder, NAME, content)
    write_report(folder)


def read(folder: Path) -> Sheets:
    """The pictures that :func:`write` has put into a model's folder."""
    content = checkpoint.load(folder, NAME)

    def shown(x: dict[str, Any]) -> Shown:
        heat = None if x["heat"] is None else x["heat"].numpy()
        return Shown(**{**x, "pixels": x["pixels"].numpy(), "heat": heat})

    mistakes, quantiles = (
        [[shown(x) for x in sheet] for sheet in content[name]] for name in ("mistakes", "quantiles")
    )
    fitted_to = frozenset(bytes(x).hex() for x in content["fitted_to"].tolist())
    return Sheets(mistakes, quantiles, [shown(x) for x in content["looked"]], fitted_to)


def write_report(folder: str | Path) -> Path:
    """Write ``report.html`` of a model's folder again."""
    folder = Path(folder)
    path, evaluation = folder / "report.html", Evaluation.read(folder)
    write_model_page(path, evaluation, sections(read(folder)), TEMPLATES, "-images")
    return path


# ---- The sections of the page --------------------------------------------------------------------


def sections(sheets: Sheets) -> list[Section]:
    """Those that show the pictures."""

    @section("Likely mistakes", "Pictures whose labels are worth checking")
    def mistakes(evaluation: Evaluation, rows: Any) -> Content:
        binary = len(evaluation.labels) == 2
        titles = [f"Labelled {quoted(label)}, but least like it" for label in evaluation.labels]
        if binary:
            no, yes = map(quoted, evaluation.labels)
            titles = [f"Labelled {no}, scored highest", f"Labelled {yes}, scored lowest"]
        each = [[_figure(x, evaluation) for x in sheet] for sheet in sheets.mistakes]
        return {"sheets": [*zip(titles, each, strict=True)]}

    @section("By score", "Pictures by their score")
    def by_score(evaluation: Evaluation, rows: Any) -> Content:
        parts = []
        for sheet in sheets.quantiles:
            low, high = (percent(f(x.probability for x in sheet)) for f in (min, max))
            parts.append((f"{low} to {high}", [_figure(x, evaluation) for x in sheet]))
        return {"parts": parts}

    @section("Where it looked", "Where the network looked")
    def looked(evaluation: Evaluation, rows: Any) -> Content:
        return {
            "pairs": [(_figure(x, evaluation), _uri(_lit(x)), x) for x in sheets.looked],
        }

    more = [*([by_score] if sheets.quantiles else []), *([looked] if sheets.looked else [])]
    return [mistakes, *more]


def _figure(x: Shown, evaluation: Evaluation) -> dict[str, Any]:
    """A picture for a template: its bytes, and what is said of it."""
    label = evaluation.labels[x.label]
    said = f"{percent(x.probability)}"
    alt = f"{short(x.name)}, labelled {quoted(label)}, {said}"
    return {"uri": _uri(x.pixels), "name": short(x.name, 40), "label": short(label), "alt": alt,
            "probability": said, "framed": x.label == 1}  # fmt: skip


def _lit(x: Shown) -> NDArray[np.uint8]:
    """A picture in grey, red where its score depends on it."""
    assert x.heat is not None
    grey = x.pixels.mean(axis=2, keepdims=True).repeat(3, axis=2) * 0.6 + 60
    red = np.array([230.0, 40.0, 30.0])
    share = 0.85 * x.heat[:, :, None]
    return np.asarray((1 - share) * grey + share * red).clip(0, 255).astype(np.uint8)


def _uri(pixels: NDArray[np.uint8]) -> str:
    """A picture as a part of the page: small ones exactly, others as JPEG."""
    buffer = io.BytesIO()
    exact = len(pixels) <= 64
    kind, options = ("png", {"optimize": True}) if exact else ("jpeg", {"quality": 85})
    Image.fromarray(pixels).save(buffer, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
