"""Listing of folders on web servers by their index pages.

Apache, nginx and many data centres show such pages; the links that lead right below are the names.
A module of its own, because the parser of HTML takes 14 ms to load, and only such listings need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from insitu.sources.resolve import open_source

__all__ = ["links_below", "list_index_page"]

_LONGEST = 32 << 20
"""Bytes of an index page: half a million files."""


class _LinkParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attributes if name == "href" and value]


def links_below(page: str, url: str) -> tuple[list[str], list[str]]:
    """Return the folders and files that an index page links to, by name as in a path.

    Examples
    --------
    >>> page = '<a href="../">up</a> <a href="?C=N">sort</a> <a href="b/">b</a> <a href="a%20b.nc">a</a>'
    >>> links_below(page, "http://h/x/")
    (['b'], ['a b.nc'])
    """
    parser = _LinkParser()
    parser.feed(page)
    base = urlsplit(url)
    folders, files = set[str](), set[str]()
    for link in parser.found:
        try:
            target = urlsplit(urljoin(url, link))
        except ValueError:
            continue
        if (target.scheme, target.netloc) != (base.scheme, base.netloc) or target.query or target.fragment:
            continue
        path = unquote(target.path)
        rest = path.removeprefix(unquote(base.path))
        if rest == path or not rest.strip("/"):
            continue
        name, slash, further = rest.partition("/")
        if not further:
            (folders if slash else files).add(name)
    return sorted(folders), sorted(files)


def list_index_page(url: str, storage_options: Mapping[str, Any] | None = None) -> tuple[list[str], list[str]]:
    """Return the folders and files right below an address, by its index page."""
    options = {name: value for name, value in (storage_options or {}).items() if name != "cache"}
    with open_source(url, options) as source:
        page = source.read(0, _LONGEST)
    return links_below(page.decode("utf-8", errors="replace"), url)
