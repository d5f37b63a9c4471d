"""Values that were kept from an earlier use, in the place of decoded chunks.

They go through the plan of the chunks that they were read from, in the same groups and the same order: so sums of them
have the same bits as those of decoded chunks, and nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from insitu.codecs.chain import Decoder
from insitu.model.axis import Indices
from insitu.reading.fetch_and_decode import NO_SOURCE, PlanExecution
from insitu.reading.scatter import pick
from insitu.reading.select_cells import Picker
from insitu.reading.tile_plan import ChunkGroup, Position
from insitu.reducing.result_layout import TileProjection
from insitu.sources import ByteSource

__all__ = ["KnownExecution", "KnownValues"]


@dataclass(frozen=True, slots=True, eq=False)
class KnownValues:
    """The values of a selection, seen through the tiles of its plan."""

    projections: Sequence[TileProjection]
    windows: Sequence[npt.NDArray[Any]]
    """For each tile a view of the values, with its axes."""

    @classmethod
    def of(cls, values: npt.NDArray[Any], projections: Sequence[TileProjection]) -> KnownValues:
        """Return the values of a selection for the tiles of its plan."""
        return cls(projections, [projection.touched.window(values, projection.selection) for projection in projections])

    def parts(self, grid: int, group: ChunkGroup, these: Indices) -> npt.NDArray[Any]:
        """Return the values of the boxes of some members of a group, stacked along a first axis."""
        places = group.places[these]
        if len(these) == 1:
            box = tuple([slice(at, at + n) for at, n in zip(places[0].tolist(), group.extent, strict=True)])
            return np.ascontiguousarray(self.windows[grid][box])[None]
        return np.ascontiguousarray(sliding_window_view(self.windows[grid], group.extent)[tuple(places.T)])

    def part(self, grid: int, position: Position) -> npt.NDArray[Any]:
        """Return the values of the elements that a cell takes of its chunk: repeated ones once."""
        projection = self.projections[grid]
        pickers: list[Picker] = []
        for axis, row in enumerate(position):
            picker, taken = projection.outside[axis][row], projection.taken[axis][row]
            if isinstance(picker, np.ndarray):
                pickers.append(picker[:taken])
            else:
                pickers.append(slice(picker.start, picker.start + taken))
        return np.ascontiguousarray(pick(self.windows[grid], tuple(pickers)))


class KnownExecution(PlanExecution):
    """Hands over the chunks of a plan without their bytes, to a sink that knows their values."""

    def run_batch(self, begin: int, end: int) -> None:
        """Hand over some rows, in the groups in which they would be fetched."""
        for first, last in self.rows_by_source(begin, end):
            self.hand_over(first, last, [memoryview(b"")] * (last - first), NO_SOURCE)

    def decode_shared(self, decoder: Decoder, data: memoryview, source: ByteSource) -> npt.NDArray[Any]:
        """Return something of the shape of a chunk."""
        return np.broadcast_to(np.zeros((), decoder.dtype), decoder.stored)
