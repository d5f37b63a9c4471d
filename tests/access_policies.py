"""Access policies of a process, as tests need them."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["PathPolicy"]


class PathPolicy:
    """Lets paths in for which a function says so; the web and buckets all or none."""

    def __init__(self, is_allowed: Callable[[str], bool], *, remote: bool = False) -> None:
        self.is_allowed, self.remote = is_allowed, remote

    def path(self, path: str) -> bool:
        return self.is_allowed(path)

    def web(self, url: str) -> bool:
        return self.remote

    def bucket(self, kind: str, endpoint: str | None, bucket: str, key: str) -> bool:
        return self.remote

    def public_url(self, path: str) -> str:
        return path
