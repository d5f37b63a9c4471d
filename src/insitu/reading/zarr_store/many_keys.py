"""`KeyReader`: many keys of a Zarr view for an event loop, read together.

A reader of Zarr awaits the chunks of a selection one by one. What is asked for in one turn of its event
loop is one batch here: chunks that are passed on as they are stored are read source by source, where
close ranges become one request, and no thread waits for a single key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary

from insitu.errors import InsituError
from insitu.model import Source
from insitu.reading.await_read import await_read
from insitu.reading.request_cost import has_remote_sources
from insitu.reading.thread_pools import run_tasks
from insitu.reading.zarr_store.byte_span import ByteSpan
from insitu.reading.zarr_store.stored_chunks import StoredChunks, StoredRange, read_stored
from insitu.reading.zarr_store.zarr_tree import ZarrTree

__all__ = ["KeyReader"]

LOCAL_BYTES = 4 << 20
"""Bytes of a local file that one thread reads: the cores share more."""


@dataclass(frozen=True, slots=True, eq=False)
class KeyRequest:
    """A key that a task waits for."""

    key: str
    span: ByteSpan
    answer: asyncio.Future[bytes | None]


Answer = tuple[KeyRequest, bytes | Exception | None]
Give = Callable[[Sequence[Answer]], object]
"""Hands answers to the tasks that wait for them, from any thread."""


class KeyReader:
    """Reads keys of a view for tasks of event loops.

    Parameters
    ----------
    tree
        The view.
    """

    def __init__(self, tree: ZarrTree) -> None:
        self._tree = tree
        self._pending: WeakKeyDictionary[asyncio.AbstractEventLoop, list[KeyRequest]] = WeakKeyDictionary()
        """What tasks of a loop have asked for in its present turn."""

    async def get(self, key: str, span: ByteSpan) -> bytes | None:
        """Return the content of a key, or some bytes of it; None if there is no such key."""
        loop = asyncio.get_running_loop()
        request = KeyRequest(key, span, loop.create_future())
        pending = self._pending.setdefault(loop, [])
        pending.append(request)
        if len(pending) == 1:
            loop.call_soon(self._begin, loop)
        return await request.answer

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read what was asked for in the turn that ends."""
        requests = self._pending.pop(loop)

        def give(answers: Sequence[Answer]) -> None:
            loop.call_soon_threadsafe(_hand_over, answers)

        reading = loop.create_task(await_read(read_keys, self._tree, requests, give))
        wanted = len(requests)

        def stop_if_unwanted(answer: asyncio.Future[bytes | None]) -> None:
            nonlocal wanted
            wanted -= answer.cancelled()
            if not wanted:
                reading.cancel()

        for request in requests:
            request.answer.add_done_callback(stop_if_unwanted)
        reading.add_done_callback(partial(_fail_rest, requests))


def _hand_over(answers: Sequence[Answer]) -> None:
    for request, found in answers:
        if request.answer.done():  # cancelled
            continue
        if isinstance(found, Exception):
            request.answer.set_exception(found)
        else:
            request.answer.set_result(found)


def _fail_rest(requests: Sequence[KeyRequest], reading: asyncio.Task[None]) -> None:
    """Let nobody wait for ever if the batch as a whole has failed."""
    problem = None if reading.cancelled() else reading.exception()
    for request in requests:
        if not request.answer.done():
            if problem is None:
                request.answer.cancel()
            else:
                request.answer.set_exception(problem)


def read_keys(tree: ZarrTree, requests: Sequence[KeyRequest], give: Give) -> None:
    """Read keys and hand over the content of each as soon as it is there.

    Parameters
    ----------
    tree
        The view.
    requests
        The keys.
    give
        Called with some of them and their content, or the error of each.
    """
    known: list[Answer] = []
    cells: dict[str, list[tuple[KeyRequest, tuple[int, ...]]]] = {}
    for request in requests:
        place = None if request.key in tree.documents else tree.place(request.key)
        if place is None:
            known.append((request, tree.get(request.key, request.span)))
        else:
            cells.setdefault(place[0], []).append((request, place[1]))
    alone: list[KeyRequest] = []
    is_remote = False
    by_source: dict[Source, list[tuple[KeyRequest, StoredRange]]] = {}
    for path, requested in cells.items():
        view = tree.views[path]
        tiles = (view.array.tile,) if isinstance(view, StoredChunks) else view.array.tiles[:1]
        is_remote = is_remote or any(has_remote_sources(tile.chunks.sources) for tile in tiles)
        try:
            found = view.locate([cell for _, cell in requested]) if isinstance(view, StoredChunks) else None
        except InsituError:  # each key says for itself which chunk it concerns
            found = None
        if found is None:
            alone += [request for request, _ in requested]
            continue
        for (request, _), where in zip(requested, found, strict=True):
            if isinstance(where, StoredRange):
                by_source.setdefault(where.source, []).append((request, where))
            else:
                known.append((request, None if where is None else request.span.of(where)))
    give(known)
    tasks = [partial(_read_together, tree, part, give) for located in by_source.values() for part in _cut(located)]
    tasks += [partial(_read_one_by_one, tree, [request], give) for request in alone]
    if tasks:
        run_tasks(tasks, is_remote, lambda: None)


def _cut(located: Sequence[tuple[KeyRequest, StoredRange]]) -> Iterator[Sequence[tuple[KeyRequest, StoredRange]]]:
    """Yield chunks of one source in parts, each for one thread: all, if it is remote and waits."""
    if has_remote_sources([located[0][1].source]):
        yield located
        return
    begin = nbytes = 0
    for end, (_, where) in enumerate(located, 1):
        nbytes += where.length
        if nbytes >= LOCAL_BYTES or end == len(located):
            yield located[begin:end]
            begin, nbytes = end, 0


def _read_together(tree: ZarrTree, located: Sequence[tuple[KeyRequest, StoredRange]], give: Give) -> None:
    wanted = [(request, where) for request, where in located if not request.answer.cancelled()]
    requests = [request for request, _ in wanted]
    if len(wanted) > 1:
        try:
            found = read_stored([(where, request.span) for request, where in wanted], tree.source_pool())
        except InsituError:  # each key gets its own error, if it has one, with the chunk that it concerns
            pass
        else:
            give(list(zip(requests, found, strict=True)))
            return
    _read_one_by_one(tree, requests, give)


def _read_one_by_one(tree: ZarrTree, requests: Sequence[KeyRequest], give: Give) -> None:
    for request in requests:
        if request.answer.cancelled():
            continue
        try:
            found: bytes | Exception | None = tree.get(request.key, request.span)
        except Exception as problem:  # raised where the key is awaited
            found = problem
        give([(request, found)])
