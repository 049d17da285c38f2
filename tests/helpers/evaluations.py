"""Evaluations of classifiers that never were, as their files hold them."""

import math

import numpy as np

from aucmax import metrics


def make_rows(rows=600, share=0.08, seed=0):
    """Probabilities that are right, and classes drawn from them."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(math.log(share / (1 - share)), 1.5, rows)
    p = 1 / (1 + np.exp(-odds))
    return p, (rng.random(rows) < p).astype(int)


def make_evaluation(p=None, y=None, **changes):
    p, y = make_rows() if p is None else (np.asarray(p, float), np.asarray(y))
    found = metrics.interval(p, y)
    steps = [
        {"step": 20 * k, "seconds": k, "loss": 1 / k, "valid_auc_last": 0.9 - 0.3 / k}
        | {"valid_auc_average": None if k < 3 else 0.91 - 0.4 / k}
        for k in range(1, 30)
    ]
    peer = {"name": "logistic regression", "auc": 0.5, "low": 0.4, "high": 0.6, "seconds": 0.4}
    peer["reliable"] = True
    column = {"name": "age", "kind": "number", "missing": 0.02, "distinct": 57, "typical": "41"}
    column["written"] = ""
    return {
        "target": "churned",
        "labels": ["no", "yes"],
        "rows": {"train": 6800, "valid": 1200, "test": len(y)},
        "positives": {"train": 612, "valid": 108, "test": int(y.sum())},
        "probability": p,
        "classes": y,
        "auc": {"value": found.auc, "low": found.low, "high": found.high, "level": 0.95},
        "peers": [{**peer, "p_value": 0.003, "score": 0.25}],
        "history": steps,
        "threshold": 0.23,
        "importance": [{"column": f"c{k}", "drop": 0.1 / (k + 1), "sd": 0.002} for k in range(5)],
        "columns": [column],
        "notes": ["Rows without a target were left out."],
        "warnings": [],
        "seconds": 12.3,
        "command": "aucmax fit train.csv --target churned",
        "made": {"aucmax": "0.1", "torch": "2.13", "date": "2026-11-15"},
        **changes,
    }


def make_classes(count=3, rows=600, seed=0, **changes):
    """Probabilities that are right, of classes of different frequency."""
    rng = np.random.default_rng(seed)
    odds = 2 * rng.normal(size=(rows, count)) - np.arange(count) / count
    p = np.exp(odds) / np.exp(odds).sum(axis=1, keepdims=True)
    y = (rng.random((rows, 1)) > p.cumsum(axis=1)[:, :-1]).sum(axis=1)
    auc = metrics.interval(p, y, "hand_till")
    counts = np.bincount(y, minlength=count).tolist()
    usual = make_evaluation()
    del usual["positives"], usual["threshold"]
    return {
        **usual,
        "labels": [f"kind {k}" for k in range(count)],
        "rows": {"train": 6800, "valid": 1200, "test": rows},
        "counts": {"train": [k + 70 for k in range(count)], "test": counts},
        "probability": p,
        "classes": y,
        "auc": {"value": auc.auc, "low": auc.low, "high": auc.high, "level": 0.95},
        **changes,
    }


def interval(value, half):
    return {"value": value, "low": value - half, "high": value + half, "level": 0.95}


def make_model(name, weight, auc=None, **more):
    usual = {"p_value": None, "seconds": None, "left_out": "", "score": None}
    return {"name": name, "weight": weight, "auc": auc, **usual, **more}


def make_ensemble(labels=("no", "yes")):
    """What the record of several models has more than that of one."""
    doubt = {"label": labels[1], "likelier": labels[0], "name": "A 7"}
    return {
        "models": [
            make_model("network", 0.75, interval(0.86, 0.02), seconds=14.2),
            make_model("boosting", 0.25, interval(0.85, 0.03), p_value=0.34, seconds=3.1),
            make_model(
                "logistic", 0.0, interval(0.8, 0.03), p_value=0.003,
                left_out="it hardly moves the average",
            ),
            make_model("trees", 0.0, left_out="no time left"),
        ],
        "promised": interval(0.87, 0.02),
        "promised_score": 0.5,
        "doubtful": [{"row": 1234, "probability": 0.0004, **doubt}],
        "id_column": "customer",
    }  # fmt: skip
