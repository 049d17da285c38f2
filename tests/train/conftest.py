"""What several files of this folder share."""

import pytest


@pytest.fixture(scope="session")
def trainer(tmp_path_factory):
    """A process with torch loaded, for all tests that train in processes of their own."""
    # Not above: pytest reads this file before tests/conftest.py has set up Triton's interpreter.
    from fit_helpers import make_trainer

    with make_trainer(tmp_path_factory.mktemp("trainer")) as trainer:
        yield trainer
