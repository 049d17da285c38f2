"""Which pictures there are, and what they are labelled: from folders, or from a file of labels."""

from __future__ import annotations

import csv
import difflib
import io
import math
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".webp", ".tif", ".tiff", ".gif", ".bmp")
"""What names of pictures end in, in any case."""

DICOM = (".dcm", ".dicom", ".ima")

MISSING = ("", "nan", "<na>", "#n/a", "na", "n/a", "null", "?")
"""What stands for a missing value, in lower case, the surest first."""

MEANT = {"1": 1, "yes": 1, "true": 1, "0": 0, "no": 0, "false": 0, **dict.fromkeys(MISSING)}
"""What values of one of several columns of labels say, in lower case; None is not known."""

MOST_CLASSES = 100
MOST_SHOWN = 10
DECIMAL_COMMA, THOUSANDS = re.compile(r"\d*,\d+"), re.compile(r"[1-9]\d{0,2},\d{3}")
NUMBER = re.compile(r"(-?(?:0|[1-9]\d*))(?:\.(\d*?)0*)?")


class Listed(NamedTuple):
    """Pictures and their labels.

    Attributes:
        files: as they can be opened.
        names: as a person knows them: relative to the folder, with "/" between the parts.
        labels: of each picture; of several columns of labels 1, 0 or None, not known, for each.
        classes: the distinct labels; of two the negative first. Of several columns their names.
        group: of each picture; None if they have none.
        weight: of each picture; None if they count alike.
        notes: what is odd but usable, with counts.
    """

    files: tuple[Path, ...]
    names: tuple[str, ...]
    labels: tuple[str, ...] | tuple[tuple[int | None, ...], ...]
    classes: tuple[str, ...]
    group: tuple[str, ...] | None
    weight: NDArray[np.float64] | None
    notes: tuple[str, ...]

    @property
    def numbers(self) -> NDArray[Any]:
        """The place of each picture's label among the classes; of several columns (N, L) with NaN.

        That is what :class:`aucmax.ImageClassifier` trains on.
        """
        if isinstance(self.labels[0], tuple):
            return np.array(self.labels, np.float32)
        place = {label: number for number, label in enumerate(self.classes)}
        return np.array([place[label] for label in self.labels], np.int64)

    def and_also(self, others: Listed) -> Listed:
        """These pictures, then others of the same classes and columns."""
        group = weight = None
        if self.group is not None and others.group is not None:
            group = (*self.group, *others.group)
        if self.weight is not None and others.weight is not None:
            weight = np.concatenate([self.weight, others.weight])
        return Listed(
            files=self.files + others.files,
            names=self.names + others.names,
            labels=(*self.labels, *others.labels),
            classes=self.classes,
            group=group,
            weight=weight,
            notes=self.notes + others.notes,
        )


def list_source(
    source: Path,
    *,
    images: Path | None = None,
    path: str = "file",
    target: str | Sequence[str] | None = None,
    group: str | None = None,
    weight: str | None = None,
    positive: str | None = None,
    classes: Sequence[str] = (),
) -> Listed:
    """The pictures of a folder, which says their labels by its folders, or of a table of labels.

    Args:
        source: the folder, see :func:`list_folder`, or the table, see :func:`list_labels`, which
            alone takes the options from ``images`` to ``weight``.
        images: the folder of the table's files; None for that of the table.
        path: its column of files.
        target: its column of labels, or several columns.
        group: its column of groups.
        weight: its column of weights.
        positive: the label of the positives, of two; None takes the rarer.
        classes: see :func:`list_folder`.

    Raises:
        ValueError: if the source is neither, or cannot be used.
    """
    if source.is_dir():
        given = {"images": images, "target": target, "group": group, "weight": weight}
        if wrong := [name for name, value in given.items() if value is not None]:
            raise ValueError(
                f"{wrong[0]} must go with a table of labels, found it with the folder {source}"
            )
        return list_folder(source, positive=positive, classes=classes)
    if not source.is_file():
        raise ValueError(f"source must be a folder or a table of labels, found none at {source}")
    if source.suffix.lower() in SUFFIXES:
        raise ValueError(f"source must be a folder or a table of labels, found a picture, {source}")
    if target is None:
        columns = ", ".join(_columns_of(source, _read_text(source))[1]) or "none"
        raise ValueError(f"target must name the column of labels in {source}, one of {columns}")
    return list_labels(
        source, source.parent if images is None else images, path=path, target=target,
        positive=positive, group=group, weight=weight, classes=classes,
    )  # fmt: skip


