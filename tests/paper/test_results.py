"""Reports: every number is the one that NumPy finds, and nothing that went wrong is hidden."""

import json
import math
import re
import zlib
from html.parser import HTMLParser
from itertools import combinations

import numpy as np
import pytest

from aucmax import paper
from aucmax.paper import curves, figures, sentences, text_tables
from aucmax.paper.results import parse_result
from aucmax.paper.settings import Wanted
from aucmax.paper.style import looks, positives_share
from aucmax.paper.summary import labels
from aucmax.report import style

LABELS = {
    "ppd-sg": "PPD-SG",
    "ppd-adagrad": "PPD-AdaGrad",
    "pga": "PGA",
    "oauc": "OAUC",
    "sgd": "SGD",
    "adagrad": "AdaGrad",
}
TOPS = dict(zip(LABELS, (0.95, 0.945, 0.93, 0.9, 0.94, 0.935), strict=True))
VOID = {"meta", "br", "hr", "img", "link", "input", "col"}


def make_run(line="ppd-sg", seed=0, ratio="91/9", protocol="paper", points=30, **changes):
    """A run whose curve saturates, with noise that its name and seed fix."""
    rng = np.random.default_rng(zlib.crc32(f"{line} {seed} {ratio} {protocol}".encode()))
    top = TOPS.get(line, 0.92) + rng.normal(0, 0.002)
    steps = [100 * k for k in range(1, points + 1)]
    average = [top - (top - 0.5) * math.exp(-step / 300) + rng.normal(0, 0.001) for step in steps]
    last = [x - 0.01 + rng.normal(0, 0.004) for x in average]
    history = [
        {"step": s, "phase": line, "test_auc_last": x, "test_auc_average": y, "loss": None}
        | {"valid_auc_last": x - 0.02, "valid_auc_average": y - 0.02}
        for s, x, y in zip(steps, last, average, strict=True)
    ]
    final = {"last": last[-1], "average": average[-1]}
    chosen = {"step": steps[-3], "iterate": "average", "valid_auc": 0.9, "test_auc": average[-3]}
    return {
        "format": 1,
        "experiment": "figure1",
        "protocol": protocol,
        "dataset": "cifar10",
        "ratio": ratio,
        "line": line,
        "label": LABELS.get(line, line),
        "seed": seed,
        "steps": steps[-1],
        "configuration": {"method": line, "lr": 0.1, "stages": {"T0": 1234}},
        "counts": {"train": [20000, 2222], "valid": [2500, 250], "test": [5000, 5001]},
        "history": history,
        "iterate": "last" if line in ("sgd", "adagrad") else "average",
        "result": {"final": final, "chosen": chosen},
        "seconds_per_step": 0.002 + 0.001 * seed,
        "seconds": 44.0,
        "commit": "abc1234",
        "versions": {"python": "3.12.3", "torch": "2.11.0"},
        "hardware": "A big GPU",
        "date": "2026-01-02",
        **changes,
    }


def make_runs(lines=LABELS, seeds=3, **options):
    return [make_run(line, seed, **options) for line in lines for seed in range(seeds)]


def records(runs):
    """The records that files of this content are read as."""
    return [parse_result(run, f"runs[{index}]") for index, run in enumerate(runs)]


def summarize(runs):
    return paper.summarize(records(runs))


def draw(runs, **options):
    return paper.figure(records(runs), **options)


def diverged(run, history=()):
    return {**run, "error": "training diverged at step 812", "result": None, "history": history}


def write(path, runs, **options):
    paper.write_page(path, records(runs), **{"title": "Figure 1", **options})
    return path.read_text("utf-8")


def plain(text):
    return text.replace("\xa0", " ")


# --- reading ------------------------------------------------------------------------------------


def test_results_are_read_from_all_folders_and_sorted_by_name(tmp_path):
    (tmp_path / "b").mkdir()
    for name, seed in (("z.json", 2), ("b/a.json", 1), ("a.json", 0)):
        (tmp_path / name).write_text(json.dumps(make_run(seed=seed)))
    (tmp_path / "other.json").write_text('{"key": 1}')
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "notes.txt").write_text("no result")
    runs = paper.read_results(tmp_path)
    assert [run.seed for run in runs] == [0, 1, 2]
    assert runs == paper.read_results(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "bad.json must be a JSON file"),
        ('{"format": 2}', "bad.json must have format 1, found 2"),
        ('{"format": 1, "experiment": "a"}', "bad.json must be the result of a run, found no prot"),
        (json.dumps(make_run(iterate="best")), "'last' or 'average', .*bad.json has 'best'"),
    ],
)
def test_a_file_that_is_no_result_is_named(tmp_path, text, message):
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        paper.read_results(tmp_path)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="found no folder"):
        paper.read_results(tmp_path / "none")


# --- summing up ---------------------------------------------------------------------------------


