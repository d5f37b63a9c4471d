"""Does a format that another package brings work? The one of `docs/own_format.md`, as it stands
there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import insitu
from insitu.errors import FormatError, UnsupportedError
from insitu.formats import registry

PAGE = Path(__file__).parents[2] / "docs" / "own_format.md"


def _example() -> str:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example, and a package that is broken, installed for one test."""
    folder = tmp_path / "installed"
    for name, module, text in (("npy", "insitu_npy", _example()), ("broken", "insitu_broken", "import nowhere\n")):
        about = folder / f"insitu_{name}-1.0.dist-info"
        about.mkdir(parents=True)
        (folder / f"{module}.py").write_text(text)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: insitu-{name}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[insitu.formats]\n{name} = {module}:{name.upper()}\n")
    monkeypatch.syspath_prepend(folder)
    registry._third_party_formats.cache_clear()
    yield
    registry._third_party_formats.cache_clear()
    sys.modules.pop("insitu_npy", None)


def test_the_example_is_short() -> None:
    assert len(_example().splitlines()) < 60


@pytest.mark.usefixtures("install")
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(), (7,), (4, 5), (3, 0)])
def test_a_format_from_outside(tmp_path: Path, shape: tuple[int, ...], order: str) -> None:
    values = np.arange(np.prod(shape, dtype=int), dtype=">f4").reshape(shape, order=order)
    np.save(tmp_path / "a.npy", values)
    group = insitu.scan(tmp_path / "a.npy", decode=False)
    assert group.details.format == "npy"
    np.testing.assert_array_equal(insitu.read(group, "data", decode=False), values)
    np.testing.assert_array_equal(insitu.read(tmp_path / "a.npy", "data", ..., decode=False), values)


@pytest.mark.usefixtures("install")
def test_asked_for_by_name(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    assert insitu.read(insitu.scan(tmp_path / "a.npy", format="npy", decode=False), "data", decode=False).tolist() == [
        0,
        1,
        2,
    ]
    (tmp_path / "b.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-1])
    with pytest.raises(FormatError, match="does not hold its array"):
        insitu.scan(tmp_path / "b.npy", decode=False)
    with pytest.raises(UnsupportedError, match="insitu-broken"):
        insitu.scan(tmp_path / "a.npy", format="broken", decode=False)
    with pytest.raises(ValueError, match="npy"):
        insitu.scan(tmp_path / "a.npy", format="nothing", decode=False)


def test_without_the_package_it_is_no_format(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    with pytest.raises(FormatError, match="not known"):
        insitu.scan(tmp_path / "a.npy", decode=False)
