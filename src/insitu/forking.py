"""Locks, state, imports and cached properties that survive `fork`.

A forked child has one thread, and inherits the locks of all others as they were: a lock that
another thread held at that moment stays locked for ever. Locks made here are open in a child;
objects with more state than a lock register themselves and are renewed; imports are finished before
the fork. (multiprocessing forks by default on Linux up to Python 3.13.)
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property:  # noqa: N801
        """`functools.cached_property` without its lock.

        That of Python 3.11 has one lock for all objects of a class: threads wait for each other, and a child that was
        forked while one of them held it never got the value.
        """

        def __init__(self, compute: Callable[[Any], Any]) -> None:
            self.compute = compute
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            found = instance.__dict__[self.name] = self.compute(instance)
            return found


__all__ = [
    "cached_property",
    "delay_forks",
    "fork_safe_lock",
    "fork_safe_rlock",
    "import_before_fork",
    "lazy_attributes",
    "renew_after_fork",
]

_IMPORT_SECONDS = 30.0
"""Seconds that a fork waits for an import that is under way in another thread; large libraries take
one or two.
"""


class Renewable(Protocol):
    """An object that has to be set up again in a forked child."""

    def renew(self) -> None:
        """Make new locks; drop what is shared with the parent."""


_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_renewables: weakref.WeakSet[Renewable] = weakref.WeakSet()
_import_lock = threading.RLock()


def fork_safe_lock() -> threading.Lock:
    """Return a lock that is open in forked children, whoever held it in the parent."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def fork_safe_rlock() -> Any:
    """Return a lock that its holder may take again, and that is open in forked children."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def renew_after_fork(thing: Renewable) -> None:
    """Have `thing.renew()` called in forked children, for as long as `thing` lives."""
    _renewables.add(thing)


def import_before_fork(name: str) -> ModuleType:
    """Import a module as `importlib.import_module` does. A fork in another thread waits until that
    is done.

    A child that is forked in the middle of an import can never import that module: its lock belongs
    to a thread that does not exist there.

    The packages that the module lies in are complete then, too: Python itself returns a module that is
    there while another thread is still importing its package (numcodecs fills its registry that way).
    """
    with delay_forks():
        found = importlib.import_module(name)
    # Without the lock: the thread that imports the package may need it.
    for end in (place for place, letter in enumerate(name) if letter == "."):
        importlib.import_module(name[:end])
    return found


def lazy_attributes(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package whose names are imported when they are first asked for.

    So a program waits only for what it uses, and a function that imports a name from the package when
    it is called may run in a thread: forks wait for the import. Later uses find the name in the package.
    Modules of insitu take such a name only in functions: `tests/test_layout.py` says why.

    Parameters
    ----------
    package
        Its `__name__`.
    modules
        The module of each name. A name must not be that of a module of the package, which Python
        itself puts there.
    """

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_before_fork(modules[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return find


@contextmanager
def delay_forks() -> Iterator[None]:
    """Have forks in other threads wait: for imports, and for libraries that import parts of
    themselves under locks of their own.
    """
    with _import_lock:
        yield


_fork_state = threading.local()


def _before() -> None:
    # Not for ever: the import may wait for something that the forking thread holds.
    _fork_state.has_lock = _import_lock.acquire(timeout=_IMPORT_SECONDS)


def _in_parent() -> None:
    if _fork_state.has_lock:
        _import_lock.release()


def _in_child() -> None:
    global _import_lock
    _import_lock = threading.RLock()
    for lock in list(_locks):
        lock._at_fork_reinit()  # what the standard library does with its own (logging, queue, concurrent.futures)
    for thing in list(_renewables):
        thing.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
