"""Storage options of the operator: which of them hold where a client names an endpoint, and which match no root.

They are given for everything or by URL prefix (`insitu.sources.storage_options`). A bucket is named by its own URL
(`s3://bucket/`) or by its endpoint (`https://store.example/bucket/`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from insitu.sources.address import Address, bucket_address, web_address
from insitu.sources.storage_options import is_below, is_prefix, options_for

__all__ = ["bucket_endpoint", "is_same_endpoint", "options_at_endpoint", "unmatched_options"]

Options = Mapping[str, Any]
CREDENTIALS = ("anon", "key", "secret", "token", "profile")
MAPPINGS = ("client_kwargs", "config_kwargs", "headers", "token")
"""Options that are mappings themselves, as fsspec has them."""


def bucket_endpoint(address: Address, options: Options) -> str | None:
    """Return the endpoint at which a bucket is read with these options; None: that of the provider."""
    found = options_for(f"{address.place}/{address.key}", options)
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT") if address.kind == "s3" else ()
    return _endpoint_in(found) or next((os.environ[name] for name in names if os.environ.get(name)), None)


def is_same_endpoint(address: Address, endpoint: str, options: Options) -> bool:
    """Return whether a bucket, read with these options, is the bucket of that name at an endpoint."""
    own = bucket_endpoint(address, options)
    if own is not None:
        return own.rstrip("/") == endpoint.rstrip("/")
    found = web_address(f"{endpoint.rstrip('/')}/{address.bucket}/{address.key or 'any'}")
    return found is not None and (found.kind, found.bucket) == (address.kind, address.bucket)


def options_at_endpoint(options: Options, endpoint: str) -> dict[str, Any]:
    """Return options for buckets at an endpoint that a client names: those of buckets of other endpoints are left
    out, and those for web addresses below the endpoint hold for its buckets. Credentials for everything that come with
    an endpoint are for that one.
    """
    found: dict[str, Any] = {}
    general = _endpoint_in(options)
    if general is not None and general.rstrip("/") != endpoint.rstrip("/"):
        options = {name: value for name, value in options.items() if name not in CREDENTIALS}
    for name, value in options.items():
        address = _bucket_of_prefix(name) if is_prefix(name, value) else None
        if address is None or is_same_endpoint(address, endpoint, options):
            found[name] = value
    below = f"{endpoint.rstrip('/')}/"
    for name, value in options.items():
        if is_prefix(name, value) and name.startswith(below):
            found.setdefault(f"s3://{name[len(below) :]}", value)
    return found


def unmatched_options(roots: Sequence[str], options: Options) -> list[str]:
    """Return the names of options that hold for nothing under the roots.

    Parameters
    ----------
    roots
        URLs and paths, without the folders of `URL=FOLDER`.
    options
        By URL prefix, or for everything.
    """
    found = []
    for name, value in options.items():
        if not is_prefix(name, value):
            if isinstance(value, Mapping) and name not in MAPPINGS:
                found.append(name)  # meant as a prefix: "s3", "bucket"
            continue
        names = [name]
        address = _bucket_of_prefix(name)
        endpoint = None if address is None else bucket_endpoint(address, options)
        if address is not None and endpoint is not None:
            names.append(f"{endpoint.rstrip('/')}/" + name.partition("://")[2])
        if not any(is_below(one, root) or is_below(root, one.rstrip("/")) for one in names for root in roots):
            found.append(name)
    return found


def _endpoint_in(options: Options) -> str | None:
    return options.get("endpoint_url") or (options.get("client_kwargs") or {}).get("endpoint_url")


def _bucket_of_prefix(prefix: str) -> Address | None:
    """Return a bucket that a prefix holds for, any if it holds for all; None if it is not of buckets."""
    return bucket_address(prefix if prefix.partition("://")[2] else f"{prefix}any")
