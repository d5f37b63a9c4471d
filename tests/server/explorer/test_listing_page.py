"""The listing on the page in a real browser: the way up, the order of its lines, small pictures; errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import numpy as np
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
    page.page.wait_for_function("() => location.hash.includes('sort=-bytes')")
    page.find("a.up").click()
    page.find(".entries a", has_text="odd.nc").wait_for()
    page.find("a.up").click()
    page.find(".entries a", has_text=str(folder)).wait_for()
    assert page.find("a.up").count() == 0


def test_small_pictures_are_made_when_nobody_does_anything(
    open_page: Callable[..., ExplorerPage], explored: Server, folder: Path
) -> None:
    page = open_page(explored.url, f"#folder={quote(f'{folder}/maps')}")
    page.find(".thumbnail canvas").nth(2).wait_for()
    pictures = [parse_qs(urlsplit(url).query) for url in page.requests if "/api/field" in url]
    assert [Path(query["url"][0]).name for query in pictures] == [f"maps_{at}.nc" for at in range(3)]
    assert {query["most_bytes"][0] for query in pictures} == {"4000000"}
    # As many pixels as the field has elements, north at the top, and missing columns at the left.
    shape, colours = page.page.evaluate(
        """() => {
            const canvas = document.querySelector(".thumbnail canvas");
            const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            return [[canvas.height, canvas.width], [...pixels]];
        }"""
    )
    alpha = np.array(colours).reshape(24, 40, 4)[..., 3]
    assert shape == [24, 40]
    assert (alpha[:, :3] == 0).all()
    assert (alpha[:, 3:] == 255).all()
    page.find("button.sort", has_text="Size").click()  # made already: nothing is asked for
    page.find("th[aria-sort=ascending]", has_text="Size").wait_for()
    assert page.find(".thumbnail canvas").count() == 3
    assert len([url for url in page.requests if "/api/field" in url]) == 3


def test_a_small_picture_waits_for_who_uses_the_page_and_of_a_busy_server_none_is_asked_for(
    open_page: Callable[..., ExplorerPage], explored: Server, folder: Path
) -> None:
    page = open_page(explored.url, f"#folder={quote(str(folder))}")
    page.find(".entries a", has_text="odd.nc").wait_for()
    page.page.route(
        "**/api/archive?*", lambda route: route.fulfill(status=429, body="{}", headers={"Retry-After": "1"})
    )
    page.go(f"#folder={quote(f'{folder}/maps')}")
    with page.page.expect_response("**/api/archive?*"):
        page.find(".entries a", has_text="maps_0.nc").wait_for()
    page.page.unroute("**/api/archive?*")
    page.page.wait_for_timeout(1500)
    assert len([url for url in page.requests if "/api/archive" in url and "maps" in url]) == 1
    assert page.find(".thumbnail canvas").count() == 0


def test_errors_say_what_to_do(open_page: Callable[..., ExplorerPage], explored: Server, folder: Path) -> None:
    page = open_page(explored.url, f"#url={quote(f'{folder}/gone.nc')}")
    page.find(".error-box strong", has_text="There is nothing at this place").wait_for()
    page.find(".error-box a", has_text="List all archives").click()
    page.find(".entries a", has_text=str(folder)).wait_for()
    state = f"#url={quote(f'{folder}/maps/maps_0.nc')}&variable=tas"
    failures = iter([429, 413])
    bodies = {429: {"X-Insitu-Error": "busy", "Retry-After": "1"}, 413: {"X-Insitu-Error": "too-large"}}

    def fail(route: Any) -> None:
        status = next(failures, None)
        if status is None:
            route.continue_()
        else:
            body = json.dumps({"error": {"message": "this is the message"}})
            route.fulfill(status=status, headers=bodies[status], body=body)

    page.page.route("**/api/field?*", fail)
    page.go(state)
    # Busy: it asks again by itself; what is too large once is so always: the way out is another view of it.
    page.find(".error-box strong", has_text="Too large for this server").wait_for()
    page.find(".error-box p", has_text="This is the message.").wait_for()
    page.find(".error-box .advice", has_text="Draw a smaller box").wait_for()
    page.find(".error-box a", has_text="Show the variable as at first").wait_for()
    assert page.find(".error-box button").count() == 0


def test_a_folder_that_is_typed_is_listed(
    open_page: Callable[..., ExplorerPage], explored: Server, folder: Path
) -> None:
    page = open_page(explored.url, f"#folder={quote(str(folder))}")
    page.find("#open-url").fill(f"{folder}/maps")
    page.find("#open-url").press("Enter")
    page.find(".entries a", has_text="maps_0.nc").wait_for()
    assert page.state == {"folder": f"{folder}/maps"}
