"""What several files of this folder share."""

import pytest
from fit_helpers import Trainer


@pytest.fixture(scope="session")
def trainer(tmp_path_factory):
    """One for all: it imports torch."""
    with Trainer(tmp_path_factory.mktemp("trainer")) as trainer:
        yield trainer
