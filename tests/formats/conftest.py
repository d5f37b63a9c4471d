"""The test's folder on the web."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from served_folder import ServedFolder


class Served:
    """The server; `requests` lists (path, first byte, bytes)."""

    def __init__(self, site: ServedFolder) -> None:
        self.site, self.requests = site, site.ranges

    def url(self, name: str) -> str:
        """Where a file of the folder is."""
        return f"{self.site.url}/{name}"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """The test's own folder, served."""
    with ServedFolder(tmp_path) as site:
        yield Served(site)
