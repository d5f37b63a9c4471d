"""The public names, pinned: adding one is a decision."""

from __future__ import annotations

import insitu


def test_public_names() -> None:
    assert insitu.__all__ == sorted(insitu.__all__)
    assert insitu.__all__ == ["ChunkCache", "errors", "read", "scan"]