def list_folder(
    folder: Path, *, positive: str | None = None, classes: Sequence[str] = ()
) -> Listed:
    """The pictures of a folder that has a folder for each class, at any depth below it.

    They come as people count: img2 before img10.

    Args:
        folder: that holds a folder for each class, named as the label.
        positive: the label of the positives, of two; None takes the rarer.
        classes: those of other pictures, all of which must be there, and no others; none if the
            folder's own are to be found.

    Raises:
        ValueError: if there are no pictures, or there is one class alone.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     for name in ("sick/a.png", "well/b10.png", "well/b9.png"):
        ...         (Path(folder) / name).parent.mkdir(exist_ok=True)
        ...         (Path(folder) / name).touch()
        ...     listed = list_folder(Path(folder))
        >>> listed.names
        ('sick/a.png', 'well/b9.png', 'well/b10.png')
        >>> listed.labels, listed.classes
        (('sick', 'well', 'well'), ('well', 'sick'))
    """
    found, notes = _pictures("folder", folder)
    inside = [name for name in found if "/" in name]
    if not inside:
        raise ValueError(
            f"folder must hold a folder for each class, found {len(found):,} pictures "
            f"directly in {folder} and none in folders of it"
        )
    if beside := len(found) - len(inside):
        notes.append(f"pictures beside the folders of the classes, left out: {beside:,}")
    words = [_readable(name.split("/", 1)[0]) for name in inside]
    _check_level(folder, inside)
    if empty := _folders(folder) - set(words):
        notes.append(f"no picture in {_some(sorted(empty, key=_natural))}")
    labels = _join_spellings(words, notes, classes)
    return Listed(
        files=tuple(folder / name for name in inside),
        names=tuple(map(_readable, inside)),
        labels=tuple(labels),
        classes=_find_classes("folder", folder, labels, classes, positive, notes),
        group=None,
        weight=None,
        notes=tuple(notes),
    )


def _check_level(folder: Path, names: Sequence[str]) -> None:
    """Raise for a folder of folders of classes: all that is in one has its like in the others."""
    below: dict[str, set[str]] = {}
    for name in names:
        first, *rest = name.split("/")
        below.setdefault(first, set()).add(rest[0] if len(rest) > 1 else "")
    alike = set.intersection(*below.values()) - {""}
    if len(below) > 1 and len(alike) > 1 and all(inside == alike for inside in below.values()):
        parts = sorted(below, key=_natural)
        train, test = (
            next((part for part in parts if part.lower().startswith(kind)), None)
            for kind in ("train", "test")
        )
        such = f", such as {folder / train}" if train else ""
        judged = f", with --test {folder / test} to judge by" if train and test else ""
        raise ValueError(
            f"folder must hold a folder for each class, found {_some(sorted(alike))} in each of "
            f"{_some(parts)}: name one of these{such}{judged}"
        )


