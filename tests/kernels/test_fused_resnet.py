"""ResNet-20's fused kernels in Triton's interpreter against torch's operations; where they apply.

The interpreter runs in ``fused_child.py``. ``test_cuda_resnet.py`` runs them on a GPU.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import interpreted
import pytest
import torch
from torch import nn

from aucmax.kernels.resnet import network
from aucmax.models import resnet20

pytestmark = pytest.mark.xdist_group("fused_resnet")

CHILD = Path(interpreted.__file__).with_name("fused_child.py")
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="needs Triton's interpreter"
)


@pytest.fixture(scope="module")
def child():
    found = subprocess.run([sys.executable, CHILD], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


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
    child = CHILD.with_name("compile_child.py")
    found = subprocess.run([sys.executable, child, tmp_path], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    case = json.loads(found.stdout)
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
    model = resnet20()
    change(model)
    told = network.why_not_model(model._network(), model)
    assert told == reason or told.startswith(reason)


def test_other_activations_are_not_fused():
    model = resnet20("elu")
    told = network.why_not_model(model._network(), model)
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
    told = network.why_not_images(resnet20()._network(), images)
    assert told == reason or reason in told


def test_on_the_cpu_a_training_step_is_torchs():
    plain, model = resnet20(fused=False), resnet20()
    model.load_state_dict(plain.state_dict())
    assert torch.equal(plain(IMAGES), model(IMAGES))


def test_asking_for_fused_steps_where_there_are_none_is_an_error():
    model = resnet20(fused=True)
    with pytest.raises(ValueError, match="fused must be None or False here: the images are on"):
        model(IMAGES)
    assert model.eval()(IMAGES).shape == (2, 1)
    with pytest.raises(ValueError, match="fused must be None, True or False, found 'yes'"):
        resnet20(fused="yes")


def test_models_from_before_have_the_choice():
    model = resnet20()
    del model.__dict__["fused"]
    assert model(IMAGES).shape == (2, 1)
