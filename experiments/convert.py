"""Freeze every record of the experiments and benchmarks in a few Parquet files.

    python experiments/convert.py --pilot paper_pilot.jsonl.gz          # write the new files
    python experiments/convert.py --pilot paper_pilot.jsonl.gz --check  # compare old and new

The clone has to have its whole history: it tells which records were edited after they were made.
"""

from __future__ import annotations

import argparse
import collections
import csv
import gzip
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "experiments" / "results"
OLD = ("experiments/results", "experiments/study", "benchmarks/results")
RUNS = re.compile(r"experiments/results/[^/]+/(runs|trials)/[^/]+\.json")
STUDY = re.compile(r"experiments/study/([^/]+)/[^/]+\.jsonl")
TABLES = re.compile(r"benchmarks/results/([^/]+)\.jsonl")
NUMBER = re.compile(r"\d(?:[\d,.]*\d)?")
UNKNOWN = "not recorded"

Record = dict[str, Any]
HISTORY = {
    "step": pa.int64(),
    "phase": pa.string(),
    "stage": pa.int64(),
    **dict.fromkeys(("lr", "seconds", "steps_per_second", "loss", "a", "b", "alpha"), pa.float64()),
    **dict.fromkeys(
        (
            f"{rows}_auc_{which}"
            for which in ("last", "average")
            for rows in ("train", "valid", "test")
        ),
        pa.float64(),
    ),
}
PROVENANCE = {
    **dict.fromkeys(("commit", "python", "torch", "aucmax", "hardware", "date"), pa.string()),
    "dirty": pa.bool_(),
    "edited_in": pa.string(),
}
COUNTS = dict.fromkeys(("counts_train", "counts_valid", "counts_test"), pa.list_(pa.int64()))
FIGURES = {
    "figures": pa.list_(pa.string()),
    **dict.fromkeys(("protocol", "dataset", "ratio", "line", "label"), pa.string()),
    "seed": pa.int64(),
    "steps": pa.int64(),
    **dict.fromkeys(("iterate", "precision", "settings"), pa.string()),
    **dict.fromkeys(("final", "final_last", "final_average"), pa.float64()),
    "chosen_step": pa.int64(),
    "chosen_iterate": pa.string(),
    "chosen_valid_auc": pa.float64(),
    "chosen_test_auc": pa.float64(),
    "seconds_per_step": pa.float64(),
    "seconds": pa.float64(),
    **COUNTS,
    "at_once": pa.int64(),
    **PROVENANCE,
    **{f"history_{name}": pa.list_(kind) for name, kind in HISTORY.items()},
    "format": pa.int64(),
    "files": pa.list_(pa.string()),
}
METRICS = ("roc_auc", "partial_auc@0.05", "tpr_at_fpr@0.01", "average_precision", "grouped_auc")
REGIMES = {
    **dict.fromkeys(("regime", "dataset", "condition", "model", "line"), pa.string()),
    "seed": pa.int64(),
    "options": pa.string(),
    "valid": pa.float64(),
    **dict.fromkeys(METRICS, pa.float64()),
    **COUNTS,
    "seconds": pa.float64(),
    **PROVENANCE,
    "key": pa.string(),
    "row": pa.int64(),
}
TABLE_RUNS = {
    "benchmark": pa.string(),
    "table": pa.string(),
    "split": pa.int64(),
    "method": pa.string(),
    **dict.fromkeys(("auc", "seconds", "promised", "limit"), pa.float64()),
    "weights": pa.string(),
    "models": pa.list_(pa.string()),
    "rows": pa.list_(pa.int64()),
    "positives": pa.list_(pa.int64()),
    "test": pa.string(),
    "threads": pa.int64(),
    "at_once": pa.int64(),
    **PROVENANCE,
    "row": pa.int64(),
}
OTHER = {
    "file": pa.string(),
    "path": pa.string(),
    "value": pa.float64(),
    "text": pa.string(),
    "dirty": pa.bool_(),
    "edited_in": pa.string(),
}
CURVE = tuple(x for x in HISTORY if x == "step" or "_auc_" in x)
PILOT = {
    **dict.fromkeys(("protocol", "dataset", "ratio", "line"), pa.string()),
    "eta0": pa.float64(),
    "T0": pa.int64(),
    "gamma": pa.int64(),
    "seed": pa.int64(),
    "steps": pa.int64(),
    "error": pa.string(),
    "iterate": pa.string(),
    "final": pa.float64(),
    "chosen_test_auc": pa.float64(),
    "seconds": pa.float64(),
    **{f"history_{name}": pa.list_(HISTORY[name]) for name in CURVE},
    "columns": pa.list_(pa.string()),
    **PROVENANCE,
    "row": pa.int64(),
}
PILOT_ORIGIN = {
    "protocol": "paper",
    "dataset": "cifar10",
    "ratio": "91/9",
    "commit": "233ab55",
    "python": UNKNOWN,
    "torch": UNKNOWN,
    "aucmax": "0.2.0",
    "hardware": "NVIDIA H200",
    "date": UNKNOWN,
}
# Edited before they were committed, as experiments/README.md of that time said.
SET_EARLIER = "experiments/results/figure1-long-catdog/runs/.*-seed0.json"


