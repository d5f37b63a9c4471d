"""Writing to an object store is atomic, and a second writer gets an error."""

from __future__ import annotations

from typing import Any

import pytest
from obstore.store import MemoryStore

from insitu.errors import UnsupportedError
from insitu.references import atomic_write
from insitu.references.atomic_write import RemoteFolder, open_atomic


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    store = MemoryStore()

    def find(url: str, options: Any) -> tuple[MemoryStore, str]:
        return store, url.removeprefix("s3://bucket/")

    monkeypatch.setattr(atomic_write, "open_bucket", find)
    return store


def test_files_appear_when_they_are_complete(bucket: MemoryStore) -> None:
    to = RemoteFolder("s3://bucket/x.insitu")
    with to.create("part") as file:
        file.write(b"abc")
        assert to.read("part") is None
    assert to.read("part") == b"abc"
    with pytest.raises(KeyboardInterrupt), to.create("other"):
        raise KeyboardInterrupt
    assert to.read("other") is None
    to.remove(["part", "nothing"])
    assert to.read("part") is None
    with open_atomic("s3://bucket/y.json") as file:
        file.write(b"{}")
    assert bytes(bucket.get("y.json").bytes()) == b"{}"


def test_one_writer_wins(bucket: MemoryStore) -> None:
    one, two = RemoteFolder("s3://bucket/x.insitu"), RemoteFolder("s3://bucket/x.insitu")
    assert one.swap("root.json", b"1", None)
    assert not two.swap("root.json", b"2", None)
    assert two.swap("root.json", b"2", b"1")
    assert not one.swap("root.json", b"3", b"1")
    assert one.read("root.json") == b"2"


def test_the_web_cannot_be_written_to() -> None:
    with (
        pytest.raises(UnsupportedError, match="cannot write"),
        open_atomic("https://example.org/x.json") as file,
    ):
        file.write(b"{}")
