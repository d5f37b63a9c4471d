"""HTTP session for one web address: redirects, credentials, cookies, deadline.

Redirects are followed and remembered (each costs a round trip, and archives that hand out signed
addresses redirect every time). Credentials go only to the host they were given for. Logins come
from the user, or from netrc and cookies (not under an access policy). Connections and cookies are
shared only by requests with the same credentials. Nothing takes longer than its deadline.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urljoin, urlsplit

import urllib3
from urllib3 import exceptions as failures
from urllib3.connectionpool import HTTPConnectionPool

from insitu.errors import SourceError, TimedOutError
from insitu.forking import renew_after_fork
from insitu.sources.access_policy import check_web_url, has_access_policy, hint_for_user
from insitu.sources.http.certificates import Trust
from insitu.sources.http.connections import find_connection_pool
from insitu.sources.http.deadline import RequestDeadline
from insitu.sources.http.login import Cookies, basic_auth_header, cookies_for, credential_scope, netrc_login
from insitu.sources.redaction import percent_encode, redact_text, redact_url, split_userinfo
from insitu.sources.retry_policy import RetryPolicy, TransientError

__all__ = ["HttpSession", "Response", "to_source_error"]

Response = urllib3.BaseHTTPResponse

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 10
_HEADERS_FOR_ANY_HOST = frozenset({"accept", "accept-language", "referer", "user-agent"})
"""Headers of the user that may follow a redirect to another host; any other could be a key."""
_OWN_HEADERS = frozenset({"range", "accept-encoding", "if-match", "if-unmodified-since", "if-range"})
"""Headers that only we set: which range of which version, and without compression."""


class HttpSession:
    """A session for one web address.

    Parameters
    ----------
    url
        `http://` or `https://`, with a name and password in it or not.
    headers
        Sent with every request; not to another host that the server redirects to.
    policy
        Timeouts.
    trust
        Which certificates are trusted.
    name
        The name of an object of a bucket, which the access policy has allowed by that name. Then
        netrc and cookies are not used, and the access policy checks only redirects.
    scope
        Digest of the credentials (see `credential_scope`), where the headers do not tell them:
        a signature differs from request to request.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        policy: RetryPolicy,
        trust: Trust,
        *,
        name: str | None = None,
        scope: str | None = None,
    ) -> None:
        try:
            address, userinfo = split_userinfo(url)
            address = percent_encode(address.partition("#")[0])
        except ValueError:  # a bracket that is not closed; half of a UTF-16 character
            raise SourceError("this is not a valid URL", url=redact_url(url)) from None
        self.url = redact_url(name or url)
        """For messages, without credentials."""
        self._named = name is not None
        self.address = address
        """For requests."""
        self._headers = {name: value for name, value in headers.items() if name.lower() not in _OWN_HEADERS}
        if userinfo and not any(name.lower() == "authorization" for name in self._headers):
            self._headers["Authorization"] = basic_auth_header(*userinfo)
        if scope is None:
            scope = credential_scope({k: v for k, v in self._headers.items() if k.lower() not in _HEADERS_FOR_ANY_HOST})
        self._scope = scope
        self._policy, self._trust = policy, trust
        self._moved: str | None = None
        self.redirected_to: str | None = None
        """Where the last request ended, if the server redirected it to another path."""
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Drop the connections of the parent in a forked child."""
        self._routes: dict[str, tuple[HTTPConnectionPool, str]] = {}

    def request(self, method: str, range_headers: Mapping[str, str], deadline: RequestDeadline) -> Response:
        """Make one request and follow redirects; the body of the response is still to be read."""
        target = self._moved or self.address
        for _ in range(_MOST_REDIRECTS):
            if target != self.address or not self._named:
                check_web_url(target, self.url)
            jar = self._jar()
            response = self._request_once(method, target, {**self._headers_for(target, jar), **range_headers}, deadline)
            if jar is not None:
                jar.keep(target, response)
            location = response.headers.get("Location")
            if response.status in _REDIRECTS and location:
                _discard(response)
                try:
                    target = percent_encode(urljoin(target, location).partition("#")[0])
                except ValueError:
                    raise SourceError("the server redirects to an invalid URL", url=self.url) from None
                if urlsplit(target).scheme not in ("http", "https"):
                    check_web_url(target, self.url)  # under an access policy nobody learns where it leads
                    raise SourceError(
                        "the server redirects to something that is no web address", url=self.url, to=redact_url(target)
                    )
                continue
            if response.status in (400, 401, 403, 404, 410) and self._moved:
                # The remembered redirect may have expired (signed addresses do): request a new one.
                self._moved, target = None, self.address
                _discard(response)
                continue
            if response.status < 400 and target != self.address:
                self._moved = target
            self.redirected_to = redact_url(target) if _path_of(target) != _path_of(self.address) else None
            return response
        raise SourceError(f"the server redirects more than {_MOST_REDIRECTS} times", url=self.url)

    def _request_once(
        self, method: str, target: str, headers: Mapping[str, str], deadline: RequestDeadline
    ) -> Response:
        left, policy = deadline.seconds_left, self._policy
        timeout = urllib3.Timeout(connect=min(policy.connect, left), read=min(policy.read, left))
        try:
            known = self._routes.get(target)
            if known is None:
                # Kept for the last few addresses: looking the pool up costs as much as the request
                # itself.
                known = find_connection_pool(target, self._trust, self._scope)
                if len(self._routes) >= _MOST_REDIRECTS:
                    self._routes.clear()
                self._routes[target] = known
            pool, path = known
            response = pool.urlopen(
                method, path, headers=headers, timeout=timeout, assert_same_host=False,
                redirect=False, retries=False, preload_content=False, decode_content=False,
            )  # fmt: skip
            deadline.on_head_received()
            return response
        except (failures.LocationValueError, UnicodeError) as error:
            raise SourceError(f"this is not a valid URL: {redact_text(str(error))}", url=self.url) from None
        except failures.SSLError as error:
            # A certificate that does not hold will not hold the next time either.
            raise to_source_error(error, self.url, deadline) from None
        except failures.HTTPError as error:
            self._moved = None
            self._routes.pop(target, None)  # a pool that was evicted is closed
            raise TransientError(to_source_error(error, self.url, deadline)) from None

    def _jar(self) -> Cookies | None:
        """Return the cookies of these credentials; None for a bucket, and under an access policy: a
        cookie there would be a login that others use.
        """
        return None if self._named or has_access_policy() else cookies_for(self._scope)

    def _headers_for(self, target: str, jar: Cookies | None) -> dict[str, str]:
        same = target == self.address or _origin(target) == _origin(self.address)
        allowed = {
            name: value for name, value in self._headers.items() if same or name.lower() in _HEADERS_FOR_ANY_HOST
        }
        headers = {"User-Agent": "insitu", **allowed, "Accept-Encoding": "identity"}
        if jar is None:
            return headers  # neither netrc, which is the operator's, nor cookies
        if not any(name.lower() == "authorization" for name in headers):
            # A signed address must not get a second authorization: S3 refuses it.
            login = None if redact_url(target) != target else netrc_login(target)
            if login is not None:
                headers["Authorization"] = login
        cookie = jar.header(target)
        if cookie is not None:
            headers.setdefault("Cookie", cookie)
        return headers


_MESSAGE_PREFIX = re.compile(r"^[\w.]+\(host=[^)]*\): ")
"""The beginning of the library's messages: the name of a class."""


