"""Parts of a combined archive by the files that they come from.

Appending, dropping and refreshing need to know which part of a saved archive a file gave. Where
files follow each other along one dimension, that is a range of it, and what is left after taking
some files away is again a few ranges.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from insitu.model import Source, VirtualArray, VirtualGroup
from insitu.scanning.member import Member
from insitu.scanning.saved_members import tree_from_member
from insitu.sources.redaction import redact_url

__all__ = ["FileLayout", "Span", "find_shadowed_sources", "select_range"]

Span = tuple[int, int]
CELLS_AT_ONCE = 1 << 18
"""Cells that are located at once."""


@dataclass(frozen=True, slots=True)
class FileLayout:
    """Where the files of a group lie in it."""

    spans: Mapping[str, Mapping[str, Span]]
    """URL of a file: dimension: the range along it that the file has a part of."""
    sizes: Mapping[str, int]
    sources: Mapping[str, Source]

    @classmethod
    def of(cls, group: VirtualGroup) -> FileLayout:
        """Return the ranges of the files of a group."""
        spans: dict[str, dict[str, Span]] = {}
        sizes: dict[str, int] = {}
        sources: dict[str, Source] = {}
        for array in group.arrays.values():
            for dim, length in zip(array.dims, array.shape, strict=True):
                sizes.setdefault(dim, length)
            for source, box in _boxes_of_sources(array).items():
                sources[source.url] = source
                spans_of_file = spans.setdefault(source.url, {})
                for dim, (low, high) in zip(array.dims, box, strict=True):
                    old = spans_of_file.get(dim, (low, high))
                    spans_of_file[dim] = (min(low, old[0]), max(high, old[1]))
        return cls(spans, sizes, sources)

    def joined_dim(self, *, padded: bool = False) -> str | None:
        """Return the one dimension along which files follow each other without overlap.

        None if there is no such dimension, or more than one.

        Parameters
        ----------
        padded
            Whether files may also end early along other dimensions.
        """
        partial = {dim for spans in self.spans.values() for dim, span in spans.items() if span != (0, self.sizes[dim])}
        if len(self.spans) < 2 or (len(partial) != 1 and not padded):
            return None
        found = [dim for dim in partial if self._is_filled_in_order(dim)]
        return found[0] if len(found) == 1 else None

    def _is_filled_in_order(self, dim: str) -> bool:
        if any(dim not in spans for spans in self.spans.values()):
            return False
        ranges = sorted(spans[dim] for spans in self.spans.values())
        ends_meet = all(one[1] == other[0] for one, other in pairwise(ranges))
        return ends_meet and ranges[0][0] == 0 and ranges[-1][1] == self.sizes[dim]

    def urls_in_order(self, dim: str | None) -> list[str]:
        """Return the files in their order along a dimension; None: as they are found."""
        return list(self.spans) if dim is None else sorted(self.spans, key=lambda url: self.spans[url][dim])

    def ranges_without(self, dim: str, urls: Collection[str]) -> list[Span]:
        """Return the ranges along a dimension that remain without some files, neighbours joined."""
        joined: list[Span] = []
        for low, high in sorted(span[dim] for url, span in self.spans.items() if url not in urls):
            if joined and joined[-1][1] == low:
                joined[-1] = (joined[-1][0], high)
            else:
                joined.append((low, high))
        return joined


def _boxes_of_sources(array: VirtualArray) -> dict[Source, list[Span]]:
    """Return for each source of an array the box of elements that it has a part of."""
    found: dict[Source, list[Span]] = {}
    for tile, origin in zip(array.tiles, array.origins.tolist(), strict=True):
        shape = tuple(tile.chunks.shape)
        total = int(np.prod(shape, dtype=object))
        for begin in range(0, total, CELLS_AT_ONCE):
            numbers = np.arange(begin, min(begin + CELLS_AT_ONCE, total))
            cells = np.unravel_index(numbers, shape) if shape else ()
            source = np.asarray(tile.chunks.locate(list(cells)).source)
            order = np.argsort(source, kind="stable")
            order = order[np.searchsorted(source[order], 0) :]  # cells that lie in a file
            if not len(order):
                continue
            present, firsts = np.unique(source[order], return_index=True)
            spans = []
            for dimension, axis_number in enumerate(tile.dimensions):
                axis, rows = tile.axes[axis_number], cells[axis_number][order]
                last = np.maximum.reduceat(rows, firsts)
                low = axis.begin(np.minimum.reduceat(rows, firsts)) + origin[dimension]
                high = axis.begin(last) + axis.show(last).extent + origin[dimension]
                spans.append(list(zip(low.tolist(), high.tolist(), strict=True)))
            for at, number in enumerate(present.tolist()):
                box = [span[at] for span in spans]
                about = tile.chunks.sources[number]
                old = found.get(about, box)
                found[about] = [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(old, box, strict=True)]
    return found


def find_shadowed_sources(members: Iterable[Member], whole: Member) -> dict[str, tuple[int | None, float | None]]:
    """Return the sources of which members have something, and what was made of them has nothing: URL without
    credentials, size and time of the object.
    """
    used = {url for _, group in whole.walk() for url in FileLayout.of(tree_from_member(group)).sources}
    groups = (group for member in members for _, group in member.walk())
    found = (FileLayout.of(tree_from_member(group)).sources for group in groups)
    return {
        redact_url(url): (source.size, source.modified)
        for sources in found
        for url, source in sources.items()
        if url not in used
    }


def select_range(member: Member, dim: str, span: Span) -> Member:
    """Return the part of a member that lies in a range along a dimension."""
    variables = {}
    for name, variable in member.variables.items():
        if dim in variable.dims:
            key = tuple(slice(*span) if own == dim else slice(None) for own in variable.dims)
            variable = variable.with_data(variable.data[key])
        variables[name] = variable
    return member.with_variables(variables)
