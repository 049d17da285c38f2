"""Measure what the tests notice: mutate one place at a time and run the tests of its package.

    python tests/mutants.py --out build/mutants                 # draw, run, print the shares
    python tests/mutants.py --out build/new --drawn build/mutants/drawn.json --tree OTHER

A mutant flips a sign, shifts an index or moves a boundary. The same seed draws the same mutants of
the same source. `--drawn` applies mutants that were drawn from another tree, to compare two suites.
Only tests that execute the mutated line are run, by a coverage of the unmutated tree. The run is
resumable: mutants that have a record in OUT/records.jsonl are skipped.
"""

from __future__ import annotations

import argparse
import ast
import collections
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COUNTS = {
    "loss": 20,
    "optim": 20,
    "metrics": 20,
    "train": 20,
    "tables": 20,
    "images": 10,
    "judge,report": 10,
}
"""Mutants to draw of each package; packages joined by a comma are drawn from together."""
SIGNS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"}
BOUNDARIES = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}


def find_sites(path: Path) -> list[dict]:
    """Return every mutation of a file, as character ranges with their replacements."""
    text = path.read_text(encoding="utf-8")
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = text.splitlines()

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    sites = []

    def add(kind: str, start: int, end: int, new: str, line: int) -> None:
        sites.append({"kind": kind, "start": start, "end": end, "new": new, "line": line})

    def operator(left: ast.expr, right: ast.expr, new: str, kind: str) -> None:
        start = offset(left.end_lineno, left.end_col_offset)
        end = offset(right.lineno, right.col_offset)
        between = text[start:end]
        old = between.strip("() \n\t")
        if old and "#" not in between:
            at = start + between.index(old)
            add(kind, at, at + len(old), new, text.count("\n", 0, at) + 1)

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Raise | ast.JoinedStr):
            return  # the wording of errors and texts
        if isinstance(node, ast.BinOp) and type(node.op) in SIGNS:
            texts = [n for n in (node.left, node.right) if isinstance(n, ast.Constant)]
            if not any(isinstance(n.value, str) for n in texts):
                operator(node.left, node.right, SIGNS[type(node.op)], "sign")
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            at = offset(node.lineno, node.col_offset)
            add("sign", at, at + 1, "", node.lineno)
        if isinstance(node, ast.Compare) and type(node.ops[0]) in BOUNDARIES:
            operator(node.left, node.comparators[0], BOUNDARIES[type(node.ops[0])], "boundary")
        if isinstance(node, ast.Subscript):
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            for part in parts:
                bounds = (part.lower, part.upper) if isinstance(part, ast.Slice) else (part,)
                for bound in bounds:
                    if isinstance(bound, ast.Constant) and type(bound.value) is int:
                        start = offset(bound.lineno, bound.col_offset)
                        end = offset(bound.end_lineno, bound.end_col_offset)
                        add("index", start, end, str(bound.value + 1), bound.lineno)
        for name, child in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            for one in child if isinstance(child, list) else [child]:
                if isinstance(one, ast.AST):
                    visit(one)

    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
                    visit(statement)
    unique = {(s["start"], s["new"]): s for s in sites}
    for site in unique.values():
        own = lines[site["line"] - 1]
        site["text"] = own
        site["column"] = site["start"] - starts[site["line"] - 1]
        site["length"] = site["end"] - site["start"]
        site["occurrence"] = lines[: site["line"] - 1].count(own)
    return [unique[key] for key in sorted(unique)]


def draw(tree: Path, seed: int) -> list[dict]:
    """Draw the mutants of every package, without replacement, by the seed."""
    drawn = []
    for names, count in COUNTS.items():
        sites = []
        for name in names.split(","):
            for path in sorted((tree / "src/aucmax" / name).rglob("*.py")):
                relative = path.relative_to(tree).as_posix()
                sites += [{"package": names, "path": relative, **s} for s in find_sites(path)]
        random.Random(f"{seed} {names}").shuffle(sites)
        drawn += sites[:count]
    for number, site in enumerate(drawn):
        site["number"] = number
    return drawn


def mutate(tree: Path, site: dict) -> str | None:
    """Write the mutant and return the file's text before; None if its line is gone."""
    path = tree / site["path"]
    if not path.exists():
        return None
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    places = [i for i, line in enumerate(lines) if line.rstrip("\n") == site["text"]]
    if len(places) <= site["occurrence"]:
        return None
    at, start = places[site["occurrence"]], site["column"]
    line = lines[at]
    lines[at] = line[:start] + site["new"] + line[start + site["length"] :]
    site["line"] = at + 1
    path.write_text("".join(lines), encoding="utf-8")
    return text


