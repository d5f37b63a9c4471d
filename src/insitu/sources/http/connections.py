"""Pools of kept-alive HTTP connections, shared by all sources of the process that have the same
credentials.

Setting up a connection costs two or three round trips, so connections are kept. Some servers
authenticate a connection, not a request, so requests with different credentials never share one.
Proxies of the environment (`https_proxy`, `no_proxy`, SOCKS ones too) are used. A forked child
starts with no connections, because two processes on one connection read each other's responses.
"""

from __future__ import annotations

import os
import threading
from http.client import HTTPResponse, RemoteDisconnected
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from insitu.errors import SourceError, UnsupportedError
from insitu.forking import renew_after_fork
from insitu.lru import LruCache
from insitu.sources.http.certificates import Trust
from insitu.sources.http.deadline import watch_connection
from insitu.sources.redaction import redact_url, split_userinfo
from insitu.sources.threads import MAX_REQUESTS

__all__ = ["find_connection_pool"]

MOST_MANAGERS = 64
"""Combinations of proxy, certificates and credentials whose connections are kept; the most recently
used.
"""


class _HeaderReader:
    """Reads the headers of a response line by line; remembers the last line."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.last = b""

    def readline(self, limit: int = -1) -> bytes:
        self.last = self._file.readline(limit)
        return self.last

    def close(self) -> None:
        self._file.close()


class _StrictResponse(HTTPResponse):
    """A response whose headers must be complete.

    The standard library takes headers that break off for complete ones, and a response that has
    lost the line with its length for one of no bytes.
    """

    def begin(self) -> None:
        head = self.fp
        reader: Any = _HeaderReader(head)
        self.fp = reader
        try:
            super().begin()
        finally:
            if self.fp is reader:
                self.fp = head
        if reader.last not in (b"\r\n", b"\n"):
            self.close()
            raise RemoteDisconnected("the connection closed within the headers of the response")


class _WatchedConnection(HTTPConnection):
    """A connection that the deadline of its request can cut."""

    response_class = _StrictResponse

    def getresponse(self) -> Any:
        watch_connection(self.sock)
        return super().getresponse()


class _WatchedTlsConnection(HTTPSConnection):
    """An encrypted connection that the deadline of its request can cut."""

    response_class = _StrictResponse

    def getresponse(self) -> Any:
        watch_connection(self.sock)
        return super().getresponse()


class _Pool(HTTPConnectionPool):
    ConnectionCls = _WatchedConnection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _WatchedTlsConnection


_MOST_ORIGINS = 1024
"""Origins whose proxies are remembered."""


class _ConnectionPools:
    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Drop all connections."""
        self._lock = threading.Lock()
        self._managers: LruCache[tuple[str | None, Trust, str], urllib3.PoolManager] = LruCache(MOST_MANAGERS)
        self._proxies: LruCache[str, str | None] = LruCache(_MOST_ORIGINS)

    def route(self, url: str, trust: Trust, scope: str) -> tuple[HTTPConnectionPool, str]:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        proxy = self._proxies.get_or_load(origin, lambda: _proxy_for(parts.scheme, parts.hostname or ""))
        key = (proxy, trust, scope)
        evicted: list[urllib3.PoolManager] = []
        with self._lock:  # only one manager for a key
            manager = self._managers.get(key)
            if manager is None:
                manager = _make_manager(proxy, trust, url)
                evicted = self._managers.put(key, manager)
        for old in evicted:
            old.clear()  # users of its pools get an error that they are closed, and ask again
        forwarded = proxy is not None and parts.scheme == "http" and not proxy.startswith("socks")
        path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        # A proxy needs the whole address.
        return manager.connection_from_url(url), url if forwarded else path


_pools = _ConnectionPools()
renew_after_fork(_pools)


def find_connection_pool(url: str, trust: Trust = True, scope: str = "") -> tuple[HTTPConnectionPool, str]:
    """Return the pool of connections that serves `url`, and the target to request over one of them.

    Parameters
    ----------
    url
        Where a request goes.
    trust
        Which certificates are trusted.
    scope
        Digest of the credentials (see `login.credential_scope`): each has its own connections.
    """
    return _pools.route(url, trust, scope)


def _proxy_for(scheme: str, host: str) -> str | None:
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or proxy_bypass(host):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _make_manager(proxy: str | None, trust: Trust, url: str) -> urllib3.PoolManager:
    # Retries are ours, because they have to know of deadlines and of ranges.
    settings: dict[str, Any] = {"num_pools": 64, "maxsize": 2 * MAX_REQUESTS, "retries": False}
    if trust is False:
        # The user has asked for it explicitly and needs no warning at every request.
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        settings |= {"cert_reqs": "CERT_NONE", "assert_hostname": False}
    elif isinstance(trust, str):
        if not os.path.exists(trust):
            raise SourceError(f"there is no certificate bundle {trust!r}", url=redact_url(url))
        settings["ca_cert_dir" if os.path.isdir(trust) else "ca_certs"] = trust
    if proxy is None:
        manager = urllib3.PoolManager(**settings)
    elif proxy.startswith("socks"):
        try:
            from urllib3.contrib.socks import SOCKSProxyManager
        except ImportError:
            raise UnsupportedError(
                "the environment names a SOCKS proxy", url=redact_url(url), hint="Install PySocks to use it."
            ) from None
        return SOCKSProxyManager(proxy, **settings)
    else:
        address, userinfo = split_userinfo(proxy)
        headers = urllib3.make_headers(proxy_basic_auth=":".join(userinfo)) if userinfo else None
        manager = urllib3.ProxyManager(address, proxy_headers=headers, **settings)
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return manager
