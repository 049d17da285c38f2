"""What all results come to: a sentence on each question, a short table, and one figure.

There are three questions. Does the classifier for tables rank better than others? Does a ranking
objective help a given network? Do the paper's claims hold? Each has pages of its own.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from aucmax.paper import claims_page
from aucmax.paper.claims import CLAIMS, Rate, final_gain
from aucmax.paper.results import RunResult
from aucmax.paper.text_tables import rst_text
from aucmax.report import drawing
from aucmax.report.style import COLOURS
from aucmax.study.page import RegimeResults, list_table
from aucmax.study.when import answers, between_marks, in_a_sentence, what_you_have

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.append(str(BENCHMARKS))
from tables_page import Lead, leads_on_peers  # noqa: E402

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CONFIRM = BENCHMARKS / "results" / "tables-confirm.jsonl"
CLEAR = 0.05
"""A smaller p value is a difference."""
SPAN = 0.05
"""What the figure shows on either side of zero; what is beyond is drawn at its edge."""
ROW, GAP, WIDTH = 0.34, 0.7, 5.6  # inches
LOOKS = {"ahead": (COLOURS[0][0], "o"), "level": ("#777777", "d"), "behind": (COLOURS[1][0], "s")}


class Line(NamedTuple):
    """A row of the figure: what is compared, the mean difference in AUC and its interval."""

    title: str
    mean: float
    low: float
    high: float

    @property
    def word(self) -> str:
        """Whether the interval is on one side of zero."""
        return "ahead" if self.low > 0 else "behind" if self.high < 0 else "level"


class Summary:
    """The answers to the three questions.

    Args:
        regimes: of the study.
        runs: of the paper's figures.
        rate: that the theory speaks of.
    """

    def __init__(
        self, regimes: list[RegimeResults], runs: list[RunResult], rate: Rate | None
    ) -> None:
        lines = CONFIRM.read_text(encoding="utf-8").splitlines()
        self.leads: list[Lead] = leads_on_peers([json.loads(line) for line in lines])
        self.regimes = regimes
        self.judged = claims_page.judge_all([claim.compare(runs) for claim in CLAIMS])
        self.sentences = {
            "tables": self.on_tables(),
            "objectives": in_a_sentence(regimes),
            "paper": claims_page.overview(self.judged, rate),
        }

    def on_tables(self) -> str:
        """Which peers the classifier is ahead of, and which not."""
        clear = [x.method for x in self.leads if x.p < CLEAR and x.mean > 0]
        level = [x.method for x in self.leads if x.p >= CLEAR]
        behind = [x.method for x in self.leads if x.p < CLEAR and x.mean < 0]
        said = [
            f"{words} {_listed(names)}"
            for words, names in (
                ("AUCClassifier ranks better than", clear),
                ("worse than", behind),
                ("no difference is shown from", level),
            )
            if names
        ]
        count = self.leads[0].tables
        return f"On {count} tables that were kept apart {'; '.join(said)}."

    def in_readme(self, text: str) -> str:
        """The README with the sentences between its marks."""
        items = (
            f"- **Tables.** {self.sentences['tables']} [Table by table](docs/tables_results.rst).",
            f"- **Objectives.** {self.sentences['objectives']} "
            "[Questions to ask of your data](docs/results/when.rst).",
            f"- **The paper.** {self.sentences['paper']} [One by one](docs/results/verdicts.rst).",
        )
        return between_marks(text, "\n" + "\n".join(items) + "\n")

    def write(self, docs: Path) -> None:
        """The figure, the short table and the sentences."""
        (docs / "summary.svg").write_text(self.figure(), encoding="utf-8")
        head = ["Beside", "aucmax is ahead on", "Mean lead in test AUC", "p"]
        rows = [[x.method, f"{x.counted} tables", x.interval, f"{x.p:.3f}"] for x in self.leads]
        table = list_table("AUCClassifier beside others at their defaults", [head, *rows])
        (docs / "tables-short.txt").write_text(table, encoding="utf-8")
        pages = {"tables": "/tables_results", "objectives": "/results/when"}
        pages["paper"] = "/results/verdicts"
        said = [
            f"- {rst_text(self.sentences[name])} (:doc:`{page}`)" for name, page in pages.items()
        ]
        (docs / "in-short.txt").write_text("\n".join(said) + "\n", encoding="utf-8")

    def blocks(self) -> dict[str, list[Line]]:
        """The rows of the figure, by question."""
        studied = [
            Line(what_you_have(found, x) + (", added later" if x.added else ""), *x.difference[:3])
            for found in self.regimes
            for x in answers(found)
        ]
        claimed = [
            Line(f"Claim {number}, {protocol} protocol", *judgement.difference[:3])
            for number, (claim, by_protocol) in enumerate(zip(CLAIMS, self.judged, strict=True), 1)
            if claim.gain is final_gain
            for protocol, judgement in by_protocol.items()
            if not math.isnan(judgement.difference.mean)
        ]
        return {
            "AUCClassifier minus another, on tables": [
                Line(x.method, x.mean, x.low, x.high) for x in self.leads
            ],
            "A ranking objective minus the strongest likelihood": studied,
            "The paper's claims on final AUC": claimed,
        }

    def figure(self) -> str:
        """All of them as an ``<svg>`` element."""
        from matplotlib.figure import Figure

        blocks = self.blocks()
        heights = [len(lines) for lines in blocks.values()]
        with drawing.plot_style():
            height = sum(ROW * count + GAP for count in heights)
            figure = Figure(figsize=(WIDTH, height))
            # Placed by hand: where a solver puts them differs in the last digits from run to run.
            places = {"left": 0.02, "right": 0.98, "bottom": 0.6 / height, "top": 1 - 0.3 / height}
            places["hspace"] = GAP * len(heights) / (ROW * sum(heights))
            axes = figure.subplots(
                len(blocks), 1, height_ratios=heights, squeeze=False, gridspec_kw=places
            )[:, 0]
            for ax, (title, lines) in zip(axes, blocks.items(), strict=True):
                ax.set_title(title, loc="left", fontsize="medium", fontweight="bold")
                _draw(ax, lines)
            axes[-1].set_xlabel("difference in test AUC, with its 95 % interval")
        return drawing.svg(figure)


def _listed(names: list[str]) -> str:
    """Names in a sentence; one with a comma of its own in quotation marks."""
    shown = [f'"{name}"' if "," in name else name for name in names]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _draw(ax: Axes, lines: list[Line]) -> None:
    ax.axvline(0, color="#999999", linewidth=0.8, zorder=1)
    for y, line in enumerate(lines):
        colour, marker = LOOKS[line.word]
        mean, low, high = (min(max(x, -SPAN), SPAN) for x in line[1:])
        ax.plot([low, high], [y, y], color=colour, linewidth=1.4, zorder=2)
        ax.plot([mean], [y], color=colour, marker=marker, markersize=5.5, zorder=3)
        ax.text(-0.98 * SPAN, y - 0.42, line.title, verticalalignment="center", fontsize="small")
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.set_ylim(len(lines) - 0.5, -0.9)
    ax.set_xlim(-SPAN, SPAN)
    ax.grid(visible=False, axis="y")
