"""Large reductions, shared by the workers of one server.

The worker that has the request cuts it into portions, which end where chunks end, and does them one after
the other. Workers that are idle do some, too, by the routes of any other request: each checks what it reads,
and admits it by its own limits. A worker that refuses or ends costs nothing but time: its portion is done
by the one that asked. Portions are merged in their order, so that the result does not depend on who did which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import cbor2

from insitu.active.distribute import arrays_from_wire
from insitu.active.message_decoder import decode_sequence
from insitu.active.piecewise import PiecewiseReduction, Results
from insitu.active.remote_values import RemoteValues
from insitu.active.request_pieces import MergedPartial, count_requests, cut_axis, cut_pieces
from insitu.active.share_work import Helper, HelperBusyError, HelperLostError, SharedWork
from insitu.errors import InsituError, SourceError
from insitu.model import Selection, VirtualArray
from insitu.reading import ReadStatistics
from insitu.reducing.partial_fields import Partial
from insitu.server.siblings import SiblingConnection

__all__ = ["BUSY", "Sharing", "reduce_shared"]

PORTION_CELLS = 4096
"""Chunks of a portion, at most: some tens of milliseconds, beside which sending its table is little."""
PORTION_BYTES = 32 << 20
"""Decoded bytes of a portion, at most, unless it is one chunk."""
LEAST_VALUES = 8
"""A portion has at least so many times the bytes of its partial, which has to be sent and merged."""
COUNTED = ("requests", "bytes_fetched", "bytes_decoded", "chunks")
"""What the last item of a response says about reading."""
BUSY = cbor2.dumps({"busy": True})
"""The response of a worker that has something to do."""

Answer = tuple[Partial, list[Any], dict[str, int]]
"""The partial of a portion, NumPy's warnings, and what another worker read for it."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """What a worker needs to share a reduction."""

    paths: Sequence[str]
    """Sockets of the other workers."""
    request: Callable[[dict[str, Any], bool], bytes]
    """Makes the request for a job; whether its chunks go through the cache."""
    memory: int
    """Bytes that partials which wait to be merged may have."""
    kept: bool = True
    """Whether the chunks of the whole reduction go through the cache: those of a long pass do not."""


def reduce_shared(
    values: RemoteValues,
    arrays: Sequence[VirtualArray],
    whole: PiecewiseReduction,
    sharing: Sharing,
    elsewhere: ReadStatistics,
    partial: bool,
) -> tuple[Results, list[Any]] | None:
    """Return the results of a reduction, and NumPy's warnings of other workers; None if it is not worth
    sharing.

    Parameters
    ----------
    values, arrays
        What is reduced, and the stored arrays that are read for it.
    whole
        The reduction.
    sharing
        The other workers.
    elsewhere
        Counts what they read.
    partial
        Whether the partial is the result.
    """
    many = count_requests(arrays, PORTION_CELLS, PORTION_BYTES)
    if many < 2 or 0 in values.shape:
        return None
    merged = whole.begin()
    nbytes = sum(field.nbytes for field in merged.partial.values())
    if whole.repeats_along(cut_axis(values.grid)):
        many = min(many, sum(array.nbytes for array in arrays) // max(LEAST_VALUES * nbytes, 1))
    if many < 2 or _window(sharing) * nbytes > sharing.memory:
        return None
    portions = cut_pieces(values.grid, Selection.of(..., values.shape), many)
    warned = _fold_shared(values, whole, portions, sharing, elsewhere, merged)
    return dict(merged.partial) if partial else whole.finalise(merged.partial), warned


def _window(sharing: Sharing) -> int:
    """Return how many portions are under way, or wait to be merged, at a time."""
    return 2 * len(sharing.paths) + 2


def _fold_shared(
    values: RemoteValues,
    whole: PiecewiseReduction,
    portions: Sequence[Selection],
    sharing: Sharing,
    elsewhere: ReadStatistics,
    merged: MergedPartial,
) -> list[Any]:
    """Merge the partials of all portions; return NumPy's warnings of other workers."""
    with ExitStack() as stack:
        others = [stack.enter_context(SiblingConnection(path)) for path in sharing.paths]

        def reduce_here(number: int) -> Answer:
            with values.select(portions[number]).open() as opened:
                return whole.fold_piece(opened, portions[number]), [], {}

        def asker(other: SiblingConnection) -> Callable[[int], Answer]:
            def ask(number: int) -> Answer:
                piece = portions[number]
                job = {**values.select(piece).to_wire(), **whole.entries(piece), "answer": "partial"}
                return _parse(_ask(other, sharing.request(job, sharing.kept)), whole)

            return ask

        work = SharedWork(
            [None] * len(portions),
            [Helper(None, asker(other), name=other.path) for other in others],
            reduce_here,
            window=_window(sharing),
            caller_helps=True,
        )
        warned: list[Any] = []
        with closing(work.run()) as answers:
            for piece, (partial, messages, tally) in zip(portions, answers, strict=True):
                merged.add(piece, whole.place(piece), partial)
                warned += [message for message in messages if message not in warned]
                elsewhere.add(
                    *(tally.get(name, 0) for name in ("requests", "bytes_fetched", "bytes_decoded", "chunks"))
                )
        return warned


def _ask(other: SiblingConnection, request: bytes) -> bytes:
    try:
        return other.ask(request)
    except OSError as problem:
        if isinstance(problem, InsituError):  # the deadline is over
            raise
        raise HelperLostError(SourceError(f"another worker of the server ended: {problem}")) from problem


def _parse(data: bytes, whole: PiecewiseReduction) -> Answer:
    """Return what a worker answered; raise an error if it is no result, whatever the reason."""
    first, *rest = decode_sequence(data)
    if "busy" in first:
        raise HelperBusyError
    if "error" in first or not rest:
        raise HelperLostError(SourceError("another worker of the server refused a portion"))
    partial, last = arrays_from_wire(first, "partial"), rest[0]
    if set(partial) != set(whole.fields) or "done" not in last:
        raise HelperLostError(SourceError("another worker of the server answered something else"))
    return partial, first.get("warnings", []), last