def list_labels(
    labels: Path,
    images: Path,
    *,
    path: str,
    target: str | Sequence[str],
    positive: str | None = None,
    group: str | None = None,
    weight: str | None = None,
    classes: Sequence[str] = (),
) -> Listed:
    r"""The pictures that a table names, in its order.

    Args:
        labels: the table: CSV with commas, semicolons or tabs, and a header.
        images: the folder of the pictures.
        path: the column of files, below ``images`` or absolute; suffixes may be left out,
            or differ in case.
        target: the column of labels; or several columns, of labels that a picture may have at
            once, which hold 1 and 0, or yes and no, and nothing where that is not known.
        positive: the label of the positives, of two; None takes the rarer.
        group: the column that says which pictures belong together, such as the patient.
        weight: the column of weights.
        classes: see :func:`list_folder`.

    Raises:
        ValueError: if a column or a file is not there, a value cannot be used, a picture has two
            labels, or there is one class alone.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     for name in ("a.png", "b.png", "c.png"):
        ...         (Path(folder) / name).touch()
        ...     table = Path(folder) / "labels.csv"
        ...     _ = table.write_text("image,sick\nc,1\na,0\nb,0\n")
        ...     listed = list_labels(table, Path(folder), path="image", target="sick")
        >>> listed.names, listed.labels
        (('c.png', 'a.png', 'b.png'), ('1', '0', '0'))
    """
    several = not isinstance(target, str)
    targets = {"target": target} if isinstance(target, str) else _numbered(target)
    asked = {"path": path, **targets, "group": group, "weight": weight}
    columns: dict[str, list[Any]] = _read_columns(
        labels, {option: name for option, name in asked.items() if name is not None}
    )
    if several and positive is not None:
        raise ValueError(f"positive must go with one column of labels, found {positive!r}")
    if not images.is_dir():
        raise ValueError(f"images must be a folder, found {str(images)!r}, which is none")
    notes: list[str] = []
    if isinstance(target, str):
        columns["target"] = _leave_missing_out(columns["target"], target, classes, notes)
    else:
        columns["target"] = _side_by_side([columns.pop(x) for x in targets], target, notes)
    there = [row for row, word in enumerate(columns["target"]) if word]
    _check_groups(columns.get("group"), there, group)
    if weight is not None:
        columns["weight"] = _with_points(columns["weight"], there, weight, notes)
        _check_weights(columns["weight"], there, weight)
    columns = {option: [values[row] for row in there] for option, values in columns.items()}
    if not several:
        columns["target"] = _join_spellings(columns["target"], notes, classes)
    names = _find_files(columns.pop("path"), images, notes)
    first = _first_rows(names, columns, notes)
    known = {option: tuple(values[row] for row in first) for option, values in columns.items()}
    if several:
        _check_both(target, known["target"], labels)
        found = tuple(target)
    else:
        found = _find_classes("target", labels, known["target"], classes, positive, notes)
    return Listed(
        files=tuple(images / names[row] for row in first),
        names=tuple(_readable(names[row]) for row in first),
        labels=known["target"],
        classes=found,
        group=known.get("group"),
        weight=np.array(known["weight"], np.float64) if weight is not None else None,
        notes=tuple(notes),
    )


def list_unlabeled(
    source: Path,
) -> tuple[tuple[Path, ...], tuple[str, ...], tuple[str, ...]]:
    """The pictures of a folder, at any depth, or one picture: files, names and notes.

    Raises:
        ValueError: if there are none.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     (Path(folder) / "x-ray.png").touch()
        ...     files, names, notes = list_unlabeled(Path(folder))
        >>> names
        ('x-ray.png',)
    """
    if source.is_file():
        return (source,), (_readable(source.name),), ()
    found, notes = _pictures("source", source)
    return tuple(source / name for name in found), tuple(map(_readable, found)), tuple(notes)


# ---- Folders -------------------------------------------------------------------------------------


def _pictures(argument: str, folder: Path) -> tuple[list[str], list[str]]:
    """The pictures below a folder, by their names in it, and a note of what is none."""
    if not folder.is_dir():
        allowed = "a folder" if argument == "folder" else "a folder or a picture"
        raise ValueError(f"{argument} must be {allowed}, found {str(folder)!r}, which is none")
    try:
        names, skipped = _walk(folder)
    except OSError as error:
        raise ValueError(
            f"{argument} must be readable, found {error.filename!r}: {error.strerror}"
        ) from None
    others = ", ".join(f"{number:,} {kind}" for kind, number in sorted(skipped.items()))
    if not names and not skipped.keys().isdisjoint(DICOM):
        raise ValueError(
            f"{argument} must hold pictures ({', '.join(SUFFIXES)}), found {others} in {folder}: "
            f"DICOM is not read, since the window of grey levels is yours to choose; write PNG "
            f"files, for example with pydicom"
        )
    if not names:
        raise ValueError(
            f"{argument} must hold pictures ({', '.join(SUFFIXES)}), found {others or 'nothing'} "
            f"in {folder}"
        )
    return names, [f"skipped as no pictures: {others}"] if others else []


