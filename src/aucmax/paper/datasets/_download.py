"""Fetch an archive, go on where a broken download stopped, check it, and unpack it."""

from __future__ import annotations

import hashlib
import http.client
import os
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from aucmax.progress import ProgressBar

CHUNK = 1 << 16
TIMEOUT = 60.0
"""Seconds without a byte after which a download has failed."""
NETWORK_ERRORS = (
    urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError,
)  # fmt: skip


def fetch(url: str, md5: str, folder: str, root: Path, progress: bool) -> None:
    """Download an archive and put a folder that it holds below ``root``.

    Args:
        url: of a .tar.gz file.
        md5: its sum.
        folder: of its folders, the one that is unpacked.
        root: made if it is not there.
        progress: whether a bar on standard error says how far it is.

    Raises:
        ConnectionError: if the download failed; the part that came stays for the next call.
        ValueError: if what came is not the archive; it is removed.
    """
    root.mkdir(parents=True, exist_ok=True)
    part = root / f"{url.rsplit('/', 1)[-1]}.part"
    # One that is whole was left by a call that ended while it unpacked.
    if not part.exists() or _md5(part) != md5:
        with ProgressBar(progress, "bytes", "speed", terminal=False) as bar:
            bar.begin(part.stem)
            _receive(url, part, lambda have, total: bar.update(have, total=total))
        if (other := _md5(part)) != md5:
            part.unlink()
            raise ValueError(
                f"{url} must have the MD5 sum {md5}, found {other}: "
                f"it came damaged or was changed; {part} is removed, call again to fetch it anew"
            )
    # Unpacked beside the target and renamed, so that the folder is whole once it is there.
    with tempfile.TemporaryDirectory(dir=root, prefix=f".{folder}-") as temporary:
        with tarfile.open(part, "r:gz") as tar:
            for member in tar:
                parts = PurePosixPath(member.name).parts
                if member.isfile() and parts[:1] == (folder,) and len(parts) > 1:
                    tar.extract(member, temporary, filter="data")
        if not (Path(temporary) / folder).is_dir():
            raise ValueError(f"{url} must hold the folder {folder}, found none")
        os.rename(Path(temporary) / folder, root / folder)
    part.unlink()


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _receive(url: str, part: Path, tell: Callable[[int, int | None], None]) -> None:
    """Append to ``part`` what is missing of it; from the start if the server cannot do that.

    ``tell`` is given the bytes that are there and how many there will be, None if unknown.
    """
    have = part.stat().st_size if part.exists() else 0
    try:
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
    except NETWORK_ERRORS as error:  # a full disk stays what it is
        have = part.stat().st_size if part.exists() else 0
        kept = f"; {part} keeps {have:,} bytes, call again to go on" if have else ""
        raise ConnectionError(f"could not download {url}: {error}{kept}") from error


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
