"""Which connections does a request go over?

Kept-alive ones that all HTTP sources of the process share: setting one up costs two round trips or three. Proxies of the
environment (`https_proxy`, `no_proxy`) are honoured. A forked child starts with none, because two processes that speak
over one connection read each other's answers.
"""

from __future__ import annotations

import threading
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from insitu.sources.redact import userinfo
from insitu.sources.threads import WIDTH, renew_after_fork

__all__ = ["manager_for"]


class _Connections:
    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Forget all connections."""
        self._lock = threading.Lock()
        self._managers: dict[str | None, urllib3.PoolManager] = {}
        self._proxies: dict[str, str | None] = {}

    def manager_for(self, url: str) -> urllib3.PoolManager:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        with self._lock:
            if origin not in self._proxies:
                self._proxies[origin] = _proxy(parts.scheme, parts.hostname or "")
            proxy = self._proxies[origin]
            if proxy not in self._managers:
                self._managers[proxy] = _manager(proxy)
            return self._managers[proxy]


_connections = _Connections()
renew_after_fork(_connections)


def manager_for(url: str) -> urllib3.PoolManager:
    """The pool of connections that serves `url`."""
    return _connections.manager_for(url)


def _proxy(scheme: str, host: str) -> str | None:
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or proxy_bypass(host):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _manager(proxy: str | None) -> urllib3.PoolManager:
    # Retries are ours, because they have to know of deadlines and of ranges.
    if proxy is None:
        return urllib3.PoolManager(num_pools=64, maxsize=2 * WIDTH, retries=False)
    address, who = userinfo(proxy)
    headers = urllib3.make_headers(proxy_basic_auth=":".join(who)) if who else None
    return urllib3.ProxyManager(address, num_pools=64, maxsize=2 * WIDTH, proxy_headers=headers, retries=False)
