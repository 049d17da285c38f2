"""Models of pictures that the tests of this folder share."""

import pytest
from image_data import OPTIONS, shorten, write_scans

from aucmax.images import fit_images


@pytest.fixture(scope="session", autouse=True)
def few_steps():
    """Let every training of "fast" take 40 steps."""
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        yield


@pytest.fixture(scope="session")
def scans(tmp_path_factory):
    """A folder of 60 healthy and 20 sick."""
    return write_scans(tmp_path_factory.mktemp("data") / "scans")


@pytest.fixture(scope="session")
def fitted(scans, tmp_path_factory):
    """A model of the scans, as fit_images returns it."""
    out = tmp_path_factory.mktemp("out") / "model"
    return fit_images(
        scans, out=out, store=out.with_name("store"), workers=1, progress=False, **OPTIONS
    )