def _walk(folder: Path) -> tuple[list[str], Counter[str]]:
    """The pictures below a folder, and how many other files there are by suffix."""
    names: list[str] = []
    skipped: Counter[str] = Counter()
    waiting: list[tuple[str, frozenset[str]]] = [("", frozenset())]
    while waiting:
        start, above = waiting.pop()
        place = os.path.realpath(folder / start)
        if place in above:  # a link to a folder that it lies in
            continue
        with os.scandir(folder / start) as entries:
            for entry in entries:
                suffix = os.path.splitext(entry.name)[1].lower()
                if entry.name.startswith("."):
                    skipped["hidden"] += 1
                elif entry.is_dir():
                    waiting.append((f"{start}{entry.name}/", above | {place}))
                elif suffix in SUFFIXES:
                    names.append(start + entry.name)
                else:
                    skipped[_readable(suffix) or "without suffix"] += 1
    return sorted(names, key=_natural), skipped


def _folders(folder: Path) -> set[str]:
    """The names of the folders in a folder, but for hidden ones."""
    with os.scandir(folder) as entries:
        return {_readable(x.name) for x in entries if x.is_dir() and not x.name.startswith(".")}


def _natural(name: str) -> tuple[list[list[tuple[int, int, str]]], str]:
    """A key that sorts as people count, 2 before 10, and a folder's files together."""

    def key(piece: str) -> tuple[int, int, str]:
        digits = piece.lstrip("0")
        return (0, len(digits), digits) if piece[0] in "0123456789" else (1, 0, piece)

    parts = unicodedata.normalize("NFC", name).split("/")
    return [[key(piece) for piece in re.findall("[0-9]+|[^0-9]+", part)] for part in parts], name


def _readable(name: str) -> str:
    """A file's name as text that can be written, whatever its bytes are."""
    return os.fsencode(name).decode("utf-8", "replace")


# ---- The table of labels -------------------------------------------------------------------------


def _read_columns(labels: Path, asked: Mapping[str, str]) -> dict[str, list[str]]:
    """The columns asked for, by what they are for, as text without blanks around it."""
    text = _read_text(labels)
    delimiter, names = _columns_of(labels, text)
    _check_columns(labels, [name.strip() for name in names], asked)
    try:
        table = pyarrow.csv.read_csv(
            io.BytesIO(text.encode()),
            read_options=pyarrow.csv.ReadOptions(use_threads=False),  # which may outlive an error
            parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string())
            ),
        )
    except pa.ArrowInvalid as error:
        raise _no_table(labels, error) from None
    columns = dict(zip((name.strip() for name in names), table.columns, strict=True))
    return {
        option: [value.strip() for value in columns[name].to_pylist()]
        for option, name in asked.items()
    }


def _columns_of(labels: Path, text: str) -> tuple[str, list[str]]:
    """What stands between the columns of a table's text, and their names."""
    try:
        delimiter = max(",;\t", key=lambda one: len(_header(text, one)))
        return delimiter, _header(text, delimiter)
    except csv.Error as error:
        raise _no_table(labels, error) from None


def _no_table(labels: Path, error: Exception) -> ValueError:
    return ValueError(f"labels must be a table in CSV, found {str(labels)!r}: {error}")


def _read_text(labels: Path) -> str:
    try:
        content = labels.read_bytes()
    except OSError as error:
        raise ValueError(
            f"labels must be a file that can be read, found {str(labels)!r}: {error.strerror}"
        ) from None
    if content.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):  # xlsx, xls
        raise ValueError(
            f"labels must be a table in CSV, found an Excel file, {str(labels)!r}: save it as CSV"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _header(text: str, delimiter: str) -> list[str]:
    """The first row that is not empty."""
    return next(filter(None, csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)), [])


