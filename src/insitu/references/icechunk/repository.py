"""Addresses of Icechunk repositories: versions, storage, credentials and virtual chunk containers.

`x.icechunk` is the tip of the branch `main`; `x.icechunk?branch=dev`, `?tag=v1` and `?snapshot=…`
name other versions. Credentials come from `storage_options`, as everywhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

from insitu.errors import InsituError, NotFoundError, SourceError, UnsupportedError
from insitu.sources import open_source
from insitu.sources.access_policy import can_use_environment, check_path, has_access_policy, refuse_third_party
from insitu.sources.address import bucket_address, file_url, scheme_of
from insitu.sources.listing import local_path
from insitu.sources.storage_options import options_for

__all__ = [
    "RepositoryVersion",
    "container_prefix",
    "credentials_for",
    "icechunk_storage",
    "import_icechunk",
    "is_repository",
    "is_unfinished",
    "parse_version",
    "repository_exists",
    "source_url",
    "virtual_container",
    "virtual_location",
]

_MARKER_OBJECTS = ("repo", "refs/branch.main/ref.json")
"""Objects that only a repository has: of format version 2, and of version 1."""
_FIRST_FILES = (
    *(f"{folder}/1CECHNKREP0F1RSTCMT0" for folder in ("snapshots", "transactions")),
    "config.yaml",
    *(f"{mark}#" for mark in _MARKER_OBJECTS),  # not yet under its name
)
"""Beginnings of the names of all files that a repository has before it is one."""


@dataclass(frozen=True, slots=True)
class RepositoryVersion:
    """A repository and one of its versions."""

    url: str
    """Without the query."""
    kind: str = "branch"
    """branch, tag or snapshot."""
    name: str = "main"

    @property
    def arguments(self) -> dict[str, str]:
        """Keyword arguments for `readonly_session`."""
        return {"snapshot_id" if self.kind == "snapshot" else self.kind: self.name}

    def __str__(self) -> str:
        return f"{self.url}?{self.kind}={self.name}"


def import_icechunk() -> Any:
    """Import and return the icechunk library.

    Raises
    ------
    UnsupportedError
        If it is not installed.
    """
    try:
        import icechunk
    except ImportError:
        raise UnsupportedError(
            "Icechunk repositories need the icechunk library", hint="pip install 'insitu[icechunk]'"
        ) from None
    return icechunk


def parse_version(url: str) -> RepositoryVersion:
    """Return the version that a URL names.

    Examples
    --------
    >>> parse_version("s3://bucket/era5.icechunk?tag=v1")
    RepositoryVersion(url='s3://bucket/era5.icechunk', kind='tag', name='v1')
    """
    base, mark, query = url.partition("?")
    base = local_path(base) or base.rstrip("/")
    if not mark:
        return RepositoryVersion(base)
    rows = parse_qsl(query, keep_blank_values=True)
    if len(rows) != 1 or rows[0][0] not in ("branch", "tag", "snapshot") or not rows[0][1]:
        raise SourceError(
            f"{query!r} does not name a version of a repository",
            url=base,
            hint="Use ?branch=NAME, ?tag=NAME or ?snapshot=ID",
        )
    return RepositoryVersion(base, *rows[0])


def is_repository(path: str) -> bool:
    """Return whether a local directory is a repository."""
    return any(os.path.isfile(os.path.join(path, *mark.split("/"))) for mark in _MARKER_OBJECTS)


def is_unfinished(path: str) -> bool:
    """Return whether a local directory holds nothing but what the creation of a repository left that was
    killed: the first, empty snapshot, without the file that makes a repository of it.
    """
    if not os.path.isdir(path) or is_repository(path):
        return False
    files = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    return all(os.path.relpath(file, path).replace(os.sep, "/").startswith(_FIRST_FILES) for file in files)


def repository_exists(url: str, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Return whether a repository lies at a URL. A remote one takes one or two small requests."""
    base = parse_version(url).url
    path = local_path(base)
    if path is not None:
        return is_repository(path)
    for mark in _MARKER_OBJECTS:
        try:
            with open_source(f"{base}/{mark}", storage_options) as source:
                source.size()
            return True
        except NotFoundError:
            continue
    return False


