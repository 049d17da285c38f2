"""What torchrun does for a script, by a fork: what is imported is imported but once."""

import os
import socket
import sys
from contextlib import suppress


def free_port():
    """Return a port that nobody listens on, below those that systems give to connections."""
    first = 20_000 + os.getpid() % 10_000
    for port in range(first, first + 100):
        with suppress(OSError), socket.create_server(("localhost", port)):
            return port
    raise RuntimeError(f"no free port from {first} on")


def fork_into_two_ranks():
    """Return in the ranks alone, with the variables that torchrun sets."""
    address = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
    os.environ |= {"WORLD_SIZE": "2", **address}
    ranks = []
    for rank in "01":
        pid = os.fork()
        if pid == 0:
            os.environ["RANK"] = os.environ["LOCAL_RANK"] = rank
            return
        ranks.append(pid)
    sys.exit(max(os.waitpid(pid, 0)[1] != 0 for pid in ranks))
