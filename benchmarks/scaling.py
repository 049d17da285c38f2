"""What training on many GPUs should cost, computed from one measured step and stated assumptions.

``python benchmarks/scaling.py`` writes the tables of the site's scaling page. The step of ResNet-20
is that of the newest ``benchmarks/results/*-cuda.json`` that has one; ``--seconds CAPTURED EAGER``
gives it instead. Nothing here was measured on more than one GPU.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import NamedTuple

import aucmax

HERE = Path(__file__).parent
TABLE = HERE.parent / "docs" / "_tables" / "scaling.rst"
CAPTURED, EAGER, STEP = "ResNet-20, captured", "ResNet-20, eager", "PPD-SG by fit"
LOCAL_STEPS = (1, 4, 16, 64)
FLOAT = 4  # bytes of a number in single precision
UNITS = {"GB/s": 1e9, "µs": 1e-6, "MiB": 2**20, "TFLOP/s": 1e12, "GFLOP": 1e9, "FLOP": 1, "": 1}


class Assumed(NamedTuple):
    """A number that was not measured here, and where it comes from."""

    value: float
    unit: str
    source: str


ASSUMED = {
    "NVLink, per GPU and direction": Assumed(
        450, "GB/s", "NVIDIA's datasheet of the H200: 900 GB/s, both directions together"
    ),
    "InfiniBand, per GPU and direction": Assumed(
        50, "GB/s", "400 Gb/s, one adapter for each GPU of a node"
    ),
    "Ethernet, per machine and direction": Assumed(1.25, "GB/s", "10 Gb/s"),
    "share of a link that is reached": Assumed(0.8, "", "a guess; nccl-tests measures it"),
    "a hop over NVLink": Assumed(2, "µs", "a guess"),
    "a hop over InfiniBand": Assumed(5, "µs", "a guess"),
    "a hop over Ethernet": Assumed(30, "µs", "a guess"),
    "the start of a collective": Assumed(20, "µs", "a guess: launches and waiting"),
    "share of a step that is the backward pass": Assumed(
        0.667, "", "twice the arithmetic of the forward pass"
    ),
    "a bucket of DDP": Assumed(25, "MiB", "torch's default; nothing hides the last one"),
    "arithmetic of a GPU": Assumed(
        989, "TFLOP/s", "NVIDIA's datasheet of the H200: bfloat16 without sparsity"
    ),
    "share of it, convolutions": Assumed(0.1, "", "a guess"),
    "share of it, matrix products": Assumed(0.4, "", "a guess"),
    "ResNet-50 forward, an image": Assumed(
        8.2, "GFLOP", "twice the 4.1 G multiply-adds published for 224 x 224; training takes 3 x"
    ),
    "a transformer, a token and parameter": Assumed(
        6, "FLOP", "the usual count: 2 forward, 4 backward"
    ),
}


def assumed(name: str) -> float:
    """The number of that name, in bytes, seconds and operations."""
    return ASSUMED[name].value * UNITS[ASSUMED[name].unit]


class Link(NamedTuple):
    """What two neighbours are connected by."""

    bandwidth: float
    latency: float


REACHED = assumed("share of a link that is reached")
NVLINK = Link(REACHED * assumed("NVLink, per GPU and direction"), assumed("a hop over NVLink"))
INFINIBAND = Link(
    REACHED * assumed("InfiniBand, per GPU and direction"), assumed("a hop over InfiniBand")
)
ETHERNET = Link(
    REACHED * assumed("Ethernet, per machine and direction"), assumed("a hop over Ethernet")
)


class Cluster(NamedTuple):
    """Nodes of GPUs; within a node NVLink, between nodes a link for each GPU."""

    name: str
    nodes: int
    gpus: int
    between: Link


CLUSTERS = [
    Cluster("8 GPUs, one node", 1, 8, NVLINK),
    Cluster("1,024 GPUs, InfiniBand", 128, 8, INFINIBAND),
    Cluster("8 machines, Ethernet", 8, 1, ETHERNET),
]


class Workload(NamedTuple):
    """A model, its parameters, and the seconds of a step on one GPU."""

    name: str
    parameters: int
    seconds: float


# --- costs ----------------------------------------------------------------------------------------


def ring(n: int, size: float, link: Link) -> float:
    """Seconds of an all-reduce of ``size`` bytes: a reduce-scatter and an all-gather in a ring."""
    return 2 * (n - 1) / n * size / link.bandwidth + 2 * (n - 1) * link.latency


def tree(n: int, size: float, link: Link) -> float:
    """The same up and down a pair of binary trees: more bytes, far fewer hops."""
    return 2 * size / link.bandwidth + 2 * math.ceil(math.log2(n)) * link.latency


def all_reduce(cluster: Cluster, size: float) -> float:
    """Within the nodes; then between them, where each GPU's link carries its share of the bytes."""
    seconds = assumed("the start of a collective")
    steps = [(cluster.gpus, size, NVLINK), (cluster.nodes, size / cluster.gpus, cluster.between)]
    return seconds + sum(min(ring(*step), tree(*step)) for step in steps if step[0] > 1)


