"""Who asks? Bearer tokens open the server; Basic credentials are not the server's business and go on to the storage.

A request to a server with tokens that also brings credentials for S3 says its token in `X-Insitu-Token`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from insitu.errors import InsituError

__all__ = ["Credentials", "TokenError", "credentials_of"]


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
        return hashlib.sha256(f"{self.name}\0{self.secret}".encode()).hexdigest()


def credentials_of(headers: Mapping[str, str], tokens: Sequence[str]) -> Credentials:
    """The credentials of a request, once it is let in.

    Parameters
    ----------
    headers
        Of the request.
    tokens
        Those that are let in; none: everybody is.
    """
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    bearer = rest.strip() if scheme.lower() == "bearer" else headers.get("x-insitu-token", "")
    if tokens and not any(hmac.compare_digest(bearer.encode(), token.encode()) for token in tokens):
        raise TokenError("Access Denied: this server wants a token", hint="Send it as Authorization: Bearer")
    if scheme.lower() != "basic":
        return Credentials()
    try:
        name, colon, secret = base64.b64decode(rest.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise TokenError("Access Denied: the Authorization header cannot be read") from None
    if not colon:
        raise TokenError("Access Denied: the Authorization header holds no secret")
    return Credentials(name, secret)
