"""The command ``aucmax``, or Python code, that holds still before a flush to the disk.

    python holding.py FLUSH ARGUMENT [ARGUMENT ...]
    python holding.py FLUSH -c CODE

It makes a file ``held`` in its folder, and goes on when that is gone.
"""

import os
import sys
import time
from pathlib import Path


def hold_before_flush(number):
    """Count flushes, and hold before the one of this number."""
    count, flush = 0, os.fsync

    def fsync(descriptor):
        nonlocal count
        count += 1
        if count == number:
            Path("held").touch()
            while Path("held").exists():
                time.sleep(0.005)
        flush(descriptor)

    os.fsync = fsync


if __name__ == "__main__":
    hold_before_flush(int(sys.argv[1]))
    if sys.argv[2] == "-c":
        exec(sys.argv[3])
    else:
        from aucmax.cli import main

        main(sys.argv[2:])
