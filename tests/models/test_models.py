"""ResNet-20 against a transcription, the MLP, and Standardize."""

import pytest
import torch
from errors import assert_names
from torch import nn
from torch.nn import functional as f

from aucmax.models import ResNet20, Standardize, mlp, resnet20

MEAN, STD = [125.3, 123.0, 113.9], [63.0, 62.1, 66.7]
ACTIVATIONS = {"relu": f.relu, "elu": f.elu}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def photographs(n=8, channels=3, side=32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, channels, side, side), generator=generator, dtype=torch.uint8)


def seeded(seed=0, **options):
    options = {"mean": MEAN, "std": STD, **options}
    return resnet20(generator=torch.Generator().manual_seed(seed), **options)


# ---- ResNet-20 against a transcription ----------------------------------------------------------


def resnet20_plainly(state, images, activation, training):
    """He et al. (2016), Section 4.2, with torch's functions alone; the statistics are changed."""

    def norm(x, name):
        mean, var, weight, bias = (
            state[f"{name}.{key}"] for key in ("running_mean", "running_var", "weight", "bias")
        )
        return f.batch_norm(x, mean, var, weight, bias, training=training)

    mean, std = (torch.tensor(x).reshape(1, 3, 1, 1) for x in (MEAN, STD))
    x = (images.float() - mean) / std
    x = f.conv2d(x, state["stem.0.weight"], padding=1)
    x = activation(norm(x, "stem.1"))
    for number in range(9):
        stride = 2 if number in (3, 6) else 1
        name = f"blocks.{number}"
        y = f.conv2d(x, state[f"{name}.body.0.weight"], stride=stride, padding=1)
        y = activation(norm(y, f"{name}.body.1"))
        y = f.conv2d(y, state[f"{name}.body.3.weight"], padding=1)
        y = norm(y, f"{name}.body.4")
        if stride == 2:
            x = f.conv2d(x, state[f"{name}.shortcut.0.weight"], stride=2)
            x = norm(x, f"{name}.shortcut.1")
        x = activation(x + y)
    x = f.adaptive_avg_pool2d(x, 1).flatten(1)
    return f.linear(x, state["head.weight"], state["head.bias"])


@torch.no_grad()
def well_worn(model):
    """Batch norm as after some training, so that none of its numbers is 0 or 1."""
    generator = torch.Generator().manual_seed(1)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for x in (module.weight, module.running_var):
                x.copy_(0.5 + torch.rand(x.shape, generator=generator))
            for x in (module.bias, module.running_mean):
                x.copy_(torch.randn(x.shape, generator=generator) / 3)
    return model


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_resnet20_matches_the_transcription(activation, training):
    model = well_worn(seeded(activation=activation)).train(training)
    state = {name: x.clone() for name, x in model.state_dict().items()}
    images = photographs()
    with torch.no_grad():
        expected = resnet20_plainly(state, images, ACTIVATIONS[activation], training)
        actual = model(images)
    assert expected.std() > 0.03  # the images are told apart
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    for name, value in model.state_dict().items():
        if "running" in name:
            torch.testing.assert_close(value, state[name], rtol=1e-4, atol=1e-5)


def test_resnet20_has_twenty_layers_and_the_known_size():
    model = resnet20()
    assert sum(p.numel() for p in model.parameters()) == 271_889
    deep = [m for name, m in model.named_modules() if "shortcut" not in name]
    assert sum(isinstance(m, nn.Conv2d | nn.Linear) for m in deep) == 20


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({}, (5, 3, 32, 32)),
        ({"outputs": 7}, (5, 3, 32, 32)),
        ({"channels": 1, "mean": 3.0, "std": 2.0}, (2, 1, 8, 8)),
        ({}, (2, 3, 96, 96)),
    ],
)
def test_scores_have_a_row_per_image(options, shape):
    scores = seeded(**options)(torch.zeros(shape))
    assert scores.shape == (shape[0], options.get("outputs", 1))


# ---- Weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [resnet20, lambda **options: mlp(12, (8, 8), **options)])
def test_the_generator_decides_the_weights_alone(make):
    torch.manual_seed(1)
    first = make(generator=torch.Generator().manual_seed(3)).state_dict()
    torch.manual_seed(2)
    same = make(generator=torch.Generator().manual_seed(3)).state_dict()
    other = make(generator=torch.Generator().manual_seed(4)).state_dict()
    assert all(torch.equal(same[name], x) for name, x in first.items())
    matrices = [name for name, x in first.items() if x.ndim > 1]
    assert matrices
    assert not any(torch.equal(other[name], first[name]) for name in matrices)


@pytest.mark.parametrize("make", [resnet20, lambda **options: mlp(12, (8, 8), **options)])
def test_a_generator_leaves_the_global_one_alone(make):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    make(generator=torch.Generator().manual_seed(3))
    assert torch.equal(torch.get_rng_state(), before)


def test_convolutions_begin_with_variance_two_over_fan_out():
    for name, weight in seeded().named_parameters():
        if weight.ndim == 4:
            outputs, _, height, width = weight.shape
            expected = (2 / (outputs * height * width)) ** 0.5
            spread = 5 / (2 * weight.numel()) ** 0.5  # five deviations of an estimate
            assert abs(weight.std() / expected - 1) < spread, name
        elif "head" in name:
            assert weight.abs().max() <= 1 / 8  # 64 inputs
    assert seeded().head.bias.item() == 0