def icechunk_storage(url: str, storage_options: Mapping[str, Any] | None = None) -> Any:
    """Return the storage object with which icechunk opens a repository."""
    icechunk = import_icechunk()
    path = local_path(url)
    if path is not None:
        _check_tree_access(path)
        return icechunk.local_filesystem_storage(path)
    options = options_for(url, storage_options)
    address = bucket_address(url)
    if address is None or address.kind != "s3":
        refuse_third_party(url)  # icechunk follows redirects there, but not on S3
    elif has_access_policy():
        from insitu.sources.object_store.bucket import open_bucket  # it loads obstore along

        open_bucket(f"{url.rstrip('/')}/", storage_options)  # which asks the access policy
    if address is None:
        if scheme_of(url) in ("http", "https") and hasattr(icechunk, "http_storage"):
            return icechunk.http_storage(url)
        raise UnsupportedError(
            "icechunk cannot open this kind of URL", url=url, hint="Use a path, s3://, gs:// or az://"
        )
    prefix = address.key.rstrip("/") or None
    if address.kind == "s3":
        return icechunk.s3_storage(bucket=address.bucket, prefix=prefix, **_s3_options(options), **_s3_keys(options))
    if address.kind == "gcs":
        keys = {"bearer_token": options["token"]} if isinstance(options.get("token"), str) else {}
        anonymous = {"anonymous": True} if options.get("anon") else {} if keys else {"from_env": True}
        return icechunk.gcs_storage(bucket=address.bucket, prefix=prefix, **keys, **anonymous)
    account, config, keys = _azure_access(url, storage_options)
    return icechunk.azure_storage(account=account, container=address.bucket, prefix=prefix or "", config=config, **keys)


def _check_tree_access(path: str) -> None:
    """Check access to a repository and all its symbolic links: the library opens files by itself."""
    check_path(path)
    if has_access_policy():
        for folder, folders, files in os.walk(path):
            for name in (*folders, *files):
                if os.path.islink(entry := os.path.join(folder, name)):
                    check_path(entry)


