"""The test's folder on the web."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from served_folder import ServedFolder


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedFolder]:
    """The test's folder on the web."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with ServedFolder(tmp_path) as served:
        yield served
