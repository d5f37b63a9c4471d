"""TLS contexts that follow their files: a renewed certificate is used from the next connection on.

Before each handshake the files are compared with those that were read last. If they changed, a new
context is made of them. If that fails (a certificate that does not match its key yet, a file that is
half written), the old context stays in use, and the log says so once.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from insitu.errors import InsituError

__all__ = ["CertificateFiles", "context_factory", "reloading_context"]

serve_log = logging.getLogger("insitu.serve")


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """PEM files of a server that uses TLS."""

    certificate: str
    key: str | None = None
    """None: the certificate's file holds the key, too."""
    client_authority: str | None = None
    """With it, clients need a certificate that this authority signed."""

    def context(self) -> ssl.SSLContext:
        """Return a TLS context of the files as they are now."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            made.load_cert_chain(self.certificate, self.key, password=_refuse_encrypted_key)
            if self.client_authority is not None:
                made.verify_mode = ssl.CERT_REQUIRED
                made.load_verify_locations(self.client_authority)
                # A client that resumes a session is not verified again.
                made.options |= ssl.OP_NO_TICKET
                made.num_tickets = 0
        except (OSError, ssl.SSLError) as problem:
            names = ", ".join(name for name in (self.certificate, self.key, self.client_authority) if name)
            raise InsituError(
                f"cannot use the TLS files {names}: {problem}",
                hint="Give PEM files of a certificate, of its unencrypted key and of the clients' authority",
            ) from None
        return made

    def versions(self) -> tuple[Any, ...]:
        """Return what changes when one of the files does."""
        return tuple(
            None if name is None else _file_version(name)
            for name in (self.certificate, self.key, self.client_authority)
        )


def reloading_context(files: CertificateFiles) -> ssl.SSLContext:
    """Return a TLS context that uses the files as they are at each handshake."""
    seen = files.versions()  # before the files are read: what changes meanwhile is read again
    first = current = files.context()

    def renew(connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext) -> None:
        nonlocal seen, current
        found = files.versions()
        if found != seen:
            seen = found
            try:
                current = files.context()
                serve_log.info("the TLS files have changed and were read again")
            except InsituError as problem:
                serve_log.error("the TLS files have changed, the old ones stay in use: %s", problem)
        if current is not first:
            connection.context = current

    first.sni_callback = renew  # called for every handshake, with or without a name
    return first


def context_factory(files: CertificateFiles, config: Any, default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """Return the TLS context of a worker, as Uvicorn calls for it."""
    return reloading_context(files)


def _file_version(name: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _refuse_encrypted_key() -> NoReturn:
    raise ssl.SSLError("the key is encrypted")  # without this, OpenSSL would ask at the terminal