def test_rows_have_the_mean_and_spread_that_numpy_finds():
    runs = make_runs()
    rows = summarize(runs)
    assert [row.line for row in rows] == list(LABELS)
    for row in rows:
        own = [run["result"] for run in runs if run["line"] == row.line]
        ends = [run["history"][-1] for run in runs if run["line"] == row.line]
        for stat, values in (
            (row.last, [x["final"]["last"] for x in own]),
            (row.average, [x["final"]["average"] for x in own]),
            (row.chosen, [x["chosen"]["test_auc"] for x in own]),
            (row.final_valid, [x[f"valid_auc_{row.iterate}"] for x in ends]),
        ):
            assert stat.n == 3
            assert stat.mean == pytest.approx(np.mean(values), rel=1e-13)
            assert stat.sd == pytest.approx(np.std(values, ddof=1), rel=1e-9)
        assert row.shown is (row.last if row.line in ("sgd", "adagrad") else row.average)


def test_the_order_is_fixed_where_it_is_known():
    runs = make_runs(["new", "sgd", "also-new", "ppd-sg"], 1)
    runs += make_runs(["sgd"], 1, protocol="strong") + make_runs(["sgd"], 1, ratio="50/50")
    runs += make_runs(["sgd"], 1, ratio="odd")
    found = [(row.protocol, row.ratio, row.line) for row in summarize(runs[::-1])]
    assert found == [
        ("paper", "50/50", "sgd"),
        *[("paper", "91/9", line) for line in ("ppd-sg", "sgd", "also-new", "new")],
        ("paper", "odd", "sgd"),
        ("strong", "91/9", "sgd"),
    ]


def test_ratios_with_a_colon_are_sorted_as_numbers():
    assert sorted(("20:1", "5:1", "10:1"), key=positives_share) == ["5:1", "10:1", "20:1"]


def test_one_seed_has_no_spread():
    (row,) = summarize([make_run()])
    assert row.average.n == 1
    assert math.isnan(row.average.sd)
    assert f"{row.average.mean:.4f}" in paper.text_table([row])


def test_diverged_runs_are_counted_and_in_no_mean():
    runs = [make_run(seed=seed) for seed in range(4)]
    (clean,) = summarize(runs[1:])
    (row,) = summarize([diverged(runs[0], runs[0]["history"][:2]), *runs[1:]])
    assert (row.seeds, row.diverged) == (4, 1)
    assert (row.last, row.average, row.chosen) == (clean.last, clean.average, clean.chosen)
    assert "1 of 4" in paper.text_table([row])


def test_a_line_that_diverged_in_every_run_is_still_there():
    rows = summarize([diverged(run) for run in make_runs(["pga"])] + make_runs(["sgd"]))
    text = paper.text_table(rows)
    assert re.search(r"PGA +0 +diverged +diverged +diverged +3 of 3", text)
    assert "Diverged: PGA 3 of 3" in sentences.findings(rows)[0]


