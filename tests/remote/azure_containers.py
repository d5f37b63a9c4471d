"""Containers of an Azure store are made by a request that obstore does not know: signed here by
hand (Shared Key).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from email.utils import formatdate
from urllib.request import Request, urlopen

from waiting import LONG

__all__ = ["make_container"]


def make_container(endpoint: str, account: str, key: str, name: str, *, public: bool) -> None:
    """Make a container, readable and listable by anybody or not."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
    if public:
        headers["x-ms-blob-public-access"] = "container"
    lines = "".join(f"{header}:{headers[header]}\n" for header in sorted(headers))
    # The emulator has the account in the path as well, hence twice.
    text = "PUT" + "\n" * 12 + lines + f"/{account}/{account}/{name}\nrestype:container"
    signature = base64.b64encode(hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()).decode()
    headers |= {"Authorization": f"SharedKey {account}:{signature}", "Content-Length": "0"}
    urlopen(Request(f"{endpoint}/{name}?restype=container", method="PUT", headers=headers), timeout=LONG).close()
