"""Downloads from a server on this machine that can break off, lie, or know no ranges."""

import hashlib
import io
import tarfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from dataset_files import CIFAR10_NAMES, images, small, write_binary_cifar

from aucmax.paper.datasets import _cifar, _download
from aucmax.paper.datasets._layout import OfficialFiles

LAYOUT = small(_cifar.CIFAR10_BINARY, 20)
X = images(120, 32, seed=4)
Y = np.arange(120) % 10


@dataclass
class Site:
    """What the server does; a test may change it between two requests."""

    content: bytes
    ranges: bool = True
    break_at: int | None = None
    status: int = 200
    shift: int = 0
    lengths: bool = True
    url: str = ""
    asked: list = field(default_factory=list)

    def answer(self, handler):
        wanted = handler.headers["Range"]
        self.asked.append(wanted)
        start = int(wanted[6:-1]) if wanted and self.ranges else 0
        if self.status != 200 or (start and start >= len(self.content)):
            handler.send_error(self.status if self.status != 200 else 416)
            return
        handler.send_response(206 if start else 200)
        if self.lengths:
            handler.send_header("Content-Length", str(len(self.content) - start))
        if start:
            last = len(self.content) - 1
            handler.send_header("Content-Range", f"bytes {start + self.shift}-{last}/{last + 1}")
        handler.end_headers()
        handler.wfile.write(self.content[start : self.break_at])


@contextmanager
def served(content, **options):
    site = Site(content, **options)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            site.answer(self)

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        site.url = f"http://127.0.0.1:{server.server_port}/some/small.tar.gz"
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()