def test_missing_numbers_are_dashes_and_lower_n():
    runs = make_runs(["sgd"])
    runs[0]["result"]["final"]["average"] = None
    runs[1]["result"]["final"]["average"] = math.nan
    for run in runs:
        run["result"]["chosen"] = None
    (row,) = summarize(runs)
    assert (row.last.n, row.average.n, row.chosen.n) == (3, 1, 0)
    cells = [cell.text for cell in text_tables.cells_of(row, [row])]
    assert cells[3:5] == [f"{row.average.mean:.4f} (n = 1)", "–"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"steps": 99},
            r"steps must be the same .*sg \(paper, cifar10, 91/9\), found 3000, 99",
        ),
        ({"iterate": "last"}, "iterate must be the same"),
        ({"seed": 0}, r"must be there once, found more of \[0\]"),
        ({"experiment": "figure3"}, "one experiment, found figure1, figure3"),
        ({"result": {"final": {"last": "0.9"}}}, "must be a number or null, found '0.9'"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        summarize([make_run(), {**make_run(seed=1), **changes}])


def test_no_runs_are_refused(tmp_path):
    page = tmp_path / "page.html"
    for call in (paper.summarize, paper.figure, paper.summary_figure, lambda x: write(page, x)):
        with pytest.raises(ValueError, match="at least one"):
            call([])


def test_two_lines_of_one_name_are_told_apart():
    runs = [make_run("pga", label="X"), make_run("sgd", label="X"), make_run("oauc")]
    assert labels(records(runs)) == {"pga": "X (pga)", "sgd": "X (sgd)", "oauc": "OAUC"}


# --- tables -------------------------------------------------------------------------------------


def exact_runs(values, **options):
    """Runs whose every AUC at the end is given, by line; test curves do not end there."""
    runs = []
    for line, aucs in values.items():
        for seed, auc in enumerate(aucs):
            result = {
                "final": {"last": auc, "average": auc},
                "chosen": {"step": 1, "iterate": "last", "test_auc": auc, "valid_auc": auc},
            }
            run = make_run(line, seed, result=result, **options)
            run["history"][-1].update(valid_auc_last=auc, valid_auc_average=auc)
            runs.append(run)
    return runs


def test_the_best_is_marked_and_so_is_what_is_near_it():
    values = {"ppd-sg": [0.90, 0.92], "pga": [0.915, 0.895], "oauc": [0.89, 0.91], "sgd": [0.87]}
    rows = summarize(exact_runs(values))
    gaps = np.subtract(values["ppd-sg"], values["pga"])
    assert 0 < gaps.mean() < gaps.std(ddof=1) / math.sqrt(2)  # PGA is within
    assert np.allclose(np.subtract(values["ppd-sg"], values["oauc"]), 0.01)  # OAUC never is
    marks = [
        [(cell.best, cell.near) for cell in text_tables.cells_of(row, rows)[2:5]] for row in rows
    ]
    expected = [(True, False), (False, True), (False, False), (False, False)]
    assert marks == [[mark] * 3 for mark in expected]


def test_the_same_cells_are_in_every_table():
    rows = summarize(exact_runs({"ppd-sg": [0.90, 0.92], "pga": [0.915, 0.895]}))
    best, near = "0.9100 ± 0.0141", "0.9050 ± 0.0141"
    assert f"{best} *" in paper.text_table(rows)
    assert f"{near} †" in paper.text_table(rows)
    assert f"- **{best}**\n" in paper.rst_table(rows).replace("\u00a0", " ")
    assert f"- {near} †\n" in paper.rst_table(rows).replace("\u00a0", " ")
    assert f"<td><strong>{best}</strong></td>" in paper.html_table(rows)
    assert f"<td>{near} †</td>" in paper.html_table(rows)


def test_blocks_have_a_best_each():
    runs = make_runs(["ppd-sg", "sgd"]) + make_runs(["ppd-sg", "sgd"], protocol="strong")
    rows = summarize(runs)
    best = [text_tables.cells_of(row, rows)[3].best for row in rows]
    assert best == [True, False, True, False]


def test_markup_in_a_label_stays_text():
    rows = summarize([make_run(label="a*b_|`<b>")])
    assert r"- a\*b\_\|\`<b>" in paper.rst_table(rows)
    assert "a*b_|`&lt;b&gt;" in paper.html_table(rows)


def test_sphinx_can_read_the_table():
    docutils = pytest.importorskip("docutils.core")
    text = paper.rst_table(summarize(make_runs([*LABELS, "odd_name_"])))
    strict = {"halt_level": 2, "report_level": 2}
    tree = docutils.publish_doctree(text, settings_overrides=strict)
    assert len(list(tree.findall(lambda node: node.tagname == "row"))) == 8


# --- sentences ----------------------------------------------------------------------------------


def test_a_finding_says_who_is_best_and_by_how_much():
    rows = summarize(exact_runs({"ppd-sg": [0.95] * 3, "pga": [0.9] * 3, "sgd": [0.94] * 3}))
    (said,) = sentences.findings(rows)
    assert said.startswith("CIFAR-10, 91/9, paper's protocol: PPD-SG is best with 0.9500 ± 0.0000")
    assert "0.0100 above cross-entropy (SGD, last iterate). Below SGD: PGA." in said
    lead = sentences.overview(rows)
    assert "best there in 1 of 1 setting, 1 of them by more" in lead


def test_a_finding_compares_the_iterates_that_the_curves_show():
    runs = exact_runs({"ppd-sg": [0.95], "sgd": [0.94]})
    runs[0]["result"]["final"]["last"], runs[1]["result"]["final"]["average"] = 0.5, 0.99
    (said,) = sentences.findings(summarize(runs))
    assert "PPD-SG is best with 0.9500 (average iterate, n = 1), 0.0100 above" in said


def test_it_is_said_where_auc_maximization_does_not_win():
    rows = summarize(exact_runs({"ppd-sg": [0.93] * 3, "sgd": [0.94] * 3}))
    (said,) = sentences.findings(rows)
    assert "SGD is best" in said
    assert "AUC maximization does not win: PPD-SG is 0.0100 below it" in said
    lead = sentences.overview(rows)
    assert "in 0 of 1 setting. With the weights" in lead
    assert "weights that validation data chose, it is ahead in 0 of 1 setting" in lead


def test_another_cross_entropy_line_may_be_the_one_that_wins():
    rows = summarize(exact_runs({"ppd-sg": [0.95], "sgd": [0.94], "adagrad": [0.96]}))
    assert (
        "AUC maximization does not win: PPD-SG is 0.0100 below it." in sentences.findings(rows)[0]
    )
    assert "in 0 of 1 setting" in sentences.overview(rows)


def test_each_side_is_the_line_that_validation_prefers():
    runs = exact_runs({"ppd-sg": [0.95], "pga": [0.93], "oauc": [0.945], "sgd": [0.94]})
    runs[1]["result"]["chosen"]["valid_auc"] = 0.99
    runs[2]["history"][-1]["valid_auc_average"] = 0.99
    lead, (said,) = sentences.overview(summarize(runs)), sentences.findings(summarize(runs))
    assert "in 1 of 1 setting, on one seed" in lead  # OAUC, by the end
    assert "it is ahead in 0 of 1 setting" in lead  # PGA, by the weights chosen
    assert "validation chose: PGA 0.9300, SGD 0.9400." in said


def test_lines_are_compared_over_the_seeds_that_both_have():
    """The last seed is hard, and SGD was not run with it."""
    rows = summarize(exact_runs({"ppd-sg": [0.91, 0.92, 0.80], "sgd": [0.90, 0.90]}))
    ours, rival = rows
    assert ours.shown.mean < rival.shown.mean
    assert ours.shown.minus(rival.shown) == pytest.approx(0.015)
    said = plain(sentences.findings(rows)[0])
    assert "SGD is best with 0.9000 ± 0.0000 (last iterate, n = 2), but PPD-SG is on" in said
    assert "on shared seeds 0.0150 above it." in said
    assert "in 1 of 1 setting, 1 of them" in sentences.overview(rows)
    assert "it is ahead in 1 of 1 setting." in sentences.overview(rows)
    (other,) = summarize([make_run("sgd", 7)])  # no seed is shared
    assert ours.shown.minus(other.shown) == pytest.approx(ours.shown.mean - other.shown.mean)


def test_a_difference_within_the_noise_is_called_so():
    rows = summarize(exact_runs({"ppd-sg": [0.93, 0.96], "sgd": [0.92, 0.96]}))
    assert "which is within one standard error" in sentences.findings(rows)[0]
    assert "0 of them by more than one standard error" in sentences.overview(rows)
    assert "on one seed" in sentences.overview(summarize([make_run(), make_run("sgd")]))


def test_without_cross_entropy_nothing_is_compared_with_it():
    rows = summarize(make_runs(["ppd-sg", "t0-500"]))
    assert "no result of cross-entropy" in sentences.findings(rows)[0]
    assert sentences.overview(rows) == ""


@pytest.mark.parametrize(
    ("seeds", "wanted", "expected"),
    [
        ((1, 1), (3, 80_000, ["91/9"]), "A — 1 of 3 seeds, 3,000 of 80,000 steps"),
        ((2, 2), (3, 3_000, ["91/9"]), "A — 2 of 3 seeds, 3,000 steps"),
        ((1, 3), (3, 3_000, ["91/9"]), "A — 1 to 3 of 3 seeds, 3,000 steps"),
        ((3, 3), (3, 3_001, ["91/9"]), "A — 3 seeds, 3,000 of 3,001 steps"),
        ((3, 3), (3, 3_000, ["50/50", "91/9"]), "A — 91/9 alone, 3 seeds, 3,000 steps"),
        ((3, 3), (3, 3_000, ["91/9"]), "A — 3 seeds, 3,000 steps"),
        ((1, 1), (1, 3_000, []), "A — 1 seed, 3,000 steps"),
    ],
)
def test_the_title_says_how_much_was_run_and_what_is_missing(seeds, wanted, expected):
    runs = records(make_runs(["ppd-sg"], seeds[0]) + make_runs(["sgd"], seeds[1]))
    assert sentences.full_title("A", runs, Wanted(*wanted)) == expected


def test_the_title_of_all_that_was_wanted_lacks_nothing():
    assert sentences.full_title("A", records(make_runs())) == "A — 3 seeds, 3,000 steps"


# --- curves -------------------------------------------------------------------------------------


def aucs(run, iterate):
    return [record[f"test_auc_{iterate}"] for record in run["history"]]


@pytest.mark.parametrize(("line", "iterate"), [("ppd-sg", "average"), ("sgd", "last")])
def test_a_curve_is_the_mean_of_the_iterate_that_the_run_names(line, iterate):
    runs = make_runs([line])
    values = np.array([aucs(run, iterate) for run in runs])
    found = curves.curve(records(runs))
    np.testing.assert_allclose(found.mean, values.mean(0), rtol=1e-12)
    np.testing.assert_array_equal(found.high, values.max(0))
    np.testing.assert_array_equal(found.low, values.min(0))
    assert found.steps.tolist() == [record["step"] for record in runs[0]["history"]]


def test_one_seed_has_no_band():
    runs = make_runs(["ppd-sg"], 2)
    assert np.isnan(curves.curve(records(runs[:1])).high).all()
    assert len(panels(draw(runs))[0].collections) == 1
    assert not panels(draw(runs[:1]))[0].collections


def test_times_alone_and_times_shared_do_not_stand_in_one_panel():
    shared = make_runs(["sgd", "pga"], at_once=11) + make_runs(
        ["sgd"], protocol="strong", at_once=9
    )
    alone = make_runs(["ppd-sg"], at_once=1)
    first, second = panels(draw(shared + alone, by="seconds"))
    assert (len(first.lines), len(second.lines)) == (1, 1)
    assert sum(len(ax.lines) for ax in panels(draw(shared + alone))) == 4
    said = paper.caption_of_seconds(records(shared + alone))
    assert "up to 9 runs at once" in said
    assert "timed alone" in said
    assert "alone" not in paper.caption_of_seconds(records(shared))


def test_seconds_are_steps_times_the_mean_over_seeds():
    runs = make_runs(["sgd"])
    seconds = np.mean([run["seconds_per_step"] for run in runs])
    steps = np.array([record["step"] for record in runs[0]["history"]])
    (line,) = panels(draw(runs, by="seconds"))[0].lines
    np.testing.assert_allclose(line.get_xdata(), steps * seconds, rtol=1e-12)
    (line,) = panels(draw(runs))[0].lines
    np.testing.assert_array_equal(line.get_xdata(), steps)


def test_a_point_is_drawn_where_every_seed_has_a_value():
    runs = make_runs(["ppd-sg"], points=6)
    runs[0]["history"][2]["test_auc_average"] = None
    del runs[1]["history"][4]["test_auc_average"]
    runs[2]["history"] = runs[2]["history"][1:]
    assert curves.curve(records(runs)).steps.tolist() == [200, 400, 600]
    assert curves.curve(records([*runs, diverged(make_run(seed=3))])).steps.tolist() == [
        200,
        400,
        600,
    ]


def test_seeds_without_a_common_step_are_refused():
    runs = make_runs(["ppd-sg"], 2)
    runs[0]["history"], runs[1]["history"] = runs[0]["history"][:5], runs[1]["history"][5:]
    with pytest.raises(ValueError, match="'ppd-sg' have no step in common"):
        draw(runs)


def test_pretraining_is_a_part_of_the_curve():
    run = make_run(points=6)
    for record in run["history"][:2]:
        record.update(phase="sgd", test_auc_average=None)
    run["history"][3]["test_auc_average"] = None  # not pretraining: there is no value
    found = curves.curve(records([run]))
    assert found.steps.tolist() == [100, 200, 300, 500, 600]
    assert found.mean[:2].tolist() == aucs(run, "last")[:2]


def panels(figure):
    return [ax for ax in figure.axes if ax.axison]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def notes(ax):
    return " ".join(text.get_text() for text in ax.texts).replace("\n", " ")


def markers(ax):
    return [line.get_marker() for line in ax.lines]


def markers_of(lines, among):
    every = looks(among)
    return [every[line].marker for line in lines]


def test_a_row_per_protocol_and_a_column_per_ratio():
    runs = make_runs(["sgd"]) + make_runs(["sgd"], protocol="strong", ratio="50/50")
    figure = draw(runs)
    assert len(figure.axes) == 4
    assert [ax.get_title() for ax in figure.axes] == ["", "91/9", "50/50", ""]
    named = [ax.get_ylabel().split("\n\n")[0] for ax in panels(figure)]
    assert named == ["CIFAR-10\npaper's protocol", "CIFAR-10\nstrong protocol"]
    runs = make_runs(["sgd"]) + make_runs(["sgd"], ratio="50/50")
    assert [ax.get_title() for ax in draw(runs).axes] == ["50/50", "91/9"]


def test_by_must_be_known():
    with pytest.raises(ValueError, match="by must be one of 'step', 'seconds', found 'epoch'"):
        draw([make_run()], by="epoch")


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (500, "500"), (20000, "20k"), (2500, "2.5k"), (1.5e6, "1.5M")]
)
def test_numbers_on_axes_are_short(value, text):
    assert figures.short(value) == text


