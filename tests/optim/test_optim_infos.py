"""The optimizers in the tables that torch tests its own with; the test bodies are ours."""

import copy
import math
import pickle
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import settings
from optim_helpers import (
    assert_near,
    assert_same,
    everything,
    make_batch,
    make_params,
    make_task,
    set_grads,
    train_step,
    walk,
    walk_two_stages,
)
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR, ReduceLROnPlateau, StepLR
from torch.testing._internal.common_optimizers import (
    ErrorOptimizerInput,
    OptimizerErrorEnum,
    OptimizerInfo,
    OptimizerInput,
    get_error_inputs_for_all_optims,
)

from aucmax import OAUC, PGA, PPDSG, PPDAdaGrad
from aucmax.optim import staged

# Importing torch's tables loads torch's own hypothesis profile and locks the backend flags: undo.
settings.load_profile("aucmax")
torch.backends.__allow_nonbracketed_mutation_flag = True

SHAPES = (3, 4), (4,), ()


# ---- The tables --------------------------------------------------------------------------------


def table(**inputs):
    """A function of the kind OptimizerInfo takes; every optimizer has the first rows."""
    rows = {
        "default": {},
        "lr": {"lr": 0.02},
        "tensor_lr": {"lr": torch.tensor(0.02, dtype=torch.float64)},
        "maximize": {"maximize": True},
    }
    return lambda device, dtype=None: [
        OptimizerInput(params=None, kwargs=kwargs, desc=desc)
        for desc, kwargs in (rows | inputs).items()
    ]


def complex_parameter():
    p = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    p.grad = torch.ones_like(p)
    return p


def sparse_parameter():
    p = nn.Parameter(torch.ones(2, 2))
    p.grad = torch.ones_like(p).to_sparse()
    return p


def error_table(names_and_bad):
    """Values of arguments that must raise, and gradients that must."""

    def errors(device, dtype):
        rows = [
            ErrorOptimizerInput(
                OptimizerInput(None, {name: value}, desc=f"{name}={value}"),
                error_type=ValueError,
                error_regex=f"^{name} must be ",
            )
            for name, bad in names_and_bad.items()
            for value in bad
        ]
        rows += [
            ErrorOptimizerInput(
                OptimizerInput([make()], {}, desc=make.__name__),
                error_on=OptimizerErrorEnum.STEP_ERROR,
                error_type=ValueError,
                error_regex=regex,
            )
            for make, regex in [
                (sparse_parameter, r"gradients must be dense, found layout torch.sparse_coo"),
                (complex_parameter, r"real floating point, found torch.complex64"),
            ]
        ]
        # torch's own rows; its words for a tensor lr of several elements are not ours
        shared = get_error_inputs_for_all_optims(device, dtype)
        return rows + [row for row in shared if "1-element" not in row.error_regex]

    return errors


NON_NEGATIVE = [-0.1, math.nan, math.inf, "fast", torch.tensor([0.1, 0.2])]
POSITIVE = [0.0, -2.0, math.nan, None]


def step_lr(optimizer):
    return StepLR(optimizer, gamma=0.5, step_size=2)


def cosine(optimizer):
    return CosineAnnealingLR(optimizer, T_max=5)


def plateau(optimizer):
    return ReduceLROnPlateau(optimizer, patience=0)


def one_cycle(optimizer):
    """Cycles the momentum too, where there is one."""
    cycle_momentum = "momentum" in optimizer.defaults
    return OneCycleLR(optimizer, max_lr=0.1, total_steps=8, cycle_momentum=cycle_momentum)


SCHEDULERS = [step_lr], [cosine], [plateau], [one_cycle], [step_lr, cosine]