def _check_columns(labels: Path, names: Sequence[str], asked: Mapping[str, str]) -> None:
    """Raise unless each column asked for is there, once, and for one purpose."""
    taken: dict[str, str] = {}
    for option, name in asked.items():
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            known = [*near, *(other for other in names if other not in near)]
            raise ValueError(
                f"{option} must be a column of {labels}, found {name!r}, not in "
                f"{_some(known) or 'no columns'}"
            )
        if names.count(name) > 1:
            raise ValueError(
                f"{option} must be one column, found {names.count(name)} named {name!r}"
            )
        if name in taken:
            raise ValueError(
                f"{option} must be another column than the {taken[name]}, found {name!r} for both"
            )
        taken[name] = option


def _check_groups(values: Sequence[str] | None, rows: Sequence[int], name: str | None) -> None:
    wrong = [row for row in rows if values and values[row].lower() in MISSING]
    if wrong:
        raise ValueError(
            f"group must be a column without missing values, found {len(wrong):,} in {name!r}, the "
            f"first in row {wrong[0] + 1:,}: leave these rows out, or give each a group of its own"
        )


def _with_points(
    values: Sequence[str], rows: Sequence[int], name: str, notes: list[str]
) -> list[str]:
    """Weights with decimal points where they have commas, if these cannot be anything else."""
    written = [values[row] for row in rows if "," in values[row]]
    clear = all(DECIMAL_COMMA.fullmatch(x) for x in written) and not any("." in x for x in values)
    if not written or not clear:
        return list(values)
    if all(THOUSANDS.fullmatch(value) for value in written):
        raise ValueError(
            f"weight must be a column of numbers that are clear, found {written[0]!r} in {name!r}, "
            f"whose comma may be a decimal one or between thousands: write a point, or nothing"
        )
    notes.append(f"weights written with a decimal comma: {len(written):,}")
    return [value.replace(",", ".") for value in values]


def _check_weights(values: Sequence[str], rows: Sequence[int], name: str) -> None:
    for row in rows:
        if not 0 <= _number(values[row]) < math.inf:
            raise ValueError(
                f"weight must be a column of finite numbers of at least 0, found {values[row]!r} "
                f"in row {row + 1:,} of {name!r}, the first being 1"
            )
    if not any(_number(values[row]) for row in rows):
        raise ValueError(f"weight must be above 0 in some rows, found 0 in all of {name!r}")


