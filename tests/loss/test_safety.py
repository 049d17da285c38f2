"""Bad values where the host does not look at each batch: the flag on the device."""

import copy
import math

import pytest
import torch

from aucmax import AUCLoss, AveragePrecisionLoss, GroupedAUCLoss, MulticlassAUCLoss
from aucmax.checks import NotFiniteError
from aucmax.loss import CrossEntropy

SCORES = torch.tensor([0.5, -0.5, 1.0, 0.0])
LABELS = torch.tensor([1.0, 0.0, 1.0, 0.0])
WEIGHT = torch.ones(4)


class Elsewhere(torch.Tensor):
    """A tensor that the host does not read at each batch, as one on an accelerator."""


def elsewhere(x):
    return x.as_subclass(Elsewhere)


def with_entry(x, value):
    x = x.clone()
    x[0] = value
    return x


BAD = {
    "a label": ("target must hold 0 and 1 only", SCORES, with_entry(LABELS, 2.0), WEIGHT),
    "signs": ("target must hold 0 and 1 only", SCORES, 2 * LABELS - 1, WEIGHT),
    "an infinite label": ("target must", SCORES, with_entry(LABELS, math.inf), WEIGHT),
    "a NaN label": ("target must", SCORES, with_entry(LABELS, math.nan), WEIGHT),
    "a score": ("scores must be finite", with_entry(SCORES, math.inf), LABELS, WEIGHT),
    "a NaN score": ("scores must be finite", with_entry(SCORES, math.nan), LABELS, WEIGHT),
    "a weight": ("weight must be", SCORES, LABELS, with_entry(WEIGHT, -1.0)),
    "no weight": ("weight must be", SCORES, LABELS, 0 * WEIGHT),
}


@pytest.fixture(scope="module")
def compiled():
    """A compiled loss: it reads nothing back."""
    torch._dynamo.reset()
    loss = AUCLoss(0.5)
    return loss, torch.compile(loss, backend="aot_eager", fullgraph=True)


# ---- Compiled ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", BAD)
def test_a_compiled_loss_tells_the_first_bad_batch_when_asked(fault, compiled):
    loss, call = compiled
    message, *bad = BAD[fault]
    for batch in ((SCORES, LABELS, WEIGHT), bad, (SCORES, LABELS, WEIGHT), bad):
        call(*batch)
    with pytest.raises(ValueError, match=f"{message}.* in batch 2 of 4 "):
        loss.check()
    loss.check()  # it has been told


@pytest.mark.parametrize("ask", ["eval", "state_dict", "check", "reset_dual", "begin"])
def test_what_reads_the_flag(ask, compiled):
    loss, call = compiled
    loss.train()
    call(SCORES, LABELS, WEIGHT)
    call(with_entry(SCORES, math.nan), LABELS, WEIGHT)
    given = (SCORES, LABELS) if ask in ("reset_dual", "begin") else ()
    with pytest.raises(NotFiniteError, match="in batch 2 of 2 so far"):
        getattr(loss, ask)(*given)
    getattr(loss, ask)(*given)


# ---- On a device -------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", BAD)
def test_the_first_batch_on_a_device_raises_as_on_a_cpu(fault):
    message, *bad = BAD[fault]
    errors = []
    for move in (lambda x: x, elsewhere):
        with pytest.raises(ValueError, match=message) as caught:
            AUCLoss(0.5)(*map(move, bad))
        errors.append((type(caught.value), str(caught.value)))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("fault", BAD)
def test_the_flag_says_what_is_allowed_in_the_words_of_a_cpu(fault):
    _, *bad = BAD[fault]
    with pytest.raises(ValueError, match="must") as on_cpu:
        AUCLoss(0.5)(*bad)
    loss = AUCLoss(0.5)
    for batch in ((SCORES, LABELS, WEIGHT), (SCORES, LABELS, WEIGHT), bad):
        loss(*map(elsewhere, batch))
    with pytest.raises(ValueError, match="in batch 3 of 3") as on_device:
        loss.check()
    assert type(on_cpu.value) is type(on_device.value)
    allowed = [str(error.value).partition(", found")[0] for error in (on_cpu, on_device)]
    assert allowed[0] == allowed[1]


def test_a_device_is_waited_for_at_powers_of_two():
    good = [elsewhere(x) for x in (SCORES, LABELS)]
    bad = [elsewhere(x) for x in (SCORES, with_entry(LABELS, 3.0))]
    for fourth in (good, bad):  # the first bad batch is told, whatever came after
        loss = AUCLoss(0.5)
        for batch in (good, good, bad):
            loss(*batch)
        with pytest.raises(ValueError, match="found other values in batch 3 of 4"):
            loss(*fourth)


