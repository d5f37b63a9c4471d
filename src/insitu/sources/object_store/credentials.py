"""Lookup of credentials for buckets: AWS profiles, Google and Azure settings, machine identities.

Credentials of `storage_options` come first; then those that the cloud's own tools would find:
environment variables, files, the machine. obstore reads the environment and asks the machine; what
it does not know (AWS profiles, Azure connection strings) is looked up here. Where there is nothing
at all, the bucket is read anonymously, and a log line says so: obstore alone would ask the metadata
service of a cloud that this machine is not in, for minutes.
"""

from __future__ import annotations

import configparser
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from insitu.errors import AccessError
from insitu.sources.address import Address

__all__ = ["FoundCredentials", "find_credentials"]

Provider = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class FoundCredentials:
    """Settings for obstore that were found in the environment."""

    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    provider: Provider | None = None
    """Returns keys that expire."""
    anonymous: bool = False
    """Nothing was found."""


def find_credentials(
    address: Address, config: Mapping[str, Any], profile: str | None = None, *, environment: bool = True
) -> FoundCredentials:
    """Return what the environment has for a bucket, beside the settings `config`.

    Parameters
    ----------
    address
        The bucket.
    config
        What `storage_options` say, by obstore's names.
    profile
        The AWS profile asked for.
    environment
        Whether credentials of the environment may be used; if not, a bucket without explicit ones
        is read anonymously.
    """
    if config.get("skip_signature"):
        return FoundCredentials()
    if any(config.get(name) for name in _EXPLICIT[address.kind]):
        return FoundCredentials()
    if not environment:
        return FoundCredentials(anonymous=True)
    if address.kind == "s3":
        return _find_aws(address, profile)
    if address.kind == "gcs":
        return FoundCredentials(anonymous=not _has_google())
    return _find_azure()


_EXPLICIT = {
    "s3": ("access_key_id",),
    "gcs": ("service_account", "service_account_key", "bearer_token", "application_credentials"),
    "azure": ("account_key", "sas_key", "client_id", "bearer_token", "federated_token_file", "use_azure_cli"),
}


# -- AWS

