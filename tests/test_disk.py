"""Files and folders are whole or not there."""

import os

import pytest

from aucmax import disk

# ---- Files ---------------------------------------------------------------------------------------


def test_bytes_are_on_the_disk_before_they_get_their_name(tmp_path, monkeypatch):
    events = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: events.append("sync") or sync(fd))
    monkeypatch.setattr(os, "replace", lambda a, b: events.append("rename") or replace(a, b))
    disk.write_json(tmp_path / "x.json", {})
    assert events == ["sync", "rename", "sync"]  # the last one is the folder's


def test_an_interruption_while_writing_leaves_no_other_file(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        disk.write_json(tmp_path / "x.json", {})
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "x.txt"
    disk.write_text(path, "old")
    with pytest.raises(FileNotFoundError, match="could not write it"), disk.atomic_write(path):
        pass  # under the other name
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("x.txt", "old")]


def test_json_comes_back_and_knows_no_nan(tmp_path):
    path, content = tmp_path / "x.json", {"name": "é", "values": [1, 0.5, None, True]}
    disk.write_json(path, content)
    assert disk.read_json(path) == content
    with pytest.raises(ValueError, match="JSON"):
        disk.write_json(path, {"values": [float("nan")]})
    assert disk.read_json(path) == content


# ---- Folders -------------------------------------------------------------------------------------


def folder_of(path, content):
    path.mkdir()
    (path / "file").write_text(content)
    return path


@pytest.mark.parametrize("old", [True, False])
def test_a_folder_takes_the_place_of_another(tmp_path, old):
    folder = tmp_path / "model"
    if old:
        folder_of(folder, "old")
        folder_of(tmp_path / "model.before", "of a call that was killed")
    disk.replace_folder(folder, folder_of(tmp_path / "model.partial", "new"))
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    assert (folder / "file").read_text() == "new"
