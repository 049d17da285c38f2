"""Several models fitted to the same folds, one after the other, in the time that there is."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from aucmax.checks import NotFiniteError
from aucmax.tables.ensemble.base import CrossFitted, LeftOutError, Setting
from aucmax.tables.ensemble.kinds import NETWORKS, fit_model
from aucmax.tables.ensemble.networks import NetworkFit, Networks, Recipe
from aucmax.tables.folds import Folds
from aucmax.tables.scoring import Rows
from aucmax.train import DivergedError, FitResult

SHORTEST = 1.0
"""Seconds that the first network has in any case, if no other model was done in time."""


class Fitting(NamedTuple):
    """What models are to be fitted to, and how.

    Attributes:
        rows: all of them, encoded.
        folds: which of them each fit is trained on, and judged by.
        setting: what models are told beside.
        recipe: of networks.
    """

    rows: Rows
    folds: Folds
    setting: Setting
    recipe: Recipe

    def network_fit(self, kind: str) -> NetworkFit:
        """A training of networks that is ready to begin."""
        recipe = self.recipe
        if kind == "ce-network":
            recipe = replace(recipe, objective="ce", loss_options=None)
        return NetworkFit(kind, self.rows, self.folds, self.setting, recipe)


class FittedModels(NamedTuple):
    """What came of it.

    Attributes:
        models: by name.
        network: of the first that are networks, how training went; None without one.
        left_out: of the models that could not be fitted, why.
    """

    models: Mapping[str, CrossFitted]
    network: FitResult | None
    left_out: Mapping[str, str] = MappingProxyType({})


def named(models: Iterable[Any]) -> dict[str, Any]:
    """Kinds of models, and classifiers, by names that differ."""
    found: dict[str, Any] = {}
    for kind in models:
        name = kind if isinstance(kind, str) else type(kind).__name__
        again = sum(x.partition(" ")[0] == name for x in found)  # of other settings
        found[f"{name} {again + 1}" if again else name] = kind
    return found


def fit_all(kinds: Mapping[str, Any], fitting: Fitting) -> FittedModels:
    """Fit them; where there is a folder for the work, each goes on from its own part of it.

    Args:
        kinds: the models' names, each with its kind or the classifier itself, in their order.
        fitting: what they are fitted to.

    Raises:
        ValueError: if none can be fitted.
    """
    models: dict[str, CrossFitted] = {}
    left_out: dict[str, str] = {}
    network: FitResult | None = None
    diverged: Exception | None = None
    setting = fitting.setting
    before = 0.0  # seconds that models took before the training was stopped and gone on with
    for number, (name, kind) in enumerate(kinds.items(), 1):
        if setting.progress and len(kinds) > 1:
            said = f"aucmax: fitting {name!r}, model {number} of {len(kinds)}"
            print(said, file=sys.stderr, flush=True)
        began, deadline = time.monotonic(), setting.deadline - before
        if not models and kind in NETWORKS:  # one must be, however little time is left
            deadline = max(deadline, began + SHORTEST)
        work = None if setting.work is None else setting.work / name
        own = fitting._replace(setting=setting._replace(deadline=deadline, work=work))
        try:
            if kind in NETWORKS:
                _check_time(models, deadline)
                models[name], result = own.network_fit(kind).run()
                network = network or result
            else:
                models[name] = fit_model(kind, own.rows, own.folds, own.setting)
        except LeftOutError as error:
            left_out[name] = str(error)
            continue
        except (DivergedError, NotFiniteError) as error:
            left_out[name], diverged = str(error), error
            continue
        models[name].model.name = name
        before += max(0.0, models[name].seconds - (time.monotonic() - began))
    if not models and diverged is not None:
        raise diverged
    if not models:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise ValueError(f"models must leave one that can be fitted, found none ({reasons})")
    return FittedModels(models, network, left_out)


def _check_time(fitted: Mapping[str, CrossFitted], deadline: float) -> None:
    """Raise unless a network can be trained as long as the one before, or half of it."""
    before = [x.seconds for x in fitted.values() if isinstance(x.model, Networks)]
    left = deadline - time.monotonic()
    if before and left < before[-1] / 2:
        raise LeftOutError(
            f"{max(0, left):.0f} s were left, and the network before took {before[-1]:.0f} s"
        )
