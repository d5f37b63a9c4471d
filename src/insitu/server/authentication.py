"""Authentication: tokens let a client in, Basic credentials are passed on to the storage.

A client of a server with tokens sends its token as a bearer token, or in `X-Insitu-Token` beside Basic
credentials. A client that can send Basic credentials only (PyActiveStorage) is let in if its password is
a token, which is not passed on, or if `name:password` is one, which is passed on.
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

__all__ = ["Credentials", "TokenError", "Tokens", "check_tokens", "identify", "read_tokens"]

serve_log = logging.getLogger("insitu.serve")


class TokenError(InsituError, PermissionError):
    """The client sent no valid token, or a malformed Authorization header."""

    kind = "token"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Name and secret for the storage."""

    name: str | None = None
    secret: str | None = field(default=None, repr=False)

    @property
    def digest(self) -> str:
        """Key that separates the caches of different clients without naming them."""
        if self.name is None:
            return "anonymous"
        # A name contains no colon, so no other pair gives this text.
        return hashlib.sha256(f"{self.name}:{self.secret}".encode()).hexdigest()


def check_tokens(tokens: Sequence[str]) -> None:
    """Raise an error if a token that is to be accepted is no secret."""
    for token in tokens:
        if not token.strip():
            raise InsituError(
                "an accepted token is empty: everybody would be let in", hint="Give a token, or no --token"
            )
        if token != token.strip():
            raise InsituError("an accepted token begins or ends with a space: no client can send it", hint="Strip it")
        if all(part in ("None", "null", "") for part in token.split(":")):
            raise InsituError(
                f"the accepted token {token!r} is what a missing value looks like", hint="Give a secret as the token"
            )


def read_tokens(path: str) -> tuple[str, ...]:
    """Return the tokens in a file: one per line; lines that begin with # are comments."""
    with open(path, encoding="utf-8") as file:
        lines = [line.strip() for line in file]
    return tuple(line for line in lines if line and not line.startswith("#"))


class Tokens:
    """The tokens that are accepted now.

    Parameters
    ----------
    given
        Tokens that are always accepted.
    path
        A file of further tokens, read again whenever it has changed. While it cannot be read, the
        tokens that it held last stay valid. A file without tokens lets nobody in.
    """

    def __init__(self, given: Sequence[str], path: str | None) -> None:
        self._given, self._path = tuple(given), path
        self._seen: tuple[int, int, int] | None = None
        self._read: tuple[str, ...] = ()

    def current(self) -> tuple[str, ...] | None:
        """Return the accepted tokens; None if clients need none."""
        if self._path is None:
            return self._given or None
        try:
            facts = os.stat(self._path)
            seen = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
            if seen != self._seen:
                self._read, self._seen = read_tokens(self._path), seen
        except (OSError, UnicodeDecodeError):
            serve_log.warning("cannot read the token file; the tokens that it held last are still accepted")
        return (*self._given, *self._read)


def identify(headers: Mapping[str, str], tokens: Sequence[str] | None) -> tuple[str | None, Credentials]:
    """Return the token that lets a request in (None: none is needed), and its credentials for the storage.

    Parameters
    ----------
    headers
        Headers of the request.
    tokens
        The accepted tokens; None: no token is needed.
    """
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    basic = _basic_credentials(rest) if scheme.lower() == "basic" else Credentials()
    if tokens is None:
        return None, basic
    bearer = rest.strip() if scheme.lower() == "bearer" else headers.get("x-insitu-token", "")
    # The password may be the token. It is for this server then, and the storage does not get it.
    password = basic.secret
    sent = [password, bearer, None if basic.name is None else f"{basic.name}:{basic.secret}"]
    token = next((one for one in sent if one is not None and _is_accepted(one, tokens)), None)
    if token is None:
        raise TokenError(
            "Access Denied: this server needs a token",
            hint="Send it in the header Authorization as Bearer TOKEN, as the password of Basic, or in X-Insitu-Token",
        )
    return token, Credentials() if token == password else basic


def _is_accepted(sent: str, tokens: Sequence[str]) -> bool:
    return any(hmac.compare_digest(sent.encode(), token.encode()) for token in tokens)


def _basic_credentials(text: str) -> Credentials:
    try:
        name, colon, secret = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise TokenError("Access Denied: the Authorization header is malformed") from None
    if not colon or not name:
        raise TokenError(f"Access Denied: the Authorization header has no {'name' if colon else 'secret'}")
    return Credentials(name, secret)
