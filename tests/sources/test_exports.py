from __future__ import annotations

import insitu.sources as sources


def test_public_names():
    assert sources.__all__ == sorted(sources.__all__)
    assert all(getattr(sources, name) is not None for name in sources.__all__)
    assert set(sources.__all__) == {
        "ByteSource", "Cached", "Counted", "DiskCache", "FileLikeSource", "FilesystemSource", "HttpSource",
        "LocalSource", "MemorySource", "Merged", "ObjectSource", "Patience", "Range", "Trace", "WrappedSource", "detach_secrets", "displayed",
        "expand", "is_local", "merge", "open_source", "read_all", "read_into", "read_tail", "request_bytes", "trace", "worthwhile_gap",
    }  # fmt: skip


def test_local_or_not():
    source = sources.MemorySource(b"")
    assert sources.is_local(sources.Counted(sources.Counted(source)))
    assert not sources.is_local(sources.Counted(sources.HttpSource("https://host/x")))
