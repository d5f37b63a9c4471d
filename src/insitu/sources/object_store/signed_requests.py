"""Signed web requests for objects and listings of buckets, with every redirect checked.

obstore follows whatever redirect a store answers with. Under an access policy an object is
therefore read by its web address, signed where there are keys: the policy allows the bucket by its
name, and every redirect from there on is checked. obstore signs the addresses of objects; those of
listings it does not, so Signature Version 4 and Azure's shared key are written out here.

`test_no_redirect_is_followed` sends eight kinds of requests elsewhere, by five statuses and to three places
each: the listings among them have no other way to be checked.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from insitu.errors import AccessError
from insitu.model import Source
from insitu.sources.address import Address
from insitu.sources.redaction import redact_url

if TYPE_CHECKING:
    from insitu.sources.http.http_source import HttpSource
    from insitu.sources.object_store.bucket import Bucket

__all__ = ["SIGNATURE_LIFETIME", "bucket_web_url", "is_anonymous", "open_signed_source", "sign_listing"]

SIGNATURE_LIFETIME = timedelta(hours=2)
"""How long a signed address is valid; sources that stay open longer must be opened anew."""
_AZURE = {"x-ms-version": "2021-12-02"}


def open_signed_source(
    bucket: Bucket, address: Address, url: str, options: Mapping[str, Any], expected: Source | None
) -> HttpSource:
    """Return a source that reads an object by its web address.

    Parameters
    ----------
    bucket, address
        The bucket and the object.
    url
        Name of the object, for messages.
    options
        The options that hold for it.
    expected
        What was recorded of the object.
    """
    from insitu.sources.http.certificates import trust_for
    from insitu.sources.http.http_source import HttpSource
    from insitu.sources.retry_policy import retry_policy_for

    bucket.settle_region()
    headers = {str(name): str(value) for name, value in (options.get("headers") or {}).items()}
    target = f"{bucket_web_url(bucket, address)}/{quote(address.key, safe='/~')}"
    if address.kind == "azure":
        headers |= _AZURE
    if not is_anonymous(bucket, options):
        target, more = _authorize(bucket, address, target, url)
        headers |= more
    return HttpSource(
        target,
        headers=headers,
        policy=retry_policy_for(options),
        trust=trust_for(options, aws=address.kind == "s3"),
        expected=expected,
        name=url,
        scope=bucket.scope,
    )


def is_anonymous(bucket: Bucket, options: Mapping[str, Any]) -> bool:
    """Return whether a bucket is read without keys."""
    return bool(options.get("anon") or bucket.settings.anonymous or bucket.settings.config.get("skip_signature"))


def bucket_web_url(bucket: Bucket, address: Address) -> str:
    """Return the web address of a bucket, without a slash at its end."""
    name, config = quote(address.bucket), bucket.settings.config
    if address.kind == "s3":
        if config.get("virtual_hosted_style_request") in (True, "true"):
            return (bucket.settings.endpoint or f"https://{name}.s3.{bucket.region}.amazonaws.com").rstrip("/")
        return f"{(bucket.settings.endpoint or f'https://s3.{bucket.region}.amazonaws.com').rstrip('/')}/{name}"
    if address.kind == "gcs":
        place = bucket.settings.endpoint or os.environ.get("GOOGLE_BASE_URL") or "https://storage.googleapis.com"
        return f"{place.rstrip('/')}/{name}"
    azure_endpoint = (
        bucket.settings.endpoint or os.environ.get("AZURE_STORAGE_ENDPOINT") or os.environ.get("AZURE_ENDPOINT")
    )
    return f"{(azure_endpoint or f'https://{_account(bucket)}.blob.core.windows.net').rstrip('/')}/{name}"


def sign_listing(bucket: Bucket, address: Address, query: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the address and headers of a listing request, signed here: obstore signs no listings.

    Parameters
    ----------
    bucket, address
        The bucket.
    query
        The parameters of the request.
    """
    target = bucket_web_url(bucket, address)
    text = _canonical_query(query)
    bearer = _bearer(bucket, address)
    if bearer is not None:
        return f"{target}?{text}", bearer
    if address.kind == "s3" and (keys := _keys(bucket)) is not None:
        return f"{target}?{text}", _signature_4(target, text, keys, bucket.region)
    if address.kind == "azure":
        if sas := _sas(bucket):
            return f"{target}?{text}&{sas}", dict(_AZURE)
        if key := bucket.settings.config.get("account_key") or bucket.secret("AZURE_STORAGE_ACCOUNT_KEY"):
            return f"{target}?{text}", _shared_key(target, query, _account(bucket), str(key))
    raise AccessError(
        "this bucket cannot be listed by a server: its credentials cannot sign requests",
        url=address.place,
        hint="Use keys, a SAS token or a bearer token; or consolidate the metadata, so that no listing is needed.",
    )