INFOS = [
    OptimizerInfo(
        PPDSG,
        optim_inputs_func=table(
            gamma={"gamma": 0.7},
            no_prox={"gamma": math.inf},
            momentum={"gamma": 2.0, "momentum": 0.9},
            weight_decay={"gamma": 2.0, "weight_decay": 0.3},
            everything={"lr": 0.05, "gamma": 2.0, "momentum": 0.9, "weight_decay": 0.3},
            dual_momentum={"momentum": 0.9, "maximize": True},
        ),
        optim_error_inputs_func=error_table(
            dict.fromkeys(["lr", "momentum", "weight_decay"], NON_NEGATIVE) | {"gamma": POSITIVE}
        ),
        scheduler_inputs=SCHEDULERS,
        supported_impls=("foreach",),
        supports_complex=False,
    ),
    OptimizerInfo(
        PPDAdaGrad,
        optim_inputs_func=table(
            gamma={"gamma": 0.7},
            no_prox={"gamma": math.inf},
            delta={"gamma": 2.0, "delta": 0.01},
        ),
        optim_error_inputs_func=error_table(
            {"lr": NON_NEGATIVE, "gamma": POSITIVE, "delta": POSITIVE}
        ),
        scheduler_inputs=SCHEDULERS,
        supported_impls=("foreach",),
        supports_complex=False,
    ),
    OptimizerInfo(
        PGA,
        optim_inputs_func=table(
            gamma={"gamma": 0.7},
            no_prox={"gamma": math.inf},
            radius={"gamma": 2.0, "radius": 1.5, "seed": 7},
            dual_radius={"maximize": True, "dual_radius": 1.5},
        ),
        optim_error_inputs_func=error_table(
            {"lr": NON_NEGATIVE} | dict.fromkeys(["gamma", "radius", "dual_radius"], POSITIVE)
        ),
        scheduler_inputs=SCHEDULERS,
        supported_impls=("foreach",),
        supports_complex=False,
    ),
    OptimizerInfo(
        OAUC,
        optim_inputs_func=table(),
        optim_error_inputs_func=error_table({"lr": NON_NEGATIVE}),
        scheduler_inputs=SCHEDULERS,
        supported_impls=("foreach",),
        supports_complex=False,
    ),
]

INPUTS = [(info, given) for info in INFOS for given in info.optim_inputs_func("cpu")]
ERRORS = [(i, e) for i in INFOS for e in i.optim_error_inputs_func("cpu", torch.float32)]

each_info = pytest.mark.parametrize("info", INFOS, ids=lambda info: info.name)
each_input = pytest.mark.parametrize(
    ("info", "given"), INPUTS, ids=[f"{info.name}-{given.desc}" for info, given in INPUTS]
)
each_error = pytest.mark.parametrize(
    ("info", "error"),
    ERRORS,
    ids=[f"{info.name}-{error.optimizer_error_input.desc}" for info, error in ERRORS],
)
each_scheduler = pytest.mark.parametrize(
    ("info", "make_schedulers"),
    [
        pytest.param(info, makers, id="-".join([info.name, *(make.__name__ for make in makers)]))
        for info in INFOS
        for makers in info.scheduler_inputs
    ],
)


def build(info, given, params, **more):
    return info.optim_cls(params, **(copy.deepcopy(given.kwargs) | more))


def plain(info):
    """The optimizer with the prox on, as a function of the parameters."""
    options = {"lr": 0.1, "gamma": 2.0} if info.optim_cls is not OAUC else {"lr": 0.1}
    return partial(info.optim_cls, **options)


# ---- The step ----------------------------------------------------------------------------------


@each_input
def test_step_direction(info, given):
    """Downhill on a bowl, uphill on its mirror image."""
    (p,) = make_params((6,))
    start = p.detach().square().sum()
    optimizer = build(info, given, [p])
    sign = -1.0 if given.kwargs.get("maximize") else 1.0
    for _ in range(20):
        p.grad = sign * p.detach()
        optimizer.step()
    assert p.detach().square().sum() < 0.95 * start


@each_info
def test_closure(info):
    params, closed = make_params(*SHAPES), make_params(*SHAPES)
    optimizer, with_closure = plain(info)(params), plain(info)(closed)

    def evaluate(params, optimizer):
        optimizer.zero_grad()
        loss = sum((p**2).sum() for p in params)
        loss.backward()
        return loss

    for _ in range(3):
        expected = evaluate(params, optimizer)
        assert optimizer.step() is None
        assert torch.equal(with_closure.step(lambda: evaluate(closed, with_closure)), expected)
    assert_same(everything(with_closure), everything(optimizer))


@each_info
def test_lr_per_group(info):
    lrs = (0.1, 0.01)
    groups = [make_params(*SHAPES, seed=seed) for seed in (0, 1)]
    together = plain(info)([{"params": g, "lr": lr} for g, lr in zip(groups, lrs, strict=True)])
    for t in range(4):
        for params in groups:
            set_grads(params, t)
        together.step()
    held = everything(together)
    for i, lr in enumerate(lrs):
        params = make_params(*SHAPES, seed=i)
        alone = plain(info)([{"params": params, "lr": lr}])
        walk(alone, params, 4)
        mine = {name: value for name, value in held.items() if name.startswith(f"{i}.")}
        assert_same(mine, {f"{i}{name[1:]}": v for name, v in everything(alone).items()})


