"""An experiment from its plan to its page: tune if asked, run what is missing, draw."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aucmax import checks
from aucmax.paper import datasets
from aucmax.paper.commands import command_of
from aucmax.paper.figures import AXES, figure
from aucmax.paper.folder import Folder
from aucmax.paper.libauc import require_libauc
from aucmax.paper.page import write_page
from aucmax.paper.progress import RunsBar
from aucmax.paper.provenance import commit
from aucmax.paper.ratio_figure import summary_figure
from aucmax.paper.runner import Runner
from aucmax.paper.sentences import overview
from aucmax.paper.settings import Plan, Run, make_plan
from aucmax.paper.summary import summarize
from aucmax.paper.text_tables import text_table
from aucmax.paper.timing import read_timed_results, time_lines
from aucmax.paper.tune import command_options, plan_trials, tune_runs
from aucmax.report.drawing import svg
from aucmax.signals import saying_so
from aucmax.threads import cores
from aucmax.train.options import find_device


def reproduce(
    experiment: str,
    *,
    dataset: str = "digits",
    protocols: Sequence[str] | None = None,
    removed: Sequence[float] | None = None,
    lines: Sequence[str] | None = None,
    seeds: int | None = None,
    steps: int | None = None,
    tune: bool | Mapping[str, Sequence[Any]] = False,
    tune_steps: int | None = None,
    trials: int | None = None,
    data: str | Path | None = None,
    download: bool = False,
    out: str | Path | None = None,
    reuse: str | Path | None = None,
    workers: int | None = None,
    device: str = "auto",
    time_limit: float | None = None,
    time_alone: bool = False,
    progress: bool = True,
) -> Path:
    """Run an experiment of the paper and draw its figure.

    Interrupted, however roughly, the same call goes on and gives the same results: a run that is
    finished is a JSON file in ``out/runs``, and one that is not goes on from its last checkpoint.

    Args:
        experiment: "figure1", "figure1-long", "figure2", "figure3", or "readings" of the paper's
            split.
        dataset: "cifar10", "cifar100", "stl10", "catdog", or "digits", which needs no files.
        protocols: some of the experiment's; None for all, "paper" and "strong" of a figure.
        removed: fractions of the training negatives to remove; None for the experiment's.
        lines: some of the lines in ``settings.toml``; None for the experiment's.
        seeds: how many seeds; None for the experiment's.
        steps: of each run; None for the data set's.
        tune: True first searches a grid of eta0 ("lr"), gamma and the first stage's steps, T0
            ("first_stage"), on validation AUC, one seed each, at the most imbalanced of the
            ratios; the runs of all ratios then use what was found. A mapping is a grid of your
            own, such as ``{"lr": [0.1, 0.01]}``. False uses what earlier searches found. Needs
            Optuna, whose tools can look at the search.
        tune_steps: of each trial; None for a sixteenth of ``steps``, the paper's 5,000.
        trials: at most so many of the grid's points for each line; None for all.
        data: the folder of the data sets' files, see :func:`aucmax.paper.datasets.load`.
        download: fetch the files from the data set's own page if they are not there.
        out: a folder for the results; ``runs/EXPERIMENT-DATASET`` by default.
        reuse: a folder of earlier results, of another figure perhaps, from which runs of the very
            same settings are taken.
        workers: runs at once; None for one per core, or eight on a GPU. On a CPU they are
            processes, on a GPU they take turns in this one, see :func:`aucmax.sweep`.
        device: "auto" is the GPU if there is one.
        time_limit: begin no more runs after so many seconds.
        time_alone: then time some steps of every line, one after the other, for the figure by
            seconds; otherwise its times are those of ``workers`` runs at once.
        progress: a bar in a terminal, lines elsewhere.

    Returns:
        The page, ``out/index.html``.

    Raises:
        ValueError: for arguments that cannot be right, files that are not there or altered, or a
            folder that holds results of other settings.
    """
    where = str(find_device(device))
    by_default = 8 if where.startswith("cuda") else cores()
    count = by_default if workers is None else checks.count("workers", workers)
    deadline = None
    if time_limit is not None:
        seconds = checks.number("time_limit", time_limit, "seconds, >= 0", lambda x: x >= 0)
        deadline = time.monotonic() + seconds
    plan = make_plan(
        experiment, dataset, protocols=protocols, removed=removed, lines=lines, seeds=seeds,
        steps=steps, tuned=tune is False,
    )  # fmt: skip
    if experiment == "readings" and tune is not False:
        raise ValueError("tune must be False for readings, which have the settings of figure 1")
    if any(run.options["method"] == "libauc" for run in plan.runs):
        require_libauc()
    studies: dict[str, list[Run]] = {}
    if tune is not False:
        own = {} if tune is True else {name: list(values) for name, values in tune.items()}
        grids = plan.grids if tune is True else dict.fromkeys(plan.grids, own)
        studies = plan_trials(plan.runs, grids, tune_steps, trials)
    if reuse is not None and not (Path(reuse) / "runs").is_dir():
        raise ValueError(f"reuse must be a folder of results, with runs in it, found {reuse}")
    folder = Folder(Path(out or f"runs/{experiment}-{dataset}"))
    images = datasets.load(dataset, data, download=download, progress=progress)
    os.environ["AUCMAX_COMMIT"] = commit() or ""  # of the code as it is now, for all workers
    bar, runs = RunsBar(folder, progress), plan.runs
    with saying_so("the same command goes on"), folder.lock(), bar:
        earlier = None if reuse is None else Folder(Path(reuse))
        runner = Runner(folder, where, count, bar, deadline, images, earlier)
        if studies:
            how = command_options(tune, tune_steps, trials)
            runs = tune_runs(runs, studies, runner, how)
        runner.train("training", runs)
        if time_alone:
            time_lines([run for run in runs if run.seed == 0], runner)
        folder.tidy()
        return _write_report(plan, [run for run in runs if runner.is_done(run)], folder)


def _write_report(plan: Plan, runs: list[Run], folder: Folder) -> Path:
    """Figures, table and page of the runs, which are done."""
    if not runs:
        raise ValueError("time_limit must leave time for a run, found none finished")
    wanted = {(run.key, run.seed) for run in runs}
    results = [r for r in read_timed_results(folder) if (r.key, r.seed) in wanted]
    rows = summarize(results)
    table = f"{text_table(rows)}\n{overview(rows)}\n".lstrip()
    (folder.path / "table.txt").write_text(table, encoding="utf-8")
    svgs = {by: svg(figure(results, by=by)) for by in AXES}
    for by, drawn in svgs.items():
        (folder.path / f"by-{by}.svg").write_text(drawn, encoding="utf-8")
    svgs["summary"] = svg(summary_figure(rows))
    (folder.path / "summary.svg").write_text(svgs["summary"], encoding="utf-8")
    page = folder.path / "index.html"
    write_page(
        page, results, title=plan.title, wanted=plan.wanted, command=command_of(results), svgs=svgs,
    )  # fmt: skip
    return page
