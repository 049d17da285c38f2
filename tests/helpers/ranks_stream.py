"""Streams on every rank: the rows that each reads, then a model that all train together.

    torchrun --nproc-per-node 2 tests/helpers/ranks_stream.py FOLDER

Started by test_streams.py, without torchrun: it forks.
"""

import json
import os
import sys
from pathlib import Path

import torch
from two_ranks import fork_into_two_ranks

from aucmax import distributed
from aucmax.cli import main
from aucmax.tables import streaming
from aucmax.tables.streaming import RowGroups

if __name__ == "__main__":
    if "RANK" not in os.environ:
        fork_into_two_ranks()
    streaming.BATCH, streaming.EVALUATIONS = 100, 3
    folder = Path(sys.argv[1])
    with distributed.process_group(torch.device("cpu")):
        found = {}
        for name in ("many", "one"):
            groups = RowGroups(folder / name)
            groups.sample()
            read = [row for block in groups.blocks(seed=0) for row in block.values[0].tolist()]
            found[name] = {
                "rows": read,
                "files": sorted({groups.groups[i].path for i in groups.own()}),
            }
        (folder / f"{distributed.rank()}.json").write_text(json.dumps(found))
        asked = [str(folder / "many"), "--target", "y", "--drop", "row", "--quiet"]
        main(["fit", *asked, "--streaming", "--out", str(folder / "model")])
