"""One server for the tests of this folder, over a folder of files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.serving import Server, serving


@pytest.fixture(scope="session", autouse=True)
def nobody() -> Iterator[None]:
    """A machine without credentials: what a developer has set up must not let a test pass."""
    before = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))}
    yield
    os.environ.update(before)


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = tmp_path_factory.mktemp("root")
    return found


@pytest.fixture(scope="session")
def server(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving([root], tmp_path_factory.mktemp("log") / "serve.log") as running:
        yield running