def _s3_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return region and endpoint of a bucket."""
    nested = options.get("client_kwargs") or {}
    endpoint = options.get("endpoint_url") or nested.get("endpoint_url") or os.environ.get("AWS_ENDPOINT_URL")
    region = options.get("region") or nested.get("region_name") or os.environ.get("AWS_REGION")
    found: dict[str, Any] = {"region": region or ("us-east-1" if endpoint else None)}
    if endpoint:
        found |= {"endpoint_url": endpoint, "allow_http": endpoint.startswith("http:"), "force_path_style": True}
    return found


def _s3_keys(options: Mapping[str, Any]) -> dict[str, Any]:
    if options.get("anon"):
        return {"anonymous": True}
    if options.get("key"):
        names = {"key": "access_key_id", "secret": "secret_access_key", "token": "session_token"}
        return {argument: options[option] for option, argument in names.items() if options.get(option)}
    return {"from_env": True} if can_use_environment(options) else {"anonymous": True}


def _azure_access(url: str, storage_options: Mapping[str, Any] | None) -> tuple[str, dict[str, str], dict[str, Any]]:
    """Return the account, the configuration and the credentials of an Azure container, as icechunk names
    them: those with which our own sources read it.
    """
    from insitu.sources.object_store.bucket import open_bucket  # it loads obstore along

    opened = open_bucket(url, storage_options)
    assert opened is not None
    found = opened[0].settings.config
    account = found.get("account_name") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    if not account:
        raise SourceError("Icechunk needs the storage account", url=url, hint='storage_options={"account_name": …}')
    endpoint = opened[0].settings.endpoint or os.environ.get("AZURE_STORAGE_ENDPOINT")
    config = {"endpoint": endpoint, "allow_http": str(endpoint.startswith("http:")).lower()} if endpoint else {}
    if found.get("skip_signature"):
        config["skip_signature"] = "true"
    names = {"account_key": "access_key", "sas_key": "sas_token"}
    keys = {argument: found[option] for option, argument in names.items() if found.get(option)}
    return str(account), config, keys or {"from_env": True}


_BUCKET_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://[^/]+/")
_AZURE_SCHEMES = ("az", "azure", "abfs")
"""Those that icechunk knows."""
_ESCAPES = {"%": "%25", "?": "%3F", "#": "%23"}


def virtual_location(url: str) -> str:
    """Return the URL of a file as a virtual reference writes it.

    Examples
    --------
    >>> virtual_location("/data/a b.nc"), virtual_location("s3://bucket/x#1.nc")
    ('file:///data/a%20b.nc', 's3://bucket/x%231.nc')
    """
    path = local_path(url)
    if path is not None:
        return file_url(os.path.abspath(path))
    if bucket_address(url) is None:
        return url  # a web address is written as it is
    return re.sub("[%?#]", lambda found: _ESCAPES[found[0]], url)


def source_url(url: str) -> str:
    """Return the URL for our sources of what `virtual_location` wrote."""
    path = local_path(url)
    if path is not None:
        return path
    return unquote(url) if bucket_address(url) is not None else url


def container_prefix(url: str) -> str:
    """Return the prefix of the container of a location: its bucket or host; of a file, its
    directory.
    """
    if url.startswith("file://"):
        return url[: url.rindex("/") + 1]
    found = _BUCKET_PREFIX.match(url)
    if found is None:
        raise UnsupportedError("Icechunk has no container for this kind of URL", url=url)
    return found[0]


def _anonymous_access(name: str) -> Any:
    """Return the marker for access without credentials: icechunk 2 has names, icechunk 1 takes
    None.
    """
    return getattr(import_icechunk().credentials, name, None)


def credentials_for(prefix: str, storage_options: Mapping[str, Any] | None = None) -> Any:
    """Return the credentials for reading from a container; None for an unknown kind of container."""
    try:
        return virtual_container(prefix, storage_options)[1]
    except InsituError:
        return None


def virtual_container(prefix: str, storage_options: Mapping[str, Any] | None = None) -> tuple[Any, Any]:
    """Return the container of a prefix, and its credentials (None: none, or those of the
    environment).
    """
    icechunk = import_icechunk()
    options = options_for(prefix, storage_options)
    if prefix.startswith("file://"):
        store = icechunk.local_filesystem_store(local_path(prefix))
        return icechunk.VirtualChunkContainer(prefix, store), _anonymous_access("LocalFileSystemAccess")
    address = bucket_address(f"{prefix}x")
    if address is None:
        return icechunk.VirtualChunkContainer(prefix, icechunk.http_store()), _anonymous_access("HttpAccess")
    if address.kind == "s3":
        keys = _s3_keys(options)
        store = icechunk.s3_store(**_s3_options(options), anonymous=bool(keys.get("anonymous")))
        if keys.get("anonymous"):
            credentials = icechunk.s3_anonymous_credentials()
        elif keys.get("from_env"):
            credentials = icechunk.s3_from_env_credentials()
        else:
            credentials = icechunk.s3_static_credentials(**keys)
        return icechunk.VirtualChunkContainer(prefix, store), credentials
    if address.kind == "gcs":
        return icechunk.VirtualChunkContainer(prefix, icechunk.gcs_store()), icechunk.gcs_from_env_credentials()
    if int(icechunk.__version__.split(".")[0]) < 2:
        raise UnsupportedError(
            f"icechunk {icechunk.__version__} cannot refer to objects in Azure",
            url=prefix,
            hint="Install icechunk 2, or save as *.insitu, *.json or *.parq",
        )
    if scheme_of(prefix) not in _AZURE_SCHEMES or address.account is not None:
        raise UnsupportedError(
            "Icechunk refers to objects in Azure only by container and name",
            url=prefix,
            hint=f"Open the files as az://{address.bucket}/…, with the account in storage_options",
        )
    account, config, keys = _azure_access(prefix, storage_options)
    store = icechunk.ObjectStoreConfig.Azure({"account": account, **config})
    return icechunk.VirtualChunkContainer(prefix, store), icechunk.azure_credentials(**keys)
