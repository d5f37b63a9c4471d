"""nginx with a certificate that nobody knows, alone and in front of the S3 store."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from insitu.errors import SourceError
from insitu.sources import HttpSource, open_source

from .conftest import DATA, _website, servers

pytestmark = pytest.mark.xdist_group("remote")  # one worker for all: each server runs once


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    why = servers.reason("nginx")
    if why is not None:
        pytest.skip(why)
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    _website(folder)
    key = ["-newkey", "rsa:2048", "-nodes"]
    (folder / "extensions").write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    for command in (
        # The uses of its key: Python 3.13 trusts no authority that does not tell them.
        ["req", "-x509", *key, "-days", "2", "-subj", "/CN=nobody", "-keyout", "authority.key", "-out", "authority.pem",
         "-addext", "keyUsage=critical,keyCertSign,cRLSign"],
        ["req", *key, "-subj", "/CN=127.0.0.1", "-keyout", "key.pem", "-out", "request.pem"],
        ["x509", "-req", "-in", "request.pem", "-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial",
         "-days", "2", "-extfile", "extensions", "-out", "certificate.pem"],
    ):  # fmt: skip
        subprocess.run(["openssl", *command], check=True, capture_output=True, cwd=folder)
    with servers.start("nginx", folder) as running:
        yield running


def test_unknown_certificates_are_refused_at_once(secure):
    with pytest.raises(SourceError, match="verify"):
        open_source(f"{secure.url}/x.bin").read(0, 5)


def test_bundles(secure, monkeypatch):
    bundle = str(secure.folder / "authority.pem")
    url = f"{secure.url}/x.bin"
    assert open_source(url, {"verify": bundle}).read_many([(0, 5), (200_000, 5)])[0] == DATA[:5]
    assert open_source(url, {"verify": False}).read(0, 5) == DATA[:5]
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", bundle)
    assert open_source(url).read(0, 5) == DATA[:5]
    with pytest.raises(SourceError, match="no certificate bundle"):
        HttpSource(url, trust=f"{bundle}.gone").read(0, 5)


def test_bundles_of_stores(secure, monkeypatch):
    bundle = str(secure.folder / "authority.pem")
    options = {"anon": True, "endpoint_url": secure.url, "retries": 1}
    with pytest.raises(SourceError):
        open_source("s3://era5/tas_2.nc", options).read(0, 5)
    assert open_source("s3://era5/tas_2.nc", {**options, "verify": bundle}).read(0, 5) == b"tas_2"
    monkeypatch.setenv("AWS_CA_BUNDLE", bundle)
    assert open_source("s3://era5/tas_2.nc", options).read(0, 5) == b"tas_2"
