"""Translation of `storage_options` into the settings of obstore and of the HTTP source.

No I/O except for key files and certificate bundles. The options are those of xarray and fsspec
(`anon`, `key`, `secret`, `token`, `endpoint_url`, `region`, `headers`). They may be given per URL
prefix, when references and data live in different places; a key is then never sent to another
place.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from insitu.errors import SourceError
from insitu.sources.http.certificates import read_bundle, trust_for
from insitu.sources.redaction import chain_links, redact_url, split_userinfo
from insitu.sources.retry_policy import RETRY_OPTIONS, RetryPolicy, retry_policy_for

__all__ = [
    "Settings",
    "azure_settings",
    "detach_secrets",
    "gcs_settings",
    "has_credentials",
    "http_settings",
    "is_below",
    "is_prefix",
    "obstore_retry_config",
    "options_for",
    "s3_settings",
]

Options: TypeAlias = Mapping[str, Any]
Settings: TypeAlias = tuple[dict[str, Any], dict[str, Any]]
"""Configuration of an obstore store, and options of its HTTP client."""

_KNOWN_OPTIONS = frozenset({
    "anon", "bearer_token", "cache", "client_kwargs", "endpoint_url", "headers", "key", "profile", "query", "region",
    "requester_pays", "secret", "token", "verify", *RETRY_OPTIONS,
})  # fmt: skip
_CREDENTIAL_OPTIONS = frozenset(
    {
        "anon",
        "key",
        "secret",
        "token",
        "profile",
        "endpoint_url",
        "requester_pays",
        "account_key",
        "sas_token",
        "sas_key",
        "credential",
        "connection_string",
        "skip_signature",
        "access_key_id",
        "service_account",
        "service_account_key",
    }
)
_IGNORED_OPTIONS = frozenset({
    "asynchronous", "block_size", "cache_regions", "cache_type", "default_block_size", "default_cache_type",
    "default_fill_cache", "listings_expiry_time", "loop", "project", "skip_instance_cache", "use_listings_cache",
    "version_aware",
})  # fmt: skip
"""Options of fsspec's that change nothing of what is read."""


def options_for(url: str, storage_options: Options | None) -> dict[str, Any]:
    """Return the options that hold for `url`: those of its longest prefix, over those given for
    everything. Credentials of a prefix are used, whatever `anon` says of everything.

    Examples
    --------
    >>> options_for("s3://a/b.nc", {"anon": True, "s3://a/": {"key": "k"}, "s3://": {"key": "x"}, "s3://c": {}})
    {'key': 'k'}
    """
    if not storage_options:
        return {}
    options = {name: value for name, value in storage_options.items() if not is_prefix(name, value)}
    fitting = [name for name, value in storage_options.items() if is_prefix(name, value) and is_below(name, url)]
    if fitting:
        longest = max(fitting, key=len)
        of_prefix = dict(storage_options[longest])
        if longest.startswith("http") and "token" in of_prefix and "key" not in of_prefix:
            # Given for this very web server, so it may be sent there.
            of_prefix["bearer_token"] = of_prefix.pop("token")
        if "anon" not in of_prefix and any(name in _CREDENTIAL_OPTIONS - {"endpoint_url"} for name in of_prefix):
            options.pop("anon", None)  # what is said of everything is not said of a place with credentials
        options |= of_prefix
    return {name: value for name, value in options.items() if value is not None and name not in _IGNORED_OPTIONS}


def detach_secrets(url: str, storage_options: Options | None = None) -> tuple[str, dict[str, Any]]:
    """Return a URL without credentials, and options that hold them.

    A signed URL is a key; what is kept of a dataset (references, messages) must not have it, and
    still the bytes have to be read. So the key moves to the options of that one URL.

    Examples
    --------
    >>> detach_secrets("https://host/a.nc?sig=abc&v=2")
    ('https://host/a.nc?v=2', {'https://host/a.nc?v=2': {'query': 'sig=abc&v=2'}})
    >>> detach_secrets("https://host/a.zip?sig=abc::b.nc")
    ('https://host/a.zip::b.nc', {'https://host/a.zip': {'query': 'sig=abc'}})
    """
    options = dict(storage_options or {})
    links = chain_links(url)
    if len(links) > 1:  # a member of an archive, or a chain of fsspec's: the web address in it has the key
        for number, link in enumerate(links):
            links[number], options = detach_secrets(link, options)
        return "::".join(links), options
    public = redact_url(url)
    if public == url or urlsplit(url).scheme not in ("http", "https"):
        return url, options
    from insitu.sources.http.login import (
        basic_auth_header,  # it loads HTTP along, 30 ms that a local scan need not spend
    )

    bare, userinfo = split_userinfo(url)
    own = options_for(url, options)
    query = urlsplit(bare).query
    if query != urlsplit(public).query:
        own["query"] = query
    if userinfo:
        headers = dict(own.get("headers", {}))
        headers["Authorization"] = basic_auth_header(*userinfo)
        own["headers"] = headers
    return public, {**options, public: own}


def http_settings(url: str, options: Options) -> tuple[str, dict[str, str]]:
    """Return the address and headers of an HTTP source.

    `key`, `secret` and `token` are those of object stores: sending them to any web server that
    references name would give them away, so here only `headers` and `bearer_token` count.
    """
    for name in options:
        if name not in _KNOWN_OPTIONS:
            raise SourceError(f"unknown storage option {name!r}", url=redact_url(url), hint=_KNOWN_HINT)
    headers = dict(_nested_options(options).get("headers") or {}) | dict(options.get("headers") or {})
    if options.get("bearer_token"):
        headers.setdefault("Authorization", f"Bearer {options['bearer_token']}")
    query = options.get("query")
    if query:
        url = urlsplit(url)._replace(query=str(query)).geturl()
    return url, {str(name): str(value) for name, value in headers.items()}


