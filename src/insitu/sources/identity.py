"""Is this still the object that the first bytes came from?

A remote object can be replaced between two requests, and bytes of two versions make values that neither has. So a
remote source keeps what the first answer said of the object, and every later answer must say the same.
"""

from __future__ import annotations

from typing import Any

from insitu.errors import StaleSourceError
from insitu.model import Source

__all__ = ["Identity"]


class Identity:
    """What the answers so far said of one object."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._facts: dict[str, Any] = {}

    @property
    def known(self) -> bool:
        """Whether there was an answer yet."""
        return bool(self._facts)

    @property
    def size(self) -> int | None:
        """Bytes in the object, if an answer told."""
        return self._facts.get("size")

    def observe(self, size: int | None, etag: str | None, modified: float | None) -> None:
        """Take in what an answer says; raise `StaleSourceError` if it contradicts an earlier one."""
        facts = self._facts
        facts["known"] = True
        # setdefault is one atomic step: of threads with different news, all but one see the contradiction.
        if size is not None and facts.setdefault("size", size) != size:
            raise self._stale(f"its size was {facts['size']} and is now {size}")
        if etag is not None and _strong(facts.setdefault("etag", etag)) != _strong(etag):
            raise self._stale("its ETag changed")
        # With an ETag the date says nothing more, and mirrors behind one name may differ in it.
        if modified is not None and facts.setdefault("modified", modified) != modified and "etag" not in facts:
            raise self._stale("its modification date changed")

    def source(self) -> Source:
        """As the model's noun."""
        return Source(self.url, self.size, self._facts.get("etag"), self._facts.get("modified"))

    def _stale(self, how: str) -> StaleSourceError:
        return StaleSourceError(
            f"the object changed while it was read: {how}", url=self.url, hint="Scan and open it again."
        )


def _strong(etag: str) -> str:
    # A proxy that recompresses marks the same tag as weak.
    return etag.removeprefix("W/")
