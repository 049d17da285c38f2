"""Tables of refusals: what raises, and which argument the message names."""

import re

import pytest


def assert_names(argument, function, *args, error=ValueError, **kwargs):
    """The call raises, and the message says of this argument what it must be."""
    with pytest.raises(error) as caught:
        function(*args, **kwargs)
    assert re.search(rf"\b{argument}(\[\d+\])?\b", str(caught.value)), str(caught.value)
