"""Buckets of S3, Google Cloud Storage and Azure: stores of obstore with credentials and region.

There is one store per bucket and options, shared by the bucket's objects, because it holds the
connections. If the bucket turns out to lie in another region, the store is made anew for the right
one; S3 says which.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from obstore import store as stores
from obstore.exceptions import BaseError

from insitu.errors import SourceError
from insitu.forking import fork_safe_lock
from insitu.sources.access_policy import can_use_environment, check_bucket
from insitu.sources.address import Address, bucket_address, web_address
from insitu.sources.http.certificates import Trust, trust_for
from insitu.sources.http.deadline import RequestDeadline
from insitu.sources.http.login import credential_scope
from insitu.sources.http.session import HttpSession
from insitu.sources.object_store.credentials import find_credentials
from insitu.sources.object_store.store_errors import as_source_error, is_throttled, is_transient
from insitu.sources.redaction import redact_text, redact_url
from insitu.sources.retry_policy import RetryPolicy, TransientError, retry, retry_policy_for
from insitu.sources.storage_options import azure_settings, gcs_settings, obstore_retry_config, options_for, s3_settings
from insitu.sources.throttle import throttle_for

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["LAST_ATTEMPT_START", "Bucket", "BucketSettings", "bucket_for", "open_bucket"]

Answer = TypeVar("Answer")
log = logging.getLogger("insitu.sources")

LAST_ATTEMPT_START = 0.5
"""The share of a request's time within which its last attempt begins: obstore's own timeout is the
other half.
"""
_WRONG_REGION = re.compile(
    r"redirect|AuthorizationHeaderMalformed|IllegalLocationConstraint|PermanentRedirect", re.IGNORECASE
)
_RIGHT_REGION = re.compile(r"expecting '([a-z0-9-]+)'|<Region>([a-z0-9-]+)</Region>")


@dataclass(frozen=True, slots=True, repr=False)
class BucketSettings:
    """How a bucket is reached: credentials, region, endpoint, retry policy."""

    anonymous: bool = False
    """Whether it is read without credentials because none were found."""
    moves: bool = False
    """Whether the bucket may lie in another region than was thought (S3)."""
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    """Timeouts and retries."""
    region: str | None = None
    """The region that was given or found."""
    endpoint: str | None = None
    """Where to request objects and the region; None: the provider's own."""
    trust: Trust = True
    """Which certificates are trusted."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """What the store was made with, keys included."""
    provider: Callable[[], Any] | None = None
    """Provider of keys."""
    environment: bool = True
    """Whether credentials of the environment may be used, too."""


class Bucket:
    """A bucket with its store, credentials and retry policy.

    Parameters
    ----------
    store
        A store of obstore for reading. It makes one attempt; retries are ours.
    place
        The bucket as a URL.
    settings
        How it is reached.
    remake
        Makes the store for a region; with True, one that retries by itself.
    """

    def __init__(
        self,
        store: ObjectStore,
        place: str,
        settings: BucketSettings | None = None,
        remake: Callable[[str | None, bool], ObjectStore] | None = None,
    ) -> None:
        self.settings = settings or BucketSettings()
        self._settled = False
        self.store = store
        self.place = place
        self._retrying: ObjectStore | None = None if remake is not None else store
        self._remake, self._region = remake, self.settings.region
        self._warned = not self.settings.anonymous
        self._lock = fork_safe_lock()

    @property
    def region(self) -> str:
        """The region that requests are signed for."""
        found = self._region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        return found or "us-east-1"

    @property
    def scope(self) -> str:
        """Digest of the credentials of this bucket; empty without any."""
        return (
            ""
            if self.settings.anonymous or self.settings.config.get("skip_signature")
            else credential_scope(self.settings.config)
        )

    @property
    def retrying_store(self) -> ObjectStore:
        """A store that retries by itself, for writing."""
        with self._lock:
            if self._retrying is None:
                assert self._remake is not None
                self._retrying = self._remake(self._region, True)
            return self._retrying

    def secret(self, *names: str) -> str:
        """Return the first of these environment variables that is set; none where the environment
        may not be used.
        """
        return (
            next((os.environ[name] for name in names if os.environ.get(name)), "") if self.settings.environment else ""
        )

    def settle_region(self) -> None:
        """Find the region of a bucket of Amazon before anything is signed for it: a request to a
        signed address is not told the right region.
        """
        with self._lock:
            if self._settled or self._remake is None or not self.settings.moves or self.settings.endpoint is not None:
                return
            found = self._find_region()
            if found is not None and found != self.region:
                self._make_store_in(found)
            self._settled = True

    def call(self, request: Callable[[ObjectStore], Answer]) -> Answer:
        """Call `request` with the store; if the bucket lies in another region, again with the
        store there.
        """
        if not self._warned:
            self._warned = True
            log.warning("no credentials found for %s: reading it anonymously", self.place)
        store = self.store
        try:
            return request(store)
        except (BaseError, OSError) as error:
            if (
                not self.settings.moves
                or not _WRONG_REGION.search(str(error))
                or not self._switch_region(store, str(error))
            ):
                raise
        return request(self.store)

    def call_with_retries(self, request: Callable[[ObjectStore], Answer], url: str) -> Answer:
        """Ask the store under the retry policy and the throttle; errors of obstore pass as they
        are.

        For questions about the bucket itself, such as listings. Objects have a loop of their own.
        """
        throttle = throttle_for(self.place)

        def attempt(until: float) -> Answer:
            throttle.enter(until)
            try:
                return self.call(request)
            except (BaseError, OSError) as error:
                if is_throttled(error):
                    throttle.back_off()
                if not is_transient(error):
                    raise
                raise TransientError(as_source_error(error, url, anonymous=self.settings.anonymous)) from None
            finally:
                throttle.leave()

        return retry(attempt, self.settings.policy, url=url, host=self.place, last_start=LAST_ATTEMPT_START)

    def _switch_region(self, store: ObjectStore, message: str) -> bool:
        """Make the store for the region where the bucket is; return False if that is unknown, or is
        where we asked already.
        """
        with self._lock:
            if self.store is not store:
                return True  # another thread has found it
            found = _RIGHT_REGION.search(message)
            region = (found[1] or found[2]) if found else self._find_region()
            if region is None or region == self._region or self._remake is None:
                return False
            self._make_store_in(region)
            return True

    def _make_store_in(self, region: str) -> None:
        assert self._remake is not None
        self.store, self._region, self._retrying = self._remake(region, False), region, None

    def _find_region(self) -> str | None:
        """Return the region of the bucket. S3 tells it to anybody, whatever else it refuses."""
        name = self.place.partition("://")[2]
        url = f"{(self.settings.endpoint or 'https://s3.amazonaws.com').rstrip('/')}/{name}"
        policy = RetryPolicy(connect=5, read=5, deadline=10)
        try:
            with RequestDeadline(time.monotonic() + policy.deadline) as deadline:
                answer = HttpSession(url, {}, policy, self.settings.trust, name=self.place).request(
                    "HEAD", {}, deadline
                )
                answer.close()
        except (SourceError, TransientError):
            return None
        region: str | None = answer.headers.get("x-amz-bucket-region")
        return region


def bucket_for(address: Address, url: str, options: Mapping[str, Any]) -> Bucket:
    """Return the bucket of an address.

    Parameters
    ----------
    address
        The bucket, and the object or prefix that is wanted.
    url
        The URL as the user wrote it, for messages.
    options
        The options that hold for that URL.
    """
    options = dict(options)
    if address.account is not None:
        options.setdefault("account_name", address.account)
    make_settings = {"s3": s3_settings, "gcs": gcs_settings, "azure": azure_settings}[address.kind]
    config, client = make_settings(options)
    profile = options.get("profile")
    trust, policy = trust_for(options, aws=address.kind == "s3"), retry_policy_for(options)
    if address.region is not None:
        config.setdefault("region", address.region)
    check_bucket(address.kind, _endpoint(address.kind, config), address.bucket, address.key)
    try:
        return _make_bucket(
            address.kind, address.bucket, _freeze(config), _freeze(client), policy, profile, trust,
            _environment_variables(address.kind), can_use_environment(options),
        )  # fmt: skip
    except SourceError:
        raise
    except Exception as error:
        # obstore has no one class for what it makes of bad configuration (ValueError, TypeError,
        # its own errors).
        reason = redact_text(str(error).partition("\n\nDebug source")[0])
        raise SourceError(f"the object store rejects the storage_options: {reason}", url=redact_url(url)) from None


def open_bucket(url: str, storage_options: Mapping[str, Any] | None = None) -> tuple[Bucket, str] | None:
    """Return the bucket and the key (or prefix) that a URL names; None if it names no object store.

    Examples
    --------
    >>> open_bucket("s3://bucket/a/b", {"anon": True})[1], open_bucket("/tmp/x")
    ('a/b', None)
    """
    address = bucket_address(url) or web_address(url)
    if address is None:
        return None
    return bucket_for(address, url, options_for(url, storage_options)), address.key


@lru_cache(256)
def _make_bucket(
    kind: str,
    name: str,
    config: Any,
    client: Any,
    policy: RetryPolicy,
    profile: str | None,
    trust: Trust,
    environment: Any,
    may_use: bool,
) -> Bucket:
    settings, address = dict(config), Address(cast("Any", kind), name, "")
    client_options = {key: dict(value) if key == "default_headers" else value for key, value in client}
    found = find_credentials(address, settings, profile, environment=may_use)
    settings = {**found.config, **settings}
    if found.anonymous:
        settings["skip_signature"] = True
    provider = found.provider or _static_credentials(kind, settings)
    endpoint = _endpoint(kind, settings)
    if "endpoint" in settings and os.environ.get("AWS_ENDPOINT_URL_S3"):
        settings["aws_endpoint_url_s3"] = endpoint  # or obstore would prefer the environment's
    if endpoint is not None and endpoint.startswith("http://"):
        client_options["allow_http"] = True

    def make(region: str | None, retrying: bool) -> ObjectStore:
        configuration = settings if region is None else {**settings, "region": region}
        maker: Any = {"s3": stores.S3Store, "gcs": stores.GCSStore, "azure": stores.AzureStore}[kind]
        more = {"credential_provider": provider} if provider is not None else {}
        retries = obstore_retry_config(policy if retrying else replace(policy, attempts=1))
        store = maker(name, config=configuration, client_options=client_options, retry_config=retries, **more)
        return cast("ObjectStore", store)

    bucket_settings = BucketSettings(
        anonymous=found.anonymous,
        moves=kind == "s3",
        policy=policy,
        region=settings.get("region"),
        endpoint=endpoint,
        trust=trust,
        config=settings,
        provider=provider,
        environment=may_use,
    )
    return Bucket(make(None, False), address.place, bucket_settings, make)


def _static_credentials(kind: str, settings: Mapping[str, Any]) -> Callable[[], Any] | None:
    """Return a provider of the keys given by the user, where obstore would mix them with a session
    token of the environment.
    """
    if kind != "s3" or "access_key_id" not in settings or "session_token" in settings:
        return None
    if not os.environ.get("AWS_SESSION_TOKEN") or settings.get("skip_signature"):
        return None
    key = {
        "access_key_id": settings["access_key_id"], "secret_access_key": settings.get("secret_access_key", ""),
        "token": None, "expires_at": None,
    }  # fmt: skip
    return lambda: key


def _endpoint(kind: str, settings: Mapping[str, Any]) -> str | None:
    if kind != "s3":
        return settings.get("endpoint") or settings.get("base_url")
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    return settings.get("endpoint") or next((os.environ[name] for name in names if os.environ.get(name)), None)


def _freeze(settings: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (name, _freeze(value) if isinstance(value, Mapping) else value) for name, value in sorted(settings.items())
    )


def _environment_variables(kind: str) -> tuple[tuple[str, str], ...]:
    """Return the variables that a store reads when it is made: other values need another store."""
    prefix = {"s3": "AWS_", "gcs": "GOOGLE_", "azure": "AZURE_"}[kind]
    here = [(name, value) for name, value in os.environ.items() if name.startswith(prefix) or name == "HOME"]
    return tuple(sorted(here))
