from __future__ import annotations

import insitu.sources as sources


def test_public_names():
    assert sources.__all__ == sorted(sources.__all__)
    assert all(getattr(sources, name) is not None for name in sources.__all__)
    assert set(sources.__all__) == {
        "Blocks", "ByteSource", "Counted", "FileLikeSource", "FilesystemSource", "HttpSource", "LocalSource",
        "MemorySource", "Merged", "ObjectSource", "Patience", "Range", "detach_secrets", "displayed", "is_local",
        "merge", "open_source", "read_into", "worthwhile_gap",
    }  # fmt: skip


def test_local_or_not():
    source = sources.MemorySource(b"")
    assert sources.is_local(sources.Counted(sources.Blocks(source)))
    assert not sources.is_local(sources.Counted(sources.HttpSource("https://host/x")))