@each_info
def test_tensor_lr_equals_number_lr(info):
    results = []
    for lr in (0.25, torch.tensor(0.25)):
        params = make_params(*SHAPES)
        optimizer = info.optim_cls(params, lr=lr)
        walk_two_stages(optimizer, params)
        results.append({k: v for k, v in everything(optimizer).items() if not k.endswith(".lr")})
    assert_near(*results, rtol=1e-13, atol=1e-13)


# ---- Schedulers --------------------------------------------------------------------------------


@each_scheduler
def test_schedulers(info, make_schedulers):
    """What a scheduler does is what the same numbers set by hand do."""
    tensor = make_schedulers[0] in (cosine, one_cycle)
    lr = torch.tensor(0.1, dtype=torch.float64) if tensor else 0.1
    params, by_hand = make_params(*SHAPES), make_params(*SHAPES)
    scheduled, other = (info.optim_cls(ps, lr=copy.deepcopy(lr)) for ps in (params, by_hand))
    chain = [make(scheduled) for make in make_schedulers]
    used = []
    for t in range(7):
        names = ("lr", "momentum") if "momentum" in scheduled.defaults else ("lr",)
        used.append({name: float(scheduled.param_groups[0][name]) for name in names})
        walk(scheduled, params, 1, first=t)
        other.param_groups[0].update(used[-1])
        walk(other, by_hand, 1, first=t)
        for scheduler in chain:
            scheduler.step(*([1.0] if isinstance(scheduler, ReduceLROnPlateau) else []))
    assert len({numbers["lr"] for numbers in used}) > 2
    torch.testing.assert_close(params, by_hand, rtol=1e-13, atol=1e-13)


# ---- Copies ------------------------------------------------------------------------------------


def by_pickle(thing):
    return pickle.loads(pickle.dumps(thing))


@pytest.mark.parametrize(
    ("info", "given", "duplicate"),
    [
        *[(info, given, copy.deepcopy) for info, given in INPUTS],
        *[(info, given, by_pickle) for info, given in INPUTS if given.desc == "gamma"],
    ],
)
def test_copy_mid_stage(info, given, duplicate):
    params = make_params(*SHAPES)
    optimizer = build(info, given, params)
    walk_two_stages(optimizer, params)
    copied_params, copied = duplicate((params, optimizer))
    before = everything(copied)
    walk(optimizer, params, 3, first=7)
    assert_same(everything(copied), before)
    walk(copied, copied_params, 3, first=7)
    assert_same(everything(copied), everything(optimizer))
    optimizer.end_stage()
    copied.end_stage()
    assert_same(everything(copied), everything(optimizer))


@each_input
def test_load_state_dict(info, given):
    params, other = make_params(*SHAPES), make_params(*SHAPES, seed=5)
    optimizer, loaded = build(info, given, params), info.optim_cls(other)
    walk_two_stages(optimizer, params)
    loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    with torch.no_grad():
        for p, value in zip(other, params, strict=True):
            p.copy_(value)
    walk(optimizer, params, 3, first=7)
    walk(loaded, other, 3, first=7)
    assert_same(everything(loaded), everything(optimizer))


# ---- Errors ------------------------------------------------------------------------------------


@each_error
@pytest.mark.filterwarnings("default")
def test_error_inputs(info, error):
    given = error.optimizer_error_input
    params = make_params((2,)) if given.params is None else given.params
    warning = issubclass(error.error_type, Warning)
    expectation = (pytest.warns if warning else pytest.raises)(
        error.error_type, match=error.error_regex
    )
    if error.error_on is OptimizerErrorEnum.CONSTRUCTION_ERROR:
        with expectation:
            info.optim_cls(params, **given.kwargs)
    else:
        optimizer = info.optim_cls(params, **given.kwargs)
        with expectation:
            optimizer.step()


CHECKED = "lr", "gamma", "momentum", "weight_decay", "delta", "radius", "dual_radius"


