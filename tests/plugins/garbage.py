"""The garbage collector leaves out what collecting the tests has made.

Tens of thousands of tests are millions of objects that live until the end. While they are made, the collector would
visit them again and again (13 of 50 s), and afterwards each full collection, which some tests ask for, would take a
second.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect the tests without the collector, which then forgets them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
