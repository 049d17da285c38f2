"""What several files of this folder share."""

import pytest
from fit_helpers import make_trainer


@pytest.fixture(scope="session")
def trainer(tmp_path_factory):
    """A process with torch loaded, for all tests that train in processes of their own."""
    with make_trainer(tmp_path_factory.mktemp("trainer")) as trainer:
        yield trainer
