"""SeaweedFS: an S3 store that checks signatures and refuses strangers."""

from __future__ import annotations

import json
import logging
import pickle
from datetime import timedelta

import numpy as np
import obstore
import pytest

import insitu
from insitu.errors import AccessError, NotFoundError, SourceError, StaleSourceError
from insitu.formats import scan_format
from insitu.model import Source
from insitu.sources import CountingSource, detach_secrets, expand_urls, open_source, read_tail, trace
from remote.faults import FaultProxy

pytestmark = pytest.mark.xdist_group("remote")  # one worker for all: each server runs once

KEY, SECRET = "AKINSITU", "hush-hush-never-shown"


def test_ranges(options, data):
    with trace() as cost, open_source("s3://private/x.bin", options) as source:
        assert source.read(10, 5) == data[10:15]
        ranges = [(at * 997 % 299_000, 1 + at % 300) for at in range(400)]
        assert source.read_many(ranges) == [data[offset : offset + length] for offset, length in ranges]
        assert source.read(299_990, 100) == data[299_990:]
        assert source.read(300_000, 1) == b""
        assert source.size() == 300_000
    assert cost.requests <= 402
    assert cost.places["s3://private"].bytes >= 60_000


def test_the_first_request_is_the_only_one_before_the_data(options, data):
    with trace() as cost:
        source = open_source("s3://private/x.bin", options)
        assert source.read(100, 10) == data[100:110]
        assert source.describe().size == 300_000
    assert cost.requests == 1
    with trace() as cost:
        assert read_tail(open_source("s3://private/x.bin", options), 16) == data[-16:]
    assert cost.requests == 1


def test_empty_and_missing(options):
    assert open_source("s3://private/empty", options).read(0, 10) == b""
    assert open_source("s3://private/empty", options).tail(10) == b""
    for url in ("s3://private/none", "s3://nowhere/x"):
        with pytest.raises(NotFoundError):
            open_source(url, options).read(0, 1)


def test_wrong_keys_are_refused_and_not_shown(seaweed):
    source = open_source("s3://private/x.bin", {"key": KEY, "secret": "wrong-and-secret", "endpoint_url": seaweed.url})
    with pytest.raises(AccessError, match="SignatureDoesNotMatch") as caught:
        source.read(0, 1)
    assert "wrong-and-secret" not in str(caught.value) + repr(source) + repr(caught.value)
    with pytest.raises(AccessError):
        open_source("s3://private/x.bin", {"key": "AKNOBODY", "secret": "x", "endpoint_url": seaweed.url}).read(0, 1)


def test_without_credentials_a_public_bucket_is_read_and_it_is_said_once(seaweed, data, caplog):
    caplog.set_level(logging.INFO)
    options = {"endpoint_url": seaweed.url, "headers": {"X-Test": "anonymous"}}
    assert open_source("s3://public/x.bin", options).read(0, 5) == data[:5]
    assert open_source("s3://public/x.bin", options).read_many([(0, 5), (200_000, 5)])[1] == data[200_000:200_005]
    assert [record.message for record in caplog.records if record.name == "insitu.sources"] == [
        "no credentials found for s3://public: reading it anonymously"
    ]
    with pytest.raises(AccessError, match="no credentials were found, so the request was anonymous"):
        open_source("s3://private/x.bin", options).read(0, 5)


def test_asking_for_it_is_not_worth_a_line(seaweed, data, caplog):
    assert open_source("s3://public/x.bin", {"endpoint_url": seaweed.url, "anon": True}).read(0, 5) == data[:5]
    assert not caplog.records


