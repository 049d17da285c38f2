"""Fetch an archive, go on where a broken download stopped, check it, and unpack it."""

from __future__ import annotations

import hashlib
import http.client
import os
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from aucmax.progress import ProgressBar

CHUNK = 1 << 16
TIMEOUT = 60.0
"""Seconds without a byte after which a download has failed."""

Tell = Callable[[int, int | None], None]
"""Called with the bytes that are there and how many there will be, None if that is unknown."""


@dataclass(frozen=True)
class Archive:
    """A .tar.gz on the web: where, its MD5 sum, and the one folder that is taken out of it."""

    url: str
    md5: str
    folder: str


# The sums of CIFAR stand on its page, that of STL-10 in torchvision.
CIFAR10 = Archive(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "c32a1d4ab5d03f1284b67883e8d87530",
    "cifar-10-batches-bin",
)
CIFAR100 = Archive(
    "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    "03b5dce01913d631647c71ecec9e9cb8",
    "cifar-100-binary",
)
STL10 = Archive(
    "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
    "91f7769df0f17e558f3565bffb0c7dfb",
    "stl10_binary",
)


def fetch(archive: Archive, root: Path, progress: bool) -> None:
    """Download an archive and put its folder below ``root``.

    Args:
        archive: what to fetch.
        root: made if it is not there.
        progress: whether a bar on standard error says how far it is.

    Raises:
        ConnectionError: if the download failed; the part that came stays for the next call.
        ValueError: if what came is not the archive; it is removed.
    """
    root.mkdir(parents=True, exist_ok=True)
    part = root / f"{archive.url.rsplit('/', 1)[-1]}.part"
    # One that is whole was left by a call that ended while it unpacked.
    if not part.exists() or _md5(part) != archive.md5:
        with ProgressBar(progress, "bytes", "speed", terminal=False) as bar:
            bar.begin(part.stem)
            _receive(archive.url, part, lambda have, total: bar.update(have, total=total))
        _verify(archive, part)
    _unpack(archive, part, root)
    part.unlink()


def _verify(archive: Archive, part: Path) -> None:
    found = _md5(part)
    if found != archive.md5:
        part.unlink()
        raise ValueError(
            f"{archive.url} must have the MD5 sum {archive.md5}, found {found}: "
            f"it came damaged or was changed; {part} is removed, call again to fetch it anew"
        )


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _receive(url: str, part: Path, tell: Tell) -> None:
    """Append to ``part`` what is missing of it; from the start if the server cannot do that."""
    have = part.stat().st_size if part.exists() else 0
    with _failures(url, part):
        response = _request(url, have)
        if response is None:
            return  # nothing beyond what is there: its sum decides
        with response, part.open("ab" if response.status == 206 else "wb") as file:
            have = file.tell()
            length = response.headers.get("Content-Length")
            total = None if length is None else have + int(length)
            while chunk := response.read(CHUNK):
                file.write(chunk)
                have += len(chunk)
                tell(have, total)
        if total is not None and have < total:
            raise http.client.HTTPException(f"it broke off at {have:,} of {total:,} bytes")


def _request(url: str, have: int) -> Any:
    """The response that begins at byte ``have`` or at 0; None if there is no byte ``have``."""
    headers = {"User-Agent": "aucmax"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=TIMEOUT
        )
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # range not satisfiable
            return None
        raise
    begins = response.headers.get("Content-Range", "")
    if response.status == 206 and not begins.startswith(f"bytes {have}-"):
        response.close()
        raise http.client.HTTPException(f"asked for bytes from {have}, the server sent {begins!r}")
    return response


@contextmanager
def _failures(url: str, part: Path) -> Iterator[None]:
    """Say what failed and that the next call goes on; a full disk stays what it is."""
    network = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)
    try:
        yield
    except network as error:
        have = part.stat().st_size if part.exists() else 0
        kept = f"; {part} keeps {have:,} bytes, call again to go on" if have else ""
        raise ConnectionError(f"could not download {url}: {error}{kept}") from error


def _unpack(archive: Archive, part: Path, root: Path) -> None:
    """Unpack beside the target and rename, so that the folder is whole once it is there."""
    with tempfile.TemporaryDirectory(dir=root, prefix=f".{archive.folder}-") as temporary:
        with tarfile.open(part, "r:gz") as tar:
            for member in tar:
                parts = PurePosixPath(member.name).parts
                if member.isfile() and parts[:1] == (archive.folder,) and len(parts) > 1:
                    tar.extract(member, temporary, filter="data")
        if not (Path(temporary) / archive.folder).is_dir():
            raise ValueError(f"{archive.url} must hold the folder {archive.folder}, found none")
        os.rename(Path(temporary) / archive.folder, root / archive.folder)
