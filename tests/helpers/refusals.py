"""What a command that refuses its arguments says."""

import pytest

from aucmax.cli import main


def refused(capsys, *arguments):
    """The one line that a command says before it ends with 2."""
    with pytest.raises(SystemExit) as end:
        main([str(x) for x in arguments])
    out, err = capsys.readouterr()
    (line,) = err.strip().splitlines()
    assert (end.value.code, out) == (2, "")
    return line.removeprefix("aucmax: error: ")
