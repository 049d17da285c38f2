r"""What a pair costs: surrogates :math:`\phi(z)` of the 0-1 loss of a pair ranked by z.

z is how far the positive's score lies above the negative's, :math:`m` the margin, :math:`\sigma`
the logistic function:

=============  =============================  ================================================
name           :math:`\phi(z)`                its character
=============  =============================  ================================================
squared_hinge  :math:`(m - z)_+^2`            leaves pairs beyond the margin alone
hinge          :math:`(m - z)_+`              the same, with a constant slope
square         :math:`(m - z)^2`              pulls pairs beyond the margin back to it
logistic       :math:`-\log \sigma(z)`        a likelihood of pairs; it knows no margin
sigmoid        :math:`1 - \sigma(z)`          bounded, so that wrong labels count little
generalized    :math:`(1 - \sigma(z)^q) / q`  sigmoid at q = 1, logistic as q goes to 0
=============  =============================  ================================================

The functions take NumPy arrays and tensors alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aucmax import checks


@dataclass(frozen=True)
class Surrogate:
    """One of the surrogates with its options, checked.

    Args:
        name: one of :data:`SURROGATES`.
        margin: m, of the hinges and the square; the others know none.
        scale: what the difference of a pair's scores is multiplied by.
        q: of the generalized surrogate, in (0, 1].

    Example:
        >>> from aucmax.loss.surrogates import Surrogate, curvature, value_and_slope
        >>> value_and_slope(0.5, Surrogate("squared_hinge"))
        (0.25, -1.0)
        >>> curvature(0.5, Surrogate("squared_hinge"))
        2.0
    """

    name: str = "squared_hinge"
    margin: float = 1.0
    scale: float = 1.0
    q: float = 0.7

    def __post_init__(self) -> None:
        checks.choice("surrogate", self.name, SURROGATES)
        object.__setattr__(self, "margin", checks.positive("margin", self.margin))
        object.__setattr__(self, "scale", checks.positive("scale", self.scale))
        q = checks.number("q", self.q, "a number in (0, 1]", lambda x: 0 < x <= 1)
        object.__setattr__(self, "q", q)

    def __str__(self) -> str:
        """The options that matter, as the losses show them."""
        text = f"surrogate={self.name!r}, scale={self.scale:g}"
        if self.name == "generalized":
            return f"{text}, q={self.q:g}"
        return f"{text}, margin={self.margin:g}" if self.name in DEGREES else text


def value_and_slope(z: Any, surrogate: Surrogate) -> tuple[Any, Any]:
    """phi(z) and its derivative; zero is the hinge's slope at its corner."""
    value, slope = _FUNCTIONS[surrogate.name][0](z, surrogate)
    return value, slope


def curvature(z: Any, surrogate: Surrogate) -> Any:
    """The second derivative of phi at z, which of a hinge is zero and of a sigmoid has any sign."""
    return _FUNCTIONS[surrogate.name][1](z, surrogate)


def _short(z: Any, surrogate: Surrogate) -> Any:
    """By how much a pair falls short of the margin, if it does."""
    short = surrogate.margin - z
    return short * (short > 0)


def _squared_hinge(z: Any, surrogate: Surrogate) -> tuple[Any, Any]:
    short = _short(z, surrogate)
    return short * short, -2.0 * short


def _hinge(z: Any, surrogate: Surrogate) -> tuple[Any, Any]:
    short = _short(z, surrogate)
    return short, -1.0 * (short > 0)


def _square(z: Any, surrogate: Surrogate) -> tuple[Any, Any]:
    short = surrogate.margin - z
    return short * short, -2.0 * short


def _sigma(z: Any) -> tuple[Any, Any]:
    """sigma(-z) and -log sigma(z), each to full precision whatever z is."""
    xp = torch if isinstance(z, Tensor) else np
    size = abs(z)
    small = xp.exp(-size)
    return xp.where(z >= 0, small, 1.0) / (1.0 + small), xp.log1p(small) + 0.5 * (size - z)


def _bell(z: Any) -> Any:
    """sigma(z) sigma(-z), likewise."""
    xp = torch if isinstance(z, Tensor) else np
    small = xp.exp(-abs(z))
    whole = 1.0 + small
    return small / (whole * whole)


def _logistic(z: Any, surrogate: Surrogate) -> tuple[Any, Any]:
    down, value = _sigma(z)
    return value, -down


def _sigmoid(z: Any, surrogate: Surrogate) -> tuple[Any, Any]:
    xp = torch if isinstance(z, Tensor) else np
    small = xp.exp(-abs(z))
    whole = 1.0 + small
    return xp.where(z >= 0, small, 1.0) / whole, -small / (whole * whole)


def _generalized(z: Any, surrogate: Surrogate) -> tuple[Any, Any]:
    xp = torch if isinstance(z, Tensor) else np
    down, cost = _sigma(z)
    less = xp.expm1(-surrogate.q * cost)  # sigma^q - 1
    return less / -surrogate.q, -(less + 1.0) * down


def _sigmoid_curvature(z: Any, surrogate: Surrogate) -> Any:
    return _bell(z) * (1.0 - 2.0 * _sigma(z)[0])


def _generalized_curvature(z: Any, surrogate: Surrogate) -> Any:
    down, cost = _sigma(z)
    xp = torch if isinstance(z, Tensor) else np
    return xp.exp(-surrogate.q * cost) * down * (1.0 - (1.0 + surrogate.q) * down)


_Function = Callable[[Any, Surrogate], Any]
_FUNCTIONS: dict[str, tuple[_Function, _Function]] = {  # value and slope, curvature
    "squared_hinge": (_squared_hinge, lambda z, surrogate: 2.0 * (z < surrogate.margin)),
    "hinge": (_hinge, lambda z, surrogate: 0.0 * z),
    "square": (_square, lambda z, surrogate: 0.0 * z + 2.0),
    "logistic": (_logistic, lambda z, surrogate: _bell(z)),
    "sigmoid": (_sigmoid, _sigmoid_curvature),
    "generalized": (_generalized, _generalized_curvature),
}
SURROGATES = tuple(_FUNCTIONS)
"""The names."""

DEGREES = {"squared_hinge": 2, "hinge": 1, "square": 2}
"""Of those that are polynomials in how far a pair falls short of the margin."""