def _number(text: str) -> float:
    """NaN if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _find_files(values: Sequence[str], images: Path, notes: list[str]) -> list[str]:
    """The name, relative to the folder if it is below it, of each file; all must be there."""
    below = os.path.abspath(images) + os.sep
    pictures_of = cache(_pictures_by_stem)
    names, lost, completed, respelled = [], [], 0, 0
    for value in values:
        name = os.path.normpath(value).removeprefix(below)
        if not os.path.isfile(os.path.join(images, name)):
            start, stem = os.path.split(name)
            fitting = pictures_of(images / start).get(stem, [])
            if not fitting:
                others = pictures_of(images / start).get(os.path.splitext(stem)[0], [])
                fitting = [other for other in others if other.lower() == stem.lower()]
                respelled += len(fitting)
            else:
                completed += len(fitting)
            if len(fitting) > 1:
                raise ValueError(f"path must name one file, found {_some(fitting)} for {value!r}")
            lost += [] if fitting else [value]
            name = os.path.join(start, *fitting)
        names.append(name)
    if lost:
        where = "; --images says which folder they are in" if len(lost) == len(values) else ""
        raise ValueError(
            f"path must name files in {images.resolve()}, found {len(lost):,} of {len(values):,} "
            f"that are not there: {_some(lost, 3)}{where}"
        )
    if completed:
        notes.append(f"files listed without their suffix: {completed:,}")
    if respelled:
        notes.append(f"files listed with a suffix that differs in case: {respelled:,}")
    return names


def _pictures_by_stem(folder: Path) -> dict[str, list[str]]:
    """The pictures right in a folder by their names without suffix."""
    stems: dict[str, list[str]] = {}
    for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
        stem, suffix = os.path.splitext(name)
        if suffix.lower() in SUFFIXES:
            stems.setdefault(stem, []).append(name)
    return stems


def _first_rows(
    names: Sequence[str], columns: Mapping[str, Sequence[str]], notes: list[str]
) -> list[int]:
    """The first row of each file; the others must say the same of it."""
    first: dict[str, int] = {}
    for row, name in enumerate(names):
        other = first.setdefault(name, row)
        for option, values in columns.items():
            if values[row] != values[other]:
                raise ValueError(
                    f"path must list each picture with one {option}, found {name!r} with "
                    f"{values[other]!r} and {values[row]!r}"
                )
    if again := len(names) - len(first):
        notes.append(f"rows that list a picture again, with the same label, left out: {again:,}")
    return list(first.values())


# ---- Labels --------------------------------------------------------------------------------------


def _numbered(target: Sequence[str]) -> dict[str, str]:
    """Several columns of labels by what errors call them: target, target 2, target 3."""
    return {f"target {k}" if k > 1 else "target": name for k, name in enumerate(target, 1)}


def _side_by_side(
    columns: Sequence[Sequence[str]], target: Sequence[str], notes: list[str]
) -> list[tuple[int | None, ...]]:
    """Of each row what several columns say, or nothing where none does."""
    meant = []
    for words, name in zip(columns, target, strict=True):
        keys = [_key(word) for word in words]
        wrong = [row for row, key in enumerate(keys) if key not in MEANT]
        if wrong:
            raise ValueError(
                f"target must be columns of 1 and 0, or yes and no, empty where that is not known, "
                f"found {words[wrong[0]]!r} in row {wrong[0] + 1:,} of {name!r}, the first being 1"
            )
        meant.append([MEANT[key] for key in keys])
    rows = [*zip(*meant, strict=True)]
    known = [row for row in rows if any(value is not None for value in row)]
    if silent := len(rows) - len(known):
        notes.append(f"rows without a label, left out: {silent:,}")
    unknown = [sum(value is None for value in column) for column in zip(*known, strict=True)]
    if any(unknown):
        counts = [f"{n:,} of {name!r}" for n, name in zip(unknown, target, strict=True) if n]
        notes.append(f"labels that are not known, of {len(known):,} rows: {', '.join(counts)}")
    return [row if any(value is not None for value in row) else () for row in rows]


def _check_both(target: Sequence[str], rows: Sequence[Sequence[int | None]], labels: Path) -> None:
    """Raise unless each column has positives and negatives."""
    for k, name in enumerate(target):
        found = sorted({row[k] for row in rows if row[k] is not None})  # type: ignore[type-var]
        if found != [0, 1]:
            raise ValueError(
                f"target must be columns that hold 1 and 0 both, found {found or 'neither'} in "
                f"{name!r} of {labels}"
            )


def _leave_missing_out(
    words: Sequence[str], target: str, classes: Sequence[str], notes: list[str]
) -> list[str]:
    """The words, empty where they stand for no label, such as "NA", if two labels remain."""
    keys, known = {_key(word) for word in words}, {_key(label) for label in classes}
    left, none = len(keys - {""}), {""}
    for mark in MISSING[1:]:
        if mark in keys and mark not in known and (known or left > 2):
            none.add(mark)
            left -= 1
    rows = Counter(word for word in words if _key(word) in none)
    if rows:
        said = ", ".join(f"{count:,} {word!r}" for word, count in sorted(rows.items()) if word)
        notes.append(
            f"rows without {target!r}, left out: {rows.total():,}" + (f" ({said})" if said else "")
        )
    return ["" if word in rows else word for word in words]


def _join_spellings(words: Sequence[str], notes: list[str], classes: Sequence[str]) -> list[str]:
    """Each label as most pictures have it: those that differ in case or blanks are one.

    Those of ``classes`` are named as there.
    """
    counts = Counter(words)
    spellings: dict[str, list[str]] = {}
    for word in sorted(counts, key=lambda word: (-counts[word], word)):
        spellings.setdefault(_key(word), []).append(word)
    names = {key: _clean(found[0]) for key, found in spellings.items()}
    names |= {_key(label): label for label in classes}
    joined = [
        ", ".join(f"{counts[word]:,} {word!r}" for word in found) + f" as {names[key]!r}"
        for key, found in spellings.items()
        if len(found) > 1 or (classes and found != [names[key]])
    ]
    if joined:
        notes.append(f"labels that differ in case, blanks or the like are joined: {joined[0]}")
        notes[-1] += "".join(f"; {one}" for one in joined[1:MOST_SHOWN])
    return [names[_key(word)] for word in words]


def _clean(word: str) -> str:
    """Without blanks around it or twice within; a number as short as can be."""
    word = " ".join(unicodedata.normalize("NFC", word).split())
    if number := NUMBER.fullmatch(word):
        whole, fraction = number.groups()
        return f"{whole}.{fraction}" if fraction else whole
    return word


def _key(word: str) -> str:
    """The same for all spellings of a label."""
    return _clean(word).casefold()


def _find_classes(
    argument: str,
    source: Path,
    labels: Sequence[str],
    classes: Sequence[str],
    positive: str | None,
    notes: list[str],
) -> tuple[str, ...]:
    """The distinct labels, which must be those of ``classes`` if there are any."""
    if not classes:
        return _order_classes(argument, labels, positive, notes)
    there = set(labels)
    if others := sorted(there - set(classes), key=_natural):
        raise ValueError(
            f"{argument} must have the labels {_some(classes)} alone, found {_some(others)} in "
            f"{source}"
        )
    if absent := [label for label in classes if label not in there]:
        raise ValueError(
            f"{argument} must have pictures of every label, found none of {_some(absent)} in "
            f"{source}"
        )
    return tuple(classes)


def _order_classes(
    argument: str, labels: Sequence[str], positive: str | None, notes: list[str]
) -> tuple[str, ...]:
    """The distinct labels; of two the positive last, with a note if it had to be guessed."""
    counts = Counter(labels)
    classes = sorted(counts, key=_natural)
    some = _some(classes)
    if len(classes) < 2:
        why = "".join(f"; {note}" for note in notes)
        raise ValueError(
            f"{argument} must have two classes or more, found {some or 'none'} alone{why}"
        )
    if len(classes) > MOST_CLASSES:
        raise ValueError(
            f"{argument} must have at most {MOST_CLASSES} classes, found {len(classes):,}: {some}"
        )
    if positive is not None:
        same = [label for label in classes if _key(label) == _key(positive)]
        if not same:
            raise ValueError(f"positive must be one of {some}, found {positive!r}")
        positive = same[0]
    if len(classes) > 2:
        if positive is None:
            return tuple(classes)
        raise ValueError(
            f"{argument} must have two classes where positive is given, found {len(classes)}: "
            f"{some}"
        )
    if positive is None:
        positive = _guess_positive(classes, counts, notes)
    return (*(label for label in classes if label != positive), positive)


def _guess_positive(classes: Sequence[str], counts: Counter[str], notes: list[str]) -> str:
    """The rarer of two labels, or the later."""
    first, second = classes
    if counts[first] == counts[second]:
        notes.append(
            f"{second!r} is taken as the positive label: both have {counts[second]:,} files, "
            f"and it comes later"
        )
        return second
    rarer = min(classes, key=counts.__getitem__)
    notes.append(
        f"{rarer!r} is taken as the positive label: {counts[rarer]:,} of {counts.total():,} files"
    )
    return rarer


def _some(values: Sequence[str], most: int = MOST_SHOWN) -> str:
    """The first of some values, for a message."""
    return ", ".join(map(repr, values[:most])) + (", ..." if len(values) > most else "")
