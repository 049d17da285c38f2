"""What torchrun does for a script, by a fork: what is imported is imported but once."""

import os
import socket
import sys


def fork_into_two_ranks():
    """Return in the ranks alone, with the variables that torchrun sets."""
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    os.environ |= {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    ranks = []
    for rank in "01":
        pid = os.fork()
        if pid == 0:
            os.environ["RANK"] = os.environ["LOCAL_RANK"] = rank
            return
        ranks.append(pid)
    sys.exit(max(os.waitpid(pid, 0)[1] != 0 for pid in ranks))
