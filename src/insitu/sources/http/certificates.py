"""Certificate authorities that are trusted: those of the system, or a bundle that the user names.

The bundle is named in `storage_options` (`verify`, as for requests and boto) or by the usual
environment variables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from insitu.errors import SourceError

__all__ = ["Trust", "read_bundle", "trust_for"]

Trust = str | bool
"""The path of a bundle; True: what the system trusts; False: any certificate."""

_WEB = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
_AWS = ("AWS_CA_BUNDLE", *_WEB)


def trust_for(options: Mapping[str, Any], *, aws: bool = False) -> Trust:
    """Return what `storage_options` and the environment say of certificates.

    Examples
    --------
    >>> trust_for({"verify": "/etc/ssl/mine.pem"}), trust_for({"verify": False})
    ('/etc/ssl/mine.pem', False)
    """
    option = options.get("verify")
    if isinstance(option, bool):
        return option
    if option is not None:
        return str(os.fspath(option))
    for name in _AWS if aws else _WEB:
        if os.environ.get(name):
            return os.environ[name]
    return True


def read_bundle(path: str, url: str) -> str:
    """Return the certificates of a bundle, as PEM."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"the certificate bundle {path!r} cannot be read: {error}", url=url) from None
