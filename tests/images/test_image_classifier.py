"""``ImageClassifier``: scikit-learn's interface, its options, and where its pictures are kept."""

import shutil
import warnings
from collections import namedtuple

import numpy as np
import pandas as pd
import pytest
import torch
from image_data import OPTIONS, linear_network, paths_and_labels, shorten
from refusals import refused
from safetensors.torch import load_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from torch import nn

from aucmax import checkpoint
from aucmax.images import ImageClassifier
from aucmax.images.networks import make_network, moments
from aucmax.images.split import keep_apart


@pytest.fixture(scope="module")
def files(scans):
    return paths_and_labels(scans)


def quick(model=linear_network, **options):
    return ImageClassifier(model, **{**OPTIONS, "random_state": 0, "workers": 1, **options})


# ---- scikit-learn --------------------------------------------------------------------------------


def test_classifier_has_the_interface_of_sklearn(files, tmp_path):
    paths, labels = files
    y = np.array(labels) == "sick"
    model = clone(quick("resnet20"))
    assert model.fit(paths, y) is model
    p = model.predict_proba(paths)
    assert p.shape == (80, 2)
    assert p.sum(axis=1) == pytest.approx(1)
    assert model.score(paths, y) == pytest.approx(roc_auc_score(y, p[:, 1]))
    assert model.score(paths, y) > 0.8
    for wrong in (str(paths[0]), paths[0], pd.DataFrame({"p": paths}), [1.5]):
        with pytest.raises(ValueError, match="X must be a list of paths"):
            model.predict(wrong)
    model.save(tmp_path / "model")
    again = ImageClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.decision_function(paths), model.decision_function(paths))
    assert again.classes_.tolist() == [False, True]
    for unfitted in (clone(model).score, clone(model).auc_by_label):
        with pytest.raises(NotFittedError):
            unfitted(paths, y)


def test_models_of_newer_versions(fitted, scans, tmp_path, monkeypatch, capsys):
    model = ImageClassifier.load(fitted.folder)
    monkeypatch.setattr("aucmax.checkpoint.__version__", "99.1.0")
    model.save(tmp_path / "newer")
    monkeypatch.undo()
    with pytest.warns(UserWarning, match=r"newer was written by aucmax 99\.1\.0"):
        ImageClassifier.load(tmp_path / "newer")
    model.save(tmp_path / "model")
    tensors, notes = checkpoint.load_tensors(tmp_path / "model", "model")
    notes["options"]["sharpness"] = 1
    checkpoint.save_tensors(tmp_path / "model", "model", tensors, notes)
    said = refused(capsys, "predict-images", tmp_path / "model", scans)
    assert "knows, found ['sharpness'], of aucmax" in said


REFUSED_ROWS = {
    "None for a label": ({"y": ["a"] * 79 + [None]}, "y"),
    "NaN for a label": ({"y": np.r_[np.zeros(79), np.nan]}, "y"),
    "one label": ({"y": ["a"] * 80}, "y"),
    "too few labels": ({"y": ["a", "b"]}, "y"),
    "too few weights": ({"sample_weight": [1.0] * 79}, "sample_weight"),
    "negative weights": ({"sample_weight": [-1.0] * 80}, "sample_weight"),
    "too many groups": ({"groups": [1] * 81}, "groups"),
}
REFUSED_OPTIONS = {
    "color_jitter": 2,
    "mixup": -1.0,
    "objective": "f1",
    "quality": "great",
    "validation_fraction": 1.0,
    "time_limit": -1,
    "depth": 17,
}


@pytest.mark.parametrize(("change", "name"), REFUSED_ROWS.values(), ids=REFUSED_ROWS)
def test_rows_that_do_not_fit_raise(change, name, files):
    paths, y = files
    with pytest.raises(ValueError, match=rf"^{name} must"):
        quick().fit(paths, **{"y": y, **change})


@pytest.mark.parametrize(("name", "value"), REFUSED_OPTIONS.items(), ids=REFUSED_OPTIONS)
def test_options_that_cannot_be_raise(name, value, files):
    with pytest.raises(ValueError, match=rf"^{name} must"):
        quick(**{name: value}).fit(*files)


# ---- Networks ------------------------------------------------------------------------------------


def test_network_of_a_function_is_needed_again_to_load(files, tmp_path):
    paths, y = files
    model = quick().fit(paths, y)
    model.save(tmp_path)
    with pytest.raises(ValueError, match="model must be given"):
        ImageClassifier.load(tmp_path)
    again = ImageClassifier.load(tmp_path, linear_network)
    np.testing.assert_array_equal(again.predict(paths), model.predict(paths))


def test_frozen_layers_stay_and_scores_may_be_flat(files):
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(192, 4).requires_grad_(False)
            self.last = nn.Linear(4, 1)

        def forward(self, x):
            return self.last(self.first(x.flatten(1) / 255).relu()).reshape(-1)

    made = Frozen()
    before = made.first.weight.clone()
    model = quick(lambda outputs: made).fit(*files)
    assert torch.equal(model.network_.first.weight.cpu(), before)
    assert model.network_.last.weight.requires_grad
    assert model.decision_function(files[0]).shape == (80,)