def git(*arguments: str) -> str:
    """Return what git prints."""
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def old_files() -> list[str]:
    """Return the paths of all old records, tracked by git, in order."""
    names = git("ls-files", *OLD, "docs/_tables").splitlines()
    return [x for x in names if x.endswith((".json", ".jsonl")) or x.startswith("docs/_tables/")]


def read(name: str, text: str | None = None) -> list[Any]:
    """Return the records of an old file."""
    text = (ROOT / name).read_text() if text is None else text
    if name.endswith(".jsonl"):
        return [json.loads(line) for line in text.splitlines()]
    return [json.loads(text)]


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each number, text, truth value and null with its path."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, f"{path}/{key.replace('/', '|')}")
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}/{index}")
    else:
        yield path, value


# What was edited -----------------------------------------------------------------------------


def measured(name: str, record: Record) -> str:
    """Return what identifies a training: its place and times, which no edit changes."""
    if RUNS.fullmatch(name):
        history = record["history"]
        parts = [record["line"], record["seconds"], history[0]["seconds"], history[-1]["loss"]]
    elif STUDY.fullmatch(name):
        settings = ("dataset", "condition", "model", "line", "seed", "options")
        parts = [name, *(record[x] for x in (*settings, "seconds", "valid", "test"))]
    else:
        parts = [name, *(record[x] for x in ("table", "split", "method", "auc", "seconds"))]
    return json.dumps(parts)


def versions_of_files() -> Iterator[tuple[str, str, str]]:
    """Yield (commit, path, text) for each version that an old file has had, oldest first."""
    log = git(
        "log",
        "--reverse",
        "--no-renames",
        "--diff-filter=AM",
        "--format=C %H",
        "--name-only",
        "--",
        *OLD,
    )
    wanted, commit = [], ""
    for line in log.splitlines():
        if line.startswith("C "):
            commit = line[2:]
        elif line.endswith((".json", ".jsonl")):
            wanted.append((commit, line))
    asked = "".join(f"{commit}:{name}\n" for commit, name in wanted)
    command = ["git", "cat-file", "--batch"]
    found = subprocess.run(command, cwd=ROOT, input=asked.encode(), capture_output=True, check=True)
    start = 0
    for commit, name in wanted:
        end = found.stdout.index(b"\n", start)
        size = int(found.stdout[start:end].split()[2])
        yield commit[:7], name, found.stdout[end + 1 : end + 1 + size].decode()
        start = end + size + 2


def find_edits() -> dict[tuple[str, str], list[str]]:
    """Return, by (file, training), the commits that changed a record that they did not make."""
    last: dict[tuple[str, str], dict[str, Any]] = {}
    edits: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for commit, name, text in versions_of_files():
        if not (RUNS.fullmatch(name) or STUDY.fullmatch(name) or TABLES.fullmatch(name)):
            continue
        for record in read(name, text):
            place = name, measured(name, record)
            new = dict(leaves(record))
            old = last.setdefault(place, new)
            if old != new:
                fields = {
                    x.removeprefix("/") for x in old.keys() | new.keys() if old.get(x) != new.get(x)
                }
                edits[place].append(f"{commit}: {', '.join(sorted(fields))}")
                last[place] = new
    for place in last:
        if re.fullmatch(SET_EARLIER, place[0]):
            edits[place].append("before 8da8f82: at_once")
    return edits


def owner(record: Any, path: str) -> str:
    """Return the innermost part of a JSON file around ``path`` that states its commit."""
    found, node, here = "", record, ""
    for key in path.split("/")[1:-1] if path else ():
        node = (
            node[int(key)]
            if isinstance(node, list)
            else next(x for k, x in node.items() if k.replace("/", "|") == key)
        )
        here += f"/{key}"
        if isinstance(node, dict) and ("commit" in node or "machine" in node):
            found = here
    return found


