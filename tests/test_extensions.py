"""The C extensions are optional, so a build that failed is silent: not where there is a compiler."""

from __future__ import annotations

import shutil
from importlib.util import find_spec

import pytest

NAMES = ["insitu.codecs._kernels", "insitu.formats.hdf5.structures._metadata", "insitu.sources._scatter"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("name", NAMES)
def test_extensions_were_built(name: str) -> None:
    assert find_spec(name) is not None