def flat_ring(cluster: Cluster, size: float) -> float:
    """One ring through all GPUs, as fast as its slowest link: what a library should not do."""
    return ring(cluster.nodes * cluster.gpus, size, cluster.between)


def gradient_bytes(parameters: int) -> int:
    """The model's gradient and that of a, b and alpha."""
    return FLOAT * (parameters + 3)


def local_bytes(parameters: int, momentum: bool = False) -> int:
    """The parameters and their drift, which alpha has none of; the momentum of both."""
    return FLOAT * ((parameters + 3) * (1 + momentum) + parameters + 2)


def exposed_by_gradients(work: Workload, cluster: Cluster, overlap: bool) -> float:
    """Seconds per step that nothing hides."""
    size = gradient_bytes(work.parameters)
    whole = all_reduce(cluster, size)
    if not overlap:
        return whole
    hidden = assumed("share of a step that is the backward pass") * work.seconds
    last = all_reduce(cluster, min(size, assumed("a bucket of DDP")))
    return max(whole - hidden, last)


def exposed_by_local_steps(work: Workload, cluster: Cluster, steps: int) -> float:
    """Seconds per step: an average is waited for, once in so many steps."""
    return all_reduce(cluster, local_bytes(work.parameters)) / steps


def efficiency(work: Workload, exposed: float) -> float:
    """Work done over work that as many GPUs would do that need not talk."""
    return work.seconds / (work.seconds + exposed)


# --- inputs ---------------------------------------------------------------------------------------


def measured() -> tuple[float, float, str] | None:
    """Seconds of a step, captured and operation by operation, of the newest file that has them."""
    for path in sorted((HERE / "results").glob("*-cuda.json"), reverse=True):
        steps = json.loads(path.read_text(encoding="utf-8")).get("step", {})
        if CAPTURED in steps and EAGER in steps:
            captured, eager = (steps[way][STEP]["seconds"] for way in (CAPTURED, EAGER))
            return captured, eager, f"{steps['machine']['device']}, benchmarks/results/{path.name}"
    return None


def workloads(captured: float, eager: float) -> list[Workload]:
    """ResNet-20 as measured, larger models by their arithmetic; 128 images or 8,192 tokens."""
    peak = assumed("arithmetic of a GPU")
    small = sum(p.numel() for p in aucmax.models.resnet20().parameters())
    images = 128 * 3 * assumed("ResNet-50 forward, an image")
    tokens = 8192 * 1e9 * assumed("a transformer, a token and parameter")
    return [
        Workload("ResNet-20, captured step", small, captured),
        Workload("ResNet-20, operation by operation", small, eager),
        Workload("ResNet-50", 25_600_000, images / (peak * assumed("share of it, convolutions"))),
        Workload(
            "a billion parameters", 10**9, tokens / (peak * assumed("share of it, matrix products"))
        ),
    ]


# --- tables ---------------------------------------------------------------------------------------


