"""Logins for web servers: Basic authentication, `~/.netrc`, and cookie jars, one for each set of
credentials.

Some archives (NASA's Earthdata) send the reader through a login server and back, and recognise it
by a cookie: so netrc is consulted for each host on the way, and cookies are kept, in memory only.
urllib3 knows no cookies; their rules are those of the standard library's `CookieJar`.
Without them no read would end: each is sent to the login, and from there back to where it is sent to
the login. With them the first read takes three requests, as `test_netrc_and_cookies_lead_through_a_login_server`
counts them, and every further one takes one.
Under an access policy neither is used: there the process works for many clients, and each of them
has only the credentials that it sends itself.
"""

from __future__ import annotations

import hashlib
import netrc
import os
from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from http.cookiejar import CookieJar
from typing import Any, cast
from urllib.parse import urlsplit
from urllib.request import Request

import urllib3

from insitu.forking import fork_safe_lock
from insitu.lru import LruCache

__all__ = ["Cookies", "basic_auth_header", "cookies_for", "credential_scope", "netrc_login"]

MOST_JARS = 64
"""Sets of credentials whose cookies are kept; the most recently used."""


def basic_auth_header(name: str, password: str) -> str:
    """Return the `Authorization` header of a name and password.

    Examples
    --------
    >>> basic_auth_header("me", "secret")
    'Basic bWU6c2VjcmV0'
    """
    return "Basic " + b64encode(f"{name}:{password}".encode()).decode()


def netrc_login(url: str) -> str | None:
    """Return the `Authorization` header for a host in the netrc file; None if there is none.

    Only hosts by name: the `default` line would give a password to every server that a reference
    names.
    """
    host = urlsplit(url).hostname
    path = os.environ.get("NETRC") or os.path.join(os.path.expanduser("~"), ".netrc")
    try:
        changed = os.stat(path).st_mtime_ns
    except OSError:
        return None
    found = _netrc_hosts(path, changed).get(host or "")
    return basic_auth_header(found[0], found[2] or "") if found else None


@lru_cache(4)
def _netrc_hosts(path: str, changed: int) -> dict[str, Any]:
    try:
        hosts: dict[str, Any] = dict(netrc.netrc(path).hosts)
    except (OSError, netrc.NetrcParseError):
        # Other people's file, and one that we may not need: a server that wants a login will say
        # so.
        return {}
    hosts.pop("default", None)
    return hosts


class Cookies:
    """The cookies of one set of credentials."""

    def __init__(self) -> None:
        self._jar = CookieJar()
        self._has_cookies = False
        self._lock = fork_safe_lock()

    def header(self, url: str) -> str | None:
        """Return the `Cookie` header for `url`."""
        if not self._has_cookies:
            return None
        request = Request(url)
        with self._lock:
            self._jar.add_cookie_header(request)
        return request.get_header("Cookie")

    def keep(self, url: str, response: urllib3.BaseHTTPResponse) -> None:
        """Keep the cookies that a response sets."""
        if "Set-Cookie" not in response.headers:
            return
        with self._lock:
            self._jar.extract_cookies(cast("Any", _CookieResponse(response)), Request(url))
            self._has_cookies = True


_jars: LruCache[str, Cookies] = LruCache(MOST_JARS)
"""The cookie jars of this process, by scope of credentials."""


def cookies_for(scope: str) -> Cookies:
    """Return the cookie jar of one set of credentials (see `credential_scope`): a cookie often
    stands for a login.
    """
    return _jars.get_or_load(scope, Cookies)


def credential_scope(credentials: Mapping[str, Any]) -> str:
    """Return a digest that tells sets of credentials apart; empty where there are none.

    What is kept for one scope (cookies, connections) is never used for another.

    Examples
    --------
    >>> credential_scope({}), len(credential_scope({"Authorization": "Basic bWU6c2VjcmV0"}))
    ('', 64)
    """
    if not credentials:
        return ""
    text = repr(sorted((str(name).lower(), str(value)) for name, value in credentials.items()))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


class _CookieResponse:
    """A response in the form that the cookie jar expects."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._headers = response.headers

    def info(self) -> _CookieResponse:
        return self

    def get_all(self, name: str, default: Any = None) -> Any:
        return self._headers.getlist(name) or default
