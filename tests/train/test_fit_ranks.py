"""Training over the ranks of a real process group, against one process with the same batches."""

import math
import re
import shutil
from pathlib import Path

import pytest
import ranks_fit
import torch
from fit_data import one_thread  # noqa: F401
from process import Scripts
from ranks_fit import BATCH, EQUAL, KEPT_STEPS, SHARDED, STEPS
from safetensors.torch import load_file
from sklearn.metrics import roc_auc_score

import aucmax

SCRIPT = Path(ranks_fit.__file__)
TIMES = ("seconds", "steps_per_second")

pytestmark = pytest.mark.ranks


def newest(out):
    """The last step that was saved."""
    return max((int(x.stem.split("-")[1]) for x in out.glob("checkpoints/step-*.json")), default=0)


# --- results --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def launch(folder, tmp_path_factory):
    """Lets two ranks work on cases, forked from a process that has torch loaded."""
    with Scripts([SCRIPT], tmp_path_factory.mktemp("launches")) as scripts:

        def run(*cases, stop=None):
            return scripts.run(SCRIPT, folder, *cases, cwd=folder, env={"STOP": stop})

        yield run


class Launched:
    """What the ranks of one launch ended with, case by case."""

    def __init__(self, folder, launch, *cases):
        self.folder = folder
        self.log = launch(*cases).stderr

    def __getitem__(self, case):
        files = [self.folder / f"{case}-{rank}.pt" for rank in (0, 1)]
        assert all(file.exists() for file in files), f"{case!r} did not end:\n{self.log[-6000:]}"
        return [torch.load(file) for file in files]


@pytest.fixture(scope="module")
def replicated(folder, launch):
    hardest = "weights, many zero"
    cases = [case for case in EQUAL if case != hardest]
    stops = ["local/whole", "local/crashed", "local/told"]
    local = [*stops, *ranks_fit.LOCAL, *ranks_fit.ONE_LOCAL_STEP]
    return Launched(folder, launch, "plain/whole", *ranks_fit.ALONE, *cases, *local, hardest)


def assert_close(found, wanted, atol=1e-6):
    assert found.keys() == wanted.keys()
    for name, x in wanted.items():
        torch.testing.assert_close(
            found[name], x, rtol=0, atol=atol, msg=lambda m, name=name: f"{name}: {m}"
        )


def assert_equal(found, wanted):
    assert found.keys() == wanted.keys()
    assert [name for name, x in wanted.items() if not torch.equal(found[name], x)] == []


def assert_same_history(found, wanted, tolerance=0.0):
    assert len(found) == len(wanted)
    for one, two in zip(timeless(found), timeless(wanted), strict=True):
        assert one == {key: near(value, tolerance) for key, value in two.items()}


def near(value, tolerance):
    exact = not isinstance(value, float) or tolerance == 0.0
    return value if exact else pytest.approx(value, rel=0, abs=tolerance)


def timeless(history):
    return [{k: v for k, v in record.items() if k not in TIMES} for record in history]


# --- two ranks and one process --------------------------------------------------------------------


def assert_like_one_process(found, wanted):
    first, second = found
    assert (first["step"], first["iterate"]) == (wanted["step"], wanted["iterate"])
    assert_close(first["model"], wanted["model"])
    assert_close(first["loss"], wanted["loss"])
    assert_same_history(first["history"], wanted["history"], tolerance=1e-6)
    assert_same_history(second["history"], first["history"])


def assert_in_step(found):
    assert_equal(found[1]["model"], found[0]["model"])
    assert_equal(found[1]["loss"], found[0]["loss"])


@pytest.mark.parametrize("case", EQUAL)
def test_two_ranks_end_where_one_process_does(replicated, case):
    assert_in_step(replicated[case])
    assert_like_one_process(replicated[case], EQUAL[case]())


def test_saddle_variables_have_moved(replicated):
    for case in ("ppd-sg", "ppd-adagrad, rare positives", "oauc, rare positives"):
        loss = replicated[case][0]["loss"]
        assert all(abs(loss[name].item()) > 1e-3 for name in ("a", "b", "alpha")), case


def test_often_a_rank_and_sometimes_both_saw_no_positive(replicated):
    first, second = (found["positives"] == 0 for found in replicated["counting"])
    assert len(first) == STEPS
    assert (first & ~second).sum() > STEPS // 10
    assert (~first & second).sum() > STEPS // 10
    assert (first & second).sum() > STEPS // 10
    assert (~first | ~second).sum() > STEPS // 10


