"""The page of a classifier: its numbers are scikit-learn's, and no data can break it."""

import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from evaluations import (
    interval,
    make_classes,
    make_ensemble,
    make_evaluation,
    make_model,
    make_rows,
)
from scipy.stats import binomtest
from sklearn.metrics import (
    average_precision_score,
    confusion_matrix,
    precision_score,
    recall_score,
    roc_auc_score,
)

from aucmax import metrics
from aucmax.judge import binary, training
from aucmax.judge.evaluation import Evaluation, Importance, Peer
from aucmax.judge.interval import Interval
from aucmax.report import figures, rendering, sections, words
from aucmax.report.page import write_model_page

SECTIONS = [
    "answer", "roc", "precision", "probabilities", "calibration", "training", "thresholds",
    "importance", "data", "made",
]  # fmt: skip
SEVERAL = [
    "answer", "classes", "predictions", "calibration", "training", "importance", "data", "made",
]  # fmt: skip
VOID = {"meta", "br", "hr", "img", "link", "input", "col"}
NASTY = "<script>alert('&\"')</script>"


class Page(HTMLParser):
    """Fails at a tag that closes another than the last one opened; collects what is there."""

    def __init__(self, source):
        super().__init__()
        self.source = source
        self.open, self.tags, self.ids, self.links, self.words = [], [], [], [], []
        self.tables = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        found = dict(attributes)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [v for k, v in attributes if k in ("src", "href", "xlink:href")]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" in self.open[-1:]:
            return
        self.words.append(data)
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words).replace("\xa0", " "))

    def table(self, head):
        """The cells below the heads of the table whose first head this is."""
        (found,) = (table for table in self.tables if table[0][0] == head)
        return [[cell.replace("\xa0", " ") for cell in line] for line in found]


def write(folder, evaluation):
    path = folder / "page.html"
    write_model_page(path, Evaluation.from_dict(evaluation))
    return Page(path.read_text("utf-8"))


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """A page that several tests look at, and what it was made of."""
    evaluation = make_evaluation()
    return write(tmp_path_factory.mktemp("usual"), evaluation), evaluation


def rows_of(evaluation):
    return Evaluation.from_dict(evaluation).rows


def percent_of(text):
    return float(text.split(" %")[0]) / 100


# --- numbers ------------------------------------------------------------------------------------


def test_rates_match_sklearn(usual):
    page, evaluation = usual
    p, y = evaluation["probability"], evaluation["classes"]
    heads, nothing, *lines, everything = page.table("Threshold")
    assert heads[:5] == ["Threshold", "Flagged", "Precision", "Recall", "Specificity"]
    assert nothing[:5] == ["flag nothing", "0 %", "–", "0 %", "100 %"]
    assert everything[1] == "100 %"
    assert 7 <= len(lines) <= 11
    for name, flagged, precision, recall, specificity, *_ in lines:
        flags = p >= percent_of(name)
        tn, fp, _, _ = confusion_matrix(y, flags).ravel()
        assert percent_of(flagged) == pytest.approx(flags.mean(), abs=6e-4)
        assert percent_of(precision) == pytest.approx(precision_score(y, flags), abs=6e-4)
        assert percent_of(recall) == pytest.approx(recall_score(y, flags), abs=6e-4)
        assert percent_of(specificity) == pytest.approx(tn / (tn + fp), abs=6e-4)
    assert [x[0] for x in lines if "model" in x[0]] == ["23 % (the model's)"]
    assert [percent_of(x[0]) for x in lines] == sorted(percent_of(x[0]) for x in lines)[::-1]


def test_costs_match_the_confusion_matrix(usual):
    page, evaluation = usual
    p, y = evaluation["probability"], evaluation["classes"]
    heads, *lines = page.table("Threshold")
    assert heads[5:] == ["Cost at 1×", "Cost at 5×", "Cost at 20×"]
    cuts = [2.0, *(percent_of(line[0]) for line in lines[1:-1]), -1.0]
    for column, ratio in ((5, 1), (6, 5), (7, 20)):
        expected = []
        for cut in cuts:
            _, fp, fn, _ = confusion_matrix(y, p >= cut).ravel()
            expected.append(1000 * (fp + ratio * fn) / len(y))
        shown = [line[column] for line in lines]
        values = [float(text.strip("★ ").replace(",", "")) for text in shown]
        np.testing.assert_allclose(values, expected, atol=0.051)
        marked = ["★" in text for text in shown]
        assert marked == [cost == min(expected) for cost in expected]