def test_weights_are_channels_last():
    model = seeded()
    wide = [p for p in model.parameters() if p.ndim == 4 and p.shape[1] > 1 and p.shape[2] > 1]
    assert len(wide) == 19
    assert all(p.is_contiguous(memory_format=torch.channels_last) for p in wide)


# ---- Kinds of numbers ---------------------------------------------------------------------------


@pytest.mark.parametrize("make", [seeded, lambda: mlp(3072, (16,), mean=MEAN, std=STD)])
def test_bytes_and_real_numbers_score_alike(make):
    model, images = make().eval(), photographs(4)
    expected = model(images)
    assert torch.equal(model(images.float()), expected)
    assert torch.equal(model(images.contiguous(memory_format=torch.channels_last)), expected)


def eight_bits(x):
    """Whether every number is one that bfloat16 has."""
    return torch.equal(x.bfloat16().float(), x)


def test_scores_under_autocast_are_not_rounded_to_eight_bits():
    model, images = seeded().eval(), photographs(32)
    exact = model(images)
    with torch.autocast("cpu", torch.bfloat16):
        scores = model(images)
        assert model.stem(model.standardize(images)).dtype == torch.bfloat16  # it is in force
    assert scores.dtype == torch.float32
    assert not eight_bits(scores)
    assert len(scores.unique()) == len(images)
    torch.testing.assert_close(scores, exact, rtol=0.05, atol=0.05)


def test_a_model_in_double_precision_scores_in_it():
    model = seeded().double().eval()
    scores = model(photographs(4))
    assert scores.dtype == torch.float64
    torch.testing.assert_close(
        scores.float(), seeded().eval()(photographs(4)), rtol=1e-4, atol=1e-5
    )


# ---- MLP --------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", [(), (5,), (5, 7, 3)])
def test_mlp_is_linear_layers_with_relu_between(hidden):
    generator = torch.Generator().manual_seed(0)
    options = {"mean": [1.0, 2.0, 3.0], "std": [2.0, 4.0, 5.0], "generator": generator}
    model = mlp(12, hidden, outputs=2, **options)
    images = photographs(6, side=2)
    state = model.state_dict()
    x = (images.float() - torch.tensor([1.0, 2, 3]).reshape(1, 3, 1, 1)).flatten(1)
    x = x / torch.tensor([2.0, 4, 5]).repeat_interleave(4)
    matrices = [name for name, p in state.items() if p.ndim == 2]
    assert [state[name].shape[1] for name in matrices] == [12, *hidden]
    for name in matrices:
        x = f.relu(x) if name != matrices[0] else x
        x = f.linear(x, state[name], state[name.replace("weight", "bias")])
    assert x.shape == (6, 2)
    torch.testing.assert_close(model(images), x)


def test_the_last_layer_of_an_mlp_begins_small():
    """Within 1 / sqrt(inputs), the others within sqrt(6 / inputs)."""
    model = mlp(64, (100, 100), generator=torch.Generator().manual_seed(0))
    *first, last = [layer for layer in model if isinstance(layer, nn.Linear)]
    assert 0.09 < last.weight.abs().max() <= 0.1
    for layer in first:
        most = (6 / layer.in_features) ** 0.5
        assert 0.99 * most < layer.weight.abs().max() <= most
    assert not any(layer.bias.any() for layer in [*first, last])


# ---- Standardize --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 7), (4, 3, 2, 5)])
def test_each_channel_has_its_own_mean_and_deviation(shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    actual = Standardize(MEAN, STD)(x)
    for channel in range(3):
        expected = (x[:, channel] - MEAN[channel]) / STD[channel]
        torch.testing.assert_close(actual[:, channel].double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(4,), (4, 3), (4, 3, 2, 5)])
def test_one_mean_and_deviation_for_all(shape):
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    torch.testing.assert_close(Standardize(10.0, 4.0)(x), (x.float() - 10) / 4)


def test_mean_and_deviation_are_saved_but_not_trained():
    layer = Standardize(MEAN, STD)
    assert set(layer.state_dict()) == {"mean", "scale"}
    assert not list(layer.parameters())
    other = Standardize([0.0] * 3, [1.0] * 3)
    other.load_state_dict(layer.state_dict())
    x = photographs(2)
    assert torch.equal(other(x), layer(x))


# ---- Bad arguments ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "function", "options"),
    [
        ("std", Standardize, {"mean": 0.0, "std": 0.0}),
        ("std", Standardize, {"mean": [0.0, 0.0], "std": [1.0, -2.0]}),
        ("std", Standardize, {"mean": 0.0, "std": [1.0, float("nan")]}),
        ("mean", Standardize, {"mean": float("nan"), "std": 1.0}),
        ("mean", Standardize, {"mean": [1.0, 2.0], "std": [1.0, 2.0, 3.0]}),
        ("mean", Standardize, {"mean": [[1.0]], "std": 1.0}),
        ("activation", ResNet20, {"activation": "tanh"}),
        ("channels", resnet20, {"channels": 0}),
        ("outputs", resnet20, {"outputs": 1.5}),
        ("inputs", mlp, {"inputs": 0}),
        ("hidden", mlp, {"inputs": 4, "hidden": (3, 0)}),
        ("outputs", mlp, {"inputs": 4, "outputs": "one"}),
    ],
)
def test_bad_arguments_are_named(argument, function, options):
    assert_names(argument, function, **options)
