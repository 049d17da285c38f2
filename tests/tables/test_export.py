"""Models as ONNX: the same probabilities, from the file alone."""

import json
import re
import sys
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aucmax import AUCClassifier, __version__
from aucmax.cli import main
from aucmax.tables import export_onnx
from aucmax.tables.encoder import TableEncoder
from aucmax.tables.ensemble import boosting, combined, forest

pytest.importorskip("onnxscript")

PAGE = Path(__file__).parents[2] / "docs" / "tables.rst"
ROWS = 240


def table(kind, seed=0):
    random = np.random.default_rng(seed)
    hint = np.array(["a", "b", "c"])[kind]
    return pd.DataFrame(
        {
            "age": np.where(random.random(len(kind)) < 0.1, np.nan, random.normal(kind, 0.5)),
            "plan": np.where(random.random(len(kind)) < 0.6, hint, "d"),
            "since": np.datetime64("2024-01-01") + random.integers(0, 300, len(kind)),
            "zone": random.choice(["north", "south"], len(kind)),
        }
    )


KIND = np.random.default_rng(1).integers(0, 3, ROWS)
TABLE = table(KIND)


def classifier(target, columns, **options):
    sizes = {"max_steps": 8, "members": 2, "width": 8, "random_state": 0, **options}
    return AUCClassifier(**sizes).fit(TABLE[columns], target)


@pytest.fixture(scope="module", autouse=True)
def few_trees():
    """The evaluator goes down each tree in Python; and all models are to count."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boosting, "TREES", 4)
        patch.setattr(forest, "TREES", 4)
        patch.setattr(forest, "LEAVES", 8)
        patch.setattr(combined, "LEAST", 0.0)
        yield


@pytest.fixture(scope="module")
def model():
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    models = ["network", "boosting", "forest", "logistic"]
    options = {"quality": "fast", "threshold": "balanced", "models": models}
    return classifier(np.where(KIND == 2, "yes", "no"), list(TABLE.columns), **options)


@pytest.fixture(scope="module")
def file(model, tmp_path_factory):
    return export_onnx(model, tmp_path_factory.mktemp("export") / "model.onnx")


def by_reference(path, inputs):
    """The ONNX package's own evaluator: NumPy, an operation at a time."""
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(str(path)).run(None, inputs)[0]


def by_runtime(path, inputs):
    session = pytest.importorskip("onnxruntime").InferenceSession(str(path))
    return session.run(None, inputs)[0]


def inputs_of(path, rows):
    """What the file's own metadata makes of the rows, for the inputs that it has."""
    import onnx

    found = onnx.load(path)
    about = {entry.key: entry.value for entry in found.metadata_props}
    encoded = TableEncoder.from_dict(json.loads(about["encoder"])).transform(rows)
    made = {"numeric": encoded.numeric, "codes": encoded.categorical}
    return {entry.name: made[entry.name] for entry in found.graph.input}, about


@pytest.mark.parametrize("run", [by_reference, by_runtime])
@pytest.mark.parametrize("rows", [1, 30])
def test_onnx_of_two_classes(model, file, run, rows):
    new = table(np.random.default_rng(2).integers(0, 3, rows), seed=3).assign(zone="west")
    inputs, _ = inputs_of(file, new)
    assert sorted(inputs) == ["codes", "numeric"]
    found = run(file, inputs)
    assert found.dtype == np.float64
    assert sorted(model.models_) == ["boosting", "forest", "logistic", "network"]
    np.testing.assert_allclose(found, model.predict_proba(new), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("columns", "options", "inputs"),
    [
        (["age", "since"], {"models": ["network", "boosting"]}, ["numeric"]),
        (["plan", "zone"], {"models": ["logistic", "forest"]}, ["codes"]),
    ],
)
def test_onnx_of_three_classes(model, tmp_path, capsys, columns, options, inputs):
    several = classifier(KIND, columns, **options)
    several.save(tmp_path / "model")
    path = tmp_path / "m.onnx"
    main(["export", str(tmp_path / "model"), "--onnx", str(path)])
    assert capsys.readouterr() == (f"The model is in {path}\n", "")
    given, about = inputs_of(path, TABLE[columns])
    assert sorted(given) == inputs
    assert json.loads(about["classes"]) == [0, 1, 2]
    expected = several.predict_proba(TABLE[columns])
    for rows in (1, 30):
        found = by_reference(path, {name: x[:rows] for name, x in given.items()})
        np.testing.assert_allclose(found, expected[:rows], rtol=0, atol=1e-6)


def test_onnx_metadata(model, file):
    some = TABLE[:30]
    inputs, about = inputs_of(file, some)
    assert about["aucmax"] == __version__
    assert json.loads(about["classes"]) == ["no", "yes"]
    assert json.loads(about["columns"]) == ["age", "plan", "since", "zone"]
    assert json.loads(about["codes"]) == ["plan", "zone"]
    assert len(json.loads(about["numeric"])) == inputs["numeric"].shape[1]
    said = by_reference(file, inputs)[:, 1] > float(about["threshold"])
    assert (np.array(["no", "yes"])[said.astype(int)] == model.predict(some)).all()


def test_example_of_the_docs(model, file, monkeypatch):
    pytest.importorskip("onnxruntime")
    block = re.search(
        r"code-block:: python\n    :name: serving\n\n((?:    .*\n|\n)+)", PAGE.read_text()
    )
    names = {"table": TABLE[:5]}
    monkeypatch.chdir(file.parent)
    exec(compile(textwrap.dedent(block[1]), "tables.rst", "exec"), names)
    expected = model.predict_proba(TABLE[:5])
    np.testing.assert_allclose(names["probabilities"], expected, rtol=0, atol=1e-6)


# ---- The command ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["onnx", "onnxscript"])
def test_missing_package_raises(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "onnx", sys)  # as if it were there
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'aucmax\[onnx\]'"):
        export_onnx(tmp_path, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())