def test_auc_and_average_precision_match_sklearn(usual):
    page, evaluation = usual
    p, y = evaluation["probability"], evaluation["classes"]
    auc, low, high = (evaluation["auc"][name] for name in ("value", "low", "high"))
    assert auc == pytest.approx(roc_auc_score(y, p))
    said = f"in {100 * auc:.0f} of 100 cases (95 % interval {100 * low:.0f} to {100 * high:.0f})."
    assert f"Ranks a random “yes” above a random “no” {said}" in page.text
    assert f"the AUC, {roc_auc_score(y, p):.3f}." in page.text
    assert f"curve, is {average_precision_score(y, p):.3f}; guessing" in page.text
    assert f"base rate, {y.mean():.3f}, that is, {100 * y.mean():.1f} %" in page.text


def test_histogram_shows_the_confusion_matrix(usual):
    page, evaluation = usual
    flags = evaluation["probability"] >= evaluation["threshold"]
    tn, fp, fn, tp = confusion_matrix(evaluation["classes"], flags).ravel()
    for said in (f"“yes”: {fn} missed", f"{tp} found", f"“no”: {tn} left", f"{fp} false alarms"):
        assert said in page.text
    precision = precision_score(evaluation["classes"], flags)
    assert f"Precision {100 * precision:.1f} % {tp} of {tp + fp} flagged rows" in page.text
    assert f"{tp} of {tp + fn} “yes” are flagged" in page.text


def test_band_is_drawn_around_the_curve(usual):
    rows = rows_of(usual[1])
    found = binary.curves(rows)
    (band,) = painted(figures.roc, rows, found).axes[0].patches
    inner = np.c_[found.fpr, found.tpr][(found.fpr > 0.05) & (found.tpr < 0.95)]
    assert band.get_path().contains_points(inner).all()
    assert not band.get_path().contains_points(inner[:, ::-1]).any()


def test_calibration_groups_match_wilson(usual):
    page, evaluation = usual
    p, y = evaluation["probability"], evaluation["classes"]
    _, *lines = page.table("Predicted")
    order = np.argsort(p)
    for line, rows in zip(lines, np.array_split(order, 10), strict=True):
        assert percent_of(line[0]) == pytest.approx(p[rows].mean(), abs=6e-4)
        assert line[3] == f"{y[rows].sum()} of {len(rows)}"
        low, high = binomtest(int(y[rows].sum()), len(rows)).proportion_ci(0.95, "wilson")
        assert [percent_of(x) for x in line[2].split(" to ")] == pytest.approx(
            [low, high], abs=6e-4
        )
    agree = int(re.search(r"In (\d+) of 10 groups the interval holds", page.text)[1])
    assert agree >= 8
    assert f"says {100 * p.mean():.1f} %; {100 * y.mean():.1f} % of the rows" in page.text


def painted(paint, *args):
    from matplotlib.figure import Figure

    figure = Figure()
    paint(figure, *args)
    return figure


@pytest.mark.parametrize("share", [0.04, 0.5])
@pytest.mark.parametrize("threshold", [0.0, 0.23, 1.0])
def test_histogram_bars_hold_every_row(share, threshold):
    rows = rows_of(make_evaluation(*make_rows(share=share), threshold=threshold))
    assert figures.is_by_odds(rows.probability) == (share < 0.1)
    counts = rows.counts_at(threshold)
    sides = ((counts.missed, counts.hits), (counts.left_alone, counts.false_alarms))
    for ax, expected in zip(painted(figures.histogram, rows, "row").axes, sides, strict=True):
        cut = ax.lines[0].get_xdata()[0]
        heights = [[], []]
        for bar in ax.patches:
            heights[int(bar.get_x() >= cut)].append(bar.get_height())
        assert tuple(map(sum, heights)) == expected


# --- words --------------------------------------------------------------------------------------


def peer(name, auc, p):
    return Peer(name, Interval(auc, auc - 0.02, auc + 0.02), p)


