"""The scikit-learn door: :class:`AUCClassifier`."""

from aucmax.estimator.classifier import AUCClassifier

__all__ = ["AUCClassifier"]
