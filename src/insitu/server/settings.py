"""Settings of a server: roots, tokens, limits.

They reach the worker processes as JSON, by environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["ENVIRONMENT_VARIABLE", "Limits", "Settings"]

ENVIRONMENT_VARIABLE = "INSITU_SERVE"
"""Name of the environment variable that holds the settings of a worker."""


BASE_BYTES = 384 << 20
"""Bytes of a worker without its requests: the program, its libraries, threads, and metadata of archives."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one worker."""

    memory: int = 1 << 30
    """Bytes of decoded data that running requests may hold together; further requests wait."""
    queue: int = 1024
    """Requests that may wait; further ones are refused (429)."""
    wait: float = 60.0
    """Seconds that a request may wait for its turn."""
    seconds: float = 300.0
    """Seconds that a request may run."""
    request: int = 64 << 20
    """Largest body of a request, in bytes."""
    chunk: int = 512 << 20
    """Largest decoded chunk, in bytes."""
    cache: int = 128 << 20
    """Size of the cache of decoded chunks, in bytes."""
    fresh: float = 30.0
    """Seconds after which cached chunks and scans of remote objects expire."""
    rate: float = 1024.0
    """Bytes a second that a client has to read of a reply; 0: any rate."""
    scans: int = 64
    """Number of archives whose metadata is cached."""

    @property
    def replies(self) -> int:
        """Bytes that replies may hold while they wait for their clients."""
        return max(self.memory // 4, 64 << 20)

    @property
    def bodies(self) -> int:
        """Bytes that requests may have that are still being received."""
        return max(self.memory // 4, self.request)

    @property
    def worker_bytes(self) -> int:
        """Bytes that a worker may take in all."""
        return BASE_BYTES + self.memory + self.cache + self.replies + self.bodies

    def describe_memory(self, workers: int) -> str:
        """Return what the workers may take, and for what."""
        parts = {
            "the program": BASE_BYTES,
            "decoded data": self.memory,
            "the cache": self.cache,
            "replies that wait": self.replies,
            "requests that arrive": self.bodies,
        }
        listed = ", ".join(f"{nbytes >> 20} for {name}" for name, nbytes in parts.items())
        return f"{workers} x {self.worker_bytes >> 20} MiB: {listed}"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a worker process."""

    roots: tuple[str, ...] = ()
    """What may be read: folders, files, prefixes of URLs. Nothing else is."""
    tokens: tuple[str, ...] = field(default=(), repr=False)
    """Accepted bearer tokens. Without tokens and `token_file`, every client is accepted."""
    token_file: str | None = None
    """A file of further tokens, one per line; read again when it changes."""
    limits: Limits = field(default_factory=Limits)
    keep_dims: bool = False
    """Whether the Reductionist routes keep reduced dimensions and nest their counts."""
    trust_copies: bool = False
    """Whether the copies of roots `URL=FOLDER` are read without comparing them with the objects."""
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The server's own storage options by URL prefix. Without, it reads remote stores anonymously.
    """
    quotas: Mapping[str, Mapping[str, float]] = field(default_factory=dict, repr=False)
    """What tokens may use in an hour, as `insitu.server.quotas.parse_quotas` takes it."""
    grace: int = 30
    """Seconds that running requests get to finish when the server stops."""
    threads: int | None = None
    """Requests that a worker runs at a time; None: a number per core."""
    archives: tuple[str, ...] = ()
    """What `insitu explore` was started for: paths, URLs, patterns. With any, the server belongs to the
    user who started it. Sources are opened as the user's own programs open them, whatever an archive
    refers to; and websites of others are kept out.
    """
    in_notebook: bool = False
    """Whether the page stands in a frame of a notebook, perhaps behind a proxy that has a name of its own. Only with a
    token: it keeps others out, whatever name the browser knows the server by.
    """

    def to_json(self) -> str:
        """Return the settings as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """Return the settings that `to_json` wrote."""
        data = json.loads(text)
        data["limits"] = Limits(**data["limits"])
        data |= {name: tuple(data[name]) for name in ("roots", "tokens", "archives")}
        return cls(**data)

    @classmethod
    def from_environment(cls) -> Settings:
        """Return the settings that the parent process put into the environment."""
        return cls.from_json(os.environ[ENVIRONMENT_VARIABLE])
