"""ResNet-20's fused kernels in Triton's interpreter against torch's operations; where they apply.

The interpreter runs in ``fused_child.py``. ``test_cuda_resnet20.py`` runs them on a GPU.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from aucmax.models import resnet20

network = pytest.importorskip("experiments.resnet20.network", reason="an sdist has none")
from experiments.resnet20.model import FusedResNet20  # noqa: E402

HERE = Path(__file__).parent
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="needs Triton's interpreter"
)


def in_a_process(script, *arguments):
    """What a script of this folder prints."""
    paths = [*map(str, (HERE.parents[1], HERE.parent / "helpers")), os.environ.get("PYTHONPATH")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, HERE / script, *arguments]
    found = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


@pytest.fixture(scope="module")
def child():
    return in_a_process("fused_child.py")


def fused():
    return FusedResNet20.like(resnet20())


@needs_triton
def test_two_steps_are_those_of_torch(child):
    case = child["two steps"]
    scores, gradients, buffers = case["distances"]
    assert scores < 1e-5
    assert gradients < 1e-4
    assert buffers < 1e-5


@needs_triton
def test_batches_are_counted_and_evaluation_sees_the_statistics(child):
    case = child["two steps"]
    assert case["tracked"] == [2]
    assert case["evaluated"] < 1e-5


@needs_triton
def test_gradients_lie_in_memory_as_those_of_torch(child):
    assert child["two steps"]["same strides"]


@needs_triton
def test_pixels_may_be_shared_by_programs_and_leave_a_part_of_a_tile(child):
    case = child["many tiles"]
    assert max(case["distances"]) < 1e-4


@needs_triton
def test_a_second_backward_pass_gives_the_same_bits(child):
    assert child["many tiles"]["again"]


@needs_triton
def test_half_precision_costs_less_than_autocast_to_bfloat16(child):
    case = child["half"]
    for found, autocast in zip(case["distances"], case["autocast"], strict=True):
        assert 0 < found < autocast


@needs_triton
def test_kernels_are_compiled_together_before_they_are_launched(tmp_path):
    pytest.importorskip("triton.runtime._async_compile", reason="an older Triton compiles in turn")
    case = in_a_process("compile_child.py", tmp_path)
    assert case == {"compiled": ["pool_kernel", "pool_kernel"], "launched": False}


# --- where they apply -----------------------------------------------------------------------------


IMAGES = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)


def frozen(model):
    model.stem[0].weight.requires_grad_(False)


def in_evaluation(model):
    model.blocks[0].body[1].eval()


def hooked(model):
    model.blocks[3].register_forward_hook(lambda *_: None)


def halved(model):
    model.half()


def channels_first(model):
    weight = model.blocks[0].body[0].weight
    weight.data = weight.data.contiguous()


def synchronized(model):
    model.blocks[0].body[1] = nn.SyncBatchNorm(16)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda model: None, None),
        (frozen, "a parameter is frozen"),
        (in_evaluation, "a batch norm is in evaluation mode"),
        (hooked, "a Block of the model has a hook"),
        (halved, "the model is not in float32"),
        (channels_first, "a weight does not lie channels-last"),
        (synchronized, "a layer is Conv2d and SyncBatchNorm"),
    ],
)
def test_models_that_they_do_not_fit_are_told_why(change, reason):
    model = fused()
    change(model)
    told = network.why_not_model(model.network(), model)
    assert told == reason or told.startswith(reason)


def test_other_activations_are_not_fused():
    model = FusedResNet20("elu")
    told = network.why_not_model(model.network(), model)
    assert told == "the activation is not 'relu'"


@pytest.mark.parametrize(
    ("images", "reason"),
    [
        (IMAGES, None),
        (IMAGES[..., :6], "do not halve twice"),
        (IMAGES[:1, :, :4, :4], "do not halve twice"),
        (IMAGES.double(), "float64"),
        (IMAGES.float().requires_grad_(), "the images need a gradient"),
        (IMAGES.to("meta"), "the images are on meta, the model on cpu"),
    ],
)
def test_images_that_they_do_not_fit_are_told_why(images, reason):
    told = network.why_not_images(fused().network(), images)
    assert told == reason or reason in told


def test_on_the_cpu_a_training_step_is_torchs():
    plain = resnet20(mean=[1.0, 2.0, 3.0], std=4.0)
    model = FusedResNet20.like(plain)
    assert torch.equal(plain(IMAGES), model(IMAGES))
    assert "not on a CUDA device" in model.why_not(IMAGES)