def has_credentials(options: Options) -> bool:
    """Return whether options are those of an object store, so that a web address of one is read as
    such.
    """
    return any(name in _CREDENTIAL_OPTIONS for name in {**_nested_options(options), **options})


def obstore_retry_config(policy: RetryPolicy) -> dict[str, Any]:
    """Return obstore's retry configuration."""
    return {
        "max_retries": policy.attempts - 1,
        # No attempt begins after half of the time, and none takes longer than the other half.
        "retry_timeout": timedelta(seconds=policy.deadline / 2),
        "backoff": {
            "init_backoff": timedelta(seconds=policy.first_pause),
            "max_backoff": timedelta(seconds=policy.longest_pause),
            "base": 2,
        },
    }


def s3_settings(options: Options) -> Settings:
    """Return the settings of obstore's `S3Store`.

    Examples
    --------
    >>> s3_settings({"anon": True, "endpoint_url": "http://localhost:9000"})[0]
    {'skip_signature': True, 'endpoint': 'http://localhost:9000'}
    """
    names = {
        "key": "access_key_id",
        "secret": "secret_access_key",
        "token": "session_token",
        "endpoint_url": "endpoint",
        "region": "region",
        "region_name": "region",
        "requester_pays": "request_payer",
    }
    return _settings(options, names, endpoint="endpoint", aws=True)


def gcs_settings(options: Options) -> Settings:
    """Return the settings of obstore's `GCSStore`. `token` is taken as by gcsfs: "anon", a key
    file, a key as a mapping, a bearer token.
    """
    options = dict(options)
    token = options.pop("token", None)
    if token == "anon":
        options["anon"] = True
    elif isinstance(token, Mapping):
        options["service_account_key"] = json.dumps(dict(token))
    elif isinstance(token, str) and os.path.exists(token):
        options["service_account"] = token
    elif token is not None and token not in ("google_default", "cloud", "cache"):
        options["bearer_token"] = token
    project = options.pop("requester_pays", None) or options.pop("user_project", None)
    if isinstance(project, str):  # the project that pays
        options["headers"] = {"x-goog-user-project": project, **(options.get("headers") or {})}
    for name in ("key", "secret", "region", "region_name"):
        options.pop(name, None)
    return _settings(options, {"endpoint_url": "base_url"}, endpoint="base_url")


def azure_settings(options: Options) -> Settings:
    """Return the settings of obstore's `AzureStore`; the names of adlfs are accepted too."""
    names = {"key": "account_key", "sas_token": "sas_key", "credential": "sas_key", "endpoint_url": "endpoint"}
    unknown = ("secret", "region", "region_name", "requester_pays")
    rest = {name: value for name, value in options.items() if name not in unknown}
    if rest.get("connection_string"):
        from insitu.sources.object_store.credentials import parse_connection_string

        rest = {**parse_connection_string(rest.pop("connection_string")), **rest}
    return _settings(rest, names, endpoint="endpoint")


def _settings(options: Options, names: Mapping[str, str], *, endpoint: str, aws: bool = False) -> Settings:
    merged = {**_nested_options(options), **options}
    headers = merged.pop("headers", None)
    ssl = merged.pop("use_ssl", True)
    trust, policy = trust_for(merged, aws=aws), retry_policy_for(merged)
    for name in ("client_kwargs", "query", "verify", "cache", "profile", *RETRY_OPTIONS):
        merged.pop(name, None)
    if aws or endpoint == "endpoint":
        merged.pop("bearer_token", None)
    config: dict[str, Any] = {}
    if merged.pop("anon", False):
        config["skip_signature"] = True
    for name, value in merged.items():
        # Other options go on to obstore by their own names; obstore rejects those that it does not
        # know.
        config[names.get(name, name)] = value
    client: dict[str, Any] = {
        "connect_timeout": f"{_milliseconds(policy.connect)}ms",
        "read_timeout": f"{_milliseconds(policy.read)}ms",
        # This one counts the whole answer, and a large chunk over a slow line takes long.
        "timeout": f"{_milliseconds(policy.deadline / 2)}ms",
    }
    if str(config.get(endpoint, "")).startswith("http://") or not ssl:
        client["allow_http"] = True
    if headers:
        client["default_headers"] = {str(name): str(value) for name, value in headers.items()}
    if trust is False:
        client["allow_invalid_certificates"] = True
    elif isinstance(trust, str) and os.path.isfile(trust):
        client["root_certificate"] = read_bundle(trust, str(config.get(endpoint, "")))
    return config, client


def _milliseconds(seconds: float) -> int:
    return max(round(seconds * 1000), 1)


def _nested_options(options: Options) -> dict[str, Any]:
    """Return the options within options, as fsspec allows them."""
    return dict(options.get("client_kwargs") or {})


def is_prefix(name: str, value: object) -> bool:
    """Return whether an entry of storage options gives the options of a URL prefix."""
    return isinstance(value, Mapping) and ("://" in name or name.startswith("/"))


def is_below(prefix: str, url: str) -> bool:
    """Return whether a URL lies below a prefix, by whole segments."""
    if not url.startswith(prefix):
        return False
    # "s3://data" is meant for that bucket, not for "s3://data-of-others".
    return prefix.endswith("/") or len(url) == len(prefix) or url[len(prefix)] in "/?"


_KNOWN_HINT = "Known options: " + ", ".join(sorted(_KNOWN_OPTIONS)) + "."