def test_classes_groups_and_sums_are_looked_at_too():
    scores, classes = torch.zeros(4, 3), torch.tensor([0, 1, 2, 3])
    cases = [
        (MulticlassAUCLoss([0.4, 0.3, 0.3]), (scores, classes), {}, "target must hold 0 to 2"),
        (
            GroupedAUCLoss([1.0, 1.0], [1.0, 1.0]),
            (SCORES, LABELS),
            {"group": torch.tensor([0, 0, 1, 2])},
            "group must hold 0 to 1",
        ),
        (AUCLoss(0.5) + CrossEntropy(), (SCORES, 2 * LABELS), {}, "target must hold 0 and 1"),
    ]
    for loss, given, more, message in cases:
        with pytest.raises(ValueError, match=message):
            loss(*map(elsewhere, given), **more)


NUMBERS = torch.tensor([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("loss", "scores", "target", "name"),
    [
        (GroupedAUCLoss([1.0, 1.0], [1.0, 1.0]), SCORES, LABELS, "group"),
        (AveragePrecisionLoss(0.5, rows=2), SCORES, LABELS, "index"),
        (MulticlassAUCLoss([0.5, 0.5]), torch.zeros(4, 2), None, "target"),
        (CrossEntropy("multiclass"), torch.zeros(4, 2), None, "target"),
    ],
)
@pytest.mark.parametrize("value", [-1, 2])
def test_an_index_out_of_range_is_flagged_before_it_aborts_a_device(
    loss, scores, target, name, value
):
    loss = copy.deepcopy(loss)
    for numbers in (NUMBERS, NUMBERS, with_entry(NUMBERS, value)):  # the third is not looked at
        given = {"target": target, name: numbers}
        loss(elsewhere(scores), **{name: elsewhere(x) for name, x in given.items()})
    with pytest.raises(ValueError, match=f"{name} must hold 0 to 1, .* batch 3 of 3"):
        loss.check()


def test_a_bad_row_number_is_told_after_batches_without_any():
    loss, given = AveragePrecisionLoss(0.5, rows=2), [elsewhere(x) for x in (SCORES, LABELS)]
    for numbers in (*[NUMBERS] * 4, NUMBERS + 1):  # the fifth is not looked at
        loss(*given, index=elsewhere(numbers))
    with pytest.warns(UserWarning, match="called without index"):
        loss(*given)
    with pytest.raises(ValueError, match="index must hold 0 to 1, found other values in batch 5"):
        loss.check()


def test_a_prior_that_the_batches_contradict_is_warned_of():
    loss = AUCLoss(0.05)
    loss(elsewhere(SCORES.repeat(7)), elsewhere(LABELS.repeat(7)))
    with pytest.warns(UserWarning, match=r"prior=0\.05, but 0\.5 of the 28 labels"):
        loss(elsewhere(SCORES), elsewhere(LABELS))


def test_alpha_that_is_minimized_is_warned_of():
    torch.manual_seed(0)
    model, loss = torch.nn.Linear(2, 1), AUCLoss(0.5)
    optimizer = torch.optim.SGD([*model.parameters(), *loss.parameters()], lr=0.1)
    x = torch.randn(4, 2)

    def walk():
        for _ in range(40):
            optimizer.zero_grad()
            loss(elsewhere(model(x)), elsewhere(LABELS)).as_subclass(torch.Tensor).backward()
            optimizer.step()

    with pytest.warns(UserWarning, match="alpha is minimized"):
        walk()


def test_what_watches_stays_in_place_for_captured_graphs():
    """A captured graph goes on writing where it wrote when it was captured."""
    loss = AUCLoss(0.5)
    given = elsewhere(SCORES.clone().requires_grad_()), elsewhere(LABELS)
    for _ in range(3):
        loss(*given)
    kept = loss._watch.state, loss._share_watch.total, loss._flags
    loss.begin(SCORES, LABELS)
    loss.load_state_dict(loss.state_dict())
    loss.to(torch.float32)
    loss(*given)
    now = loss._watch.state, loss._share_watch.total, loss._flags
    places = [[x.data_ptr() for x in (*state, *more)] for state, *more in (kept, now)]
    assert places[0] == places[1]
    assert loss._watch.state[-1] == 1.0  # batches without a move since it began


def test_eager_and_compiled_calls_may_alternate(compiled):
    loss, call = compiled
    scores = SCORES.clone().requires_grad_()
    for forward in (loss, loss, call, call, loss, loss, call):
        forward(scores, LABELS).backward()
    assert loss._watch.state[-1] == 1.0


# ---- The flag itself ---------------------------------------------------------------------------


def test_the_flag_is_no_state():
    """Data-parallel training would overwrite a buffer with the first rank's."""
    loss = AUCLoss(0.5)
    assert not list(loss.buffers())
    assert set(loss.state_dict()) == {"a", "b", "alpha"}


def test_a_copy_has_a_flag_of_its_own():
    loss = AUCLoss(0.5)
    copied = copy.deepcopy(loss)
    copied._flags[1] = 1
    loss.check()
    with pytest.raises(NotFiniteError):
        copied.check()


def test_meta_and_back():
    loss = AUCLoss(0.5).to("meta").to_empty(device="cpu")
    loss.check()
