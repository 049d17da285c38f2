"""What must be the same for a run to be gone on with, as plain JSON."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from torch import nn
from torch.optim.optimizer import Optimizer
from torch.utils._pytree import tree_leaves

from aucmax.stages import Plateau, Stage
from aucmax.train.options import Options

FORMAT = 2
"""Of a run's folder; another number is refused, not misread."""
DATA = ("train", "valid", "test", "labels")
"""Options that are described by what is in them, once it has been read."""
LONGEST = 200  # letters of a module that are written out


def fingerprint(options: Options, data: Mapping[str, Any]) -> dict[str, Any]:
    """Every option that decides the result, and the data."""
    deciding = [
        field.name
        for field in fields(options)
        if field.name not in DATA and not field.metadata.get("may_differ")
    ]
    described = {name: described_value(getattr(options, name)) for name in deciding}
    return {"format": FORMAT, **described, "data": dict(data)}


def described_value(value: Any) -> Any:
    """An option as plain JSON, the same in every process."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        plain = (bool, int, str, type(None))
        return {k: v if isinstance(v, plain) else _text(v) for k, v in sorted(value.items())}
    if isinstance(value, Plateau):
        return ["plateau", value.patience, value.min_gain, *map(repr, value.stages)]
    if isinstance(value, Sequence) and all(isinstance(stage, Stage) for stage in value):
        return list(map(repr, value))
    if isinstance(value, Optimizer):
        defaults = {k: v for k, v in value.defaults.items() if k != "lr"}
        return f"{type(value).__name__}({described_value(defaults)})"
    if isinstance(value, nn.Module):
        return _described_module(value)
    return str(getattr(value, "__qualname__", None) or _text(value))


def _described_module(module: nn.Module) -> str:
    """What it says of itself, and its parameters' shapes, without what training changes."""
    text = _text(module)
    shapes = sorted((name, tuple(p.shape)) for name, p in module.named_parameters())
    if len(text) > LONGEST:
        text = f"{type(module).__name__} {_short_hash(text)}"
    return f"{text} {_short_hash(repr(shapes))}" if shapes else text


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The fields in which two configurations differ, with both values."""
    names = [*new, *(name for name in old if name not in new)]
    return [
        f"{name} ({old.get(name)!r} there, {new.get(name)!r} now)"
        for name in names
        if old.get(name) != new.get(name)
    ]


def digest(x: Any, rows: int = 1000) -> str | None:
    """A few hexadecimal digits that tell one array, or tree of arrays, from another.

    Of a long one, that many rows evenly spread are looked at.
    """
    if x is None:
        return None
    sha = hashlib.sha256()
    for leaf in tree_leaves(x):
        every = max(1, len(leaf) // rows)
        sha.update(repr(tuple(leaf.shape)).encode())
        sha.update(leaf[::every].double().numpy(force=True).tobytes())
    return sha.hexdigest()[:16]


def _text(x: object) -> str:
    """The repr, without places in memory, which are others in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(x))


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
