"""What a command that refuses its arguments says."""

import pytest

from aucmax.cli import main


def refused(capsys, *arguments):
    """Return the one line that a command says before it ends with code 2."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main([str(x) for x in arguments])
    out, err = capsys.readouterr()
    *before, line = err.strip().splitlines()
    assert all(other.startswith(("decoding ", "note: ")) for other in before), err
    assert (end.value.code, out) == (2, "")
    assert line.startswith("aucmax: error: ")
    return line.removeprefix("aucmax: error: ")
