"""Process-wide cache of parsed messages, keyed by their bytes.

Files of one archive are alike: their datatypes, dataspaces, filter pipelines and most attributes
are the same bytes in file after file. The cache holds a limited number of entries.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

__all__ = ["parse_once", "recall", "remember"]

T = TypeVar("T")

ENTRIES = 8192
LARGEST = 2048  # bytes of a message worth keeping

_answers: dict[Hashable, Any] = {}


recall: Callable[[Hashable], Any] = _answers.get
"""What is remembered under a key, or None. (Not a function of ours: a file asks a hundred
times.)"""


def remember(key: Hashable, size: int, answer: T) -> T:
    """Cache the parsed form of a message of `size` bytes.

    Answers are shared between threads and files, so they must be immutable. Single operations on a
    dict are atomic: at worst two threads parse the same message once each.
    """
    if size <= LARGEST:
        if len(_answers) >= ENTRIES:
            _answers.clear()
        _answers[key] = answer
    return answer


def parse_once(parse: Callable[..., T], body: bytes, *context: Hashable) -> T:
    """Return `parse(body, *context)`, from the cache if it was parsed before."""
    key = (parse, body, context)
    answer: T | None = _answers.get(key)
    return remember(key, len(body), parse(body, *context)) if answer is None else answer