def test_later_values_lie_inside_the_panel():
    runs = make_runs()
    ax = panels(draw(runs))[0]
    low, high = ax.get_ylim()
    assert low > 0.7  # the start at 0.6 is cut off
    for line in ax.lines:
        late = line.get_ydata()[len(line.get_ydata()) // 2 :]
        assert low < late.min()
        assert late.max() < high


def test_a_peak_at_the_beginning_lies_inside_the_panel():
    runs = make_runs(["ppd-sg", "sgd"])
    for run in runs[:3]:
        run["history"][0]["test_auc_average"] = 0.999
    ax = panels(draw(runs))[0]
    assert ax.lines[0].get_ydata()[0] == pytest.approx(0.999)
    assert ax.get_ylim()[1] > 0.999


def test_a_row_shares_its_range_unless_a_panel_were_pressed_flat():
    near, far = {"a": (0.8, 0.9), "b": (0.81, 0.91)}, {"a": (0.8, 0.9), "b": (0.5, 0.6)}
    assert figures._shared(near) == {"a": (0.8, 0.91), "b": (0.8, 0.91)}
    assert figures._shared(far) == far


def test_what_diverged_is_named_in_the_panel():
    runs = make_runs(["sgd"]) + [diverged(run) for run in make_runs(["pga"])]
    figure = draw(runs)
    (ax,) = panels(figure)
    assert len(ax.lines) == 1
    assert [text.get_text() for text in ax.texts] == ["PGA diverged (3 of 3)"]
    assert legend(figure) == ["SGD"]
    assert "PGA diverged (3 of 3)" in paper.svg(figure)


def test_runs_without_values_or_times_are_named_too():
    runs = [make_run("sgd", history=[]), make_run("pga", seconds_per_step=None)]
    (ax,) = panels(draw(runs, by="seconds"))
    assert ax.texts[0].get_text() == "PGA: no times; SGD: no values"
    assert not ax.lines


def test_all_diverged_is_a_figure_still():
    assert "<svg" in paper.svg(draw([diverged(make_run())]))


FINALS = {
    "ppd-sg": [0.6],
    "ppd-adagrad": [0.7],
    "pga": [0.9],
    "oauc": [0.8],
    "sgd": [0.3, 1.0],  # a low mean of a low and a high seed
    "adagrad": [0.85],
    "seventh": [0.95],
    "eighth": [0.75],
}
MANY = list(FINALS)


def test_a_panel_draws_six_lines_and_names_those_that_are_in_the_table():
    runs = exact_runs(FINALS)
    for run in runs:  # the iterate that is not shown must not count
        other = {"last": "average", "average": "last"}[run["iterate"]]
        run["result"]["final"][other] = 1 - run["result"]["final"][run["iterate"]]
    figure = draw(runs)
    (ax,) = panels(figure)
    left = ["ppd-sg", "sgd"]
    drawn = [line for line in MANY if line not in left]
    assert markers(ax) == markers_of(drawn, MANY)
    assert notes(ax) == "PPD-SG and SGD: in the table"
    assert legend(figure) == [LABELS.get(line, line) for line in drawn]
    (ax,) = panels(draw([run for run in runs if run["line"] not in left]))
    assert len(ax.lines) == 6
    assert notes(ax) == ""


def test_of_equal_lines_the_first_are_drawn_and_those_without_a_final_value_last():
    runs = exact_runs({line: [0.9] for line in MANY[:7]})
    for ordered in (runs, runs[::-1]):
        assert notes(panels(draw(ordered))[0]) == "seventh: in the table"
    runs[0]["result"]["final"] = {"last": None, "average": None}
    for ordered in (runs, runs[::-1]):
        assert notes(panels(draw(ordered))[0]) == "PPD-SG: in the table"


def test_what_cannot_be_drawn_takes_no_place_of_a_line():
    runs = exact_runs(FINALS)
    seventh, eighth = (next(run for run in runs if run["line"] == x) for x in MANY[6:])
    seventh["history"] = []
    runs[runs.index(eighth)] = diverged(eighth)
    (ax,) = panels(draw(runs))
    assert markers(ax) == markers_of(LABELS, MANY)
    assert notes(ax) == "seventh: no values; eighth diverged (1 of 1)"


def test_a_line_that_another_panel_draws_is_in_the_legend():
    runs = exact_runs(FINALS)
    runs += exact_runs({"ppd-sg": [0.6]}, protocol="strong")
    figure = draw(runs)
    assert [len(ax.lines) for ax in panels(figure)] == [6, 1]
    assert notes(panels(figure)[0]) == "PPD-SG and SGD: in the table"
    assert "PPD-SG" in legend(figure)
    assert "SGD" not in legend(figure)


def test_a_line_looks_the_same_by_seconds():
    runs = [make_run("x", at_once=9), make_run("y", at_once=1)]
    (_, by_step), (by_seconds,) = (panels(draw(runs, by=by))[0].lines for by in figures.AXES)
    assert by_seconds.get_color() == by_step.get_color()
    assert by_seconds.get_marker() == by_step.get_marker()


@pytest.mark.parametrize("length", [3, 20, 30, 48])
def test_the_legend_is_no_wider_than_the_figure(length):
    figure = draw([make_run(line, label=line[:4].ljust(length, "e")) for line in LABELS])
    paper.svg(figure)
    extent = figure.legends[0].get_window_extent()
    assert extent.x0 >= 0
    assert extent.width <= figure.bbox.width


# --- the final test AUC by ratio ----------------------------------------------------------------


def sum_up(runs):
    return paper.summary_figure(summarize(runs))


def ratios(ax):
    return [label.get_text() for label in ax.get_xticklabels()]


def test_the_summary_shows_the_means_and_ranges_of_the_rows():
    runs = [
        run
        for protocol in ("paper", "strong")
        for ratio in ("91/9", "50/50", "71/29")
        for run in make_runs(protocol=protocol, ratio=ratio)
    ]
    rows, figure = summarize(runs), sum_up(runs)
    assert len(panels(figure)) == 2
    for ax, protocol in zip(panels(figure), ("paper", "strong"), strict=True):
        assert ratios(ax) == ["50/50", "71/29", "91/9"]
        assert markers(ax) == markers_of(LABELS, LABELS)
        for line, points, bars in zip(LABELS, ax.lines, ax.collections, strict=True):
            own = {
                row.ratio: row.shown for row in rows if (row.line, row.protocol) == (line, protocol)
            }
            x = points.get_xdata()
            assert np.rint(x).tolist() == [0, 1, 2]
            assert points.get_ydata().tolist() == [own[ratio].mean for ratio in ratios(ax)]
            for place, ratio, bar in zip(x, ratios(ax), bars.get_segments(), strict=True):
                values = own[ratio].by_seed.values()
                assert bar.tolist() == [[place, min(values)], [place, max(values)]]
                assert ax.get_ylim()[0] < min(values) < max(values) < ax.get_ylim()[1]
    assert legend(figure) == list(LABELS.values())


def test_the_summary_has_a_panel_per_dataset_and_protocol():
    runs = make_runs(["sgd", "pga"]) + make_runs(["sgd"], protocol="strong")
    runs += make_runs(["sgd"], dataset="stl10", protocol="strong", ratio="20:1")
    runs += make_runs(["sgd"], dataset="stl10", protocol="strong", ratio="10:1")
    figure = sum_up(runs)
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == ["paper's protocol", "strong protocol", "", "strong protocol"]
    assert [len(ax.lines) for ax in figure.axes] == [2, 1, 0, 1]
    named = [ax.get_ylabel().split("\n")[0] for ax in panels(figure)]
    assert named == ["CIFAR-10", "", "STL-10"]
    assert [ratios(ax) for ax in panels(figure)] == [["91/9"], ["91/9"], ["10:1", "20:1"]]


def test_lines_look_in_the_summary_as_they_do_in_the_curves():
    runs = make_runs(["sgd", "new", "ppd-sg", "newer"])
    for one, other in zip(*(panels(f(runs))[0].lines for f in (draw, sum_up)), strict=True):
        for look in ("color", "marker", "markersize"):
            assert getattr(one, f"get_{look}")() == getattr(other, f"get_{look}")()
        assert one._unscaled_dash_pattern == other._unscaled_dash_pattern


@pytest.mark.parametrize("ratios", [["91/9"], ["50/50", "71/29", "83/17", "91/9"]])
def test_points_of_one_ratio_do_not_cover_each_other(ratios):
    same = {line: [0.9, 0.8] for line in LABELS}
    runs = [run for ratio in ratios for run in exact_runs(same, ratio=ratio)]
    figure = sum_up(runs + make_runs(["sgd"], protocol="strong"))
    paper.svg(figure)  # which lays it out
    ax = panels(figure)[0]
    x = np.array([line.get_xdata() for line in ax.lines])
    points = ax.transData.transform([(value, 0.9) for value in x.T.flat])[:, 0] * 72 / figure.dpi
    assert len(points) == 6 * len(ratios)
    assert np.diff(points).min() > 5
    assert ax.get_xlim()[0] < x.min()
    assert x.max() < ax.get_xlim()[1]
    np.testing.assert_allclose(x.mean(0), range(len(ratios)), atol=1e-12)


def test_the_summary_draws_the_six_lines_that_are_best_over_its_ratios():
    changed = {**FINALS, "sgd": [0.99], "eighth": [0.1]}  # so that others are best over both
    runs = exact_runs(FINALS, ratio="50/50") + exact_runs(changed, ratio="91/9")
    figure = sum_up(runs)
    (ax,) = panels(figure)
    drawn = [line for line in MANY if line not in ("ppd-sg", "eighth")]
    assert markers(ax) == markers_of(drawn, MANY)
    assert notes(ax) == "PPD-SG and eighth: in the table"
    assert legend(figure) == [LABELS.get(line, line) for line in drawn]


def test_the_summary_names_what_diverged_and_shows_the_rest():
    runs = make_runs(["sgd", "pga"]) + make_runs(["sgd", "oauc"], ratio="50/50")
    runs += [diverged(run) for run in make_runs(["pga", "adagrad"], ratio="50/50")]
    runs[5] = diverged(runs[5])
    for run in runs:
        if run["line"] == "oauc":
            run["result"]["final"] = {"last": None, "average": None}
    figure = sum_up(runs)
    (ax,) = panels(figure)
    said = "PGA diverged (4 of 6); OAUC: no values; AdaGrad diverged (3 of 3)"
    assert notes(ax) == said
    assert [np.rint(line.get_xdata()).tolist() for line in ax.lines] == [[1], [0, 1]]
    assert legend(figure) == ["PGA", "SGD"]
    assert "<svg" in paper.svg(sum_up([diverged(make_run())]))


# --- black and white ----------------------------------------------------------------------------


def lightness(colour):
    """CIE L* of a colour, from 0 for black to 100 for white."""
    linear = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in linear]
    y = np.dot(linear, (0.2126, 0.7152, 0.0722))
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