def _authorize(bucket: Bucket, address: Address, target: str, url: str) -> tuple[str, dict[str, str]]:
    """Return the address and headers that authorise access to an object."""
    bearer = _bearer(bucket, address)
    if bearer is not None:
        return target, bearer
    if address.kind == "azure" and (sas := _sas(bucket)):
        return f"{target}?{sas}", {}
    import obstore
    from obstore.exceptions import BaseError

    store: Any = bucket.retrying_store
    try:
        return obstore.sign(store, "GET", address.key, SIGNATURE_LIFETIME), {}
    except (BaseError, OSError, ValueError):
        # Not chained: the text may hold a signed address.
        raise AccessError(
            "this bucket cannot be read by a server: its credentials cannot sign requests",
            url=redact_url(url),
            hint="Use keys, a SAS token or a bearer token.",
        ) from None


def _bearer(bucket: Bucket, address: Address) -> dict[str, str] | None:
    names = {"gcs": "GOOGLE_BEARER_TOKEN", "azure": "AZURE_STORAGE_TOKEN"}
    if address.kind not in names:
        return None
    token = bucket.settings.config.get("bearer_token") or bucket.secret(names[address.kind])
    if not token:
        return None
    return {"Authorization": f"Bearer {token}", **(_AZURE if address.kind == "azure" else {})}


def _sas(bucket: Bucket) -> str:
    found = bucket.settings.config.get("sas_key") or bucket.secret("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
    return str(found).lstrip("?")


def _account(bucket: Bucket) -> str:
    return str(bucket.settings.config.get("account_name") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME") or "")


def _keys(bucket: Bucket) -> tuple[str, str, str | None] | None:
    config = bucket.settings.config
    if config.get("access_key_id"):
        return str(config["access_key_id"]), str(config.get("secret_access_key", "")), config.get("session_token")
    if bucket.settings.provider is not None:
        found = bucket.settings.provider()
        return found["access_key_id"], found["secret_access_key"], found.get("token")
    if key := bucket.secret("AWS_ACCESS_KEY_ID"):
        return key, bucket.secret("AWS_SECRET_ACCESS_KEY"), bucket.secret("AWS_SESSION_TOKEN") or None
    return None


def _canonical_query(query: Mapping[str, str]) -> str:
    """Return the query in canonical order, as it is signed."""
    return "&".join(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in sorted(query.items()))


def _signature_4(target: str, query: str, keys: tuple[str, str, str | None], region: str) -> dict[str, str]:
    """Return the headers of Amazon's Signature Version 4 ("Signing and authenticating REST
    requests", API reference of S3).
    """
    key, secret, token = keys
    parts, now = urlsplit(target), datetime.fromtimestamp(time.time(), UTC)
    day, moment = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
    host = parts.netloc.removesuffix(":443" if parts.scheme == "https" else ":80")
    empty = hashlib.sha256(b"").hexdigest()
    headers = {"host": host, "x-amz-content-sha256": empty, "x-amz-date": moment}
    if token:
        headers["x-amz-security-token"] = token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = f"GET\n{parts.path or '/'}\n{query}\n{lines}\n{names}\n{empty}"
    scope = f"{day}/{region}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    signing = f"AWS4{secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        signing = hmac.digest(signing, part.encode(), "sha256")
    signature = hmac.new(signing, text.encode(), hashlib.sha256).hexdigest()
    del headers["host"]
    authorization = f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "Authorization": authorization}


def _shared_key(target: str, query: Mapping[str, str], account: str, key: str) -> dict[str, str]:
    """Return the headers of Azure's Shared Key ("Authorize with Shared Key", REST reference of
    Azure Storage).
    """
    headers = {"x-ms-date": formatdate(usegmt=True), **_AZURE}
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    parameters = "".join(f"\n{name.lower()}:{value}" for name, value in sorted(query.items()))
    text = "GET" + "\n" * 12 + lines + f"/{account}{urlsplit(target).path}" + parameters
    signature = base64.b64encode(hmac.digest(base64.b64decode(key), text.encode(), "sha256")).decode()
    return {**headers, "Authorization": f"SharedKey {account}:{signature}"}
