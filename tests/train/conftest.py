"""What several files of this folder share."""

import pytest


@pytest.fixture(scope="session")
def trainer(tmp_path_factory):
    """One for all: it imports torch."""
    # Not above: pytest reads this file before tests/conftest.py has set up Triton's interpreter.
    from fit_helpers import Trainer

    with Trainer(tmp_path_factory.mktemp("trainer")) as trainer:
        yield trainer