def test_no_two_lines_share_dashes_and_marker():
    lines = looks([*LABELS, *(f"other-{i}" for i in range(50))]).values()
    assert len({(look.dashes, look.marker) for look in lines}) == len(lines) == 56
    runs = make_runs(LABELS, 1) + make_runs(["x", "y"], 1, protocol="strong")
    lines = [line for ax in panels(draw(runs)) for line in ax.lines]
    drawn = [(str(line._unscaled_dash_pattern), line.get_marker()) for line in lines]
    assert len(set(drawn)) == len(drawn) == 8
    assert len({marker for _, marker in drawn}) == 8
    assert len({dashes for dashes, _ in drawn}) == 7


@pytest.mark.parametrize("ground", [0, 1])
def test_the_first_eight_lines_differ_in_lightness(ground):
    paper = (style.PAPER, style.DARK_GROUND[style.PAPER])[ground]
    values = [lightness(pair[ground]) for pair in style.COLOURS]
    assert len(values) == 8
    assert min(abs(x - y) for x, y in combinations(values, 2)) > 6
    assert min(abs(x - lightness(paper)) for x in values) > 20


def test_known_lines_keep_their_look_and_others_take_what_is_free():
    every, few = looks(LABELS), looks(["new", "sgd", "pga"])
    assert (few["sgd"], few["pga"]) == (every["sgd"], every["pga"])
    assert few["new"] == every["ppd-sg"]


