"""Numbered pieces of work, shared by helpers that may fail: other servers.

A helper takes the next piece that waits for its kind. One that fails is not asked again, and its
piece goes to somebody else: to another helper of the same kind, else to the caller. Answers are
returned in the order of the pieces, whoever gave them, so that what is made of them does not depend
on who was faster; a piece is begun only if few answers before it are missing, so that few wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Hashable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Generic, TypeVar

from insitu.cancellation import check_deadline
from insitu.errors import InsituError

__all__ = ["Helper", "HelperLostError", "SharedWork"]

Answer = TypeVar("Answer")
POLL_SECONDS = 0.25
"""Seconds between two looks at the deadline."""


class HelperLostError(Exception):
    """A helper cannot do its pieces.

    Parameters
    ----------
    reason
        Why.
    """

    def __init__(self, reason: InsituError) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Helper(Generic[Answer]):
    """Somebody who does pieces of one kind."""

    kind: Hashable
    work: Callable[[int], Answer]
    """Does a piece, given its number; it may raise `HelperLostError`."""
    name: str = ""
    threads: int = 1
    """Pieces that it gets at once."""


class SharedWork(Generic[Answer]):
    """Pieces of work that helpers do, and the caller where there are none.

    Parameters
    ----------
    kinds
        Of each piece, which helpers can do it.
    helpers
        Who helps.
    here
        Does a piece on the thread of the caller: one that nobody else can do.
    window
        How many answers may be waited for or held at once.
    on_orphans
        Called once for each kind that has no helper (any more), before the caller does its pieces:
        the kind, the numbers of its pieces without an answer, and the reason of the helper that was
        lost last, None if there was none.
    """

    def __init__(
        self,
        kinds: Sequence[Hashable],
        helpers: Sequence[Helper[Answer]],
        here: Callable[[int], Answer],
        *,
        window: int,
        on_orphans: Callable[[Hashable, list[int], InsituError | None], None] | None = None,
    ) -> None:
        self.kinds, self.helpers, self.here = kinds, helpers, here
        self.window, self.on_orphans = window, on_orphans
        self.lost: dict[str, InsituError] = {}
        """Helpers that failed, by name, and why."""
        self._waiting = list(range(len(kinds)))
        self._answers: dict[int, Answer] = {}
        self._merged = 0
        """Answers that were given to the caller."""
        self._working = {id(helper): helper.threads for helper in helpers}
        self._reasons: dict[Hashable, InsituError] = {}
        self._failure: BaseException | None = None
        self._stopped = False
        self._changed = threading.Condition()

    def run(self) -> Generator[Answer, None, None]:
        """Yield the answers in the order of the pieces."""
        # Daemons: after an error nobody waits for what a helper still does.
        threads = [
            threading.Thread(target=copy_context().run, args=(self._help, helper), daemon=True, name="insitu-share")
            for helper in self.helpers
            for _ in range(helper.threads)
        ]
        for thread in threads:
            thread.start()
        told: set[Hashable] = set()
        try:
            while self._merged < len(self.kinds):
                number = self._find_orphan()
                if number is None:
                    yield self._answers.pop(self._merged)
                    with self._changed:
                        self._merged += 1
                        self._changed.notify_all()
                    continue
                kind = self.kinds[number]
                if kind not in told and self.on_orphans is not None:
                    told.add(kind)
                    self.on_orphans(kind, self._list_unanswered(kind), self._reasons.get(kind))
                answer = self.here(number)
                with self._changed:
                    self._answers[number] = answer
        finally:
            with self._changed:
                self._stopped = True
                self._changed.notify_all()

    def _find_orphan(self) -> int | None:
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
                helped = {helper.kind for helper in self.helpers if self._working[id(helper)]}
                for number in self._waiting:
                    if number >= self._merged + self.window:
                        break
                    if self.kinds[number] not in helped:
                        self._waiting.remove(number)
                        return number
                self._changed.wait(POLL_SECONDS)

    def _list_unanswered(self, kind: Hashable) -> list[int]:
        with self._changed:
            return [n for n in range(self._merged, len(self.kinds)) if self.kinds[n] == kind and n not in self._answers]

    def _help(self, helper: Helper[Answer]) -> None:
        """Do pieces with a helper until there are none, or it fails."""
        while (number := self._take(helper)) is not None:
            try:
                answer = helper.work(number)
            except HelperLostError as lost:
                with self._changed:
                    self._working[id(helper)] = 0
                    self.lost[helper.name] = self._reasons[helper.kind] = lost.reason
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

    def _take(self, helper: Helper[Answer]) -> int | None:
        with self._changed:
            while not self._stopped and self._working[id(helper)] and self._merged < len(self.kinds):
                for number in self._waiting:
                    if number >= self._merged + self.window:
                        break
                    if self.kinds[number] == helper.kind:
                        self._waiting.remove(number)
                        return number
                self._changed.wait(POLL_SECONDS)
        return None

    def _give_back(self, number: int) -> None:
        with self._changed:
            self._waiting.append(number)
            self._waiting.sort()
            self._changed.notify_all()