def to_source_error(error: Exception, url: str, deadline: RequestDeadline) -> SourceError:
    """Return an error of the HTTP library as one of ours."""
    is_late = deadline.is_over
    reason = redact_text(_MESSAGE_PREFIX.sub("", str(error))) or type(error).__name__
    # urllib3 derives "no connection could be made" from its class of timeouts, for the sake of old
    # callers.
    refused = isinstance(error, failures.NewConnectionError) and not isinstance(error.__cause__, TimeoutError)
    if is_late or (isinstance(error, failures.TimeoutError) and not refused):
        return TimedOutError(
            "the server did not answer in time" if is_late else f"the request failed: {reason}", url=url
        )
    hint = None
    if isinstance(error, failures.SSLError):
        hint = hint_for_user('Name a certificate bundle by storage_options={"verify": path} or SSL_CERT_FILE.')
    return SourceError(f"the request failed: {reason}", url=url, hint=hint)


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _discard(response: Response) -> None:
    """Discard a response: a short body is read, which keeps its connection; a long one is cut
    off.
    """
    size = response.headers.get("Content-Length", "")
    if size.isdecimal() and int(size) <= 16 << 10:
        try:
            response.drain_conn()
        except failures.HTTPError:
            response.close()
    else:
        response.close()


def _path_of(url: str) -> str:
    """Return path and query of a URL: the same on another host, or by HTTPS, is the same object."""
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}"