def test_markers_are_few():
    (ax,) = panels(draw(make_runs(seeds=1, points=100)))
    for line in ax.lines:
        first, every = line.get_markevery()
        assert 3 <= len(range(first, 100, every)) <= 8


# --- SVG ----------------------------------------------------------------------------------------


def test_the_same_runs_give_the_same_bytes():
    import matplotlib as mpl

    runs = make_runs(["ppd-sg", "sgd"])
    figure = draw(runs)
    text = paper.svg(figure)
    assert text == paper.svg(figure)
    with mpl.rc_context({"font.size": 30, "svg.fonttype": "path", "lines.linewidth": 9}):
        assert text == paper.svg(draw(runs))
    assert "2026" not in text
    assert text.startswith("<svg ")


def test_labels_are_text_as_they_are():
    text = paper.svg(draw([make_run(label="_a $b$ <b>")]))
    assert "_a $b$ &lt;b&gt;</text>" in text


def test_drawing_leaves_no_settings_behind():
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    paper.svg(draw([make_run()]))
    assert dict(mpl.rcParams) == before


# --- the page -----------------------------------------------------------------------------------


class Balance(HTMLParser):
    """Fails at a tag that closes another than the last one opened; collects ids and text."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.ids, self.text = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.ids += [value for name, value in attributes if name == "id"]

    def handle_endtag(self, tag):
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def parse(text):
    parser = Balance()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    return parser


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page that several tests look at, in a folder that was not there."""
    path = tmp_path_factory.mktemp("page") / "new" / "page.html"
    text = write(path, make_runs(), command="repeat me")
    assert list(path.parent.iterdir()) == [path]
    return text


