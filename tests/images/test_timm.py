"""Networks of timm, where it is installed: in an environment with torchvision."""

import numpy as np
import pytest
from PIL import Image

from aucmax.images import ImageClassifier

timm = pytest.importorskip("timm", reason="needs timm, which needs torchvision")


@pytest.mark.parametrize("name", ["resnet10t", "mobilenetv3_small_050", "vit_tiny_patch16_224"])
def test_timm_network(name, tmp_path):
    random = np.random.default_rng(0)
    paths = [tmp_path / f"{number}.png" for number in range(24)]
    y = np.arange(24) % 2
    for path, label in zip(paths, y, strict=True):
        pixels = random.integers(0, 180 + 75 * label, size=(40, 30, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    options = {"batch_size": 4, "device": "cpu", "random_state": 0}
    model = ImageClassifier(name, quality="fast", **options).fit(paths, y)
    assert model.size_ == timm.models.get_pretrained_cfg(name).input_size[-1]
    assert model.history_[-1]["step"] >= 2
    model.save(tmp_path / "model")
    again = ImageClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(paths), model.predict_proba(paths))
