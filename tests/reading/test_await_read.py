"""Reads that are awaited: on a thread, with the context of the task, ended with it."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from insitu.cancellation import Deadline, LateError, check_deadline, current_deadline, deadline_scope
from insitu.errors import SelectionError
from insitu.reading.await_read import await_read
from waiting import LONG

ASKED: ContextVar[str] = ContextVar("asked", default="nothing")


def test_it_runs_elsewhere_with_the_context_of_the_task() -> None:
    async def ask(name: str) -> tuple[str, bool, str]:
        ASKED.set(name)
        return await await_read(lambda end: (ASKED.get(), threading.current_thread() is here, end), end="!")

    async def ask_all() -> list[tuple[str, bool, str]]:
        return await asyncio.gather(*(ask(str(number)) for number in range(9)))

    here = threading.current_thread()
    assert asyncio.run(ask_all()) == [(str(number), False, "!") for number in range(9)]


def test_fifty_wait_at_once() -> None:
    """An event loop's own threads are a few more than the cores."""
    met = threading.Barrier(50)

    async def meet() -> list[int]:
        return await asyncio.gather(*(await_read(met.wait, LONG) for _ in range(50)))

    assert sorted(asyncio.run(meet())) == list(range(50))


def test_errors_arrive() -> None:
    def fail() -> None:
        raise SelectionError("too many indices")

    with pytest.raises(SelectionError, match="too many"):
        asyncio.run(await_read(fail))


def test_who_is_cancelled_ends_the_work() -> None:
    began, ended = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        try:
            while not ended.wait(0.001):
                check_deadline()
        except LateError:
            ended.set()
            raise

    async def cancel() -> None:
        reading = asyncio.create_task(await_read(work))
        while not began.is_set():
            await asyncio.sleep(0.001)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    asyncio.run(cancel())
    assert ended.wait(LONG)


def test_what_has_not_begun_never_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    go, called = threading.Event(), []
    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr("insitu.reading.await_read.get_worker_pool", lambda far: pool)

        async def cancel() -> None:
            first = asyncio.create_task(await_read(go.wait, LONG))
            second = asyncio.create_task(await_read(called.append, 2))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            second.cancel()
            await asyncio.wait([second])
            go.set()
            await first

        asyncio.run(cancel())
    assert called == []


def test_a_deadline_of_the_task_holds() -> None:
    async def ask() -> Deadline | None:
        with deadline_scope(Deadline(123.0)):
            return await await_read(current_deadline)

    found = asyncio.run(ask())
    assert found is not None
    assert found.at == 123.0
