"""A user's pictures from folder to report.

1. Which files there are and their labels (``listing``), decoded once (``reading``, ``store``).
2. What shows the same (``duplicates``) or belongs together is kept on one side (``split``).
3. A network (``networks``), trained by :func:`aucmax.fit` (``classifier``).
4. The model's folder with its report, which shows pictures (``fit``, ``sheets``, ``page``).
5. What is done with it: ``predict``, ``evaluate``, ``export``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aucmax.extras import needed

if TYPE_CHECKING:
    from aucmax.images.classifier import ImageClassifier as ImageClassifier
    from aucmax.images.evaluate import evaluate_images as evaluate_images
    from aucmax.images.export import export_onnx as export_onnx
    from aucmax.images.fit import fit_images as fit_images
    from aucmax.images.fit import preview_images as preview_images
    from aucmax.images.page import write_report as write_report
    from aucmax.images.predict import predict_images as predict_images

_NAMES = {
    "ImageClassifier": "classifier",
    "evaluate_images": "evaluate",
    "export_onnx": "export",
    "fit_images": "fit",
    "predict_images": "predict",
    "preview_images": "fit",
    "write_report": "page",
}
"""Of each name its module; loaded when first used, so that what decodes needs little."""

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        with needed(name, "images"):
            return getattr(import_module(f"aucmax.images.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'aucmax.images' has no attribute {name!r}")
