"""Write a finished part of a plan into a Parquet file of its own, which is never rewritten.

::

python -m experiments.freeze experiments/paper.toml figure1-digits --records runs/paper.jsonl
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from experiments.plan import Plan
from experiments.run import Records, read_records, records_file
from experiments.search import IncompleteError, roles

KEYS = (
    *("kind", "dataset", "ratio", "partition", "removed", "protocol", "condition", "model"),
    *("line", "seed", "steps"),
)
"""Settings that have columns of their own; all of them stand in the column of JSON text, too."""
GROUPS = ("history", "counts", "final", "chosen")
"""Mappings of a record that become columns, such as ``final_last``."""
ADDED = ("part", "roles", "iterate", "final")
"""Columns that freezing adds."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m experiments.freeze", description=__doc__)
    parser.add_argument("plan", type=Path)
    parser.add_argument("part")
    parser.add_argument("--records", type=Path, required=True, help="what experiments.run wrote")
    parser.add_argument("--code", help="hash of the code, if the records have several")
    parser.add_argument("--out", type=Path, help="experiments/results/PLAN-PART.parquet")
    parser.add_argument("--thaw", action="store_true", help="add the frozen part to --records")
    options = parser.parse_args(arguments)
    name = f"{options.plan.stem}-{options.part}.parquet"
    out = options.out or Path(__file__).parent / "results" / name
    if options.thaw:
        with records_file(options.records) as (known, file):
            for record in thaw(out):
                if record["id"] not in known:
                    file.write(json.dumps(record).encode() + b"\n")
        return
    if out.exists():
        raise SystemExit(f"{out} is there: a frozen part is never rewritten")
    rows = part_records(options.plan, options.part, read_records(options.records), options.code)
    table = as_table(rows)
    parquet.write_table(table, out, compression="zstd")
    print(f"{out}: {len(rows)} runs of code {rows[0]['code']}")


def part_records(
    plan: Path, part: str, records: Records, code: str | None = None
) -> list[dict[str, Any]]:
    """Return the records of a part's runs, in the plan's order.

    Those of a search have their ``roles``, those of images the ``iterate`` that the line returns.

    Raises:
        ValueError: if a run is missing, or records of several codes or versions of torch would
            mix.
    """
    known = {(record["code"], record["torch"]) for record in records.values()}
    complete = []
    for own_code, torch in sorted(known):
        own = Plan.read(plan, own_code, torch)
        try:
            uses = roles(own, part, records)
        except IncompleteError:
            continue
        if code in (None, own_code) and all(run.id in records for run in uses):
            rows = []
            for run, names in uses.items():
                returned = own.content["lines"][run.settings["line"]].get("returns")
                row = {"id": run.id, "part": part, **records[run.id], "iterate": returned}
                rows.append(row | {"roles": names} if names else row)
            complete.append(rows)
    if len(complete) != 1:
        raise ValueError(
            f"{part} must be complete for one code and one version of torch, found "
            f"{len(complete)} among {sorted(known)}: finish it, or name the code"
        )
    return complete[0]


def as_table(records: Sequence[dict[str, Any]]) -> pa.Table:
    """Make a table of all columns that any record has: a run that diverged has fewer."""
    rows = [as_row(record) for record in records]
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def as_row(record: dict[str, Any]) -> dict[str, Any]:
    """Flatten a record: mixed mappings are JSON text, others columns, histories lists."""
    settings = record["settings"]
    row: dict[str, Any] = {key: record[key] for key in ("id", "part") if key in record}
    row |= {key: settings[key] for key in KEYS if key in settings}
    for key, value in record.items():
        if key in ("settings", "versions"):
            row[key] = json.dumps(value, sort_keys=True)
        elif isinstance(value, dict):
            row |= {f"{key}_{name}": x for name, x in value.items()}
        else:
            row[key] = value
    if record.get("iterate"):  # images: test AUC at the end of what the line returns
        row["final"] = row.get(f"final_{record['iterate']}")
    return row


def thaw(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records that a frozen file was made of."""
    for row in parquet.read_table(path).to_pylist():
        record: dict[str, Any] = {}
        for name, value in row.items():
            group, _, key = name.partition("_")
            if group in GROUPS and key:
                record |= {group: record.get(group, {}) | {key: value}} if value is not None else {}
            elif name in ("settings", "versions"):
                record[name] = json.loads(value)
            elif name not in (*KEYS, *ADDED):
                record[name] = value
        yield record


if __name__ == "__main__":
    main()
