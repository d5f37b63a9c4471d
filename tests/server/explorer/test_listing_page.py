"""The listing on the page in a real browser: the way up, and the order of its lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from server.explorer.page import ExplorerPage
from server.serving import Server

pytestmark = [pytest.mark.browser, pytest.mark.servers, pytest.mark.slow]


def test_a_way_up_and_the_order_of_a_column(
    open_page: Callable[..., ExplorerPage], explored: Server, folder: Path
) -> None:
    page = open_page(explored.url, f"#folder={quote(f'{folder}/maps')}")
    page.find(".entries a", has_text="maps_0.nc").wait_for()

    def names() -> list[str]:
        return list(page.find(".entries td a:not(.up)").all_inner_texts())

    sizes = {f"maps_{at}.nc": (folder / "maps" / f"maps_{at}.nc").stat().st_size for at in range(3)}
    page.find("button.sort", has_text="Size").click()
    page.find("th[aria-sort=ascending]", has_text="Size").wait_for()
    assert names() == sorted(sizes, key=sizes.__getitem__)
    page.find("button.sort", has_text="Size").click()
    page.find("th[aria-sort=descending]", has_text="Size").wait_for()
    assert names() == sorted(sizes, key=sizes.__getitem__, reverse=True)
    assert page.state["sort"] == "-bytes"
    page.find("a.up").click()
    page.find(".entries a", has_text="odd.nc").wait_for()
    page.find("a.up").click()
    page.find(".entries a", has_text=str(folder)).wait_for()
    assert page.find("a.up").count() == 0
