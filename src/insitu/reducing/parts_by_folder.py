"""The parts of the values of an expression that are reduced one after the other: the files of each folder.

Servers are next to folders. If the files of a folder are reduced together, and folders are merged in their order,
then it does not matter which server has which: the sums have the same bits. Small values are one part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from insitu.cancellation import check_deadline
from insitu.expressions.nodes import stored_arrays
from insitu.model import Selection, Tile, VirtualArray
from insitu.reducing.expression_values import ExpressionValues
from insitu.reducing.split_by_owner import OwnedArray, split_by_owner

__all__ = ["split_by_folder"]

FOLDER_BYTES = 8 << 20
"""Values of a folder, on average: less are not worth a part of their own."""
MOST_FOLDERS = 32
"""If there are more, those that lie in one are one."""
MOST_CELLS, CELLS_AT_ONCE = 10_000_000, 1_000_000
"""Chunks that are looked up, and how many at a time."""


def split_by_folder(values: ExpressionValues) -> list[Selection]:
    """Return the parts in the order in which they are merged."""
    whole = Selection.of(..., values.shape)
    most = min(math.prod(values.shape) * values.itemsize // FOLDER_BYTES, MOST_FOLDERS)
    if most < 2:
        return [whole]
    arrays = [stored.array for stored in stored_arrays(values.expression)]
    if sum(math.prod(tile.chunks.shape) for array in arrays for tile in array.tiles) > MOST_CELLS:
        return [whole]
    urls = {url for array in arrays for tile in array.tiles for url in _urls(tile)}
    folders = _number_folders(urls, most)
    if len(set(folders.values())) < 2:
        return [whole]
    return [part for part, _ in split_by_owner(values.shape, [_with_owners(array, folders) for array in arrays])]


def _with_owners(array: VirtualArray, folders: dict[str, int]) -> OwnedArray:
    return OwnedArray(array, lambda source: folders[source.url])


def _urls(tile: Tile) -> Iterator[str]:
    """Yield the URLs of the objects that the chunks of a tile lie in; not of those that it only lists."""
    table = tile.chunks
    first, *others = table.shape or (1,)
    rows = max(CELLS_AT_ONCE // max(math.prod(others), 1), 1)
    numbers: set[int] = set()
    for begin in range(0, first, rows):
        check_deadline()
        cells = [np.arange(begin, min(begin + rows, first)), *map(np.arange, others)] if table.shape else []
        numbers.update(np.unique(np.asarray(table.locate(np.ix_(*cells)).source)).tolist())
    yield from (table.sources[number].url for number in numbers if number >= 0)


def _number_folders(urls: set[str], most: int) -> dict[str, int]:
    """Return the number of the folder of each URL: of as many as there are, but for `most`; then of those that they lie
    in.

    Examples
    --------
    >>> _number_folders({"/a/2001/01/x.nc", "/a/2001/02/y.nc", "/a/2002/01/z.nc"}, 2)
    {'/a/2001/01/x.nc': 0, '/a/2001/02/y.nc': 0, '/a/2002/01/z.nc': 1}
    """
    folder = {url: url.partition("?")[0].rpartition("/")[0] for url in sorted(urls)}
    while len(names := sorted(set(folder.values()))) > most:
        depth = max(name.count("/") for name in names)
        folder = {url: name.rpartition("/")[0] if name.count("/") == depth else name for url, name in folder.items()}
    numbers = {name: number for number, name in enumerate(names)}
    return {url: numbers[name] for url, name in folder.items()}