_AWS_VARIABLES = (
    "AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)  # fmt: skip


def _find_aws(address: Address, profile: str | None) -> FoundCredentials:
    # An environment with keys wins over its AWS_PROFILE, as in Amazon's own tools; a profile asked
    # for here wins over both.
    if profile is None and any(os.environ.get(name) for name in _AWS_VARIABLES):
        return FoundCredentials(_region_and_endpoint(_profile(os.environ.get("AWS_PROFILE") or "default")))
    profile_name = profile or os.environ.get("AWS_PROFILE")
    section = _profile(profile_name or "default")
    if section is None:
        if profile_name:
            raise AccessError(
                f"there is no AWS profile {profile_name!r}", url=address.place, hint=f"Looked in {_aws_file_names()}."
            )
        return FoundCredentials(anonymous=not _runs_on("amazon"))
    place = _region_and_endpoint(section)
    if "aws_access_key_id" in section:
        keys = {
            "access_key_id": section["aws_access_key_id"],
            "secret_access_key": section.get("aws_secret_access_key", ""),
            "session_token": section.get("aws_session_token"),
        }
        return FoundCredentials({**place, **{name: value for name, value in keys.items() if value}})
    if "credential_process" in section:
        return FoundCredentials(place, provider=CredentialProcess(section["credential_process"], address.place))
    if any(name.startswith("sso_") or name == "role_arn" for name in section):
        return FoundCredentials(place, provider=_boto_provider(profile_name or "default", address))
    return FoundCredentials(place, anonymous=not _runs_on("amazon"))


def _region_and_endpoint(section: Mapping[str, str] | None) -> dict[str, Any]:
    """Return region and endpoint of a profile; those of the environment win."""
    found: dict[str, Any] = {}
    if section is None:
        return found
    if section.get("region") and not (os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")):
        found["region"] = section["region"]
    if section.get("endpoint_url") and not any(
        os.environ.get(name) for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
    ):
        found["endpoint"] = section["endpoint_url"]
    return found


def _aws_files() -> tuple[Path, Path]:
    folder = Path(os.path.expanduser("~")) / ".aws"
    return (
        Path(os.path.expanduser(os.environ.get("AWS_CONFIG_FILE") or folder / "config")),
        Path(os.path.expanduser(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or folder / "credentials")),
    )


def _aws_file_names() -> str:
    return " and ".join(str(path) for path in _aws_files())


def _profile(name: str) -> dict[str, str] | None:
    """Return a profile: what both of Amazon's files say of it, the credentials file winning."""
    config, credentials = _aws_files()
    found: dict[str, str] = {}
    for path, section in ((config, name if name == "default" else f"profile {name}"), (credentials, name)):
        parser = configparser.ConfigParser(interpolation=None, default_section="*", strict=False)
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError):
            continue  # not ours to mend; if the profile was needed, the error says where it was looked for
        if parser.has_section(section):
            found.update(parser.items(section))
    return found or None


@dataclass(frozen=True, slots=True)
class CredentialProcess:
    """Provider of credentials that a program of the user prints (`credential_process` of a
    profile).
    """

    command: str = field(repr=False)
    place: str

    def __call__(self) -> Any:
        """Run the program and return its credentials."""
        try:
            done = subprocess.run(self.command, shell=True, capture_output=True, text=True, timeout=60, check=True)
            printed = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            raise self._failure(type(error).__name__) from None
        fields = printed if isinstance(printed, dict) else {}
        key, secret, expires = (fields.get(name) for name in ("AccessKeyId", "SecretAccessKey", "Expiration"))
        if not isinstance(key, str) or not isinstance(secret, str):
            raise self._failure("AccessKeyId or SecretAccessKey is missing")
        try:
            expires_at = datetime.fromisoformat(str(expires)) if expires else None
        except ValueError:
            raise self._failure("Expiration is not a date") from None
        return {
            "access_key_id": key,
            "secret_access_key": secret,
            "token": fields.get("SessionToken"),
            "expires_at": expires_at,
        }

    def _failure(self, reason: str) -> AccessError:
        # Neither the output nor the command line of the program: they may hold keys.
        return AccessError(f"the credential_process of the AWS profile gave no credentials ({reason})", url=self.place)


def _boto_provider(profile: str, address: Address) -> Provider:
    """Return a provider for roles and single sign-on, which need Amazon's own library."""
    try:
        boto3 = import_module("boto3")
        provider = import_module("obstore.auth.boto3")
    except ImportError:
        raise AccessError(
            f"the AWS profile {profile!r} uses a role or single sign-on",
            url=address.place,
            hint="Install boto3 to use it.",
        ) from None
    found: Provider = provider.Boto3CredentialProvider(boto3.Session(profile_name=profile))
    return found


# -- Google

_GOOGLE_VARIABLES = (
    "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_BEARER_TOKEN",
)  # fmt: skip


def _has_google() -> bool:
    """Return whether obstore would find credentials."""
    if any(os.environ.get(name) for name in _GOOGLE_VARIABLES):
        return True
    folder = os.environ.get("CLOUDSDK_CONFIG") or os.path.expanduser("~/.config/gcloud")
    return os.path.exists(os.path.join(folder, "application_default_credentials.json")) or _runs_on("google")


# -- Azure

_AZURE_VARIABLES = (
    "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY", "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_TOKEN", "AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID",
    "AZURE_FEDERATED_TOKEN_FILE", "IDENTITY_ENDPOINT", "MSI_ENDPOINT", "AZURE_MSI_ENDPOINT", "AZURE_USE_AZURE_CLI",
)  # fmt: skip


def _find_azure() -> FoundCredentials:
    text = os.environ.get("AZURE_STORAGE_CONNECTION_STRING")
    if text:
        return FoundCredentials(parse_connection_string(text))
    return FoundCredentials(anonymous=not (any(os.environ.get(name) for name in _AZURE_VARIABLES) or _runs_on("azure")))


def parse_connection_string(text: str) -> dict[str, Any]:
    """Return the settings of an Azure connection string, by obstore's names.

    Examples
    --------
    >>> parse_connection_string("DefaultEndpointsProtocol=https;AccountName=me;AccountKey=a2V5==")
    {'account_name': 'me', 'account_key': 'a2V5=='}
    """
    names = {
        "accountname": "account_name",
        "accountkey": "account_key",
        "sharedaccesssignature": "sas_key",
        "blobendpoint": "endpoint",
    }
    pairs = (part.partition("=") for part in text.split(";") if part.strip())
    return {names[key.strip().lower()]: value for key, _, value in pairs if key.strip().lower() in names}


# -- the machine

_FIRMWARE_MARKS = {
    "amazon": (
        ("sys_vendor", "amazon"),
        ("bios_vendor", "amazon"),
        ("bios_version", "amazon"),
        ("product_uuid", "ec2"),
    ),
    "google": (("product_name", "google"),),
    "azure": (("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77"),),
}


@lru_cache
def _runs_on(cloud: str) -> bool:
    """Return whether this machine belongs to a cloud, by its firmware: a file to read instead of a
    network to wait for.
    """
    if cloud == "amazon" and os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return False
    folder = Path("/sys/class/dmi/id")
    if not folder.is_dir():
        # No Linux, or one that does not tell. Machines that carry an identity are nearly all Linux;
        # others say it in the environment.
        return False
    for name, sign in _FIRMWARE_MARKS[cloud]:
        try:
            if sign in (folder / name).read_text(encoding="utf-8").lower():
                return True
        except (OSError, UnicodeDecodeError):
            continue
    return False
