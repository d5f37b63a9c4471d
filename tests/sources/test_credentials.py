from __future__ import annotations

import os
import sys

import pytest

from insitu.errors import AccessError
from insitu.sources.address import Address
from insitu.sources.object_store.credentials import CredentialProcess, find_credentials, parse_connection_string

S3, GCS, AZURE = Address("s3", "b", ""), Address("gcs", "b", ""), Address("azure", "b", "")


@pytest.fixture(autouse=True)
def nobody(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "CLOUDSDK_", "MSI_", "IDENTITY_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("insitu.sources.object_store.credentials._runs_on", lambda cloud: False)


@pytest.fixture
def aws(tmp_path):
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "config").write_text(
        "[default]\nregion = eu-west-1\n[profile far]\nregion = us-west-2\nendpoint_url = http://far\n"
        "[profile sso]\nsso_session = x\n[profile bare]\noutput = json\n"
    )
    (folder / "credentials").write_text(
        "[default]\naws_access_key_id = D\naws_secret_access_key = %d\n"
        "[far]\naws_access_key_id = F\naws_secret_access_key = f\naws_session_token = t\n"
    )


def test_nothing_found_is_anonymous():
    for address in (S3, GCS, AZURE):
        assert find_credentials(address, {}).anonymous
        assert not find_credentials(address, {"skip_signature": True}).anonymous


def test_a_machine_of_the_cloud_has_credentials(monkeypatch):
    monkeypatch.setattr("insitu.sources.object_store.credentials._runs_on", lambda cloud: True)
    for address in (S3, GCS, AZURE):
        assert not find_credentials(address, {}).anonymous


def test_options_win(aws):
    assert find_credentials(S3, {"access_key_id": "x"}).config == {}
    assert not find_credentials(GCS, {"bearer_token": "x"}).anonymous
    assert not find_credentials(AZURE, {"sas_key": "x"}).anonymous


def test_profiles(aws, monkeypatch):
    found = find_credentials(S3, {})
    assert found.config == {"region": "eu-west-1", "access_key_id": "D", "secret_access_key": "%d"}
    far = {
        "region": "us-west-2",
        "endpoint": "http://far",
        "access_key_id": "F",
        "secret_access_key": "f",
        "session_token": "t",
    }
    assert find_credentials(S3, {}, "far").config == far
    monkeypatch.setenv("AWS_PROFILE", "far")
    assert find_credentials(S3, {}).config == far
    monkeypatch.setenv("AWS_REGION", "here")
    assert "region" not in find_credentials(S3, {}).config
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "E")
    assert find_credentials(S3, {}).config == {"endpoint": "http://far"}
    assert find_credentials(S3, {}, "far").config["access_key_id"] == "F"
    assert find_credentials(S3, {}, "bare").anonymous
    with pytest.raises(AccessError, match="no AWS profile 'gone'"):
        find_credentials(S3, {}, "gone")


def test_roles_and_single_sign_on_need_amazons_library(aws, monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(AccessError, match="Install boto3"):
        find_credentials(S3, {}, "sso")


def test_programs_that_give_keys():
    document = '{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "S", "Expiration": "2030-01-01T00:00:00Z"}'
    key = CredentialProcess(f"echo '{document}'", "s3://b")()
    assert (key["access_key_id"], key["secret_access_key"], key["token"], key["expires_at"].year) == (
        "A",
        "S",
        None,
        2030,
    )
    wrong = document.replace("2030", "never")
    for command in ("echo secret", "false", "echo '{}'", "echo '[]'", f"echo '{wrong}'"):
        with pytest.raises(AccessError) as caught:
            CredentialProcess(command, "s3://b")()
        assert "secret" not in str(caught.value)


def test_google(monkeypatch, tmp_path):
    folder = tmp_path / ".config" / "gcloud"
    folder.mkdir(parents=True)
    assert find_credentials(GCS, {}).anonymous
    (folder / "application_default_credentials.json").write_text("{}")
    assert not find_credentials(GCS, {}).anonymous
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    assert find_credentials(GCS, {}).anonymous
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "x.json")
    assert not find_credentials(GCS, {}).anonymous


def test_azure(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=a;AccountKey=k==;BlobEndpoint=http://h/a")
    assert find_credentials(AZURE, {}).config == {"account_name": "a", "account_key": "k==", "endpoint": "http://h/a"}
    assert parse_connection_string("SharedAccessSignature=sv=1&sig=x;") == {"sas_key": "sv=1&sig=x"}
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "x")
    assert not find_credentials(AZURE, {}).anonymous