def test_the_page_is_whole_html_that_loads_nothing(page):
    parser = parse(page)
    assert parser.tags.count("svg") == 3
    assert parser.tags.count("h1") == 1
    assert not {"script", "link", "img", "iframe"} & set(parser.tags)
    assert len(set(parser.ids)) == len(parser.ids)
    addresses = re.findall(r'(\S*?)="?https?://', page)
    assert set(addresses) <= {"xmlns", "xmlns:xlink"}
    assert not re.search(r"@import|url\((?!#)", page)
    referred = re.findall(r'(?:url\(|href=")#([^)"]+)', page)
    assert referred
    assert set(referred) <= set(parser.ids)


def test_the_page_has_the_numbers_and_where_they_come_from(page):
    runs, text = make_runs(), plain(page)
    for row in summarize(runs):
        assert f"{row.average.mean:.4f} ± {row.average.sd:.4f}" in text
    for expected in ("repeat me", "abc1234", "torch 2.11.0"):
        assert expected in text
    assert "<td>20,000 + 2,222</td><td>2,500 + 250</td><td>5,000 + 5,001</td>" in text
    assert text.count("<dt>stages.T0</dt><dd>1234</dd>") == len(runs)
    assert "PPD-SG, seed 2: CIFAR-10, 91/9, paper&#39;s protocol" in text
    assert "A big GPU" in text
    assert "2026-01-02" in text


