"""Run a regime of the study: what is missing, in processes, one line of JSON per run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from aucmax import checks, history
from aucmax.disk import lock_folder
from aucmax.history import History, Record
from aucmax.paper.datasets import data_folder
from aucmax.paper.libauc import require_libauc
from aucmax.paper.provenance import commit
from aucmax.processes import WorkerPool
from aucmax.progress import ProgressBar
from aucmax.signals import saying_so
from aucmax.study.problems import find_tables
from aucmax.study.settings import Regime, Run, find_regime, made
from aucmax.study.training import train_by_turns, train_run
from aucmax.threads import cores
from aucmax.train.options import find_device


def run_study(
    regime: str,
    *,
    datasets: Sequence[str] | None = None,
    data: str | Path | None = None,
    out: str | Path | None = None,
    workers: int | None = None,
    device: str = "auto",
    time_limit: float | None = None,
    beside: bool = False,
    progress: bool = True,
) -> Path:
    """Run what is missing of a regime of the study.

    Killed or stopped, the same call goes on: a run that is done is a line in
    ``out/REGIME/DATASET.jsonl``.

    Args:
        regime: a name in ``study.toml``, such as "noise".
        datasets: some of its data sets; None for all.
        data: the folder that holds ``tables/NAME.csv`` and the folders of pictures; None for
            ``$AUCMAX_DATA``, or "data".
        out: a folder for the results of all regimes; ``runs/study`` by default.
        workers: runs at once, each on one core; None for one per core, or eight on a GPU.
        device: of networks for pictures, "auto" for the GPU if there is one; tables take the CPU.
        time_limit: begin no more runs after so many seconds.
        beside: whether to run the lines beside those that are compared, too: LibAUC's losses, for
            which it must be installed, and ``objective="auto"``.
        progress: a bar in a terminal, lines elsewhere.

    Returns:
        The regime's folder.

    Raises:
        ValueError: for arguments that cannot be right, or tables that are not there.
    """
    plan = find_regime(regime, datasets)
    if not beside:
        plan = plan.objectives
    elif plan.lines == plan.objectives.lines:
        raise ValueError(f"beside must be False for {regime}, which has no such lines")
    else:
        require_libauc()
    where = str(find_device(device)) if plan.of_pictures else "cpu"
    on_gpu = where.startswith("cuda")
    by_default = 8 if on_gpu else cores()
    count = by_default if workers is None else checks.count("workers", workers)
    ends = None
    if time_limit is not None:
        seconds = checks.number("time_limit", time_limit, "seconds, >= 0", lambda x: x >= 0)
        ends = time.monotonic() + seconds
    root = data_folder(data)
    if not plan.of_pictures:
        if not (root / "tables").is_dir():
            raise ValueError(f"data must be a folder with one named tables, found none in {root}")
        find_tables(root, (x for x in plan.datasets if x not in made()))
    folder = Path(out or "runs/study") / regime
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["AUCMAX_COMMIT"] = commit() or ""  # of the code as it is now, for all workers
    refusal = f"out must be the folder of one command at a time, found another in {folder}"
    bar = ProgressBar(progress, "percentage", "time left", "note", width=24)
    with saying_so("the same command goes on"), lock_folder(folder, refusal), bar:
        for number, dataset in enumerate(plan.datasets, 1):
            if ends is not None and time.monotonic() > ends:
                bar.say("the time limit is reached: the same command goes on")
                break
            path = folder / f"{dataset}.jsonl"
            done = History(path, list(read_records(path).values()))
            with done, nullcontext() if on_gpu else WorkerPool(count, 1, lambda: None) as pool:
                for runs in _stages(plan, dataset, path):
                    begun = _until(ends, runs)
                    bar.begin(dataset, len(runs))
                    if pool is None:
                        trained = train_by_turns(begun, plan, root, where, count)
                    else:
                        trained = pool.run((run, train_run, (run, plan, root)) for run in begun)
                    for ended, (_, record) in enumerate(trained, 1):
                        done.append(record)
                        bar.update(ended)
            bar.say(
                f"{dataset}, {number} of {len(plan.datasets)}: {len(done.records)} runs are done"
            )
    return folder


def _stages(plan: Regime, dataset: str, path: Path) -> Iterator[list[Run]]:
    """What is missing of the trials, then of the runs with what is best of them."""
    done = read_records(path)
    yield [run for run in plan.trials(dataset) if run.key not in done]
    done = read_records(path)
    yield [run for run in best_runs(plan, dataset, done) if run.key not in done]


def best_runs(plan: Regime, dataset: str, done: Mapping[str, Record]) -> list[Run]:
    """The runs that are compared: those of every line at its best point on validation rows."""
    best: dict[tuple[str, str], tuple[float, Mapping[str, Any]]] = {}
    for run in plan.trials(dataset):
        value = done.get(run.key, {}).get("valid")
        line = run.setting.model, run.line
        if value is not None and (line not in best or value > best[line][0]):
            best[line] = value, run.options
    return plan.runs(dataset, {line: options for line, (_, options) in best.items()})


def read_records(path: Path) -> dict[str, Record]:
    """What is done, by key."""
    records = history.read(path) if path.exists() else []
    return {record["key"]: record for record in records}


def _until(ends: float | None, runs: Sequence[Run]) -> Iterator[Run]:
    for run in runs:
        if ends is not None and time.monotonic() > ends:
            return
        yield run
