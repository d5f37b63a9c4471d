"""What a person does on the explorer's page: move the pointer over an element, read the value, zoom."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit


class ExplorerPage:
    """A page in a browser tab. `errors`: what its scripts raised; `elsewhere`: requests to other hosts."""

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        self.address = address
        self.errors: list[str] = []
        self.elsewhere: list[str] = []
        self.requests: list[str] = []
        self.aborted: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self._note(request.url))
        page.on("requestfailed", lambda request: self.aborted.append(request.url))

    def _note(self, url: str) -> None:
        self.requests.append(url)
        if not url.startswith((f"{self.address}/", "data:", "blob:")):
            self.elsewhere.append(url)

    def go(self, state: str = "") -> None:
        """Open the page, with a state after `#`."""
        self.page.goto(f"{self.address}/{state}")

    def find(self, selector: str, **options: Any) -> Any:
        return self.page.locator(selector, **options)

    @property
    def state(self) -> dict[str, str]:
        """The state in the address."""
        return {key: values[0] for key, values in parse_qs(urlsplit(self.page.url).fragment).items()}

    def wait_for_picture(self) -> None:
        self.page.wait_for_function(
            "() => document.querySelector(':is(.field-view, .chunk-view)[aria-busy=false] .axes .frame')"
        )

    def unfold(self) -> None:
        """Show the controls that are rarely used."""
        self.find("details.more:not([open]) summary").click()

    def place(self, row: float, column: float, rows: int, columns: int) -> tuple[float, float]:
        """Where an element lies on the screen; rows run upwards, as latitudes do."""
        box = self.find(".surface").bounding_box()
        return (
            box["x"] + box["width"] * (column + 0.5) / columns,
            box["y"] + box["height"] * (1 - (row + 0.5) / rows),
        )

    def hover(self, row: int, column: int, rows: int, columns: int) -> str:
        """Move the pointer over an element; return what the page says at once."""
        self.find(".surface").scroll_into_view_if_needed()
        self.page.mouse.move(*self.place(row, column, rows, columns))
        self.page.wait_for_function(
            "([y, x]) => document.querySelector(`.readout[data-y='${y}'][data-x='${x}']`)",
            arg=[row, column],
        )
        return str(self.find(".readout .value").inner_text())

    def exact(self) -> str:
        """The exact value, which the page asks for when the pointer rests."""
        self.find(".readout", has_text="exact").wait_for()
        return str(self.find(".readout .value").inner_text())

    def draw(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        """Draw a box with the pointer."""
        mouse = self.page.mouse
        mouse.move(*begin)
        mouse.down()
        mouse.move((begin[0] + end[0]) / 2, (begin[1] + end[1]) / 2)
        mouse.move(*end)
        mouse.up()

    def click(self, row: int, column: int, rows: int, columns: int) -> None:
        self.find(".surface").scroll_into_view_if_needed()
        self.page.mouse.click(*self.place(row, column, rows, columns))

    def copy_snippet(self, name: str) -> str:
        """Press the button that copies a snippet, and return the clipboard."""
        self.find(f"[data-snippet='{name}']").click()
        self.find("button.copy").click()
        self.find("button.copy", has_text="Copied").wait_for()
        return str(self.page.evaluate("() => navigator.clipboard.readText()"))


def number_in(text: str) -> float:
    """Return the first number of a text; the page writes a real minus."""
    found = re.search(r"-?\d+(\.\d+)?(e-?\d+)?", text.replace("−", "-"))
    assert found is not None, text
    return float(found.group())