def test_keys_of_the_environment(seaweed, data, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_ENDPOINT_URL", seaweed.url)
    assert open_source("s3://private/x.bin").read(0, 5) == data[:5]
    # Options win over the environment.
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    assert open_source("s3://private/x.bin", {"endpoint_url": seaweed.url}).read(0, 5) == data[:5]
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-another-life")
    explicit = {"endpoint_url": seaweed.url, "key": KEY, "secret": SECRET}
    assert open_source("s3://private/x.bin", explicit).read(0, 5) == data[:5]


def test_profiles(seaweed, data, monkeypatch, tmp_path):
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text(
        f"[default]\nregion = eu-west-1\n[profile far]\nendpoint_url = {seaweed.url}\nregion = us-west-2\n"
        f"[profile made]\nendpoint_url = {seaweed.url}\ncredential_process = cat {tmp_path}/made.json\n"
        "[profile role]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = far\n"
    )
    (tmp_path / ".aws" / "credentials").write_text(
        f"[far]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
    )
    made = {"Version": 1, "AccessKeyId": KEY, "SecretAccessKey": SECRET, "Expiration": "2099-01-01T00:00:00+00:00"}
    (tmp_path / "made.json").write_text(json.dumps(made))
    for profile in ("far", "made"):
        source = open_source("s3://private/x.bin", {"profile": profile})
        assert source.read(0, 5) == data[:5]
        assert SECRET not in repr(source)
    monkeypatch.setenv("AWS_PROFILE", "far")
    assert open_source("s3://private/x.bin").read(0, 5) == data[:5]
    with pytest.raises(AccessError, match="no AWS profile 'gone'"):
        open_source("s3://private/x.bin", {"profile": "gone"})
    (tmp_path / "made.json").write_text("{}")
    with pytest.raises(SourceError, match="credential_process"):
        open_source("s3://private/x.bin", {"profile": "made", "region": "elsewhere"}).read(0, 5)


def test_signed_addresses(seaweed, bucket, data):
    url = obstore.sign(bucket, "GET", "x.bin", timedelta(minutes=5))
    assert "X-Amz-Signature" in url
    source = open_source(url)
    assert source.read_many([(0, 5), (100_000, 5)]) == [data[:5], data[100_000:100_005]]
    assert "Signature" not in source.url + repr(source) + repr(source.describe())
    public, options = detach_secrets(url)
    assert public == f"{seaweed.url}/private/x.bin"
    assert open_source(public, options).read(0, 5) == data[:5]
    with pytest.raises(AccessError) as caught:
        open_source(url.replace("X-Amz-Signature=", "X-Amz-Signature=0")).read(0, 5)
    assert KEY not in str(caught.value)


def test_a_replaced_object_is_noticed(bucket, options):
    obstore.put(bucket, "changing", b"one" * 1000)
    source = open_source("s3://private/changing", options)
    source.read(0, 3)
    recorded = source.describe()
    obstore.put(bucket, "changing", b"two" * 1000)
    with pytest.raises(StaleSourceError, match="changed while it was read"):
        source.read(3, 3)
    with pytest.raises(StaleSourceError, match="not the one that was scanned"):
        open_source("s3://private/changing", options, expected=recorded).read_many([(0, 3), (2000, 3)])
    with pytest.raises(StaleSourceError):
        open_source("s3://private/changing", options, expected=Source("x", 2999)).read(0, 3)
    assert open_source("s3://private/changing", options).read(0, 3) == b"two"


def test_globs_and_prefixes(options):
    def names(pattern):
        return [str(url).removeprefix("s3://private/era5/") for url in expand_urls(pattern, options)]

    assert names("s3://private/era5/**/*.nc") == [
        "1999/pr_1.nc",
        "1999/tas_1.nc",
        "1999/tas_2.nc",
        "2000/deep/tas_3.nc",
    ]
    assert names("s3://private/era5/*/tas_?.nc") == ["1999/tas_1.nc", "1999/tas_2.nc"]
    assert names("s3://private/era5/199[0-9]/{tas,pr}_1.nc") == ["1999/tas_1.nc", "1999/pr_1.nc"]
    assert names("s3://private/era5/") == ["1999/pr_1.nc", "1999/tas_1.nc", "1999/tas_2.nc", "2000/deep/tas_3.nc"]
    assert names(["s3://private/era5/1999/pr*", "s3://private/era5/x.nc"]) == ["1999/pr_1.nc", "x.nc"]
    with pytest.raises(NotFoundError, match="no file matches"):
        expand_urls("s3://private/era5/*.grib", options)
    with pytest.raises(AccessError):
        expand_urls("s3://private/era5/*.nc", {"endpoint_url": options["endpoint_url"], "anon": True})


def test_a_list_in_the_bucket(bucket, options):
    obstore.put(bucket, "lists/all.txt", b"# two\ns3://private/era5/1999/tas_*.nc\n\ns3://private/x.bin\n")
    assert expand_urls("s3://private/lists/all.txt", options) == [
        "s3://private/era5/1999/tas_1.nc", "s3://private/era5/1999/tas_2.nc", "s3://private/x.bin"
    ]  # fmt: skip


def test_scan_and_read(options, archive):
    source = CountingSource(open_source("s3://private/archive.h5", options))
    scan_format(source)
    assert source.batches <= 4
    group = insitu.scan("s3://private/archive.h5", storage_options=options, decode=False)
    for name in ("t", "plain"):
        far = insitu.read(group, name, np.s_[3:9, ::2, 5:30], storage_options=options, decode=False)
        np.testing.assert_array_equal(far, insitu.read(archive, name, np.s_[3:9, ::2, 5:30], decode=False))


def test_options_by_prefix(seaweed, options, data):
    both = {"s3://private/": options, "s3://public": {"endpoint_url": seaweed.url, "anon": True}}
    assert open_source("s3://private/x.bin", both).read(0, 3) == data[:3]
    assert open_source("s3://public/x.bin", both).read(0, 3) == data[:3]


def test_sources_travel_to_other_processes(options, data):
    source = open_source("s3://private/x.bin", options)
    source.read(0, 1)
    again = pickle.loads(pickle.dumps(source))
    with trace() as cost:
        assert again.describe() == source.describe()
        assert again.read(5, 5) == data[5:10]
    assert cost.requests == 1


def test_what_the_store_is_asked(seaweed, options, data):
    with FaultProxy(seaweed.address) as proxy:
        far = {**options, "endpoint_url": proxy.url, "requester_pays": True, "region": "eu-central-1"}
        source = open_source("s3://private/x.bin", far)
        source.read(0, 5)
        source.read_many([(at * 10_000, 10) for at in range(20)])
        heads = proxy.heads
    assert all(b"x-amz-request-payer: requester" in head.lower() for head in heads)
    assert all(b"/eu-central-1/s3/" in head for head in heads)
    assert b"if-match" not in heads[0].lower()
    assert all(b"if-match" in head.lower() for head in heads[1:])
    assert all(b"hush" not in head for head in heads)
