"""Mistakes on the command line: exit code 2, one line that names the argument, nothing written."""

import numpy as np
import pandas as pd
import pytest
from refusals import refused

from aucmax.tables import fit_file, tune_file

ROWS = 60


def table():
    """A table with one column for each mistake."""
    k = np.arange(ROWS)
    ward = pd.Series([f"w{number % 12}" for number in k])
    day = pd.Series(pd.Timestamp("2024-01-01") + pd.to_timedelta(k, "D")).astype(str)
    weights = pd.Series(np.ones(ROWS))
    return pd.DataFrame(
        {
            "x": k / 7,
            "key": [f"k{number}" for number in k],
            "ward": ward,
            "gaps": ward.where(k % 40 != 5),
            "marks": ward.where(k != 3, "none"),
            "one": "a",
            "day": day,
            "gap_day": day.where(k != 5),
            "city": np.where(k % 2, "Oslo", "Rome"),
            "w": 1.5,
            "w_word": weights.astype(object).where(k != 1, "x"),
            "w_negative": weights.where(k != 2, -1),
            "w_missing": weights.where(k != 0),
            "w_zero": 0,
            "t2": k % 3 == 0,
            "t": np.where(k % 3 == 0, "yes", "no"),
        }
    )


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = table()
    data.to_csv("data.csv", index=False)
    data.assign(t="no").to_csv("well.csv", index=False)
    data.assign(t="maybe").to_csv("other.csv", index=False)
    return {path.name for path in tmp_path.iterdir()}, tmp_path


def check(place, capsys, said, *words):
    before, folder = place
    line = refused(capsys, *words)
    assert said in line
    assert {path.name for path in folder.iterdir()} == before


FIT = [
    ("--target label", "target must be a column of"),
    ("--target churnd", "found 'churnd', not in"),
    ("--drop c", "drop must be a column of"),
    ("--drop t", "drop must leave the target"),
    ("--drop x --drop w", "--drop must be given once"),
    ("--positive 7", "positive must be one of 'no', 'yes', found '7'"),
    ("--out data.csv", "out must be a folder"),
    ("--test-share 0", "test_share must be"),
    ("--time-limit -1", "time_limit must be"),
    ("--metric f1", "metric must be one of"),
    ("--metric partial_auc", "metric must be written partial_auc@MAX_FPR"),
    ("--threshold f1=1", "threshold must be"),
    ("--threads 0", "threads must be"),
    ("--device abacus", "device must be"),
    ("--separator ;;", "separator must be"),
    ("--decimal '", "decimal must be"),
    ("--models neighbours", "invalid choice 'neighbours'"),
    ("--weight wt", "weight must be a column of"),
    ("--weight t", "weight must be another column than the target"),
    ("--weight w_word", "weight must be a column of numbers of at least 0"),
    ("--weight w_negative", "found -1.0 in row 3 of 'w_negative'"),
    ("--weight w_missing", "found none in row 1 of 'w_missing'"),
    ("--weight w_zero", "weight must be above 0 in some rows"),
    ("--group t", "group must be another column than the target"),
    ("--group w --weight w", "group must be another column than the weight"),
    ("--group key --id key", "id must be another column than the group"),
    ("--group wrad", "group must be a column of"),
    ("--group gaps", "group must be a column without missing values, found 2 in 'gaps'"),
    ("--group marks --na-values none", "found 1 in 'marks', the first in row 4"),
    ("--group key", "group must be a column with rows of several labels in one group, found 60"),
    ("--group t2", "found 2 groups, 0 of them with both labels"),
    ("--group one", "group must leave whole groups to keep apart"),
    ("--time city", "time, the column 'city', must hold numbers or dates"),
    ("--time when", "time must be a column of"),
    ("--time t", "time must be another column than the target"),
    ("--time gap_day", "found 1, the first in row 6"),
    ("--time day --test-share 0.004", "time must leave rows of every label before"),
    ("--time day --valid data.csv", "valid must not be given with time"),
    ("--valid none.csv", "none.csv"),
    ("--valid well.csv", "valid must have rows of every label, found none of 'yes'"),
    ("--valid other.csv", "column 't' must hold 'no', 'yes', found 'maybe'"),
    ("--group ward --streaming", "--group must not be given with --streaming"),
    ("--time day --streaming", "--time must not be given with --streaming"),
    ("--valid data.csv --streaming", "--valid must not be given with --streaming"),
    ("--quality good --streaming", "--quality must not be given with --streaming"),
    ("--test-share 0.3 --streaming", "--test-share must not be given with --streaming"),
    ("--models logistic --streaming", "--models must not be given with --streaming"),
]


@pytest.mark.parametrize(("options", "said"), FIT)
def test_fit_names_the_argument(place, capsys, options, said):
    words = options.split()
    given = words if "--target" in words else ["--target", "t", *words]
    check(place, capsys, said, "fit", "data.csv", *given, *([] if "--out" in words else OUT))