def test_verdict():
    say = words.verdict
    better, same, worse = peer("a", 0.8, 0.049), peer("b", 0.86, 0.05), peer("c", 0.9, 0.001)
    assert say(0.87, [better]) == (
        "It ranks better than a. As far as ranking goes, it was worth it."
    )
    assert say(0.87, [same, better]) == (
        "It ranks better than a. It is not distinguishable from b: the difference may be chance. "
        "If that is simpler to keep, it may serve as well."
    )
    assert "It ranks worse than c. For ranking, c is the better choice." in say(0.87, [same, worse])
    assert "was not compared" in say(0.87, [])
    two = [peer("c", 0.9, 0.01), peer("e", 0.95, 0.01)]
    assert say(0.87, two).endswith("than e and c. For ranking, e is the better choice.")
    assert "a, a, a, a and 3 others" in say(0.87, [better] * 7)


def test_peers_are_listed(usual):
    page, evaluation = usual
    heads, ours, other = page.table("Model")
    assert heads[2] == "95 % interval"
    assert ours[:2] == ["this model", f"{evaluation['auc']['value']:.3f}"]
    difference = evaluation["auc"]["value"] - 0.5
    rest = ["0.500", "0.400 to 0.600", f"+{difference:.3f}", "0.003", "0.4 s"]
    assert other == ["logistic regression", *rest]


@pytest.mark.parametrize(
    ("auc", "expected"),
    [
        ((0.87, 0.84, 0.89), ["87", "84", "89"]),
        ((0.8712, 0.868, 0.874), ["87.1", "86.8", "87.4"]),
        ((0.99934, 0.95, 0.9999), ["99.93", "95.00", "99.99"]),
        ((1.0, 0.83, 1.0), ["100", "83", "100"]),
    ],
)
def test_auc_is_never_rounded_to_perfection(auc, expected):
    found = words.of_hundred(Interval(*auc))
    assert found == expected


@pytest.mark.parametrize(
    ("auc", "digits"), [((0.87, 0.84), 3), ((0.87, 0.869), 4), ((0.99997, 0.9), 5), ((1.0, 0.9), 3)]
)
def test_decimals_of_an_auc(auc, digits):
    assert words.decimals(Interval(auc[0], auc[1], auc[0])) == digits


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 %"), (1, "100 %"), (0.0873, "8.7 %"), (0.0004, "0.04 %"), (0.99996, "99.996 %")],
)
def test_percent(value, text):
    assert words.percent(value).replace("\xa0", " ") == text


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.0004, "< 0.001"), (0.003, "0.003"), (0.0497, "0.0497"), (0.34, "0.34")],
)
def test_p_text(p, text):
    assert words.p_text(p) == text


def test_kept_weights_are_the_best_of_both_iterates(usual):
    page, evaluation = usual
    last, average = (
        [(record[f"valid_auc_{x}"] or 0, record["step"]) for record in evaluation["history"]]
        for x in ("last", "average")
    )
    best = max(average)
    assert best > max(last)
    said = f"averaged weights with AUC {best[0]:.4f} on the validation rows at step {best[1]}"
    assert said in page.text
    assert "the best of 56 evaluations" in page.text
    scores = training.training(evaluation["history"], "roc_auc")
    ax = painted(figures.training, scores).axes[0]
    assert [line.get_label() for line in ax.lines] == ["latest weights", "averaged weights", "kept"]
    assert (ax.lines[-1].get_ydata()[0], ax.lines[-1].get_xdata()[0]) == best


def test_short_name():
    names = [f"{'a rather long name ' * 4}{k}" for k in range(3)]
    shown = [words.short_name(name, 22) for name in names]
    assert shown == [f"a rather l…long name {k}" for k in range(3)]
    assert words.short_name("age\n", 22) == "age"


# --- the page -----------------------------------------------------------------------------------


def assert_whole(page, shown):
    """Well-formed, with its sections in order and in the contents, and without what is loaded."""
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert len(set(page.ids)) == len(page.ids)
    assert set(re.findall(r'(\S*?)="?https?://', page.source)) <= {"xmlns", "xmlns:xlink"}
    assert not re.search(r"@import|url\((?!#)", page.source)
    assert set(re.findall(r"url\(#([^)]+)\)", page.source)) <= set(page.ids)
    assert [x for x in page.ids if x in shown] == shown
    assert [x[1:] for x in page.links if x[1:] in shown] == shown


