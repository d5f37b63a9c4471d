"""Redaction of credentials from URLs and texts: user names, passwords, signatures.

URLs end up in references, error messages and logs, which people send each other; a signed URL in
them would give access to others.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote, urlsplit, urlunsplit

__all__ = ["chain_links", "percent_encode", "redact_text", "redact_url", "split_userinfo"]

_PREFIXES = ("x-amz-", "x-goog-", "x-ms-", "x-obs-", "x-oss-")
_SECRETS = frozenset({
    "access_token", "accesskey", "accesskeyid", "access_key", "api-key", "api_key", "apikey", "auth",
    "auth_token", "authorization", "awsaccesskeyid", "credential", "googleaccessid", "jwt", "key-pair-id",
    "ossaccesskeyid", "passwd", "password", "policy", "sas", "secret", "security-token", "session_token",
    "sig", "signature", "subscription-key", "token",
})  # fmt: skip
# These mean nothing secret by themselves, but belong to a signature when there is one, and change
# with it.
_COMPANIONS = frozenset({
    "expires", "se", "st", "sv", "sr", "sp", "spr", "ss", "srt", "si", "sip", "sdd", "skoid", "sktid",
    "skt", "ske", "sks", "skv", "saoid", "suoid", "scid",
})  # fmt: skip
_KEY_SCHEMES = frozenset({
    "s3", "s3a", "s3n", "gs", "gcs", "az", "azure", "adl", "abfs", "abfss", "wasb", "wasbs", "file", "local", "memory",
})  # fmt: skip
"""Schemes whose URLs are a bucket and a key, without a query."""
_CHAIN = re.compile(r"::(?![0-9A-Fa-f:.%]*\](?:[:/]|$))")
_LONE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>)\]]+")
_NAMED_SECRET = re.compile(
    r"""(?ix)
    \b(authorization | x-insitu-token | x-amz-security-token | sig | signature | secret | token | password | passwd
      | cookie | secret_access_key | session_token | account_key | sas_key | sas_token | bearer_token | api_key)
    (["']?\s*[=:]\s*["']?)
    (?:(?:bearer|basic|digest|negotiate|sharedkey)\s+)?[^\s,;&"']+"""
)
"""A name and its secret, as in headers, queries and mappings; the scheme of an authorization is not
part of it.
"""


def redact_url(url: str) -> str:
    """Return a URL without user name, password and signature; a path as it is.

    Examples
    --------
    >>> redact_url("https://me:secret@host/a.nc?X-Amz-Signature=abc&version=3")
    'https://host/a.nc?version=3'
    """
    if "://" not in url or ("@" not in url and "?" not in url):
        return url
    links = chain_links(url)
    if len(links) > 1:  # each for itself
        return "::".join(redact_url(link) for link in links)
    scheme = url.partition("://")[0].lower()
    if scheme in _KEY_SCHEMES:
        # What follows the bucket is the name of an object: it may hold "?", "#" and "@", and never
        # a signature.
        before, separator, rest = url.partition("://")
        bucket, slash, key = rest.partition("/")
        # In abfs://container@account the part before the @ is a place, not a person.
        if scheme not in ("abfs", "abfss", "wasb", "wasbs"):
            bucket = bucket.rpartition("@")[2]
        return before + separator + bucket + slash + key
    try:
        parts = urlsplit(url)
    except ValueError:  # not a URL after all (an unclosed IPv6 bracket): show as little as can be
        return url.partition("?")[0].rpartition("@")[2]
    host, query = parts.netloc.rpartition("@")[2], _public_query(parts.query)
    if (host, query) == (parts.netloc, parts.query):
        return url
    return urlunsplit((parts.scheme, host, parts.path, query, parts.fragment))


def chain_links(url: str) -> list[str]:
    """Return the parts of a chain of fsspec, or an archive and its member; the colons of an IPv6
    address do not count.

    Examples
    --------
    >>> chain_links("zip://a.nc::https://host/x.zip"), chain_links("http://[::1]:8080/x.zip::a.nc")
    (['zip://a.nc', 'https://host/x.zip'], ['http://[::1]:8080/x.zip', 'a.nc'])
    """
    return _CHAIN.split(url)


def redact_text(text: str) -> str:
    """Return free text (the error message of a library, say) without the secrets of the URLs in
    it.
    """
    return _NAMED_SECRET.sub(r"\1\2***", _URL.sub(lambda found: redact_url(found.group()), text))


def split_userinfo(url: str) -> tuple[str, tuple[str, str] | None]:
    """Return a URL without its user name and password, and those two by themselves.

    Examples
    --------
    >>> split_userinfo("https://me:p%40ss@host/a.nc")
    ('https://host/a.nc', ('me', 'p@ss'))
    """
    parts = urlsplit(url)
    userinfo, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, None
    name, _, password = userinfo.partition(":")
    bare = urlunsplit((parts.scheme, host, parts.path, parts.query, parts.fragment))
    return bare, (unquote(name), unquote(password))


def percent_encode(url: str) -> str:
    """Return a URL with invalid characters (spaces, say) percent-encoded; what is encoded already
    stays.

    As browsers do (WHATWG URL Standard, path percent-encode set), and one step further: a percent
    sign that encodes nothing is encoded itself, because most servers refuse it else.

    Examples
    --------
    >>> percent_encode("https://host/shape-[5, 5, 4] 100%.nc?v=a b"), percent_encode("https://host/a%20b.nc")
    ('https://host/shape-[5,%205,%204]%20100%25.nc?v=a%20b', 'https://host/a%20b.nc')
    """
    return quote(_LONE_PERCENT.sub("%25", url), safe="%/:?#[]@!$&'()*+,;=~")


def _public_query(query: str) -> str:
    """Return a query without secrets; as it is if it has none."""
    pairs = [pair for pair in query.split("&") if pair]
    names = [unquote(pair.partition("=")[0]).lower() for pair in pairs]
    secret = [name in _SECRETS or name.startswith(_PREFIXES) for name in names]
    if not any(secret):
        return query
    secret = [hide or name in _COMPANIONS for hide, name in zip(secret, names, strict=True)]
    return "&".join(pair for pair, hide in zip(pairs, secret, strict=True) if not hide)