def run_tests(tree: Path, arguments: list[str], limit: float) -> tuple[int | None, str]:
    """Run pytest in the tree; the return code is None if it ran past the limit."""
    path = os.pathsep.join([str(tree / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    process = subprocess.Popen(
        command,
        cwd=tree,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return None, output
    return process.returncode, output


def test_folders(tree: Path, names: str) -> list[str]:
    folders = [f"tests/{name}" for name in names.split(",")]
    return [folder for folder in folders if (tree / folder).is_dir()]


def measure_coverage(tree: Path, names: str, out: Path) -> dict[str, dict[int, list[str]]]:
    """Return the tests that execute each line, by file; run the unmutated tests if not known."""
    import coverage

    data = out / f"coverage-{names.replace(',', '-')}"
    if not data.exists():
        source = ",".join(f"src/aucmax/{name}" for name in names.split(","))
        config = tree / "mutants.coveragerc"
        config.write_text(f"[run]\ndata_file = {data}.part\nsource = src/aucmax\n")
        options = [
            "--cov=src/aucmax",
            "--cov-context=test",
            f"--cov-config={config}",
            "--cov-report=",
        ]
        code, output = run_tests(tree, [*options, *test_folders(tree, names)], 7200)
        if code:
            raise SystemExit(f"the unmutated tests of {names} fail ({source}):\n{output[-5000:]}")
        Path(f"{data}.part").rename(data)
    found = coverage.CoverageData(basename=str(data))
    found.read()
    tests = {}
    for file in found.measured_files():
        relative = file.partition("src/aucmax/")[2]
        tests[f"src/aucmax/{relative}"] = found.contexts_by_lineno(file)
    return tests


def select_tests(contexts: list[str], tree: Path, names: str) -> list[str]:
    """Return the tests to run for a line: all of the package if only a child process executes it.

    A line that a fixture executes may be noticed by any test of that file.
    """
    selected = set()
    for context in contexts:
        test, _, phase = context.rpartition("|")
        if test:
            selected.add(test if phase == "run" else test.partition("::")[0])
    whole = {test for test in selected if "::" not in test}
    kept = whole | {test for test in selected if test.partition("::")[0] not in whole}
    return sorted(kept) or test_folders(tree, names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of records and coverage")
    parser.add_argument("--tree", type=Path, default=ROOT, help="checkout whose tests are measured")
    parser.add_argument("--drawn", type=Path, help="mutants drawn before; default: draw from TREE")
    parser.add_argument("--packages", nargs="+", default=list(COUNTS), help="which to run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=600, help="seconds for one mutant's tests")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    out, source = options.out.resolve(), options.tree.resolve()
    drawn = json.loads(options.drawn.read_text()) if options.drawn else draw(source, options.seed)
    (out / "drawn.json").write_text(json.dumps(drawn, indent=1) + "\n")
    records = out / "records.jsonl"
    known = set()
    if records.exists():
        known = {json.loads(line)["number"] for line in records.read_text().splitlines()}

    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=source, capture_output=True, text=True
        )
        for name in filter(None, listed.stdout.split("\0")):
            if not name.startswith("experiments/results") and (source / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source / name, tree / name)
        for site in drawn:
            if site["number"] in known or site["package"] not in options.packages:
                continue
            tests = measure_coverage(tree, site["package"], out)
            before = mutate(tree, site)
            record = {key: site[key] for key in ("number", "package", "path", "line", "kind")}
            record.update(text=site["text"].strip(), new=site["new"], outcome="gone")
            if before is not None:
                contexts = tests.get(site["path"], {}).get(site["line"], [])
                chosen = select_tests(contexts, tree, site["package"])
                listing = tree / "mutants.txt"
                listing.write_text("\n".join(chosen) + "\n")
                began = time.monotonic()
                code, output = run_tests(tree, ["-x", f"@{listing}"], options.limit)
                (tree / site["path"]).write_text(before, encoding="utf-8")
                if "ERROR: not found" in output:
                    raise SystemExit(f"chosen tests are not there; was {out} made with other data?")
                outcome = "timeout" if code is None else "missed" if code == 0 else "caught"
                failed = [x for x in output.splitlines() if x.startswith(("FAILED", "ERROR"))]
                record.update(
                    outcome=outcome,
                    tests=len(chosen),
                    seconds=round(time.monotonic() - began, 1),
                    failed=failed[0][:200] if failed else None,
                )
            with records.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            print(json.dumps(record), flush=True)
    print_shares(records)


def print_shares(records: Path) -> None:
    """Print the share of mutants that the tests notice; a time-out counts as noticed."""
    counts = collections.defaultdict(collections.Counter)
    for line in records.read_text().splitlines():
        record = json.loads(line)
        for name in (record["package"], "all"):
            counts[name][record["outcome"]] += 1
    print(f"{'package':14} {'caught':>6} {'of':>4} {'share':>6}")
    for name, count in sorted(counts.items(), key=lambda item: item[0] == "all"):
        total = sum(count.values()) - count["gone"]
        caught = count["caught"] + count["timeout"]
        print(f"{name:14} {caught:6} {total:4} {caught / max(total, 1):6.0%}")


if __name__ == "__main__":
    main()