def test_weights_to_begin_with(fitted, files, tmp_path):
    path = fitted.folder / "model.safetensors"
    saved = load_file(path)
    about = ([0.0] * 3, [1.0] * 3, torch.Generator().manual_seed(1))
    for outputs, differ in ((1, set()), (3, {"head.weight", "head.bias"})):
        with warnings.catch_warnings(record=True, action="always") as said:
            state = make_network("resnet20", outputs, *about, path).state_dict()
        assert {k for k in state if not torch.equal(state[k].cpu(), saved[k])} == differ
        begin = [f"{len(differ)} of {len(state)} weights are not in"] if differ else []
        assert [str(x.message).split(" in ")[0] + " in" for x in said] == begin
    with pytest.raises(ValueError, match="weights must be those of the model, found 0 of its 2"):
        make_network(lambda n: nn.Sequential(nn.Flatten(), nn.Linear(192, n)), 1, *about, path)
    with pytest.raises(ValueError, match="weights must be a file, found none"):
        quick("resnet20", weights=tmp_path / "none.pth").fit(*files)
    model = quick("resnet20", weights=path).fit(*files)
    sizes = [x["lr"] for x in model.history_]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 10 * sizes[1] == 0.1


def test_moments_match_numpy():
    pixels = np.random.default_rng(0).integers(200, 231, size=(300, 64, 64, 3)).astype(np.uint8)
    mean, std = moments(torch.from_numpy(pixels).permute(0, 3, 1, 2))
    assert mean == pytest.approx(pixels.mean((0, 1, 2), dtype=np.float64))
    assert std == pytest.approx(pixels.std((0, 1, 2), dtype=np.float64))


# ---- Training ------------------------------------------------------------------------------------


def test_augmentations_change_the_training(files):
    scores = [
        quick(**more).fit(*files).decision_function(files[0])
        for more in ({}, {"color_jitter": 0.2}, {"mixup": 0.5})
    ]
    assert len({x.tobytes() for x in scores}) == 3


def test_groups_are_aligned_by_row_and_not_by_index(files, tmp_path):
    """Groups are the classes of which a permuted index would cut each."""
    paths, y = pd.Series(files[0]), np.array(files[1])
    groups = pd.Series([f"p{k // 4}" for k in range(80)])
    order = np.random.default_rng(0).permutation(80)
    one = quick().fit(paths, y, groups=groups.to_numpy())
    two = quick().fit(paths, y, groups=groups.set_axis(order))
    assert one.counts_ == two.counts_
    np.testing.assert_array_equal(one.decision_function(files[0]), two.decision_function(files[0]))


def test_groups_keep_the_highest_average(files, monkeypatch):
    """Without groups a paired test keeps the last average unless it is clearly behind."""
    shorten(monkeypatch, steps=160)
    paths = files[0]
    y = np.random.default_rng(2).integers(0, 2, size=80)  # by chance: values go up and down
    model = quick()
    kept = model.fit(paths, y).kept_
    assert kept[::2] == (160, "average")
    assert kept.score < max(x["valid_auc_average"] for x in model.history_)
    kept = model.fit(paths, y, groups=range(80)).kept_
    assert kept[1:] == (max(x["valid_auc_average"] for x in model.history_), "average")
    _, valid = keep_apart(np.eye(2, dtype=int)[y], np.arange(80), 0.15, 0, ["0", "1"])
    as_predicted = model.score([paths[k] for k in valid], y[valid])
    assert model.validation_score_ == as_predicted != kept.score  # mirror images count


# ---- Memory and disk -----------------------------------------------------------------------------


@pytest.fixture
def no_memory(monkeypatch):
    """Read pictures as they come, in this process."""
    monkeypatch.setattr("aucmax.images.classifier.MOST_BYTES", 0)
    monkeypatch.setattr("aucmax.images.classifier.cores", lambda: 0)


@pytest.mark.parametrize("weighted", [False, True])
def test_pictures_beyond_memory_are_read_as_they_come(weighted, files, no_memory):
    weight = np.ones(80) if weighted else None
    assert quick().fit(*files, weight).validation_score_ > 0.7


@pytest.mark.parametrize("memory", [False, True])
def test_training_without_room_on_the_disk_has_the_same_bits(memory, files, monkeypatch, request):
    if not memory:
        request.getfixturevalue("no_memory")
    stored = quick().fit(*files)
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0))
    with pytest.warns(UserWarning, match=r"no room to keep 80 decoded pictures: .* 15,360 bytes"):
        streamed = quick().fit(*files)
    for name, x in stored.network_.state_dict().items():
        assert torch.equal(x, streamed.network_.state_dict()[name])
    scores = stored.decision_function(files[0])
    np.testing.assert_array_equal(streamed.decision_function(files[0]), scores)