def test_page_has_its_sections_figures_and_tables(usual):
    page, _ = usual
    assert_whole(page, SECTIONS)
    assert page.tags.count("svg") == 6
    assert page.tags.count("h1") == 1
    _, *parts = page.table("Part")
    assert parts[0][:4] == ["Training", "6,800", "612", "9.0 %"]
    assert parts[1][:4] == ["Validation", "1,200", "108", "9.0 %"]
    assert page.table("Column")[1] == ["age", "number", "2.0 %", "57", "41"]
    for said in ("aucmax fit train.csv", "torch 2.13", "Rows without a target", "Time 12 s"):
        assert said in page.text


def test_page_of_several_classes_and_models(several, tmp_path):
    page, evaluation = several
    assert_whole(page, SEVERAL)
    assert page.tags.count("svg") == 3 + 3  # a curve per class, calibration, training, columns
    _, every, *_ = plain_cells(page, "Class", "Training", "Test")
    assert every == ["all", "213", "600"]
    auc = roc_auc_score(evaluation["classes"] == 1, evaluation["probability"][:, 1])
    assert f"“kind 1”, AUC {auc:.3f}" in page.text
    labels = ["a", NASTY, "c"]
    content = make_classes(labels=labels, **make_ensemble(labels))
    content["models"][0]["name"] = content["doubtful"][0]["name"] = NASTY
    page = write(tmp_path, content)
    assert_whole(page, [*SEVERAL[:4], "models", *SEVERAL[4:6], "doubtful", *SEVERAL[6:]])
    assert "<script" not in page.source
    heads, line = page.table("Row")
    assert heads == ["Row", "customer", "Label", "Likelier", "Probability"]
    assert (line[0], line[4]) == ("1,234", "0.04 %")


def test_other_columns_of_the_importance_are_summed_up():
    def said(*drops):
        return words.other_columns([Importance(f"c{k}", x, 0.0) for k, x in enumerate(drops)])

    assert said(0.002).startswith("One more column, “c0”, loses 0.0020.")
    assert said(-0.002).startswith("Shuffling one more column, “c0”, raises the AUC by 0.0020")
    assert said(-0.00001).startswith("One more column, “c0”, loses 0.0000.")
    assert "lose from 0.0010 to 0.0020 each, 0.0030 added up." in said(0.002, 0.001)
    assert "lose 0.0020 each at most" in said(0.002, -0.001)


def test_data_is_escaped_and_long_names_are_cut(tmp_path):
    odd = "客户\ud800\x00\n流失 $x_1$ _" + "long" * 100
    column = {"kind": NASTY, "missing": 0.0, "distinct": 1, "typical": NASTY}
    evaluation = make_evaluation(
        target=NASTY,
        labels=[NASTY, f"1{odd}"],
        peers=[{**make_evaluation()["peers"][0], "name": NASTY}],
        importance=[{"column": x, "drop": 0.1, "sd": 0.0} for x in (NASTY, odd)],
        columns=[{"name": name, **column} for name in (NASTY, odd)],
        notes=[NASTY],
        command=NASTY,
        made={NASTY: NASTY},
    )
    page = write(tmp_path, evaluation)
    assert "script" not in page.tags
    assert "<script" not in page.source
    assert NASTY in page.text
    assert len(set(page.ids)) == len(page.ids)
    assert "客户 流失 $x_1$ _long" in page.text
    assert "long" * 13 not in page.text
    assert max(len(line[0]) for table in page.tables for line in table) <= 40


def few_rows():
    p = np.random.default_rng(0).uniform(0.1, 0.9, 40)
    positives = {"train": 20, "valid": 4, "test": 5}
    return make_evaluation(p, np.repeat([1, 0], (5, 35)), threshold=0.5, positives=positives)


def all_equal(**changes):
    return make_evaluation(np.full(90, 0.05), np.repeat([1, 0], (10, 80)), **changes)


def apart(below, above, **changes):
    p, y = np.repeat([below, above], (80, 20)), np.repeat([0, 1], (80, 20))
    return make_evaluation(p, y, **changes)