@pytest.mark.parametrize(
    ("info", "name"),
    [
        pytest.param(info, name, id=f"{info.name}-{name}")
        for info in INFOS
        for name in CHECKED
        if name in info.optim_cls(make_params((2,))).defaults
    ],
)
def test_bad_arguments_of_group(info, name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        info.optim_cls([{"params": make_params((2,)), name: -1}])
    optimizer = info.optim_cls(make_params((2,)))
    with pytest.raises(ValueError, match=f"^{name} must be"):
        optimizer.add_param_group({"params": make_params((3,)), name: -1})


@each_info
@pytest.mark.parametrize("restart", ["median", None, 1])
def test_unknown_restart_raises_and_changes_nothing(info, restart):
    params = make_params(*SHAPES)
    optimizer = plain(info)(params)
    walk(optimizer, params, 2)
    before = everything(optimizer)
    with pytest.raises(ValueError, match="restart must be"):
        optimizer.end_stage(restart)
    assert_same(everything(optimizer), before)


def test_pga_restarts_at_average_only():
    with pytest.raises(ValueError, match="restart must be 'average' for PGA, found 'last'"):
        PGA(make_params((2,))).end_stage("last")


# ---- Lists against single tensors --------------------------------------------------------------


def awkward_params(dtype):
    """Empty, without dimensions, around the block's size, transposed, channels last."""
    flat_shapes = (), (0,), (7,), (63,), (64,), (65,), (3, 70), (2, 0, 3)
    params = make_params(*flat_shapes, dtype=dtype)
    transposed, images, small_images = make_params(
        (40, 5), (2, 8, 4, 4), (1, 3, 2, 2), dtype=dtype, seed=1
    )
    layouts = (
        transposed.t(),
        *(x.to(memory_format=torch.channels_last) for x in (images, small_images)),
    )
    return params + [nn.Parameter(x.detach()) for x in layouts]


def walk_with_other_strides(optimizer, params):
    """Every second gradient of two dimensions comes transposed in memory."""
    for t in range(6):
        set_grads(params, t)
        for p in params:
            if p.ndim == 2 and t % 2:
                p.grad = p.grad.t().contiguous().t()
        optimizer.step()
        if t == 3:
            optimizer.end_stage()


@pytest.mark.parametrize(
    ("info", "given", "foreach", "dtype"),
    [
        *[(info, given, None, torch.float64) for info, given in INPUTS],
        *[(info, given, True, torch.float32) for info, given in INPUTS if given.desc == "gamma"],
    ],
)
def test_foreach_equals_single_tensor(monkeypatch, info, given, foreach, dtype):
    tolerance = 1e-12 if dtype == torch.float64 else 2e-5
    monkeypatch.setattr(staged, "BLOCK", 64)
    results = []
    for choice in (foreach, False):
        params = awkward_params(dtype)
        optimizer = build(info, given, params, foreach=choice)
        walk_with_other_strides(optimizer, params)
        assert all(
            p.stride() == q.stride() for p, q in zip(params, awkward_params(dtype), strict=True)
        )
        results.append(everything(optimizer))
    assert_near(*results, rtol=tolerance, atol=tolerance)


@each_info
def test_block_size_changes_nothing(monkeypatch, info):
    results = []
    for block in (64, 1 << 19):
        monkeypatch.setattr(staged, "BLOCK", block)
        params = awkward_params(torch.float64)
        optimizer = plain(info)(params)
        walk(optimizer, params, 3)
        results.append(everything(optimizer))
    assert_near(*results, rtol=1e-15, atol=1e-15)


@each_input
def test_half_precision_follows_single(info, given):
    half, single = (make_params((50,), dtype=d) for d in (torch.bfloat16, torch.float32))
    with torch.no_grad():
        single[0].copy_(half[0])
    results = []
    for params in (half, single):
        optimizer = build(info, given, params)
        walk(optimizer, params, 3)
        results.append(params[0].detach().float())
        state = optimizer.state[params[0]]
        assert {x.dtype for x in state.values() if x.ndim} <= {torch.float32}
    torch.testing.assert_close(*results, rtol=0.02, atol=0.02)


# ---- Bounds ------------------------------------------------------------------------------------

LOW, HIGH = -0.25, 0.5


@pytest.mark.parametrize("foreach", [None, False])
@pytest.mark.parametrize("maximize", [False, True])
@each_info
def test_bounds_hold_before_average(info, maximize, foreach):
    """Points of the group that has bounds are inside, some at the edge; so is their average."""
    free, bounded = make_params((40,), (2, 15), dtype=torch.float32)
    with torch.no_grad():
        bounded.clamp_(LOW, HIGH)
    group = {"params": [bounded], "bounds": (LOW, HIGH), "maximize": maximize}
    optimizer = info.optim_cls([{"params": [free]}, group], lr=0.3, foreach=foreach)
    alone = info.optim_cls([free.detach().clone().requires_grad_()], lr=0.3, foreach=foreach)
    points = [bounded.detach().double().clone()]
    for t in range(6):
        set_grads([free, bounded], t)
        set_grads(alone.param_groups[0]["params"], t)
        optimizer.step()
        alone.step()
        points.append(bounded.detach().double().clone())
    assert torch.equal(free, alone.param_groups[0]["params"][0])
    inside = torch.stack(points)
    assert inside.min() == LOW
    assert inside.max() == HIGH
    if not maximize or info.optim_cls in (PGA, OAUC):
        average = dict(optimizer.averages())[bounded].double()
        expected = average_by_hand(info.optim_cls, inside.numpy(), 0.3)
        np.testing.assert_allclose(average.numpy(), expected, rtol=1e-6, atol=1e-7)


@each_info
def test_bounds_that_hold_by_themselves_change_nothing(info):
    results = []
    for bounds in (None, (-1e9, 1e9)):
        params = make_params(*SHAPES)
        optimizer = plain(info)([{"params": params, "bounds": bounds}])
        walk_two_stages(optimizer, params)
        results.append(everything(optimizer))
    assert_same(*results)


@each_info
@pytest.mark.parametrize("bounds", [(0.0,), (1.0, 0.0), (0.0, math.nan), "01", 0.5, (None, 1.0)])
def test_bad_bounds_raise(info, bounds):
    with pytest.raises(ValueError, match=r"bounds must be two numbers \(low, high\)"):
        info.optim_cls([{"params": make_params((2,)), "bounds": bounds}])


@each_info
def test_loaded_state_without_bounds_keeps_those_of_groups(info):
    """As of version 0.2, which had none, but options that are gone."""
    params, other = make_params(*SHAPES), make_params(*SHAPES)
    optimizer = plain(info)([{"params": params}])
    walk(optimizer, params, 2)
    saved = copy.deepcopy(optimizer.state_dict())
    del saved["param_groups"][0]["bounds"]
    saved["param_groups"][0] |= {"differentiable": False, "fused": None, "lr_scale": 10.0}
    loaded = plain(info)([{"params": other, "bounds": (LOW, HIGH)}])
    loaded.load_state_dict(saved)
    assert loaded.param_groups[0]["bounds"] == (LOW, HIGH)
    walk(loaded, other, 1, first=2)
    assert max(p.max() for p in other) <= HIGH
    saved["param_groups"][0]["bounds"] = (0.0, 1.0)
    loaded.load_state_dict(saved)
    assert loaded.param_groups[0]["bounds"] == (0.0, 1.0)


# ---- Averages ----------------------------------------------------------------------------------


def average_by_hand(cls, points, lr):
    """What each method averages, from the points v_0, v_1, ... of a stage."""
    if cls is OAUC:
        steps = [lr / math.sqrt(t) for t in range(1, len(points))]
        return np.average(points[:-1], axis=0, weights=steps)
    return np.mean(points[1:] if cls is PGA else points, axis=0)


PRESENT = ["1010", "0011", "1100", "0101"]


@pytest.mark.parametrize(
    ("info", "given", "present"),
    [
        pytest.param(info, given, present, id=f"{info.name}-{given.desc}-{present}")
        for number, (info, given) in enumerate(INPUTS)
        for present in ("1111", PRESENT[number % 4], PRESENT[(number + 1) % 4])
        if info.optim_cls in (PGA, OAUC) or not given.kwargs.get("maximize")  # it has no average
    ],
)
def test_average_is_mean_of_iterates(info, given, present):
    """One parameter has gradients at some steps only; in the others it stands still."""
    steady, sporadic = make_params((3,), (4,))
    optimizer = build(info, given, [steady, sporadic])
    lr = float(optimizer.param_groups[0]["lr"])
    for stage in range(2):
        points = [sporadic.detach().numpy().copy()]
        for t, has_gradient in enumerate(present):
            set_grads([steady, sporadic], 10 * stage + t)
            if has_gradient == "0":
                sporadic.grad = None
            optimizer.step()
            points.append(sporadic.detach().numpy().copy())
        if stage == 0 or info.optim_cls is not OAUC:
            expected = average_by_hand(info.optim_cls, points, lr)
            if info.optim_cls is PGA:  # what it returns is drawn; this is the running one
                optimizer.state[sporadic].pop("drawn", None)
            found = {id(p): x for p, x in optimizer.averages()}.get(id(sporadic), sporadic.detach())
            np.testing.assert_allclose(found, expected, rtol=1e-12)
        optimizer.end_stage()


@each_info
def test_parameter_without_gradient_has_no_state(info):
    moving, resting = make_params((3,), (4,))
    start = resting.detach().clone()
    optimizer = plain(info)([moving, resting])
    walk(optimizer, [moving], 3)
    optimizer.end_stage()
    assert resting not in optimizer.state or "drift" not in optimizer.state[resting]
    assert torch.equal(resting.detach(), start)


# ---- Mixed precision ---------------------------------------------------------------------------


@each_info
def test_gradscaler_skips_step(info):
    params, other = make_params(*SHAPES), make_params(*SHAPES)
    optimizer, unscaled = plain(info)(params), plain(info)(other)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    for t in range(4):
        optimizer.zero_grad()
        scaler.scale(sum((p**2).sum() for p in params)).backward()
        if t == 2:
            params[0].grad[0, 0] = math.inf
        before = everything(optimizer)
        scaler.step(optimizer)
        scaler.update()
        if t == 2:
            assert_same(everything(optimizer), before)
            continue
        unscaled.zero_grad()
        sum((p**2).sum() for p in other).backward()
        unscaled.step()
    assert optimizer.state[params[0]]["step"] == 3
    assert_same(everything(optimizer), everything(unscaled))


# ---- Groups and hooks --------------------------------------------------------------------------


@each_info
def test_add_param_group_mid_stage(info):
    old, new = make_params(*SHAPES), make_params((5,), seed=3)
    optimizer = plain(info)(old)
    walk(optimizer, old, 2)
    optimizer.add_param_group({"params": new, "lr": 0.05})
    for t in range(2, 5):
        set_grads(old, t)
        set_grads(new, t)
        optimizer.step()

    old_alone, new_alone = make_params(*SHAPES), make_params((5,), seed=3)
    first, second = plain(info)(old_alone), plain(info)([{"params": new_alone, "lr": 0.05}])
    walk(first, old_alone, 5)
    walk(second, new_alone, 3, first=2)
    added = {"1" + name[1:]: value for name, value in everything(second).items()}
    assert_same(everything(optimizer), everything(first) | added)


# ---- torch.compile -----------------------------------------------------------------------------


STEPS = 3


def compiled_and_eager(make, backend, lrs):
    """Train two copies for a stage per lr; their numbers, and the graphs built by each step."""
    counter, counts, results = CompileCounterWithBackend(backend), [], []
    for compiled in (True, False):
        task = make_task(model=nn.Linear(4, 1))  # a graph grows with the number of parameters
        optimizer = make(task.groups())
        if compiled:
            optimizer.step = torch.compile(optimizer.step, backend=counter)
        for lr in lrs:
            for group in optimizer.param_groups:
                group["lr"].fill_(lr)
            for t in range(STEPS):
                train_step(task, optimizer, make_batch(t))
                counts += [counter.frame_count] if compiled else []
            optimizer.end_stage()
        results.append(everything(optimizer))
    return *results, counts


COMPILED = {
    "PPDSG": partial(PPDSG, gamma=3.0, momentum=0.9, weight_decay=0.1),
    "PPDAdaGrad": partial(PPDAdaGrad, gamma=3.0),
    "PGA": partial(PGA, gamma=3.0, radius=2.2, dual_radius=0.05),
    "OAUC": OAUC,
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_step_with_tensor_lr(fresh_compiler, name):
    def make(groups):
        return COMPILED[name](groups, lr=torch.tensor(0.1, dtype=torch.float64))

    backend = "aot_eager" if name == "PPDSG" else "eager"  # which takes a fifth of the time
    compiled, eager, counts = compiled_and_eager(make, backend, (0.3, 0.1))
    assert_near(compiled, eager, rtol=1e-12, atol=1e-12)
    # the first steps of the first two stages begin states; from then on nothing is new
    assert counts[1] == counts[STEPS - 1], "compiled again within the first stage"
    assert counts[STEPS + 1] == counts[-1], "compiled again for a new lr or a new stage"


@pytest.mark.skipif(torch.__version__ < "2.7", reason="torch 2.6 makes several graphs of it")
@pytest.mark.parametrize("name", COMPILED)
def test_step_is_one_graph(fresh_compiler, name):
    task = make_task()
    optimizer = COMPILED[name](task.groups())
    for t in range(2):  # states begin in the first step
        train_step(task, optimizer, make_batch(t))
    counter = CompileCounterWithBackend("eager")
    optimizer.step = torch.compile(optimizer.step, backend=counter)
    train_step(task, optimizer, make_batch(2))
    assert counter.frame_count == 1
