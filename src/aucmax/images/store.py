"""Pictures decoded once, into a file of bytes that runs share and map into memory."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import threading
import time
import zlib
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, get_worker_info

from aucmax import checks
from aucmax.disk import lock_folder, make_folder, write_text
from aucmax.images.duplicates import file_digest, perceptual_hashes
from aucmax.images.reading import BrokenPicture, PictureFiles, Pixels, read_picture
from aucmax.processes import WorkerPool
from aucmax.progress import ProgressBar
from aucmax.signals import saying_so
from aucmax.threads import cores

FORMAT = 1
"""Of the files, and of what is in them: pixels that are decoded otherwise need another one."""
CHUNK_BYTES, CHUNK_PICTURES = 2**24, (16, 256)
"""Pixels that a process writes at a time, and how many pictures at least and at most."""
STARTING = 3.0
"""Seconds that processes take to start, about; for less they are not worth it."""
LOOK_AGAIN = 0.2
"""Seconds between two looks at whether another run has ended."""
_ONE_THREAD = threading.Lock()
"""Of a process one thread decodes at a time: the folder's lock keeps processes apart alone."""


@dataclass(frozen=True)
class Store:
    """Pictures in the order of the files that they were decoded from, mapped into memory.

    Attributes:
        pixels: (N, size, size, 3), read-only; zeros for files that are broken.
        streamed: why they are decoded from their files whenever they are used; "" if they are not.
        broken: why, by row.
        digests: the same for files of the same content.
        hashes: the same, but for some bits, for pictures of the same; 0 for those of one colour.
        widths: of the files, as are the others; 0 if broken.
        heights: likewise.
        modes: as Pillow names them, such as "RGB" or "I;16"; "" if broken.
        frames: how many there are, of which the first is used.
        brightest: the largest value of a picture of 16 bits.
    """

    pixels: Pixels
    streamed: str
    broken: dict[int, str]
    digests: NDArray[np.bytes_]
    hashes: NDArray[np.uint64]
    widths: NDArray[np.int64]
    heights: NDArray[np.int64]
    modes: list[str]
    frames: NDArray[np.int64]
    brightest: NDArray[np.int64]