NOTHING = {"peers": [], "importance": [], "notes": [], "columns": [], "history": []}
RECORDS = make_evaluation()["history"]
EDGES = {
    "few rows": few_rows,
    "two rows and nothing else": lambda: make_evaluation(
        [0.2, 0.7], [0, 1], **NOTHING, command="", made={}, seconds=None
    ),
    "all equal, none flagged, 300 columns": lambda: all_equal(
        threshold=0.5,
        columns=[{**make_evaluation()["columns"][0], "name": f"column {k}"} for k in range(300)],
        importance=[{"column": f"column {k}", "drop": 0.0, "sd": 0.0} for k in range(300)],
        history=[{"step": k, "valid_auc_last": math.nan if k == 2 else 0.8} for k in range(4)],
    ),
    "perfect": lambda: apart(0.0, 1.0, history=[], importance=[]),
    "reversed": lambda: apart(0.9, 0.2, history=RECORDS[:1]),
    "mostly positive, no validation": lambda: make_evaluation(
        *(1 - x for x in make_rows(share=0.03)),
        history=[{"step": 20, "loss": math.nan, "valid_auc_last": None}, {"step": 40}],
    ),
}


@pytest.mark.parametrize("name", EDGES)
def test_edge_cases_show_no_nan(name, tmp_path):
    page = write(tmp_path, EDGES[name]())
    assert not re.search(r"\bnan\b", page.source, re.IGNORECASE)
    assert not re.search(r"\b(None|inf)\b", page.text)
    assert [x for x in page.ids if x in SECTIONS] == SECTIONS


def answer_of(content):
    """The first section alone, which is drawn at once."""
    evaluation = Evaluation.from_dict(content)
    given = sections.shared(evaluation) | sections.answer.content(evaluation, evaluation.rows)
    return Page(rendering.render("answer.html", **given))


@pytest.mark.parametrize("content", [few_rows(), make_classes(12, rows=150)])
def test_few_rows_compare_no_models(content):
    page = answer_of(content)
    for said in ("better than", "worse", "wrong way", "p value", "distinguishable", "worth it"):
        assert said not in page.text
    assert "too few to compare models by" in page.text
    heads, *lines = page.table("Model")
    assert heads == ["Model", "AUC", "95 % interval", "Time to fit"]
    assert lines[1] == ["logistic regression", "0.500", "0.400 to 0.600", "0.4 s"]


def test_chosen_metric_is_shown_of_every_model():
    content = make_evaluation(metric="average_precision")
    unknown = {key: x for key, x in content["peers"][0].items() if key != "score"}
    content["peers"] += [unknown, unknown | {"average_precision": 0.2}]  # of earlier versions
    heads, *lines = answer_of(content).table("Model")
    place = heads.index("Average precision")
    ours = average_precision_score(content["classes"], content["probability"])
    assert [line[place] for line in lines] == [f"{ours:.3f}", "0.250", "–", "0.200"]


# --- several models -------------------------------------------------------------------------------


def section_of(name, content):
    """One section alone, which is drawn at once."""
    evaluation = Evaluation.from_dict(content)
    (found,) = (x for line in sections.layout(evaluation) for x in line if x.key == name)
    given = sections.shared(evaluation) | found.content(evaluation, evaluation.rows)
    return Page(rendering.render(f"{name}.html", **given))


def test_models_are_shown_with_their_weights():
    page = section_of("models", make_evaluation(**make_ensemble()))
    heads, ours, *lines = page.table("Model")
    tested = ["p value", "Time to fit", "Left out"]
    assert heads == ["Model", "Weight", "AUC on the validation rows", "95 % interval", *tested]
    assert ours == ["this model", "100 %", "0.870", "0.850 to 0.890", "–", "12 s", ""]
    assert lines == [
        ["network", "75.0 %", "0.860", "0.840 to 0.880", "–", "14 s", ""],
        ["boosting", "25.0 %", "0.850", "0.820 to 0.880", "0.34", "3.1 s", ""],
        [
            "logistic",
            "–",
            "0.800",
            "0.770 to 0.830",
            "0.003",
            "–",
            "it hardly moves the average",
        ],
        ["trees", "–", "–", "–", "–", "–", "no time left"],
    ]
    assert "looked at: AUC 0.870 (0.850 to 0.890). The test rows, with 0.760" in page.text
    assert "Hollow: left out." in page.text


def test_one_model_without_steps_has_no_training_section():
    only = [make_model("boosting", 1.0, interval(0.86, 0.02))]
    evaluation = Evaluation.from_dict(make_evaluation(models=only, history=[]))
    shown = {x.key for line in sections.layout(evaluation) for x in line}
    assert not shown & {"models", "training"}