def test_sometimes_all_weights_of_a_rank_were_zero(replicated):
    # Such a batch counts nothing, and its weights have become ones.
    first, second = (found["weights"] == BATCH // 2 for found in replicated["weights, many zero"])
    assert (first ^ second).any()


def test_streaming_prior_counts_the_labels_of_all_ranks(replicated):
    """Once, also those of the first batch, which a, b and alpha begin with."""
    labels = [ranks_fit.stream_batch(k, rank)[1] for k in range(STEPS) for rank in (0, 1)]
    positives = torch.cat(labels).sum().item()
    for found in replicated["stream, unknown prior"]:
        assert found["loss"]["prior.positives"].item() == 1 + positives
        assert found["loss"]["prior.negatives"].item() == 1 + STEPS * BATCH - positives


def test_what_a_loss_keeps_is_not_sent(replicated):
    weights = sum(p.numel() for p in ranks_fit.network().parameters())
    assert replicated["sent rows"][0] <= weights < 360  # rows


def test_clipping_makes_a_difference(replicated):
    clipped, free = (replicated[case][0]["model"]["0.weight"] for case in ("clipped", "ppd-sg"))
    assert (clipped - free).abs().max() > 3e-3


# --- evaluation -----------------------------------------------------------------------------------


def mean_of_parts(y, scores):
    """The AUCs of two halves, averaged: what a careless evaluation over ranks gives."""
    halves = [(y[0::2], scores[0::2]), (y[1::2], scores[1::2])]
    return sum(roc_auc_score(*half) for half in halves) / 2


def test_recorded_auc_is_that_of_all_rows(replicated):
    for found in replicated["uneven validation"]:
        y, scores = found["labels"].numpy(), found["scores"].numpy()
        assert len(y) % 2 == 1
        assert found["auc"] == pytest.approx(roc_auc_score(y, scores), abs=1e-12)
        assert abs(found["auc"] - mean_of_parts(y, scores)) > 1e-5
        recorded = {r["step"]: r[f"valid_auc_{found['iterate']}"] for r in found["history"]}
        assert recorded[found["step"]] == found["auc"]


def test_recorded_auc_is_that_of_all_rows_if_a_rank_lacks_a_class(replicated):
    for found in replicated["one-sided validation"]:
        y, scores = found["labels"].numpy(), found["scores"].numpy()
        assert y[1::2].sum() == 0
        assert y[len(y) // 2 + 1 :].sum() == 0
        assert found["auc"] == pytest.approx(roc_auc_score(y, scores), abs=1e-12)


@pytest.mark.parametrize("rows", [ranks_fit.uneven_rows, ranks_fit.one_sided_rows])
def test_evaluate_gives_the_auc_of_all_rows(replicated, rows):
    x, y = rows()
    exact = roc_auc_score(y.numpy(), ranks_fit.network()(x).detach().numpy())
    name = "uneven" if rows is ranks_fit.uneven_rows else "one-sided"
    for found in replicated["evaluate"]:
        aucs = {kind: value for kind, value in found.items() if kind.startswith(name)}
        assert len(aucs) == 4
        assert aucs == {kind: pytest.approx(exact, abs=1e-12) for kind in aucs}


def test_batch_norm_ends_equal_on_both_ranks_and_is_saved(replicated, folder):
    found = replicated["batch norm"]
    assert_in_step(found)
    assert found[0]["model"]["1.running_mean"].abs().max() > 0
    model = ranks_fit.network("norm", seed=1)
    notes = aucmax.load_weights(model, folder / "batch norm")
    assert_equal(model.state_dict(), found[0]["model"])
    auc = aucmax.evaluate(model, ranks_fit.rows(101, seed=3), device="cpu")
    assert auc == notes["auc"] == found[0]["auc"]


# --- local steps ----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ranks_fit.ONE_LOCAL_STEP)
def test_one_local_step_walks_as_averaged_gradients_do(replicated, case):
    for averaged_gradients, local in replicated[case]:
        for part in ("model", "loss"):
            assert_close(local[part], averaged_gradients[part], atol=1e-13)
        assert_same_history(local["history"], averaged_gradients["history"], tolerance=1e-13)
    assert_in_step([local for _, local in replicated[case]])


def test_processes_have_one_model_after_every_average_and_others_between(replicated):
    first, second = replicated["meetings"]
    apart = (first - second).abs().amax(1)
    met = {*range(0, 20, ranks_fit.LOCAL_STEPS), 10}  # an evaluation came after the tenth step
    assert {k for k, distance in enumerate(apart) if distance == 0} == met
    assert all(distance > 1e-3 for k, distance in enumerate(apart) if k not in met)


def test_local_steps_take_another_way_to_as_good_a_model(replicated):
    near, far = replicated["far and near"][0]
    losses = [[record["loss"] for record in found["history"]] for found in (near, far)]
    assert all(abs(a - b) > 1e-6 for a, b in zip(*losses, strict=True))
    assert min(near["auc"], far["auc"]) > 0.75
    assert far["auc"] == pytest.approx(near["auc"], abs=0.01)


def test_processes_that_walk_apart_have_whole_groups(replicated):
    losses = [record["loss"] for record in replicated["groups of two"][0]["history"]]
    assert all(loss > 0.1 for loss in losses)


def test_local_steps_send_one_message_per_average(replicated):
    weights = sum(p.numel() for p in ranks_fit.network().parameters())
    gradients, state = weights + 3, (weights + 3) + (weights + 2)  # alpha has no average
    for found in replicated["messages"]:
        sent = {n: [size for size in sizes if size > 3] for n, sizes in found.items()}
        assert sent == {None: [gradients] * 9, 1: [state] * 9, ranks_fit.LOCAL_STEPS: [state] * 3}
        small = {n: len(sizes) - len(sent[n]) for n, sizes in found.items()}
        assert len(set(small.values())) == 1


@pytest.mark.parametrize(
    ("case", "stopped", "step"),
    [("local/crashed", "StoppedError()", 12), ("local/told", "Stopped(143)", 18)],
)
def test_run_with_local_steps_that_was_cut_short_ends_the_same(
    replicated, folder, case, stopped, step
):
    assert [found["stopped"] for found in replicated[case]] == [stopped] * 2
    assert replicated[case][0]["saved step"] == step  # the first rank writes
    assert_undisturbed(folder, case, "local/whole")


# --- sharded models -------------------------------------------------------------------------------


@pytest.mark.parametrize("case", SHARDED)
def test_sharded_model_ends_where_one_process_does(sharded, case):
    assert_like_one_process(sharded[case], SHARDED[case]())
    assert_in_step(sharded[case])


def test_weights_of_a_sharded_model_load_in_one_process(sharded, folder):
    found = sharded["fsdp/whole"][0]
    model = ranks_fit.network("norm and dropout", seed=1)
    notes = aucmax.load_weights(model, folder / "fsdp/whole")
    assert_equal(model.state_dict(), found["model"])
    auc = aucmax.evaluate(model, ranks_fit.rows(101, seed=3), device="cpu")
    assert auc == pytest.approx(notes["auc"], abs=1e-12)


# --- runs that are stopped and gone on with -------------------------------------------------------


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture(scope="module")
def killed(folder, launch):
    """A sharded run of which all processes got SIGKILL, and copies with a damaged file each."""
    if torch.__version__ < "2.7":
        pytest.skip("torch 2.6 shards models on GPUs alone")
    out = folder / "fsdp/killed"
    assert launch("fsdp/killed", stop="kill_all 500").returncode == -9
    damaged = {}
    for name in ("__1_0.distcp", ".metadata"):
        copy = folder / f"fsdp/damaged {name}"
        shutil.copytree(out, copy)
        damaged[copy] = copy / f"checkpoints/step-{newest(copy):010d}.shards" / name
        flip_a_byte(damaged[copy])
    assert not (out / "model.json").exists()
    return damaged


@pytest.fixture(scope="module")
def troubled(folder, launch):
    """A run that lost the rank that writes, was started again, and got SIGTERM; how it ended."""
    out = folder / "plain/troubled"
    assert launch("plain/troubled", stop="kill_first_rank 160").returncode == 1
    saved = newest(out)
    assert 0 < saved < KEPT_STEPS
    end = launch("plain/troubled", stop="tell_all 30")
    assert newest(out) > saved
    shutil.copytree(out, folder / "plain/from two")
    return end.returncode, end.stderr, newest(out)


@pytest.fixture(scope="module")
def begun_alone(folder):
    """A run that one process began and did not end."""
    out = folder / "plain/from one"
    ranks_fit.Pace.left = 150  # of which 24, the first stage's 384 samples, are before any step
    with pytest.raises(ranks_fit.StoppedError):
        ranks_fit.run(folder, "plain/from one")
    ranks_fit.Pace.left = math.inf
    assert 0 < newest(out) < KEPT_STEPS
    return out


@pytest.fixture(scope="module")
def sharded(folder, launch, killed, troubled, begun_alone):
    """Whole runs of sharded models and, in the same processes, all runs to go on with."""
    cases = ["plain/troubled", "plain/from one", "fsdp/told", "fsdp/killed"]
    damaged = [str(copy.relative_to(folder)) for copy in killed]
    return Launched(folder, launch, "fsdp/whole", *SHARDED, *cases, *damaged)


@pytest.fixture(scope="module")
def resumed(sharded):
    return sharded


def assert_undisturbed(folder, found, wanted):
    """The same files, but for the clock, and the same results on both ranks."""
    weights = [load_file(folder / name / "model.safetensors") for name in (found, wanted)]
    assert_equal(*weights)
    histories = [aucmax.history.read(folder / name / "history.jsonl") for name in (found, wanted)]
    assert_same_history(*histories)
    ends = [[torch.load(folder / f"{x}-{r}.pt") for r in (0, 1)] for x in (found, wanted)]
    for one, two in zip(*ends, strict=True):
        assert_equal(one["model"], two["model"])
        assert_equal(one["loss"], two["loss"])
        assert_same_history(one["history"], two["history"])


def test_sharded_run_that_was_killed_ends_the_same(sharded, resumed, folder):
    assert resumed["fsdp/killed"]
    assert_undisturbed(folder, "fsdp/killed", "fsdp/whole")


@pytest.mark.parametrize("file", ["__1_0.distcp", ".metadata"])
def test_damaged_shard_is_skipped_and_named(sharded, resumed, killed, folder, file):
    case = f"fsdp/damaged {file}"
    assert resumed[case]
    notes = [line for line in resumed.log.splitlines() if "skipped" in line]
    assert any(str(killed[folder / case]) in line for line in notes), notes
    assert_undisturbed(folder, case, "fsdp/whole")


def test_group_that_loses_a_rank_and_then_gets_sigterm_goes_on_after_both(
    replicated, resumed, troubled, folder
):
    status, log, step = troubled
    assert status != 0
    assert log.count("going on from step") == 1
    assert f"stopped by SIGTERM after step {step}" in log
    assert 0 < step < KEPT_STEPS
    assert f"going on from step {step} " in resumed.log
    assert resumed["plain/troubled"]
    assert_undisturbed(folder, "plain/troubled", "plain/whole")


def test_sigterm_for_one_rank_stops_all_and_a_sharded_run_goes_on(resumed, folder):
    first, second = resumed["fsdp/told"]
    assert first["stopped"] == second["stopped"] == "Stopped(143)"
    step = first["saved step"]
    assert 0 < step < KEPT_STEPS
    assert f"stopped by SIGTERM after step {step};" in resumed.log
    assert f"going on from step {step} " in resumed.log
    assert_undisturbed(folder, "fsdp/told", "fsdp/whole")


def test_one_process_goes_on_with_what_two_ranks_began(replicated, troubled, folder):
    found = ranks_fit.run(folder, "plain/from two")
    wanted = replicated["plain/whole"][0]
    assert_close(found["model"], wanted["model"])
    assert_close(found["loss"], wanted["loss"])
    assert_same_history(found["history"], wanted["history"], tolerance=1e-6)


def test_two_ranks_go_on_with_what_one_process_began(replicated, resumed):
    wanted = replicated["plain/whole"][0]
    assert_in_step(resumed["plain/from one"])
    for found in resumed["plain/from one"]:
        assert_close(found["model"], wanted["model"])
        assert_close(found["loss"], wanted["loss"])
        assert_same_history(found["history"], wanted["history"], tolerance=1e-6)


# --- errors ---------------------------------------------------------------------------------------


def test_batch_that_the_ranks_cannot_share_is_an_error_on_every_rank(folder, launch):
    status, _, log = launch("indivisible")
    assert status == 1
    for rank in (0, 1):
        text = (folder / f"indivisible-{rank}.error").read_text(encoding="utf-8")
        assert re.search(r"batch_size must be a multiple of 2\b.*found 15", text)
    assert log.count("ValueError: batch_size") == 2
