"""Files of tests are few: what is given to an engine is sent there, unless a test is about that."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def everything_is_sent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send files to engines, however few they are."""
    if request.node.path.name != "test_worth_sending.py":
        monkeypatch.setattr("insitu.combining.combine._scan_if_small", lambda *given: None)