def test_the_summary_comes_first_on_the_page(page, tmp_path):
    heads = re.findall(r"<h2>(.*?)</h2>", page)
    first = ["What was found", "Final test AUC by ratio", "Test AUC by iteration"]
    assert heads[:3] == first
    assert page.index('aria-label="Final test AUC') < page.index('aria-label="Test AUC against it')
    mine = {"summary": '<svg width="72pt"><title>mine</title></svg>'}
    text = write(tmp_path / "page.html", make_runs(["sgd"]), svgs=mine)
    assert text.index("Final test AUC by ratio") < text.index("<title>mine</title>")
    assert text.count("<svg") == 3


def test_everything_from_data_is_escaped(tmp_path):
    bad = "<b>&\"'"
    run = make_run(
        label=bad,
        dataset=bad,
        ratio=bad,
        protocol=bad,
        hardware=bad,
        commit=bad,
        date=bad,
        error=bad,
        configuration={bad: {bad: bad}},
        versions={bad: bad},
    )
    runs = [run, {**run, "seed": 1, "error": None}]
    text = write(tmp_path / "page.html", runs, title=bad, command=bad)
    assert "<b>" not in text
    assert "b" not in parse(text).tags
    assert "&lt;b&gt;&amp;" in text


def test_the_page_is_coloured_by_variables(page):
    head, body = page.split("</style>", 1)
    for light, dark in style.COLOURS:
        assert light in head
        assert dark in head
        assert light not in body
    assert "stroke: var(--line-0)" in body
    used = set(re.findall(r"var\((--[\w-]+)\)", page))
    assert all(f"{name}: " in page for name in used)


def test_the_page_says_what_diverged(tmp_path):
    runs = [*make_runs(["sgd"]), *(diverged(run) for run in make_runs(["pga"]))]
    text = write(tmp_path / "page.html", runs)
    parse(text)
    assert text.count("PGA diverged (3 of 3)") == 3
    assert "<td>3 of 3</td>" in text
    assert text.count("training diverged at step 812") == 3
    assert "PGA, seed 0: CIFAR-10, 91/9, paper&#39;s protocol (diverged)" in text


def test_a_page_of_next_to_nothing_says_what_is_missing(tmp_path):
    empty = {"counts": None, "configuration": None, "versions": None, "seconds_per_step": None}
    run = {**diverged(make_run()), **empty}
    text = write(tmp_path / "page.html", [run], wanted=Wanted(3, 80_000, ()))
    parse(text)
    for tag in ("h1", "title"):
        assert f"<{tag}>Figure 1 — 1 of 3 seeds, 3,000 of 80,000 steps</{tag}>" in text
    assert "No run has recorded its time." in text
    assert "<td>–</td><td>–</td><td>–</td>" in text


def test_the_same_runs_give_the_same_page(page, tmp_path):
    again = write(tmp_path / "a.html", make_runs(), command="repeat me")
    assert again == page


def test_a_page_that_fails_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("old")
    monkeypatch.setattr("os.replace", lambda *_: 1 / 0)
    monkeypatch.setattr("aucmax.paper.page._figures", lambda *_: [])
    with pytest.raises(ZeroDivisionError):
        write(path, [make_run()])
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_every_public_name_is_there_and_described():
    assert all(getattr(paper, name).__doc__ for name in paper.__all__)
