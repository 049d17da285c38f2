"""Files that hold a run: tensors in safetensors, the rest in JSON, a SHA-256 over both.

A checkpoint NAME is two files. ``NAME.safetensors`` is written first; ``NAME.json`` names its
SHA-256 and its own, and is what makes the checkpoint count. Each is written under another name,
flushed to the disk and renamed, so a file of that name is whole or was damaged later, which its
digest shows. ``NAME.json`` also names the version of aucmax that wrote it, of which an older one
warns. No pickle is written or read, but for the shards of models spread over processes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from aucmax import disk, distributed, sharding
from aucmax.checks import is_sharded
from aucmax.version import __version__, is_newer

FORMAT = "aucmax 1"


class DamagedError(ValueError):
    """A file of a run that is not what was written."""


def save(folder: Path, name: str, state: Any) -> None:
    """Write the state, any tree of dicts, lists, numbers, strings and tensors.

    Args:
        folder: where; it must exist.
        name: of the checkpoint, without a suffix.
        state: what to keep.

    Raises:
        OSError: if it could not be written; what was there before is whole.
    """
    tensors: dict[str, Tensor] = {}
    tree = _pack(state, name="", tensors=tensors)
    spread = {key: tensors.pop(key) for key in list(tensors) if is_sharded(tensors[key])}
    files = sharding.write(folder / f"{name}.shards", spread) if spread else []
    if distributed.rank() == 0:
        shards = {path.name: disk.sha256(path) for path in files}
        layout = {k: [list(x.shape), str(x.dtype).split(".")[1]] for k, x in spread.items()}
        digest = _write_tensors(folder / f"{name}.safetensors", tensors)
        notes = {"sha256": digest, "shards": shards, "layout": layout, "state": tree}
        _write_notes(folder, name, notes)


def load(folder: Path, name: str, mesh: Any = None) -> Any:
    """Read what :func:`save` wrote; ``mesh`` is that of the model if it is sharded.

    Raises:
        DamagedError: if a file is missing, cut off or altered; its message names the file.
    """
    notes = read_notes(folder, name)
    path, shards = folder / f"{name}.safetensors", folder / f"{name}.shards"
    tensors = _read_tensors(path, notes["sha256"])
    for file, digest in notes["shards"].items():
        _check_file(shards / file, digest)
    if notes["shards"] and mesh is None:
        raise ValueError(f"{path} is of a model sharded over processes: go on with parallel='fsdp'")
    if notes["shards"]:
        tensors |= sharding.read(shards, notes["layout"], mesh)
    return _unpack(notes["state"], tensors)


def save_weights(folder: Path, name: str, model: nn.Module, notes: dict[str, Any]) -> None:
    """Write a model's state_dict under its own names, and notes beside it."""
    state = {key: x for key, x in model.state_dict().items() if isinstance(x, Tensor)}
    weights = {k: x.full_tensor() if is_sharded(x) else x for k, x in state.items()}  # type: ignore[attr-defined]
    if distributed.rank() == 0:
        save_tensors(folder, name, weights, notes)


def save_tensors(
    folder: Path, name: str, tensors: dict[str, Tensor], notes: dict[str, Any]
) -> None:
    """Write tensors under their names, and notes beside them."""
    digest = _write_tensors(folder / f"{name}.safetensors", tensors)
    _write_notes(folder, name, {"sha256": digest, **notes})


