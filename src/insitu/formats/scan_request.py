"""What is asked of the scan of one file: group, variables, and what happens to those that fail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.registry import Scan
from insitu.formats.variable_filter import select_variables, subtree
from insitu.model import VirtualGroup

__all__ = ["ScanRequest", "with_keywords"]


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What is asked of the scan of one file."""

    group: str | None = None
    """Scan only this subtree."""
    variables: Collection[str] | None = None
    """Scan only these variables, by name or path within the group, and the coordinates of their dimensions."""
    errors: str = "raise"
    """"raise", "warn" or "keep": what happens to variables that cannot be read (see `Problems`)."""
    format: str | None = None
    """The format by name, if the first bytes should not decide."""
    storage_options: Mapping[str, Any] | None = None
    """Options to open other files that this one names."""

    def __post_init__(self) -> None:
        if self.errors not in ("raise", "warn", "keep"):
            raise ValueError(f'errors must be "raise", "warn" or "keep", not {self.errors!r}')

    @property
    def group_path(self) -> str:
        """The path of the group, without slashes around it; empty: the root."""
        return (self.group or "").strip("/")

    @property
    def names(self) -> set[str] | None:
        """The variables without slashes around their names; None: all."""
        return None if self.variables is None else {name.strip("/") for name in self.variables}

    def name_of(self, path: str) -> str | None:
        """Return the name within the group of a variable that is asked for; None if it is not."""
        prefix = f"{self.group_path}/" if self.group_path else ""
        name = path.removeprefix(prefix)
        return name if path.startswith(prefix) and (self.names is None or name in self.names) else None

    def select(self, tree: VirtualGroup) -> VirtualGroup:
        """Return what is asked for of the tree of the whole file."""
        return select_variables(subtree(tree, self.group), self.variables)

    def for_entry(self, path: str) -> ScanRequest:
        """Return the same request, seen from the entry of an archive at the beginning of the group."""
        return replace(self, group=self.group_path[len(path) :].strip("/") or None)

    def for_whole_entry(self) -> ScanRequest:
        """Return a request for all of an entry."""
        return replace(self, group=None, variables=None)


def with_keywords(scan: Callable[[ReadCache, ScanRequest], VirtualGroup]) -> Scan:
    """Return the function of keywords that a `Format` has, for one that takes a request.

    Formats of other packages write out the keywords that they know; those that a later version adds
    reach the formats of this package within the request.
    """

    def scan_with_keywords(
        window: ReadCache,
        *,
        group: str | None = None,
        variables: Collection[str] | None = None,
        errors: str = "raise",
    ) -> VirtualGroup:
        request = ScanRequest(group, variables, errors, storage_options=window.storage_options)
        return scan(window, request)

    return scan_with_keywords