def test_figure_of_models_spans_each_interval():
    evaluation = Evaluation.from_dict(make_evaluation(**make_ensemble()))
    (ax,) = painted(figures.models, evaluation).axes
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["this model", "on the test rows", "network", "boosting", "logistic"]
    fitted = [x.auc for x in evaluation.models[:3]]
    for bars, auc in zip(
        ax.collections, [evaluation.promised, evaluation.auc, *fitted], strict=True
    ):
        ((low, _), (high, _)) = bars.get_segments()[0]
        assert (low, high) == pytest.approx((auc.low, auc.high))


@pytest.mark.parametrize(
    ("auc", "half", "said"),
    [
        (0.85, 0.03, "agree, within chance"),
        (0.78, 0.05, "fall short of it, beyond chance"),
        (0.98, 0.01, "exceed it, beyond chance"),
    ],
)
def test_promise_held(auc, half, said):
    promised, test = Interval(0.87, 0.85, 0.89), Interval(auc, auc - half, auc + half)
    assert words.promise_held(promised, test) == said


# --- several classes ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    evaluation = make_classes()
    return write(tmp_path_factory.mktemp("several"), evaluation), evaluation


def test_several_classes_match_sklearn(several):
    page, evaluation = several
    p, y = evaluation["probability"], evaluation["classes"]
    said = p.argmax(axis=1)
    auc = roc_auc_score(y, p, multi_class="ovo")
    assert evaluation["auc"]["value"] == pytest.approx(auc)
    assert f"which is which in {100 * auc:.0f} of 100 cases (95 % interval" in page.text
    _, *lines = plain_cells(page, "Class", "Test rows")
    assert len(lines) == 3
    for k, line in enumerate(lines):
        truth, flags = y == k, said == k
        low, high = metrics.interval(p[:, k], truth)[1:3]
        assert line[:2] == [f"kind {k}", str(truth.sum())]
        assert float(line[3]) == pytest.approx(roc_auc_score(truth, p[:, k]), abs=6e-4)
        assert [float(x) for x in line[4].split(" to ")] == pytest.approx([low, high], abs=6e-4)
        assert percent_of(line[5]) == pytest.approx(precision_score(truth, flags), abs=6e-4)
        assert percent_of(line[6]) == pytest.approx(recall_score(truth, flags), abs=6e-4)
    assert f"Accuracy {100 * (said == y).mean():.1f} % of the predicted" in page.text


def plain_cells(page, *heads):
    """The table that begins with these heads."""
    (found,) = (table for table in page.tables if tuple(table[0][: len(heads)]) == heads)
    return [[cell.replace("\xa0", " ") for cell in line] for line in found]


def test_confusion_matrix_matches_sklearn(several):
    page, evaluation = several
    expected = confusion_matrix(evaluation["classes"], evaluation["probability"].argmax(axis=1))
    heads, *lines = plain_cells(page, "Truth ↓ said →")
    assert heads[1:] == [line[0] for line in lines] == evaluation["labels"]
    assert [[int(cell.replace("·", "0")) for cell in line[1:]] for line in lines] == (
        expected.tolist()
    )
    wrong = expected - np.diag(expected.diagonal())
    i, j = np.unravel_index(wrong.argmax(), wrong.shape)
    said = f"“kind {i}” taken for “kind {j}” ({wrong[i, j]} of {expected[i].sum()})"
    assert f"The most frequent mistakes: {said};" in page.text


def test_predicted_probability_is_judged(several):
    page, evaluation = several
    p, y = evaluation["probability"], evaluation["classes"]
    top, right = p.max(axis=1), p.argmax(axis=1) == y
    _, *lines = page.table("Predicted")
    for line, rows in zip(lines, np.array_split(np.argsort(top), 10), strict=True):
        assert percent_of(line[0]) == pytest.approx(top[rows].mean(), abs=6e-4)
        assert line[3] == f"{right[rows].sum()} of {len(rows)}"
    assert f"predicts {100 * top.mean():.1f} %; {100 * right.mean():.1f} % of these" in page.text


# --- files ----------------------------------------------------------------------------------------


def test_failed_write_leaves_the_old_page(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("old")
    monkeypatch.setattr("aucmax.report.sections.layout", lambda *_: [])
    monkeypatch.setattr("os.replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_model_page(path, Evaluation.from_dict(make_evaluation()))
    assert path.read_text() == "old"
    assert [x.name for x in tmp_path.iterdir()] == ["page.html"]
