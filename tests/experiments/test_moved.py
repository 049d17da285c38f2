"""What has moved here from the package says so."""

import pytest

import aucmax
from aucmax.cli import main


@pytest.mark.parametrize("name", ["paper", "study"])
def test_former_packages_name_the_new_place(name):
    with pytest.raises(ImportError, match=r"experiments/README\.md"):
        getattr(aucmax, name)


def test_reproduce_names_the_new_place(capfd):
    with pytest.raises(SystemExit) as end:
        main(["reproduce", "figure1"])
    assert end.value.code == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "experiments/README.md" in line
