from __future__ import annotations

import insitu.sources as sources


def test_public_names():
    assert sources.__all__ == sorted(sources.__all__)
    assert all(getattr(sources, name) is not None for name in sources.__all__)
    assert set(sources.__all__) == {
        "ByteSource",
        "CachedSource",
        "CountingSource",
        "DiskCache",
        "FileLikeSource",
        "FsspecSource",
        "HttpSource",
        "LocalSource",
        "MemorySource",
        "MergedRanges",
        "ObjectSource",
        "Range",
        "RetryPolicy",
        "Trace",
        "WrappedSource",
        "detach_secrets",
        "expand_urls",
        "is_local",
        "merge_ranges",
        "open_source",
        "read_all",
        "read_into",
        "read_tail",
        "redact_url",
        "request_bytes",
        "trace",
        "worthwhile_gap",
    }


def test_local_or_not():
    source = sources.MemorySource(b"")
    assert sources.is_local(sources.CountingSource(sources.CountingSource(source)))
    assert not sources.is_local(sources.CountingSource(sources.HttpSource("https://host/x")))