OUT = ["--out", "model"]
GOOD = "a,b,t\n" + "".join(f"{i},{i % 7},{i % 2}\n" for i in range(40))
THREE = "a,t\n" + "".join(f"{i},{'xyz'[i % 3]}\n" for i in range(60))
FILES = {
    "one label": (GOOD.replace(",1\n", ",0\n"), "", "two classes or more, found '0' alone"),
    "a ragged line": (GOOD + "1,2\n", "", "42"),
    "empty": ("", "", "is empty"),
    "no rows": ("a,b,t\n", "", "has no rows"),
    "a name twice": ("a,a,t\n1,2,0\n1,3,1\n", "", "found 'a' twice"),
    "too few rows": ("a,t\n1,0\n2,1\n", "", "enough rows"),
    "infinity": (GOOD.replace("5,5,", "inf,5,"), "", "column 'a' must be finite"),
    "infinite weight": (
        GOOD.replace("\n0,0,", "\n0,inf,"),
        "--weight b",
        "found inf in row 1 of 'b'",
    ),
    "positive of three": (THREE, "--positive x", "positive"),
    "threshold of three": (THREE, "--threshold cost=5", "threshold must be left to two classes"),
}


@pytest.mark.parametrize(("content", "options", "said"), FILES.values(), ids=FILES)
def test_fit_names_what_is_wrong_with_a_file(place, capsys, content, options, said):
    before, folder = place
    (folder / "bad.csv").write_text(content)
    check((before | {"bad.csv"}, folder), capsys, said, "fit", "bad.csv", "--target", "t", *OUT,
          *options.split())  # fmt: skip


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ("--trials 0", "trials"),
        ("--workers 0", "workers"),
        ("--time-limit -1", "time_limit"),
        ("--test-share 1", "test_share"),
        ("--drop", "--drop"),
    ],
)
def test_tune_names_the_argument(place, capsys, options, name):
    check(place, capsys, f"{name} must", "tune", "data.csv", "--target", "t", *OUT,
          *options.split())  # fmt: skip


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"metric": lambda s, y, w: 0.5}, "metric"),
        ({"metric": "grouped_auc"}, "group"),
        ({"threshold": "best"}, "threshold"),
        ({"method": "ppd-sg", "hidden": [8]}, ".*found hidden, method"),
        ({"objective": "auto"}, "objective"),
        ({"lr": -1}, "lr"),
    ],
)
def test_tune_file_names_the_argument(place, options, name):
    before, folder = place
    with pytest.raises(ValueError, match=f"^{name}"):
        tune_file("data.csv", "t", out="model", trials=1, workers=1, progress=False, **options)
    assert {path.name for path in folder.iterdir()} == before


# ---- Commands that need a model ------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refusals")
    table()[["x", "city", "ward", "w", "t"]].to_csv(folder / "data.csv", index=False)
    given = {"models": ["logistic"], "compare": False, "progress": False}
    return fit_file(folder / "data.csv", "t", out=folder / "model", **given).folder


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("predict MODEL", "a FILE must be given"),
        ("predict . data.csv", "found no model.json"),
        ("predict MODEL nothing.csv --quiet", "nothing.csv"),
        ("predict MODEL data.csv --out x.xlsx", "out must be one of '.csv', '.parquet'"),
        ("predict MODEL data.csv --out data.csv", "out must be another file"),
        ("predict MODEL data.csv --keep kay", "keep must be one of"),
        ("predict MODEL data.csv --id nobody", "id must be one of"),
        ("predict MODEL data.csv --threshold f1=1", "threshold must be"),
        ("predict MODEL data.csv --threads 0", "threads must be"),
        ("predict MODEL data.csv --device abacus", "device must be"),
        ("predict MODEL short.csv", "found none named 'city'"),
        ("predict MODEL clash.csv --keep prediction", "'prediction'"),
        ("evaluate MODEL none.csv", "none.csv"),
        ("evaluate MODEL data.csv --threads 0", "threads must be"),
        ("report .", "must be one that aucmax fit or fit-images made"),
        ("fit data.csv --target t --out .", "out must be empty or a model's folder"),
        ("export MODEL --onnx m.pt", "onnx must be one of '.onnx', found '.pt'"),
        ("export . --onnx m.onnx", "found no model.json in"),
        ("export MODEL", "--onnx"),
    ],
)
def test_command_names_the_argument(place, model, capsys, command, said):
    before, folder = place
    data = table()
    data.drop(columns="city").to_csv(folder / "short.csv", index=False)
    data.assign(prediction=1).to_csv(folder / "clash.csv", index=False)
    words = [str(model) if word == "MODEL" else word for word in command.split()]
    check((before | {"short.csv", "clash.csv"}, folder), capsys, said, *words)