def load_tensors(folder: Path, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the notes that :func:`save_tensors` wrote.

    Raises:
        DamagedError: if a file is missing, cut off or altered; its message names the file.
    """
    notes = read_notes(folder, name)
    return _read_tensors(folder / f"{name}.safetensors", notes["sha256"]), notes


def load_weights(model: nn.Module, folder: str | Path, name: str = "model") -> dict[str, Any]:
    """Load the weights that :func:`aucmax.fit` left in its ``out`` folder into a model.

    The files are checked against their SHA-256 first. They hold tensors and text, no code.

    Args:
        model: of the architecture that was trained.
        folder: the ``out`` of the run.
        name: of the files, without a suffix.

    Returns:
        What stands beside the weights in ``model.json``: step, AUC, which iterate it is.

    Raises:
        ValueError: if a file is missing, damaged or not a model file, or does not fit the model.

    Example:
        >>> import tempfile, torch, aucmax
        >>> x, y = torch.randn(64, 3), torch.tensor([1.0, 0.0] * 32)
        >>> out = tempfile.mkdtemp()
        >>> _ = aucmax.fit(torch.nn.Linear(3, 1), (x, y), steps=4, out=out, progress=False)
        >>> model = torch.nn.Linear(3, 1)
        >>> aucmax.load_weights(model, out)["step"]
        4
    """
    folder = Path(folder)
    if folder.suffix == ".safetensors":
        folder, name = folder.parent, folder.stem
    if not (folder / f"{name}.json").exists():
        raise ValueError(f"folder must hold a finished run, found no {name}.json in {folder}")
    weights, notes = load_tensors(folder, name)
    try:
        if sharding.mesh_of(model) is None:
            model.load_state_dict(weights)
        else:
            sharding.load_whole(model, weights)
    except RuntimeError as error:
        path = folder / f"{name}.safetensors"
        raise ValueError(f"{path} must fit the model: {error}") from None
    return notes


def read_notes(folder: Path, name: str) -> dict[str, Any]:
    """What stands in ``NAME.json``, without reading the tensors beside it.

    Warns:
        UserWarning: if a later version of aucmax wrote it.

    Raises:
        DamagedError: if the file is missing, cut off or altered.
    """
    path = folder / f"{name}.json"
    try:
        notes: dict[str, Any] = disk.read_json(path)
        claimed = notes.pop("self")
    except FileNotFoundError:
        raise DamagedError(f"{path} is missing") from None
    except (ValueError, KeyError, AttributeError, TypeError):
        raise DamagedError(f"{path} is cut off or altered: it is no whole JSON") from None
    if claimed != _digest(notes):
        raise DamagedError(f"{path} is altered: its SHA-256 is not the one it was written with")
    if notes.get("format") != FORMAT:
        raise DamagedError(f"{path} must be of format {FORMAT!r}, found {notes.get('format')!r}")
    writer = notes["aucmax"]
    if is_newer(writer) and distributed.rank() == 0:
        warnings.warn(
            f"{folder} was written by aucmax {writer}, which may mean by it what this older one, "
            f"{__version__}, does not know: pip install --upgrade aucmax",
            stacklevel=2,
        )
    return notes


def remove(folder: Path, name: str) -> None:
    """Remove a checkpoint, first the file that makes it count."""
    for path in sorted(folder.glob(f"{name}.*")):  # .json comes before the others
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _write_notes(folder: Path, name: str, notes: dict[str, Any]) -> None:
    notes = {"format": FORMAT, "aucmax": __version__, **notes}
    disk.write_json(folder / f"{name}.json", {"self": _digest(notes), **notes})


def _digest(notes: dict[str, Any]) -> str:
    text = json.dumps(notes, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _write_tensors(path: Path, tensors: dict[str, Tensor]) -> str:
    from safetensors.torch import save

    # Copies: safetensors refuses memory that two names share, as tied weights do.
    content = save({k: x.detach().to("cpu", copy=True).contiguous() for k, x in tensors.items()})
    with disk.atomic_write(path) as temporary:
        temporary.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def _read_tensors(path: Path, digest: str) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    _check_file(path, digest)
    try:
        return load_file(path)
    except SafetensorError as error:
        raise DamagedError(f"{path} is no safetensors file: {error}") from None


def _check_file(path: Path, digest: str) -> None:
    if not path.exists():
        raise DamagedError(f"{path} is missing")
    if disk.sha256(path) != digest:
        raise DamagedError(f"{path} is cut off or altered: its SHA-256 is not the one in the JSON")


def _pack(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """JSON in place of the tree; tensors go into ``tensors`` and leave their name."""
    if isinstance(value, Tensor):
        while name in tensors:
            name += "'"
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, dict):
        items = [[k, _pack(v, f"{name}.{k}".lstrip("."), tensors)] for k, v in value.items()]
        return {"dict": items}
    if isinstance(value, list | tuple):
        parts = [_pack(v, f"{name}.{i}", tensors) for i, v in enumerate(value)]
        return {"tuple": parts} if isinstance(value, tuple) else {"list": parts}
    if isinstance(value, float):
        return {"float": value.hex()}  # also infinity and NaN
    if value is None or isinstance(value, bool | int | str):
        return value
    raise ValueError(f"a checkpoint cannot hold {type(value).__name__} ({name})")


def _unpack(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "float":
        return float.fromhex(content)
    if kind == "dict":
        return {k: _unpack(v, tensors) for k, v in content}
    parts = [_unpack(v, tensors) for v in content]
    return tuple(parts) if kind == "tuple" else parts
