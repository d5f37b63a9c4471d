"""Table of the tests of xarray that insitu does not pass, each with its reason."""

from __future__ import annotations

EXCEPTIONS: dict[str, str] = {}


def reason_for(door: str, parent: str, test: str) -> str | None:
    """Return why a test is expected to fail; None if it should pass."""
    name = test.partition("[")[0]
    for key in (f"{door}:{parent}::{test}", f"{door}:{parent}::{name}", f"{door}:{name}", f"{parent}::{name}", name):
        if key in EXCEPTIONS:
            return EXCEPTIONS[key]
    return None
