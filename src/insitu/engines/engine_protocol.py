"""`Engine`, what scans and reductions ask of one, and the tree in which the results of portions are merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError
from contextlib import contextmanager
from typing import Any, Protocol

from insitu.errors import InsituError

__all__ = ["FAN_IN", "Engine", "MergeTree", "PortionJob", "is_lost_worker", "merge_in_tree", "report_lost_workers"]

FAN_IN = 8
"""States that are merged at a time. A change changes the last bits of sums."""


class PortionJob(Protocol):
    """A reduction as two functions: of a portion, and of the states of some portions in order.

    It is pickled for other processes. Neither function changes its arguments.
    """

    @property
    def name(self) -> str:
        """What is computed, for the names of tasks."""

    def fold_portion(self, portion: Any) -> Any:
        """Return the state of a portion."""

    def merge(self, states: Sequence[Any]) -> Any:
        """Return the state of several portions together: the first merged with the second, and so on."""

    def for_workers(self) -> PortionJob:
        """Return the job without what cannot leave this process."""


class Engine(Protocol):
    """Runs functions: here, or elsewhere."""

    keeps_results: bool
    """Whether results stay on the workers until they are asked for."""

    def fold_portions(self, job: PortionJob, groups: Sequence[Sequence[Any]]) -> Iterator[Any]:
        """Yield the merged states of groups of portions, in order."""

    def submit(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return a future of a call; `name` is what a dashboard shows."""

    def flush(self) -> None:
        """Run what was submitted, if that has not begun."""

    def put(self, data: bytes) -> Any:
        """Return bytes of this process as an argument of calls."""

    def is_alive(self) -> bool:
        """Return whether results can still be expected."""


class MergeTree:
    """The merged state of some states in order, `FAN_IN` at a time, and so on.

    Only one state of each level is held, however many there are.

    Parameters
    ----------
    job
        What merges them.
    """

    def __init__(self, job: PortionJob) -> None:
        self.job = job
        self._levels: list[tuple[int, Any]] = []

    def add(self, state: Any) -> None:
        """Add the state that follows."""
        level = 0
        while True:
            if level == len(self._levels):
                self._levels.append((0, None))
            count, before = self._levels[level]
            state = state if not count else self.job.merge([before, state])
            if count + 1 < FAN_IN:
                self._levels[level] = count + 1, state
                return
            self._levels[level] = 0, None
            level += 1

    def result(self) -> Any:
        """Return the state of all together."""
        result: Any = None
        for count, before in self._levels:
            if count:
                result = before if result is None else self.job.merge([before, result])
        return result


def merge_in_tree(job: PortionJob, states: Iterable[Any]) -> Any:
    """Return the merged state of some states."""
    tree = MergeTree(job)
    for state in states:
        tree.add(state)
    return tree.result()


def is_lost_worker(error: BaseException) -> bool:
    """Return whether a call failed because its worker is gone, and the engine gave up."""
    return isinstance(error, (BrokenExecutor, CancelledError)) or type(error).__name__ in (
        "KilledWorker",
        "FutureCancelledError",
    )


@contextmanager
def report_lost_workers(job: PortionJob) -> Iterator[None]:
    """Raise an error that says what to do if the workers of a reduction are gone."""
    try:
        yield
    except Exception as problem:
        if not is_lost_worker(problem):
            raise
        raise InsituError(
            f"the workers that computed {job.name} are gone: {type(problem).__name__}: {problem}",
            hint="Often they ran out of memory: give each worker more of it, or fewer threads, and start again",
        ) from problem