def find_other_edits() -> dict[tuple[str, str], list[str]]:
    """Return, by (file, path), the commits that changed provenance but no number beside it."""
    last: dict[str, dict[str, Any]] = {}
    edits: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for commit, name, text in versions_of_files():
        if RUNS.fullmatch(name) or STUDY.fullmatch(name) or TABLES.fullmatch(name):
            continue
        record = json.loads(text)
        old, new = last.get(name, {}), dict(leaves(record))
        parts: dict[str, list[str]] = collections.defaultdict(list)
        for path in new:
            parts[owner(record, path).removesuffix("/machine")].append(path)
        for paths in parts.values():
            same = all(old.get(x) == new[x] for x in paths if isinstance(new[x], float))
            changed = [x for x in paths if x in old and old[x] != new[x]]
            for path in paths:
                if not same:
                    edits.pop((name, path), None)
                elif path in changed:
                    edits[name, path].append(f"{commit}: {path.rsplit('/', 1)[-1]}")
        last[name] = new
    return edits


# Old to new ----------------------------------------------------------------------------------


def origin(record: Record, edits: Iterable[str] = ()) -> Record:
    """Return the columns of provenance.

    A commit of seven digits was handed in by whoever started the run, who may have changed the
    tree: ``dirty`` is null.
    """
    commit = record["commit"]
    return {
        "commit": commit,
        **record["versions"],
        "hardware": record["hardware"],
        "date": record["date"],
        "dirty": True if commit.endswith("-dirty") else False if len(commit) == 10 else None,
        "edited_in": "; ".join(dict.fromkeys(edits)) or None,
    }


def run_row(record: Record, figures: list[str], files: list[str], edits: list[str]) -> Record:
    """Return the row of a run of the paper's figures."""
    final, chosen = record["result"]["final"], record["result"]["chosen"] or {}
    names = ("protocol", "dataset", "ratio", "line", "label", "seed", "steps", "iterate")
    more = ("precision", "seconds_per_step", "seconds", "at_once", "format")
    return {
        "figures": figures,
        **{x: record[x] for x in (*names, *more)},
        "settings": json.dumps(record["configuration"]),
        "final": final[record["iterate"]],
        **{f"final_{x}": final[x] for x in ("last", "average")},
        **{f"chosen_{x}": chosen.get(x) for x in ("step", "iterate", "valid_auc", "test_auc")},
        **{f"counts_{x}": record["counts"].get(x) for x in ("train", "valid", "test")},
        **{f"history_{x}": [point[x] for point in record["history"]] for x in HISTORY},
        **origin(record, edits),
        "files": files,
    }


def run_rows(names: list[str], edits: dict[tuple[str, str], list[str]]) -> list[Record]:
    """Return a row per training; what serves several figures is one row with their list."""
    groups: dict[str, list[tuple[str, Record]]] = collections.defaultdict(list)
    for name in names:
        record = read(name)[0]
        groups[json.dumps({k: v for k, v in record.items() if k != "experiment"})].append(
            (name, record)
        )
    return [
        run_row(
            group[0][1],
            [record["experiment"] for _, record in group],
            [name for name, _ in group],
            [x for name, record in group for x in edits.get((name, measured(name, record)), [])],
        )
        for group in groups.values()
    ]


def study_rows(names: list[str], edits: dict[tuple[str, str], list[str]]) -> Iterator[Record]:
    """Yield a row per run of the study of regimes."""
    for name in names:
        regime = STUDY.fullmatch(name)[1]  # type: ignore[index]
        for number, record in enumerate(read(name)):
            same = ("dataset", "condition", "model", "line", "seed", "valid", "seconds", "key")
            yield {
                "regime": regime,
                **{x: record[x] for x in same},
                "options": json.dumps(record["options"]),
                **{x: record["test"].get(x) for x in METRICS},
                **{f"counts_{x}": record["counts"][x] for x in ("train", "valid", "test")},
                **origin(record, edits.get((name, measured(name, record)), ())),
                "row": number,
            }


def table_rows(names: list[str], edits: dict[tuple[str, str], list[str]]) -> Iterator[Record]:
    """Yield a row per fit of the comparison on tables."""
    for name in names:
        for number, record in enumerate(read(name)):
            weights = record.get("weights")
            yield {
                "benchmark": TABLES.fullmatch(name)[1],  # type: ignore[index]
                **{x: record.get(x) for x in TABLE_RUNS if x in record},
                "weights": None if weights is None else json.dumps(weights),
                **origin(record, edits.get((name, measured(name, record)), ())),
                "row": number,
            }


