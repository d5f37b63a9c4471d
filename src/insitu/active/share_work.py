"""Numbered pieces of work, shared by workers that may fail: other servers.

A worker takes the next piece that waits for its kind. One that fails is not asked again, and its
piece goes to somebody else: to another worker of the same kind, else to the caller. Answers are
returned in the order of the pieces, whoever gave them, so that what is made of them does not depend
on who was faster; a piece is begun only if few answers before it are missing, so that few wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Hashable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Generic, TypeVar

from insitu.cancellation import carry_deadline, check_deadline
from insitu.errors import InsituError

__all__ = ["SharedWork", "Worker", "WorkerLostError"]

Answer = TypeVar("Answer")
POLL_SECONDS = 0.25
"""Seconds between two looks at the deadline."""


class WorkerLostError(Exception):
    """A worker cannot do its pieces.

    Parameters
    ----------
    reason
        Why.
    """

    def __init__(self, reason: InsituError) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Worker(Generic[Answer]):
    """Somebody who does pieces of one kind."""

    kind: Hashable
    work: Callable[[int], Answer]
    """Does a piece, given its number; it may raise `WorkerLostError`."""
    name: str = ""
    threads: int = 1
    """Pieces that it gets at once."""


class SharedWork(Generic[Answer]):
    """Pieces of work that workers do, and the caller where there are none.

    Parameters
    ----------
    kinds
        Of each piece, which workers can do it.
    workers
        Who helps.
    here
        Does a piece on the thread of the caller: one that nobody else can do.
    window
        How many answers may be waited for or held at once.
    on_unserved
        Called once for each kind that has no worker (any more), before the caller does its pieces:
        the kind, the numbers of its pieces without an answer, and the reason of the worker that was
        lost last, None if there was none.
    """

    def __init__(
        self,
        kinds: Sequence[Hashable],
        workers: Sequence[Worker[Answer]],
        here: Callable[[int], Answer],
        *,
        window: int,
        on_unserved: Callable[[Hashable, list[int], InsituError | None], None] | None = None,
    ) -> None:
        self.kinds, self.workers, self.here = kinds, workers, here
        self.window, self.on_unserved = window, on_unserved
        self.lost: dict[str, InsituError] = {}
        """Workers that failed, by name, and why."""
        self._waiting = list(range(len(kinds)))
        self._answers: dict[int, Answer] = {}
        self._merged = 0
        """Answers that were given to the caller."""
        self._working = {id(worker): worker.threads for worker in workers}
        self._reasons: dict[Hashable, InsituError] = {}
        self._failure: BaseException | None = None
        self._stopped = False
        self._changed = threading.Condition()

    def run(self) -> Generator[Answer, None, None]:
        """Yield the answers in the order of the pieces."""
        # Daemons: after an error nobody waits for what a worker still does.
        threads = [
            threading.Thread(
                target=copy_context().run,
                args=(carry_deadline(self._run_worker), worker),
                daemon=True,
                name="insitu-share",
            )
            for worker in self.workers
            for _ in range(worker.threads)
        ]
        for thread in threads:
            thread.start()
        reported: set[Hashable] = set()
        try:
            while self._merged < len(self.kinds):
                number = self._find_unserved()
                if number is None:
                    yield self._answers.pop(self._merged)
                    with self._changed:
                        self._merged += 1
                        self._changed.notify_all()
                    continue
                kind = self.kinds[number]
                if kind not in reported and self.on_unserved is not None:
                    reported.add(kind)
                    self.on_unserved(kind, self._list_unanswered(kind), self._reasons.get(kind))
                answer = self.here(number)
                with self._changed:
                    self._answers[number] = answer
        finally:
            with self._changed:
                self._stopped = True
                self._changed.notify_all()

    def _find_unserved(self) -> int | None:
        """Wait until the caller has something to do: None if the next answer is there, else a piece that nobody else
        does.
        """
        with self._changed:
            while True:
                check_deadline()
                if self._failure is not None:
                    raise self._failure
                if self._merged in self._answers:
                    return None
                served = {worker.kind for worker in self.workers if self._working[id(worker)]}
                for number in self._waiting:
                    if number >= self._merged + self.window:
                        break
                    if self.kinds[number] not in served:
                        self._waiting.remove(number)
                        return number
                self._changed.wait(POLL_SECONDS)

    def _list_unanswered(self, kind: Hashable) -> list[int]:
        with self._changed:
            return [n for n in range(self._merged, len(self.kinds)) if self.kinds[n] == kind and n not in self._answers]

    def _run_worker(self, worker: Worker[Answer]) -> None:
        """Do pieces with a worker until there are none, or it fails."""
        while (number := self._take(worker)) is not None:
            try:
                answer = worker.work(number)
            except WorkerLostError as lost:
                with self._changed:
                    self._working[id(worker)] = 0
                    self.lost[worker.name] = self._reasons[worker.kind] = lost.reason
                self._give_back(number)
                return
            except BaseException as problem:
                with self._changed:
                    self._failure = problem
                    self._changed.notify_all()
                return
            with self._changed:
                self._answers[number] = answer
                self._changed.notify_all()

    def _take(self, worker: Worker[Answer]) -> int | None:
        with self._changed:
            while not self._stopped and self._working[id(worker)] and self._merged < len(self.kinds):
                for number in self._waiting:
                    if number >= self._merged + self.window:
                        break
                    if self.kinds[number] == worker.kind:
                        self._waiting.remove(number)
                        return number
                self._changed.wait(POLL_SECONDS)
        return None

    def _give_back(self, number: int) -> None:
        with self._changed:
            self._waiting.append(number)
            self._waiting.sort()
            self._changed.notify_all()
