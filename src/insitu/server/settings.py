"""What may a server do, and how much of it at once? Settings travel to its workers as JSON, through the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["VARIABLE", "Limits", "Settings"]

VARIABLE = "INSITU_SERVE"
"""The variable of the environment that holds a worker's settings."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one worker."""

    memory: int = 1 << 30
    """Bytes of decoded data under way at once; what asks for more waits."""
    queue: int = 1024
    """Requests that wait; more are told to come again (429)."""
    wait: float = 60.0
    """Seconds that a request waits for its turn."""
    seconds: float = 300.0
    """Seconds that the work of a request may take."""
    request: int = 64 << 20
    """Bytes of a request's body."""
    chunk: int = 512 << 20
    """Bytes that one chunk may decode to."""
    cache: int = 128 << 20
    """Bytes of decoded chunks that are kept."""
    fresh: float = 30.0
    """Seconds for which a kept chunk of a remote object is believed without a look at the object."""
    scans: int = 64
    """Archives whose metadata is kept."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All that a worker is told."""

    roots: tuple[str, ...] = ()
    """What may be read: folders, files, prefixes of URLs. Nothing else."""
    tokens: tuple[str, ...] = field(default=(), repr=False)
    """Bearer tokens that are let in; none, and no file of them: everybody is."""
    token_file: str | None = None
    """A file of further ones, one a line; read again when it changes."""
    limits: Limits = field(default_factory=Limits)
    keep_dims: bool = False
    """Whether the compatible routes keep reduced dimensions and nest their counts."""
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The server's own credentials: a mapping of URL prefix to options. Without, remote stores are read anonymously."""
    metrics: str | None = None
    """The folder where workers leave their counters for each other."""
    threads: int | None = None
    """Requests that a worker serves at a time; None: some for each core."""

    def to_json(self) -> str:
        """As a text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """The settings again."""
        data = json.loads(text)
        data["limits"] = Limits(**data["limits"])
        data["roots"], data["tokens"] = tuple(data["roots"]), tuple(data["tokens"])
        return cls(**data)

    @classmethod
    def from_environment(cls) -> Settings:
        """What the process that started this one says."""
        return cls.from_json(os.environ[VARIABLE])