def table(head: list[str], rows: list[list[str]], widths: str = "auto") -> str:
    """A list-table."""
    lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", ""]
    for row in [head, *rows]:
        lines += [f"   {'*' if i == 0 else ' '} - {cell}" for i, cell in enumerate(row)]
    return "\n".join([*lines, ""])


def bytes_table(works: list[Workload]) -> str:
    """What one message carries."""
    rows = [
        [
            f"{work.parameters:,}",
            *(f"{size / 1e6:,.1f}" for size in (
                gradient_bytes(work.parameters),
                local_bytes(work.parameters),
                local_bytes(work.parameters, momentum=True),
            )),
        ]
        for work in works[1:]
    ]  # fmt: skip
    head = ["parameters", "gradients, MB", "local steps, MB", "with momentum, MB"]
    return table(head, rows)


def efficiency_table(works: list[Workload], cluster: Cluster) -> str:
    """Milliseconds and efficiencies, model by model."""
    head = ["model", "step alone, ms", "all-reduce, ms", "one flat ring, ms"]
    head += ["no overlap", "overlap", *(f"I = {steps}" for steps in LOCAL_STEPS)]
    rows = []
    for work in works:
        size = gradient_bytes(work.parameters)
        times = (work.seconds, all_reduce(cluster, size), flat_ring(cluster, size))
        lost = [exposed_by_gradients(work, cluster, overlap) for overlap in (False, True)]
        lost += [exposed_by_local_steps(work, cluster, steps) for steps in LOCAL_STEPS]
        cells = [f"{1e3 * x:,.2f}" for x in times] + [f"{efficiency(work, x):.0%}" for x in lost]
        rows.append([work.name, *cells])
    return table(head, rows)


def memory_table() -> str:
    """Bytes per parameter that PPD-SG needs under each way to train."""
    whole = {"parameters": 1, "gradient": 1, "reference": 1, "drift": 1, "best weights so far": 1}
    kept = FLOAT * sum(whole.values())
    rows = [
        ["one process", f"{kept}", ", ".join(whole)],
        ["gradients averaged (DDP)", f"{kept + FLOAT}", "the same and DDP's buckets"],
        ["local steps", f"{kept} + {2 * FLOAT} at an average", "the message in one piece"],
        ["sharded over n (FSDP2)", f"{kept}/n", "and the block that is gathered at a time"],
    ]
    return table(["way", "bytes per parameter", "what"], rows)


def assumptions_table() -> str:
    """What was not measured."""
    rows = [[name, f"{x.value:g} {x.unit}".strip(), x.source] for name, x in ASSUMED.items()]
    return table(["assumed", "value", "source"], rows)


def page(captured: float, eager: float, where: str) -> str:
    """All of it, as reStructuredText."""
    works = workloads(captured, eager)
    parts = [".. Generated by benchmarks/scaling.py.", "", "Megabytes of one message:", ""]
    parts.append(bytes_table(works))
    for cluster in CLUSTERS:
        parts += [f"**{cluster.name}**", "", efficiency_table(works, cluster)]
    parts += [
        f"The steps of ResNet-20, 128 images in bfloat16, are measured: {where}. Those of the "
        "others are arithmetic over an assumed rate, for 128 images or 8,192 tokens per GPU.",
        "",
        assumptions_table(),
        "Memory of PPD-SG in single precision, without activations; momentum adds "
        f"{FLOAT} bytes, an evaluation {FLOAT} while it lasts:",
        "",
        memory_table(),
    ]
    return "\n".join(parts)


def main() -> None:
    """Compute and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", nargs=2, type=float, metavar=("CAPTURED", "EAGER"))
    given = parser.parse_args().seconds
    found = measured() if given is None else (*given, "given on the command line")
    if found is None:
        parser.error(f"--seconds is needed: no results/*-cuda.json has {CAPTURED!r} and {EAGER!r}")
    TABLE.write_text(page(*found), encoding="utf-8")
    print(f"wrote {TABLE}")


if __name__ == "__main__":
    main()