def other_rows(names: list[str]) -> Iterator[Record]:
    """Yield a row per value of every other file."""
    edits = find_other_edits()
    for name in names:
        if name.endswith(".rst"):
            for path, text in parts_of_page(ROOT / name):
                value = float(text.replace(",", "")) if NUMBER.fullmatch(text) else None
                yield {"file": name, "path": path, "value": value, "text": text}
            continue
        record = read(name)[0]
        values = dict(leaves(record))
        for path, value in values.items():
            where = owner(record, path)
            commit = values.get(f"{where}/commit", values.get(f"{where}/machine/commit"))
            yield {
                "file": name,
                "path": path,
                "value": float(value) if isinstance(value, int | float) else None,
                "text": json.dumps(value),
                "dirty": str(commit).endswith("-dirty") if commit else None,
                "edited_in": "; ".join(edits.get((name, path), ())) or None,
            }


def parts_of_page(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the lines and the cells of tables of a reStructuredText page, with their places."""
    table, row, column, kind = 0, -1, 0, ""
    header: list[str] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.strip()
        if line.startswith(".. list-table::") or line.startswith(".. csv-table::"):
            table, row, header, kind = table + 1, -1, [], line[3:6]
            yield f"line {number}", text
        elif not text:
            continue
        elif not line.startswith("   "):
            kind = ""
            yield f"line {number}", text
        elif kind == "csv" and not text.startswith(":"):
            row += 1
            for name, cell in zip(
                header, next(csv.reader([text], skipinitialspace=True)), strict=True
            ):
                yield f"table {table}/row {row + 1}/{name}", cell
        elif kind == "lis" and re.match(r"(\* )?- ?", text):
            row, column = (row + 1, 0) if text.startswith("* ") else (row, column + 1)
            cell = re.sub(r"^(\* )?- ?", "", text)
            if row == 0:
                header.append(cell)
            yield f"table {table}/row {row}/{header[column]}", cell
        else:
            if text.startswith(":header:"):
                header = next(csv.reader([text.removeprefix(":header: ")], skipinitialspace=True))
            yield f"line {number}", text


def pilot_result(line: str, curve: Record) -> Record:
    """Return the iterate of a line, its test AUC at the end, and that of the best validation."""
    iterate = "last" if line in ("sgd", "adagrad") else "average"
    if "test_auc_last" not in curve:
        return {"iterate": iterate}
    scored = [
        pair
        for which in ("last", "average")
        for pair in zip(curve[f"valid_auc_{which}"], curve[f"test_auc_{which}"], strict=True)
    ]
    best = max(scored, key=lambda pair: pair[0])
    return {
        "iterate": iterate,
        "final": curve[f"test_auc_{iterate}"][-1],
        "chosen_test_auc": best[1],
    }


def pilot_rows(path: Path) -> Iterator[Record]:
    """Yield a row per run of the pilot."""
    for number, line in enumerate(gzip.decompress(path.read_bytes()).splitlines()):
        record = json.loads(line)
        curve = dict(zip(record["columns"], zip(*record["curve"], strict=True), strict=True))
        yield {
            **PILOT_ORIGIN,
            **{x: record[x] for x in PILOT if x in record},
            **{f"history_{name}": curve.get(name) for name in CURVE},
            **pilot_result(record["line"], curve),
            "row": number,
        }


def write(name: str, rows: Iterable[Record], columns: dict[str, pa.DataType]) -> None:
    """Write a Parquet file, the same bytes for the same rows."""
    rows = list(rows)
    table = pa.Table.from_pylist(rows, pa.schema(list(columns.items())))
    pq.write_table(table, RESULTS / f"{name}.parquet", compression="zstd", compression_level=19)
    size = (RESULTS / f"{name}.parquet").stat().st_size
    print(f"{name}.parquet: {len(rows)} rows, {size / 1e6:.2f} MB")


def full_commit(short: str) -> str | None:
    """Return all digits of a commit, None if the history lacks it."""
    try:
        return git("rev-parse", "--verify", "--quiet", f"{short}^{{commit}}").strip()
    except subprocess.CalledProcessError:
        return None


def write_manifest(origins: list[tuple[str, Record]]) -> None:
    """Write the versions, hardware and commits of all rows, and how many rows have them."""
    names = ("commit", "python", "torch", "aucmax", "hardware")
    rows: dict[tuple[str, ...], collections.Counter[str]] = collections.defaultdict(
        collections.Counter
    )
    dates: dict[tuple[str, ...], set[str]] = collections.defaultdict(set)
    for name, record in origins:
        key = tuple(record[x] for x in names)
        rows[key][name] += 1
        dates[key].add(record["date"])
    listed = []
    for key in sorted(rows):
        short = key[0].split(",")[0].removesuffix("-dirty")
        full = full_commit(short)
        listed.append(
            {**dict(zip(names, key, strict=True)), "full_commit": full}
            | {"dates": sorted(dates[key]), "rows": dict(sorted(rows[key].items()))}
        )
    text = json.dumps({"origins": listed}, indent=1)
    (RESULTS / "manifest.json").write_text(text + "\n")
    print(f"manifest.json: {len(listed)} origins")


def convert(pilot: Path) -> None:
    """Write all Parquet files and the manifest."""
    names, edits = old_files(), find_edits()
    runs = [x for x in names if RUNS.fullmatch(x)]
    found = {
        "figures": (run_rows([x for x in runs if "/runs/" in x], edits), FIGURES),
        "trials": (run_rows([x for x in runs if "/trials/" in x], edits), FIGURES),
        "regimes": (list(study_rows([x for x in names if STUDY.fullmatch(x)], edits)), REGIMES),
        "tables": (list(table_rows([x for x in names if TABLES.fullmatch(x)], edits)), TABLE_RUNS),
        "pilot": (list(pilot_rows(pilot)), PILOT),
    }
    for name, (rows, columns) in found.items():
        write(name, rows, columns)
    write("other", other_rows(others(names)), OTHER)
    origins = [(name, row) for name, (rows, _) in found.items() for row in rows]
    for name in others(names):
        if name.endswith(".json"):
            origins += [("other", x) for x in stated_origins(read(name)[0])]
    write_manifest(origins)


def others(names: list[str]) -> list[str]:
    """Return the files that are not one record per run."""
    known = (RUNS, STUDY, TABLES)
    return [x for x in names if not any(pattern.fullmatch(x) for pattern in known)]


def stated_origins(record: Any) -> Iterator[Record]:
    """Yield the provenance that parts of a JSON file state."""
    if isinstance(record, list):
        for item in record:
            yield from stated_origins(item)
    elif isinstance(record, dict):
        if "versions" in record:
            yield {**record["versions"], **{x: record[x] for x in ("commit", "hardware", "date")}}
        elif "cores" in record:
            hardware = f"{record['device']}, {record['cores']} cores"
            known = {x: record[x] for x in ("commit", "python", "torch", "date")}
            yield {"aucmax": UNKNOWN, "hardware": hardware, **known}
        for item in record.values():
            yield from stated_origins(item)


# Old and new compared ------------------------------------------------------------------------


def nested(row: Record, prefix: str) -> list[Record]:
    """Return list columns as the list of records that they were."""
    columns = {
        k.removeprefix(prefix): v for k, v in row.items() if k.startswith(prefix) and v is not None
    }
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def with_origin(row: Record, record: Record) -> Record:
    """Return the record with the provenance of its row."""
    versions = {x: row[x] for x in ("python", "torch", "aucmax")}
    return record | {"versions": versions} | {x: row[x] for x in ("commit", "hardware", "date")}


def counts(row: Record) -> Record:
    """Return the counts of positives and negatives of each part."""
    names = ("train", "valid", "test")
    return {x: row[f"counts_{x}"] for x in names if row[f"counts_{x}"] is not None}


def restored_runs(row: Record) -> Iterator[tuple[tuple[str, int], Record]]:
    """Yield the records that a row was made of, each with its file."""
    names = ("protocol", "dataset", "ratio", "line", "label", "seed", "steps", "iterate")
    more = ("precision", "seconds_per_step", "seconds", "at_once", "format")
    chosen = {x: row[f"chosen_{x}"] for x in ("step", "iterate", "valid_auc", "test_auc")}
    result = {
        "final": {x: row[f"final_{x}"] for x in ("last", "average")},
        "chosen": None if row["chosen_step"] is None else chosen,
    }
    for figure, name in zip(row["figures"], row["files"], strict=True):
        yield (
            (name, 0),
            with_origin(row, {x: row[x] for x in (*names, *more)})
            | {
                "experiment": figure,
                "configuration": json.loads(row["settings"]),
                "history": nested(row, "history_"),
                "result": result,
                "counts": counts(row),
            },
        )


def restored() -> Iterator[tuple[tuple[str, int], Record]]:
    """Yield every old record, made of the new files alone."""
    for name in ("figures", "trials"):
        for row in pq.read_table(RESULTS / f"{name}.parquet").to_pylist():
            yield from restored_runs(row)
    for row in pq.read_table(RESULTS / "regimes.parquet").to_pylist():
        same = ("dataset", "condition", "model", "line", "seed", "valid", "seconds", "key")
        grouped = row["regime"] in ("groups", "pictures-sources")
        metrics = METRICS if grouped else METRICS[:-1]
        yield (
            (f"experiments/study/{row['regime']}/{row['dataset']}.jsonl", row["row"]),
            with_origin(
                row,
                {x: row[x] for x in same}
                | {"options": json.loads(row["options"]), "test": {x: row[x] for x in metrics}}
                | {"counts": counts(row)},
            ),
        )
    for row in pq.read_table(RESULTS / "tables.parquet").to_pylist():
        known = (
            "table",
            "split",
            "method",
            "auc",
            "seconds",
            "rows",
            "positives",
            "threads",
            "at_once",
        )
        some = {x: row[x] for x in ("test", "promised", "limit", "models") if row[x] is not None}
        if row["weights"] is not None:
            some["weights"] = json.loads(row["weights"])
        record = with_origin(row, {x: row[x] for x in known} | some)
        yield (f"benchmarks/results/{row['benchmark']}.jsonl", row["row"]), record
    for row in pq.read_table(RESULTS / "pilot.parquet").to_pylist():
        stored = ("line", "eta0", "T0", "gamma", "seed", "steps", "error", "seconds", "columns")
        curve = zip(*(row[f"history_{x}"] for x in row["columns"]), strict=True)
        yield (
            ("pilot", row["row"]),
            {x: row[x] for x in stored} | {"curve": [list(x) for x in curve]},
        )


def check(pilot: Path) -> int:
    """Compare each value of each old file with the one at its place in the new files."""
    new = {place: dict(leaves(record)) for place, record in restored()}
    other: dict[str, dict[str, Record]] = collections.defaultdict(dict)
    for row in pq.read_table(RESULTS / "other.parquet").to_pylist():
        other[row["file"]][row["path"]] = row
    compared, lost = collections.Counter[str](), 0
    for name in [*old_files(), "pilot"]:
        if name.endswith(".rst"):
            text = "\n".join(row["text"] for row in other.pop(name).values())
            old_numbers = NUMBER.findall((ROOT / name).read_text())
            compared["number"] += len(old_numbers)
            compared["file"] += 1
            if old_numbers != NUMBER.findall(text):
                lost += 1
                print(f"lost: numbers of {name}")
            continue
        if name == "pilot":
            records = [json.loads(x) for x in gzip.decompress(pilot.read_bytes()).splitlines()]
        else:
            records = read(name)
        compared["file"] += 1
        for index, record in enumerate(records):
            if (name, index) in new:
                here = new.pop((name, index))
            else:
                here = {path: json.loads(row["text"]) for path, row in other.get(name, {}).items()}
                values = {path: row["value"] for path, row in other.pop(name, {}).items()}
                numbers = {k: v for k, v in here.items() if isinstance(v, int | float)}
                lost += any(values[k] != v for k, v in numbers.items())
            for path, value in leaves(record):
                number = isinstance(value, int | float) and not isinstance(value, bool)
                compared["number" if number else "text, truth value or null"] += 1
                if path not in here or here.pop(path) != value:
                    lost += 1
                    print(f"lost: {name} {index} {path} {value!r}")
            if here:
                lost += len(here)
                print(f"in no old file: {name} {index} {here}")
    if new or other:
        lost += len(new) + len(other)
        print(f"in no old file: {[*new, *other]}")
    print(
        ", ".join(f"{count:,} x {kind}" for kind, count in sorted(compared.items())) + " compared"
    )
    print(f"{lost} lost")
    return lost


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pilot", type=Path, required=True, help="the gzipped JSONL of the pilot")
    parser.add_argument("--check", action="store_true", help="compare the new files with the old")
    given = parser.parse_args()
    if given.check:
        sys.exit(1 if check(given.pilot) else 0)
    convert(given.pilot)
