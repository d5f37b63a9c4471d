"""Tasks run on several threads; the first error is always the same one."""

from __future__ import annotations

import contextvars
import threading
from functools import partial

import pytest

from insitu.cancellation import Deadline, LateError, check_deadline, current_deadline, deadline_scope
from insitu.reading import thread_pools
from insitu.reading.thread_pools import run_tasks
from waiting import LONG


def _no_stop() -> None:
    raise AssertionError("nothing was interrupted")


@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_each_task_runs_once(count: int) -> None:
    done: list[int] = []
    run_tasks([partial(done.append, number) for number in range(count)], False, _no_stop)
    assert sorted(done) == list(range(count))


def test_tasks_run_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_pools, "count_cores", lambda: 1)
    together = threading.Barrier(2, timeout=LONG)
    run_tasks([together.wait] * 2, False, _no_stop)  # alone, each would wait in vain


def test_few_futures_for_many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = thread_pools.get_worker_pool()
    submitted = []
    monkeypatch.setattr(thread_pools, "get_worker_pool", lambda far: pool)
    submit = pool.submit
    monkeypatch.setattr(pool, "submit", lambda work: submitted.append(1) or submit(work))
    run_tasks([lambda: None] * 500, False, _no_stop)
    assert len(submitted) == thread_pools.count_cores()


def test_the_first_error_is_the_first_in_order() -> None:
    late = threading.Event()
    done: list[int] = []

    def fail_late() -> None:
        assert late.wait(LONG)
        raise ValueError("first in order")

    def fail_at_once() -> None:
        late.set()
        raise KeyError("first in time")

    with pytest.raises(ValueError, match="first in order"):
        run_tasks([fail_late, fail_at_once, *[partial(done.append, 1)] * 100], False, _no_stop)
    assert len(done) < 100


def test_an_interrupt_stops_what_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped, begun = threading.Event(), threading.Event()
    main = threading.current_thread()

    def task() -> None:
        if threading.current_thread() is main:
            assert begun.wait(LONG)
            raise KeyboardInterrupt
        begun.set()
        assert stopped.wait(LONG)

    with pytest.raises(KeyboardInterrupt):
        run_tasks([task] * 10, False, stopped.set)
    assert stopped.is_set()


def test_the_deadline_goes_along() -> None:
    with deadline_scope(Deadline.after(-1)), pytest.raises(LateError):
        run_tasks([check_deadline] * 4, False, _no_stop)


def test_what_is_no_exception_is_raised_too() -> None:
    main, begun = threading.current_thread(), threading.Event()

    def task() -> None:
        if threading.current_thread() is main:
            assert begun.wait(LONG)
            return
        begun.set()
        raise SystemExit

    with pytest.raises(SystemExit):
        run_tasks([task] * 2, False, _no_stop)


def test_a_thread_that_is_started_has_no_deadline_of_its_starter() -> None:
    """Free-threaded Python copies the context of the starter; a thread of a pool outlives the request."""
    found: list[object] = []
    with deadline_scope(Deadline.after(LONG)):
        thread = threading.Thread(
            target=contextvars.copy_context().run, args=(lambda: found.append(current_deadline()),)
        )
        thread.start()
        thread.join()
    assert found == [None]
