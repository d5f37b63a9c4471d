"""State of a worker process, and execution of requests on threads, with admission and deadline."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from insitu.cancellation import Deadline, LateError, deadline_scope
from insitu.errors import InsituError
from insitu.reading import ChunkCache, ReadStatistics
from insitu.reading.thread_pools import count_cores
from insitu.server.admission import Admission
from insitu.server.authentication import Tokens
from insitu.server.client_source_pools import ClientSourcePools
from insitu.server.error_responses import RequestTooLargeError, StoppingError
from insitu.server.local_copies import LocalCopies
from insitu.server.metrics import Metrics
from insitu.server.process_end import end_soon
from insitu.server.quotas import Quotas, parse_quotas
from insitu.server.reductionist.load_chunk import ChunkLoader
from insitu.server.reply_watch import Reply, ReplyWatch
from insitu.server.request_context import current_request
from insitu.server.roots import Roots
from insitu.server.scanned_archives import ScannedArchives
from insitu.server.settings import Settings
from insitu.sources.access_policy import has_access_policy, set_access_policy
from insitu.sources.http.deadline import cut_cancelled_requests

__all__ = ["Worker"]

serve_log = logging.getLogger("insitu.serve")
Answer = TypeVar("Answer")
THREADS_PER_CORE = 8
"""More than one thread per core, because requests mostly wait for storage."""
CANCEL_SECONDS = 3.0
"""Seconds that cancelled requests get to end when the server stops."""
FAREWELL_SECONDS = 2.0
"""Seconds that cancelled requests get to answer their clients when the server stops."""
MAX_WAITING_PIECES = 4
"""Pieces of a streamed response that may wait to be sent."""
SLOW_CLIENT_SECONDS = 1.0
"""Seconds after which a response is paused if the client has not taken a piece."""


class Worker:
    """The state of a worker process."""

    def __init__(self, settings: Settings) -> None:
        limits = settings.limits
        self.settings, self.limits = settings, limits
        self.roots = Roots(settings.roots, settings.archives, settings.storage_options)
        self.tokens = Tokens(settings.tokens, settings.token_file)
        self.copies = LocalCopies(self._local_copy, settings.trust_copies, limits.fresh)
        self.source_pools = ClientSourcePools(self.copies)
        self.cache = ChunkCache(limits.cache)
        self.metrics = Metrics()
        self.loader = ChunkLoader(self.source_pools, self.cache, limits, self._local_copy, self.metrics)
        self.scans = ScannedArchives(limits.scans, limits.fresh, self.metrics)
        self.quotas = Quotas.from_environment(parse_quotas(settings.quotas)) if settings.quotas else None
        threads = settings.threads or THREADS_PER_CORE * count_cores()
        self.admission = Admission(limits.memory, limits.queue, limits.wait, threads)
        self.replies = ReplyWatch(limits.rate, limits.replies)
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="insitu-serve")
        self._deadlines: weakref.WeakSet[Deadline] = weakref.WeakSet()
        """Deadlines of the running requests."""
        self.incoming = 0
        """Bytes of bodies that are still being received."""
        self.generation = 0
        """How often the settings were reloaded."""
        self.closing = False
        self.owns_process = False
        """Whether the process is there for this worker only, so that it may end with it."""
        self.open_requests = 0
        """Requests that have come in and are not answered yet."""

    def _local_copy(self, url: str) -> str:
        return self.roots.local_copy(url)  # of the roots that there are now

    def reload(self, settings: Settings) -> None:
        """Use new tokens, roots, storage options, quotas and limits, but for the size of the cache and the number of
        threads; requests that run go on.
        """
        limits = settings.limits
        self.settings, self.limits, self.loader.limits = settings, limits, limits
        self.tokens = Tokens(settings.tokens, settings.token_file)
        self.roots = Roots(settings.roots, settings.archives, settings.storage_options)
        self.admission.resize(limits.memory, limits.queue, limits.wait)
        self.replies.rate, self.replies.limit = limits.rate, limits.replies
        self.copies.trusted, self.copies.fresh = settings.trust_copies, limits.fresh
        self.scans.fresh = limits.fresh
        self.scans.forget()
        quotas = parse_quotas(settings.quotas)
        if self.quotas is not None:
            self.quotas.limits = quotas
        elif quotas:
            self.quotas = Quotas.from_environment(quotas)
        self.generation += 1
        if has_access_policy():
            set_access_policy(self.roots)

    async def finish_requests(self) -> None:
        """Wait until the requests that were cancelled because the server stops have answered."""
        until = time.monotonic() + FAREWELL_SECONDS
        while self.open_requests and time.monotonic() < until:
            await asyncio.sleep(0.02)

    def close(self) -> None:
        """Cancel the running requests, then release all resources."""
        self.closing = True
        for deadline in list(self._deadlines):
            deadline.cancelled = True
        cut_cancelled_requests()
        self.pool.shutdown(wait=False, cancel_futures=True)
        until = time.monotonic() + CANCEL_SECONDS
        for thread in list(self.pool._threads):
            thread.join(max(until - time.monotonic(), 0.0))
        if any(thread.is_alive() for thread in self.pool._threads):
            serve_log.error("some requests did not stop within %g s and are abandoned", CANCEL_SECONDS)
            if self.owns_process:
                end_soon(FAREWELL_SECONDS)
        self.source_pools.close()
        self.metrics.close()
        if self.quotas is not None:
            self.quotas.close()

    def record_reads(self, tally: ReadStatistics) -> None:
        """Add what was read to the counters."""
        self.metrics.add("insitu_bytes_fetched_total", tally.bytes_fetched)
        self.metrics.add("insitu_bytes_decoded_total", tally.bytes_decoded)
        self.metrics.add("insitu_chunks_total", tally.chunks)

    def update_gauges(self) -> None:
        """Set the gauges of running requests, and the numbers of the cache."""
        self.metrics.set("insitu_memory_bytes", self.admission.used)
        self.metrics.set("insitu_running", self.admission.running)
        self.metrics.set("insitu_waiting", self.admission.waiting)
        self.metrics.set("insitu_cache_bytes", self.cache.nbytes)
        self.metrics.set("insitu_pool_size", self.admission.width)
        self.metrics.add_up_to("insitu_cache_hits_total", self.cache.hits)
        self.metrics.add_up_to("insitu_cache_misses_total", self.cache.misses)

    def _deadline(self) -> Deadline:
        """Return the deadline of a request that begins now."""
        deadline = Deadline.after(self.limits.seconds)
        deadline.cancelled = self.closing
        self._deadlines.add(deadline)
        self.update_gauges()  # now, not only at its end: the request for /metrics may go to another worker
        return deadline

    def _charge(self, deadline: Deadline) -> Callable[[], None]:
        """Return what to call when work of the current request is done: it counts the processor time since then."""
        request = current_request.get()
        usage = None if request is None else request.usage
        counted = 0.0

        def charge() -> None:
            nonlocal counted
            seconds, counted = deadline.processor_seconds - counted, deadline.processor_seconds
            self.metrics.add("insitu_processor_seconds_total", seconds)
            if usage is not None:
                usage.add_seconds(seconds)

        return charge

    async def _enter(self, cost: int) -> Callable[[], None]:
        """Wait until a request may start; an error if the server stops, so that no thread takes it any more."""
        leave = await self.admission.enter(cost)
        if self.closing:
            leave()
            raise StoppingError
        return leave

    async def run(self, cost: int, work: Callable[[Deadline], Answer]) -> Answer:
        """Run a function on a thread, when there is memory for it, and return its result.

        Parameters
        ----------
        cost
            Bytes that it holds.
        work
            The function; it gets its deadline.
        """
        leave = await self._enter(cost)
        loop = asyncio.get_running_loop()
        deadline = self._deadline()
        inherit = contextvars.copy_context().run  # log lines of the thread name the request, too
        future = loop.run_in_executor(self.pool, inherit, _run_with_deadline, deadline, lambda: work(deadline))
        charge = self._charge(deadline)
        # Its memory counts until the thread is done, even if the client has gone.
        future.add_done_callback(lambda done: (leave(), charge(), done.cancelled() or done.exception())[0])
        try:
            return await asyncio.wait_for(asyncio.shield(future), self.limits.seconds)
        except asyncio.CancelledError:
            if future.cancelled():  # by the end of the pool, before a thread took it
                raise StoppingError from None
            raise
        except TimeoutError:
            if future.done():
                return future.result()  # it has just ended, or the timeout is an error of its own
            raise LateError(
                f"the request took longer than the limit of {self.limits.seconds:g} s: select less, or split it"
            ) from None
        finally:
            deadline.cancelled = True

    async def stream(
        self, cost: int, paused_bytes: int, work: Callable[[Deadline], Generator[bytes, None, None]]
    ) -> AsyncIterator[bytes]:
        """Run a generator on threads and return its pieces as they are made.

        The iterator is returned when the first piece is there, so that an early error is raised
        here. While the client reads slowly the generator is paused: it holds neither a thread nor
        memory for decoding, and waits for its turn again when the client has read what there is.

        Parameters
        ----------
        cost
            Bytes that it holds while it runs.
        paused_bytes
            Bytes that it holds while it is paused.
        work
            Makes the generator; it gets its deadline.
        """
        request = current_request.get()
        reply = Reply(None) if request is None or request.reply is None else request.reply
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        room = threading.Semaphore(MAX_WAITING_PIECES)
        pieces: asyncio.Queue[bytes | _Paused | _EndOfStream] = asyncio.Queue()
        leave = await self._enter(cost)
        deadline = self._deadline()
        making = work(deadline)

        def produce() -> bool:
            """Make pieces for as long as the client takes them; return whether there are no more."""
            try:
                while room.acquire(timeout=SLOW_CLIENT_SECONDS):
                    deadline.check()
                    piece = next(making, None)
                    if piece is None:
                        return True
                    loop.call_soon_threadsafe(pieces.put_nowait, piece)
                deadline.check()
            except LateError as late:
                # The generator makes an item of it, or raises it again if nothing has been sent.
                loop.call_soon_threadsafe(pieces.put_nowait, making.throw(late))
                return True
            return False

        charge = self._charge(deadline)
        paused = False

        def start(leave: Callable[[], None]) -> None:
            nonlocal paused
            paused, reply.paused_bytes = False, 0

            def on_done(done: asyncio.Future[bool]) -> None:
                nonlocal paused
                leave()
                charge()
                error = StoppingError() if done.cancelled() else done.exception()
                if error is not None or done.result():
                    pieces.put_nowait(_EndOfStream(error))
                elif deadline.cancelled:  # the client has just gone
                    context.run(making.close)
                else:
                    paused = True
                    pieces.put_nowait(_Paused())
                    self.replies.pause(reply, paused_bytes)

            future = loop.run_in_executor(self.pool, context.run, _run_with_deadline, deadline, produce)
            future.add_done_callback(on_done)

        start(leave)
        try:
            first = await pieces.get()
        except BaseException:
            deadline.cancelled = True
            raise
        if isinstance(first, _EndOfStream) and first.error is not None:
            raise first.error

        async def rest() -> AsyncIterator[bytes]:
            piece = first
            try:
                while not isinstance(piece, _EndOfStream):
                    if isinstance(piece, _Paused):
                        start(await self._enter(cost))
                    else:
                        room.release()
                        yield piece
                    piece = await pieces.get()
                if piece.error is not None:
                    raise piece.error
            except InsituError as error:  # the status has been sent: the generator makes an item of it
                with suppress(InsituError, StopIteration):
                    yield context.run(making.throw, error)
            finally:
                deadline.cancelled = True
                reply.paused_bytes = 0
                if paused:
                    context.run(making.close)

        return rest()


def _run_with_deadline(deadline: Deadline, work: Callable[[], Answer]) -> Answer:
    """Call a function with its deadline in force; turn a MemoryError into an error of this request."""
    try:
        with deadline_scope(deadline):
            return work()
    except MemoryError:
        raise RequestTooLargeError("the server has not enough memory for this request: select less") from None


class _Paused:
    """Marks that a stream waits for its client."""

    __slots__ = ()


class _EndOfStream:
    """Marks the end of a stream, perhaps with the error that ended it."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException | None) -> None:
        self.error = error