class StoredPictures(Dataset[tuple[Any, ...]]):
    """Rows of a store with their labels, read or decoded whenever they are asked for.

    Args:
        pixels: of all pictures.
        rows: those that are used.
        targets: a number for each, or several, (N, L).
        weight: how much each counts; None for alike.
    """

    def __init__(
        self,
        pixels: Pixels,
        rows: NDArray[np.int64],
        targets: NDArray[Any],
        weight: NDArray[np.float64] | None = None,
    ) -> None:
        self.pixels, self.rows, self.targets, self.weight = pixels, rows, targets, weight

    def __len__(self) -> int:
        return len(self.rows)

    def __getstate__(self) -> dict[str, Any]:
        """For other processes: where the pixels are, not all of them."""
        pixels: Any = self.pixels
        where = (pixels.filename, pixels.shape) if isinstance(pixels, np.memmap) else pixels
        return {**vars(self), "pixels": where}

    def __setstate__(self, state: dict[str, Any]) -> None:
        where = state["pixels"]
        if isinstance(where, tuple):
            where = np.memmap(where[0], np.uint8, "r", shape=where[1])
        vars(self).update({**state, "pixels": where})

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        picture = torch.from_numpy(np.array(self.pixels[self.rows[index]])).permute(2, 0, 1)
        item = picture, torch.as_tensor(self.targets[index])
        return item if self.weight is None else (*item, float(self.weight[index]))

    def read_batch(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        """Many of them, the pictures in one piece of memory, pixel by pixel as in the store.

        A batch that a loader stacks is kept colour by colour, in which convolutions are slower.
        """
        pictures = torch.empty((len(indices), *self.pixels.shape[1:]), dtype=torch.uint8)
        if get_worker_info() is not None:
            # Where it is to go, so that it is not copied there.
            pictures.share_memory_()  # type: ignore[no-untyped-call]
        for place, row in enumerate(self.rows[indices].tolist()):
            pictures[place] = torch.from_numpy(np.array(self.pixels[row]))
        batch = pictures.permute(0, 3, 1, 2), torch.as_tensor(self.targets[indices])
        return batch if self.weight is None else (*batch, torch.as_tensor(self.weight[indices]))


def build_store(
    folder: Path,
    files: Sequence[Path],
    size: int,
    *,
    depth: int = 16,
    workers: int | None = None,
    progress: bool = True,
) -> Store:
    """The pictures in these files as bytes; decoded, if they are not in the folder already.

    A folder has one store of a size and a depth. If another run makes it, it is waited for. If
    files were changed, added or left out since, only what is new is decoded. Interrupted, however
    roughly, the same call goes on. If the disk has no room for the pixels, all but these is kept,
    and they are decoded from the files whenever they are used.

    Args:
        folder: made if need be.
        files: each must be there, though it need not be a picture.
        size: of the pictures, in pixels.
        depth: see :func:`aucmax.images.reading.read_picture`.
        workers: processes that decode; None for one per core.
        progress: a bar in a terminal, lines elsewhere.

    Raises:
        ValueError: if the store's files were altered.
        OSError: if a file is not there or must not be read.
    """
    checks.count("size", size)
    workers = cores() if workers is None else checks.count("workers", workers)
    wanted = [_file(path) for path in files]
    if not wanted:
        raise ValueError("files must be those of pictures, found none")
    _check_ours(folder)
    make_folder(folder, "store")
    bar = ProgressBar(progress, "count", "time left", width=24)
    with saying_so("the same command goes on"), bar:
        with _ONE_THREAD, _lock(folder, bar):
            place, streamed = _Place(folder, size, depth, wanted), ""
            if not place.index.exists() and (streamed := _lack_of_room(place, len(wanted))):
                bar.say(streamed)
                place = _Place(folder, size, depth, wanted, keeps_pixels=False)
            if not place.index.exists():
                _build(place, wanted, workers, bar)
            place.tidy()
            entries, mapped = _map(place, len(wanted))
        if mapped is not None:
            _check(entries, mapped, folder)  # what is mapped stays, whatever others do
            return _store(entries, mapped, "")
    checksums = np.array([entry.checksum for entry in entries], np.uint32)
    broken = [row for row, entry in enumerate(entries) if entry.broken]
    decoded = PictureFiles(files, size, depth=depth, broken=broken, checksums=checksums)
    return _store(entries, decoded, streamed)


# ---- What the folder holds -----------------------------------------------------------------------


OURS = re.compile(r"\.lock|\d+px-\d+bit-v\d+-[0-9a-f]{16}(-without)?\.(pixels|log|index)(\.tmp)?")
"""All that is ever in it."""


def _check_ours(folder: Path) -> None:
    """Raise if there are other files, which somebody may have meant to keep apart."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"store must be a folder, found the file {folder}")
    names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    if others := [name for name in names if not OURS.fullmatch(name)]:
        raise ValueError(
            f"store must be a new folder, an empty one or one of decoded pictures, found "
            f"{others[0]!r} in {folder}"
        )


class _File(NamedTuple):
    """Where a picture is, and what tells whether it was changed."""

    path: str
    length: int
    modified: int


class _Entry(NamedTuple):
    """What is known of a picture; the index has one for each row of pixels."""

    path: str
    length: int
    modified: int
    digest: str
    checksum: int = 0
    hash: int = 0
    width: int = 0
    height: int = 0
    mode: str = ""
    frames: int = 0
    brightest: int = 0
    broken: str = ""

    @property
    def file(self) -> _File:
        return _File(self.path, self.length, self.modified)


class _Place:
    """Names of a store's files: of a size, a depth and files that are as they are now.

    Args:
        keeps_pixels: False for a store of all but the pixels.

    Attributes:
        pixels: all rows, one after the other.
        log: lines of rows that are done, while others are not.
        index: of a store that is whole, and of no other.
    """

    def __init__(
        self,
        folder: Path,
        size: int,
        depth: int,
        wanted: Sequence[_File],
        keeps_pixels: bool = True,
    ) -> None:
        self.folder, self.size, self.depth = folder, size, depth
        self.keeps_pixels = keeps_pixels
        self.kind = f"{size}px-{depth}bit-v{FORMAT}"
        key = hashlib.blake2b(json.dumps(wanted).encode(), digest_size=8).hexdigest()
        key += "" if keeps_pixels else "-without"
        self.pixels, self.log, self.index = (
            folder / f"{self.kind}-{key}.{part}" for part in ("pixels", "log", "index")
        )

    @property
    def row_bytes(self) -> int:
        return self.size * self.size * 3

    def others(self) -> Iterator[Path]:
        """Files of stores of the same kind, which may not be whole."""
        own = (self.pixels, self.log, self.index)
        return (path for path in sorted(self.folder.glob(f"{self.kind}-*")) if path not in own)

    def tidy(self) -> None:
        """Remove what a whole store does not need; other runs keep what they have mapped."""
        for path in (self.log, *(self.others() if self.keeps_pixels else ())):
            path.unlink(missing_ok=True)


def _file(path: Path) -> _File:
    about = os.stat(path)
    return _File(os.path.abspath(path), about.st_size, about.st_mtime_ns)


def _seal(content: Any) -> str:
    """A line that tells whether it is whole."""
    text = json.dumps(content, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x} {text}"


def _unseal(line: str) -> Any:
    """What :func:`_seal` was given; None if the line was changed or cut off."""
    checksum, _, text = line.partition(" ")
    return json.loads(text) if checksum == f"{zlib.crc32(text.encode()):08x}" else None


def _read_log(path: Path) -> dict[int, _Entry]:
    """The rows that are done; a line that was cut off is none."""
    lines = path.read_text(encoding="ascii", errors="replace").split("\n") if path.exists() else ()
    chunks = (_unseal(line) or {} for line in lines)
    return {int(row): _Entry(*entry) for chunk in chunks for row, entry in chunk.items()}


def _read_index(path: Path) -> list[_Entry] | None:
    """An entry for each row; None if it was changed."""
    entries = _unseal(path.read_text(encoding="ascii", errors="replace"))
    return None if entries is None else [_Entry(*entry) for entry in entries]


def _lock(folder: Path, bar: ProgressBar) -> IO[str]:
    """The folder for this process alone until the file is closed; waits for another's end."""
    said = False
    while True:
        try:
            return lock_folder(folder, "")
        except ValueError:
            if not said:
                bar.say(f"another run decodes pictures to {folder}: waiting for it")
            said = True
            time.sleep(LOOK_AGAIN)


# ---- Decoding ------------------------------------------------------------------------------------


class _Known(NamedTuple):
    """A row of another store."""

    entry: _Entry
    pixels: Path
    row: int


class _Task(NamedTuple):
    """A row to be filled: from the file, or from a row that is known of it."""

    row: int
    file: _File
    known: _Known | None


def _build(place: _Place, wanted: Sequence[_File], workers: int, bar: ProgressBar) -> None:
    """Fill the rows that are not done, and write the index."""
    done = _read_log(place.log)
    if place.keeps_pixels:
        with place.pixels.open("ab") as file:
            file.truncate(len(wanted) * place.row_bytes)
        pixels = np.memmap(place.pixels, np.uint8, "r").reshape(len(wanted), -1)
        done = {  # after a power failure a line may be there without its rows
            row: entry for row, entry in done.items() if _is_whole(entry, pixels[row])
        }
    known = _known_rows(place)
    missing = [
        _Task(row, file, known.get(file.path)) for row, file in enumerate(wanted) if row not in done
    ]
    if not bar.live:
        fresh = sum(task.known is None or task.known.entry.file != task.file for task in missing)
        bar.say(f"decoding {fresh:,} of {len(wanted):,} pictures")
    bar.begin("decoding", len(wanted), len(done))
    filling = _fill_all(place, missing, workers)
    with closing(filling), place.log.open("a", encoding="ascii") as log:
        for filled in filling:
            log.write(f"\n{_seal(filled)}")  # the last line may have been cut off
            log.flush()
            done |= filled
            bar.update(len(done))
    if place.keeps_pixels:
        with place.pixels.open("ab") as file:
            os.fsync(file.fileno())
    write_text(place.index, _seal([done[row] for row in range(len(wanted))]))


def _lack_of_room(place: _Place, count: int) -> str:
    """That the disk cannot hold what is not written yet; "" if it can."""
    written = place.pixels.stat().st_blocks * 512 if place.pixels.exists() else 0
    needed, free = count * place.row_bytes - written, shutil.disk_usage(place.folder).free
    if needed <= free:
        return ""
    return (
        f"no room to keep {count:,} decoded pictures: they need {needed:,} bytes, and the disk of "
        f"{place.folder} has {free:,} free; they are decoded anew whenever they are used"
    )


def _known_rows(place: _Place) -> dict[str, _Known]:
    """Rows of other files' stores, by the path of the picture."""
    known = dict[str, _Known]()
    for path in place.others():
        rows: Iterable[tuple[int, _Entry]] = ()
        if path.suffix == ".log":
            rows = _read_log(path).items()
        elif path.suffix == ".index":
            rows = enumerate(_read_index(path) or ())
        pixels = path.with_suffix(".pixels")
        if not pixels.exists():
            continue
        known |= {entry.path: _Known(entry, pixels, row) for row, entry in rows}
    return known


def _fill_all(
    place: _Place, tasks: Sequence[_Task], workers: int
) -> Generator[dict[int, _Entry], None, None]:
    """Entries of the rows, chunk by chunk; from several processes if that saves time."""
    least, most = CHUNK_PICTURES
    share = math.ceil(len(tasks) / (4 * workers))  # so that none is at work long after the others
    size = max(least, min(most, share, CHUNK_BYTES // place.row_bytes))
    chunks = deque(tasks[k : k + size] for k in range(0, len(tasks), size))
    target = place.pixels if place.keeps_pixels else None
    about, saved = (target, place.size, place.depth), 0.0
    while chunks and saved <= STARTING:
        began = time.perf_counter()
        filled = _fill(*about, chunks.popleft())
        saved = (time.perf_counter() - began) * len(chunks) * (1 - 1 / workers)
        yield filled
    if not chunks:
        return
    with WorkerPool(min(workers, len(chunks)), 1, lambda: None) as pool:
        calls = (
            (f"the decoding of {len(x)} pictures from {x[0].file.path} on", _fill, (*about, x))
            for x in chunks
        )
        yield from (filled for _, filled in pool.run(calls))


def _fill(path: Path | None, size: int, depth: int, tasks: Sequence[_Task]) -> dict[int, _Entry]:
    """Write rows of pixels, if there is a file for them; what is known of each."""
    pixels = np.zeros((len(tasks), size, size, 3), np.uint8)
    entries = [_read(task, row, depth) for task, row in zip(tasks, pixels, strict=True)]
    hashes = perceptual_hashes(pixels).tolist()
    if path is not None:
        with path.open("r+b") as file:
            for task, row in zip(tasks, pixels, strict=True):
                file.seek(task.row * row.nbytes)
                file.write(row.data)
    return {
        task.row: entry._replace(checksum=zlib.crc32(row.data), hash=number)
        for task, entry, row, number in zip(tasks, entries, pixels, hashes, strict=True)
    }


def _read(task: _Task, pixels: NDArray[np.uint8], depth: int) -> _Entry:
    """Fill a row, by decoding unless the file is the one that is known."""
    file, known = task.file, task.known
    if known is not None and known.entry.file == file and _copy(known, pixels):
        return known.entry
    content = Path(file.path).read_bytes()
    digest = file_digest(content)
    if known is not None and known.entry.digest == digest and _copy(known, pixels):
        return known.entry._replace(**file._asdict())
    try:
        picture = read_picture(content, len(pixels), depth=depth)
    except BrokenPicture as error:
        pixels[:] = 0  # a row that could not be taken over may be in it
        return _Entry(*file, digest, broken=str(error))
    pixels[:] = picture.pixels
    about = {name: getattr(picture, name) for name in ("width", "height", "frames", "brightest")}
    return _Entry(*file, digest, mode=picture.mode, **about)


def _copy(known: _Known, pixels: NDArray[np.uint8]) -> bool:
    """Whether the row that is known could be taken over."""
    try:
        with known.pixels.open("rb") as file:
            file.seek(known.row * pixels.nbytes)
            file.readinto(pixels.data)
    except OSError:
        return False
    return _is_whole(known.entry, pixels)


# ---- Reading -------------------------------------------------------------------------------------


def _map(place: _Place, count: int) -> tuple[list[_Entry], NDArray[np.uint8] | None]:
    """The entries and pixels of a store that is whole; None if it keeps no pixels."""
    entries, shape = _read_index(place.index), (count, place.size, place.size, 3)
    if entries is not None and not place.keeps_pixels:
        return entries, None
    length = place.pixels.stat().st_size if place.pixels.exists() else 0
    if entries is None or length != math.prod(shape):
        raise _altered(place.folder)
    return entries, np.memmap(place.pixels, np.uint8, "r", shape=shape)


def _is_whole(entry: _Entry, pixels: NDArray[np.uint8]) -> bool:
    """Whether a row is as it was written."""
    return zlib.crc32(pixels.data) == entry.checksum


def _check(entries: Sequence[_Entry], pixels: NDArray[np.uint8], folder: Path) -> None:
    """Raise unless every row is as it was written."""

    def are_whole(begin: int) -> bool:
        rows = range(begin, min(begin + CHUNK_PICTURES[1], len(entries)))
        return all(_is_whole(entries[row], pixels[row]) for row in rows)

    with ThreadPoolExecutor(cores()) as threads:
        if not all(threads.map(are_whole, range(0, len(entries), CHUNK_PICTURES[1]))):
            raise _altered(folder)


def _altered(folder: Path) -> ValueError:
    return ValueError(
        f"store must be as it was written, found other bytes in {folder}: delete it, and the "
        f"pictures are decoded anew"
    )


def _store(entries: Sequence[_Entry], pixels: Pixels, streamed: str) -> Store:
    columns = dict(zip(_Entry._fields, zip(*entries, strict=True), strict=True))

    def numbers(name: str) -> NDArray[np.int64]:
        return np.array(columns[name], np.int64)

    return Store(
        pixels=pixels,
        streamed=streamed,
        broken={row: entry.broken for row, entry in enumerate(entries) if entry.broken},
        digests=np.array(columns["digest"], np.bytes_),
        hashes=np.array(columns["hash"], np.uint64),
        widths=numbers("width"),
        heights=numbers("height"),
        modes=list(columns["mode"]),
        frames=numbers("frames"),
        brightest=numbers("brightest"),
    )
