"""Who asks? Bearer tokens open the server; Basic credentials are not the server's business and go on to the storage.

A request to a server with tokens that also brings credentials for S3 says its token in `X-Insitu-Token`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from insitu.errors import InsituError

__all__ = ["Credentials", "TokenError", "Tokens", "credentials_of", "read_tokens"]

log = logging.getLogger("insitu.serve")


class TokenError(InsituError, PermissionError):
    """The server does not let this client in."""

    kind = "token"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What goes on to the storage."""

    name: str | None = None
    secret: str | None = field(default=None, repr=False)

    @property
    def digest(self) -> str:
        """Tells apart what different people may see, without saying who they are."""
        if self.name is None:
            return "anonymous"
        # A name holds no colon, so that no other pair gives this text.
        return hashlib.sha256(f"{self.name}:{self.secret}".encode()).hexdigest()


def read_tokens(path: str) -> tuple[str, ...]:
    """The tokens of a file: one a line; lines that begin with # say something to people."""
    with open(path, encoding="utf-8") as file:
        lines = [line.strip() for line in file]
    return tuple(line for line in lines if line and not line.startswith("#"))


class Tokens:
    """The tokens that are let in now.

    Parameters
    ----------
    given
        Those that are always.
    path
        A file of further ones, looked at again whenever it has changed. One that cannot be read any more leaves what it said last; one without
        tokens lets nobody in.
    """

    def __init__(self, given: Sequence[str], path: str | None) -> None:
        self._given, self._path = tuple(given), path
        self._seen: tuple[int, int, int] | None = None
        self._read: tuple[str, ...] = ()

    def current(self) -> tuple[str, ...] | None:
        """The tokens; None: everybody is let in."""
        if self._path is None:
            return self._given or None
        try:
            facts = os.stat(self._path)
            seen = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
            if seen != self._seen:
                self._read, self._seen = read_tokens(self._path), seen
        except (OSError, UnicodeDecodeError):
            log.warning("the file of tokens cannot be read; those that it held last are still let in")
        return (*self._given, *self._read)


def credentials_of(headers: Mapping[str, str], tokens: Sequence[str] | None) -> Credentials:
    """The credentials of a request, once it is let in.

    Parameters
    ----------
    headers
        Of the request.
    tokens
        Those that are let in; None: everybody is.
    """
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    bearer = rest.strip() if scheme.lower() == "bearer" else headers.get("x-insitu-token", "")
    if tokens is not None and not any(hmac.compare_digest(bearer.encode(), token.encode()) for token in tokens):
        raise TokenError("Access Denied: this server wants a token", hint="Send it as Authorization: Bearer")
    if scheme.lower() != "basic":
        return Credentials()
    try:
        name, colon, secret = base64.b64decode(rest.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise TokenError("Access Denied: the Authorization header cannot be read") from None
    if not colon or not name:
        raise TokenError(f"Access Denied: the Authorization header holds no {'name' if colon else 'secret'}")
    return Credentials(name, secret)
