"""``aucmax`` with a training short enough for a test, in a process of its own."""

import sys

import pytest
from image_data import shorten

from aucmax.cli import main

if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        main(sys.argv[1:])
