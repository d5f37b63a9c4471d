"""Azurite: Microsoft's own emulator of Azure Blob Storage."""

from __future__ import annotations

import numpy as np
import obstore
import pytest
from obstore.store import AzureStore

import insitu
from insitu.errors import AccessError, NotFoundError, StaleSourceError
from insitu.sources import expand_urls, open_source, read_tail

pytestmark = pytest.mark.xdist_group("remote")  # one worker for all: each server runs once


@pytest.fixture
def options(azurite):
    return {
        "account_name": azurite.extra["account"],
        "account_key": azurite.extra["key"],
        "endpoint_url": azurite.endpoint,
    }


def test_ranges(options, data):
    for url in ("az://private/x.bin", "abfs://private@devstoreaccount1.dfs.core.windows.net/x.bin"):
        source = open_source(url, options)
        ranges = [(at * 997 % 299_000, 1 + at % 300) for at in range(100)]
        assert source.read_many(ranges) == [data[offset : offset + length] for offset, length in ranges]
        assert source.read(299_990, 100) == data[299_990:]
        assert source.size() == 300_000
        # Azure knows no ranges from the end.
        assert read_tail(open_source(url, options), 7) == data[-7:]
    assert open_source("az://private/empty", options).read(0, 5) == b""
    with pytest.raises(NotFoundError):
        open_source("az://private/none", options).read(0, 5)


def test_wrong_keys_are_refused_and_not_shown(options):
    wrong = "d3Jvbmctd3Jvbmctd3Jvbmc="
    with pytest.raises(AccessError) as caught:
        open_source("az://private/x.bin", {**options, "account_key": wrong}).read(0, 5)
    assert wrong not in str(caught.value)


def test_without_credentials_a_public_container_is_read(options, data, caplog):
    del options["account_key"]
    assert open_source("az://public/x.bin", options).read(0, 5) == data[:5]
    assert [record.message for record in caplog.records] == [
        "no credentials found for az://public: reading it anonymously"
    ]
    with pytest.raises((AccessError, NotFoundError)):
        open_source("az://private/x.bin", options).read(0, 5)


def test_connection_strings(azurite, data, monkeypatch):
    text = (
        f"DefaultEndpointsProtocol=http;AccountName={azurite.extra['account']};AccountKey={azurite.extra['key']};"
        f"BlobEndpoint={azurite.endpoint};"
    )
    assert open_source("az://private/x.bin", {"connection_string": text}).read(0, 5) == data[:5]
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    assert open_source("az://private/x.bin").read(0, 5) == data[:5]


def test_a_replaced_blob_is_noticed(azurite, options):
    config = {
        "account_name": options["account_name"],
        "account_key": options["account_key"],
        "endpoint": azurite.endpoint,
    }
    store = AzureStore("private", config=config, client_options={"allow_http": True})
    obstore.put(store, "changing", b"one" * 1000)
    source = open_source("az://private/changing", options)
    source.read(0, 3)
    obstore.put(store, "changing", b"two" * 1000)
    with pytest.raises(StaleSourceError):
        source.read(3, 3)


def test_globs(options):
    assert expand_urls("az://private/era5/**/tas*.nc", options) == [
        "az://private/era5/1999/tas_1.nc", "az://private/era5/1999/tas_2.nc", "az://private/era5/2000/deep/tas_3.nc"
    ]  # fmt: skip
    assert expand_urls("az://private/era5/*/tas_2.nc", options) == ["az://private/era5/1999/tas_2.nc"]


def test_scan_and_read(options, archive):
    group = insitu.scan("az://private/archive.h5", storage_options=options, decode=False)
    far = insitu.read(group, "t", np.s_[3:9], storage_options=options, decode=False)
    np.testing.assert_array_equal(far, insitu.read(archive, "t", np.s_[3:9], decode=False))
