"""Code and commit are those of the files, wherever they lie and whatever the environment says."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

provenance = pytest.importorskip("experiments.provenance", reason="an sdist has none")

ROOT = provenance.ROOT


def code_of(root, **environment):
    """The hash of the code in a folder, by a process that imports it from there."""
    script = "from experiments.provenance import code; print(code())"
    paths = os.pathsep.join([str(root / "src"), str(root)])
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=root,
        env={**os.environ, "PYTHONPATH": paths, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def copy(tmp_path):
    """A copy of what trains, without its history."""
    skipped = shutil.ignore_patterns("__pycache__", "results")
    for name in ("src", "experiments"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=skipped)
    return tmp_path


def test_the_code_is_the_same_in_a_copy_and_follows_what_trains(copy):
    here = code_of(ROOT)
    assert code_of(copy) == here
    (copy / "experiments" / "figures.py").write_text("# draws")
    (copy / "src" / "aucmax" / "notes.txt").write_text("no code")
    assert code_of(copy) == here
    with (copy / "experiments" / "prepare.py").open("a") as file:
        file.write("# changed\n")
    assert code_of(copy) != here


def git(folder, *arguments):
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    done = subprocess.run(["git", "-C", folder, *who, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "COMMIT").write_text("$Format:%H$\n")
    (folder / ".gitattributes").write_text("COMMIT export-subst\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def test_the_commit_is_that_of_the_repository(repository, monkeypatch):
    head = git(repository, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(Path("elsewhere")))
    assert provenance.commit(repository) == head
    (repository / "untracked").touch()
    assert provenance.commit(repository) == f"{head}-dirty"


def test_an_archive_knows_its_commit_inside_another_repository_too(repository):
    head, archive = git(repository, "rev-parse", "HEAD"), repository / "inside"
    archive.mkdir()
    tar = subprocess.run(["git", "-C", repository, "archive", "HEAD"], capture_output=True)
    subprocess.run(["tar", "-x", "-C", archive], input=tar.stdout, check=True)
    assert provenance.commit(archive) == head


def test_a_commit_that_nobody_wrote_raises(repository, tmp_path):
    copied = tmp_path / "copied"
    shutil.copytree(repository, copied, ignore=shutil.ignore_patterns(".git"))
    with pytest.raises(RuntimeError, match=r"git archive, which fills the file COMMIT"):
        provenance.commit(copied)


def test_the_repository_has_its_file_filled_by_archives():
    assert (ROOT / "COMMIT").read_text().startswith("$Format") or not (ROOT / ".git").exists()
    assert "COMMIT export-subst" in (ROOT / ".gitattributes").read_text()