def packed(folder, *others):
    """A .tar.gz of a folder, and other members as (TarInfo, content)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(folder, folder.name)
        for info, content in others:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("official")
    write_binary_cifar(root, LAYOUT, X, Y, CIFAR10_NAMES)
    return root / LAYOUT.folder


@pytest.fixture(scope="module")
def content(folder):
    return packed(folder)


def md5(content):
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def load(site, root, content, progress=False):
    """As datasets.load(download=True), from the site; ``content`` is what is expected."""
    return OfficialFiles((LAYOUT,), site.url, md5(content)).load(root, True, progress)


def left_in(root):
    return sorted(path.name for path in root.iterdir())


def check(data, root):
    assert np.array_equal(np.concatenate([data.x_train, data.x_test]), X)
    assert np.array_equal(np.concatenate([data.y_train, data.y_test]), Y)
    assert left_in(root) == [LAYOUT.folder]


def test_it_is_fetched_once(tmp_path, content):
    root = tmp_path / "made" / "here"
    with served(content) as site:
        check(load(site, root, content), root)
        check(load(site, root, content), root)
    assert site.asked == [None]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_download_that_broke_off_goes_on(tmp_path, content, ranges):
    half = len(content) // 2
    with served(content, ranges=ranges, break_at=half) as site:
        with pytest.raises(ConnectionError, match=rf"{site.url}: .*{half:,} of {len(content):,}"):
            load(site, tmp_path, content)
        assert left_in(tmp_path) == ["small.tar.gz.part"]
        assert (tmp_path / "small.tar.gz.part").read_bytes() == content[:half]
        site.break_at = None
        check(load(site, tmp_path, content), tmp_path)
    assert site.asked == [None, f"bytes={half}-"]


def test_an_interrupt_keeps_what_came(tmp_path, content):
    def interrupt(have, total):
        assert total == len(content)
        raise KeyboardInterrupt

    part = tmp_path / "small.tar.gz.part"
    with served(content) as site:
        with pytest.raises(KeyboardInterrupt):
            _download._receive(site.url, part, interrupt)
        assert part.read_bytes() == content[: _download.CHUNK]
        check(load(site, tmp_path, content), tmp_path)


@pytest.mark.parametrize("place", [0, 1000, -1])
def test_altered_bytes_are_refused_and_removed(tmp_path, content, place):
    altered = bytearray(content)
    altered[place] ^= 1
    with served(bytes(altered)) as site:
        with pytest.raises(ValueError, match=f"{md5(content)}, found {md5(altered)}") as caught:
            load(site, tmp_path, content)
        assert left_in(tmp_path) == []
        assert site.url in str(caught.value)
        assert "small.tar.gz.part is removed" in str(caught.value)
        site.content = content
        check(load(site, tmp_path, content), tmp_path)


@pytest.mark.parametrize("extra", [-100, 0, 100])
def test_a_damaged_part_is_refused_and_removed(tmp_path, content, extra):
    with served(content) as site:
        (tmp_path / "small.tar.gz.part").write_bytes(bytes(len(content) + extra))
        with pytest.raises(ValueError, match="MD5"):
            load(site, tmp_path, content)
        assert left_in(tmp_path) == []
        check(load(site, tmp_path, content), tmp_path)


def test_a_whole_part_is_not_fetched_again(tmp_path, content):
    (tmp_path / "small.tar.gz.part").write_bytes(content)
    with served(content) as site:
        check(load(site, tmp_path, content), tmp_path)
    assert site.asked == []


def test_a_server_that_sends_another_range_is_refused(tmp_path, content):
    part = tmp_path / "small.tar.gz.part"
    part.write_bytes(content[:50])
    with served(content, shift=1) as site, pytest.raises(ConnectionError, match="bytes 51-"):
        load(site, tmp_path, content)
    assert part.read_bytes() == content[:50]


def test_a_server_that_tells_no_length(tmp_path, content):
    with served(content, lengths=False) as site:
        check(load(site, tmp_path, content), tmp_path)


def test_a_page_that_is_not_there(tmp_path, content):
    with served(content, status=404) as site, pytest.raises(ConnectionError, match="404") as caught:
        load(site, tmp_path, content)
    assert f"could not download {site.url}: " in str(caught.value)
    with pytest.raises(ConnectionError, match="could not download"):  # nobody listens any more
        load(site, tmp_path, content)
    assert left_in(tmp_path) == []


def other(name, **kind):
    info = tarfile.TarInfo(name)
    for key, value in kind.items():
        setattr(info, key, value)
    return info, b"" if kind else b"something"


def test_only_plain_files_of_the_folder_are_unpacked(tmp_path, folder):
    inside, root = LAYOUT.folder, tmp_path / "root"
    content = packed(
        folder,
        other(str(tmp_path / "absolute")),
        other("../above"),
        other("beside/file"),
        other(inside + "-not/file"),
        other(f"{inside}/link", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        other(f"{inside}/hard", type=tarfile.LNKTYPE, linkname=f"{inside}/test_batch.bin"),
        other(f"{inside}/pipe", type=tarfile.FIFOTYPE),
    )
    with served(content) as site:
        check(load(site, root, content), root)
    assert left_in(root / inside) == left_in(folder)
    assert left_in(tmp_path) == ["root"]


def test_an_archive_that_cannot_be_unpacked_leaves_no_folder(tmp_path, folder):
    root = tmp_path / "root"
    content = packed(folder, other(f"{LAYOUT.folder}/../../../above"))
    with served(content) as site, pytest.raises(tarfile.FilterError):
        load(site, root, content)
    assert left_in(root) == ["small.tar.gz.part"]
    assert left_in(tmp_path) == ["root"]


def test_an_archive_without_the_folder(tmp_path, folder):
    (folder.parent / "another").mkdir(exist_ok=True)
    content = packed(folder.parent / "another", other(LAYOUT.folder))
    with served(content) as site, pytest.raises(ValueError, match=f"the folder {LAYOUT.folder}"):
        load(site, tmp_path, content)


@pytest.mark.parametrize("progress", [True, False])
def test_the_bar_is_on_standard_error(tmp_path, content, capsys, progress):
    with served(content) as site:
        load(site, tmp_path, content, progress)
    output = capsys.readouterr()
    assert output.out == ""
    assert ("small.tar.gz" in output.err) is progress
    assert bool(output.err) is progress
