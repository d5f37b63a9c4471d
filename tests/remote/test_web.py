"""nginx and Apache, well configured and badly; rclone, an S3 store that knows no ranges."""

from __future__ import annotations

import os

import numpy as np
import pytest

import insitu
from insitu.errors import AccessError, NotFoundError, SourceError, StaleSourceError, TimedOutError
from insitu.formats import scan_format
from insitu.sources import CountingSource, HttpSource, RetryPolicy, expand_urls, open_source, read_tail, trace
from insitu.sources.range_batch import RequestLimits

pytestmark = pytest.mark.xdist_group("remote")  # one worker for all: each server runs once

RANGES = [(at * 997 % 299_000, 1 + at % 300) for at in range(300)]


@pytest.fixture(params=["nginx", "apache"])
def site(request):
    return request.getfixturevalue(request.param)


def check(source, data):
    assert source.read_many(RANGES) == [data[offset : offset + length] for offset, length in RANGES]
    assert source.read(299_990, 100) == data[299_990:]
    assert source.read(300_000, 5) == b""
    assert source.size() == 300_000


def test_ranges(site, data):
    check(open_source(f"{site.url}/x.bin"), data)
    with trace() as cost:
        source = open_source(f"{site.url}/x.bin")
        assert read_tail(source, 16) == data[-16:]
        assert source.size() == 300_000
    assert cost.requests == 1
    assert open_source(f"{site.url}/empty").read(0, 5) == b""
    assert open_source(f"{site.url}/empty").size() == 0
    with pytest.raises(NotFoundError):
        open_source(f"{site.url}/none").read(0, 5)


def test_servers_without_etags_are_asked_by_date(site, data, tmp_path):
    source = open_source(f"{site.url}/noetag/x.bin")
    check(source, data)
    assert source.describe().etag is None
    assert source.describe().modified is not None


@pytest.mark.parametrize("place", ["nohead", "anonymous", "gzip", "moved"])
def test_nginx_in_strange_ways(nginx, data, place):
    check(open_source(f"{nginx.url}/{place}/x.bin"), data)


def test_servers_without_ranges(site, data):
    with trace() as cost:
        source = open_source(f"{site.url}/noranges/x.bin")
        assert source.read(200_000, 5) == data[200_000:200_005]
        check(source, data)
    assert cost.requests == 1
    with pytest.raises(SourceError, match="too large to take whole"):
        HttpSource(f"{site.url}/noranges/x.bin", limits=RequestLimits(whole=200_000)).read(0, 5)


def test_compressed_on_disk(nginx, data):
    check(open_source(f"{nginx.url}/compressed/x.bin"), data)


def test_compressed_on_the_way(apache, data):
    # Compresses whatever is asked, and tells another version than it can be asked for.
    check(open_source(f"{apache.url}/deflate/x.bin"), data)


def test_logins(nginx, data, monkeypatch, tmp_path):
    url = f"{nginx.url}/locked/x.bin"
    with pytest.raises(AccessError):
        open_source(url).read(0, 5)
    source = open_source(url.replace("//", "//me:secret@"))
    assert source.read(0, 5) == data[:5]
    assert "secret" not in repr(source) + source.url
    with pytest.raises(AccessError) as caught:
        open_source(url.replace("//", "//me:wrong-secret@")).read(0, 5)
    assert "wrong-secret" not in str(caught.value)
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
    assert open_source(url).read(0, 5) == data[:5]
    token = {"bearer_token": "t0ken-never-shown"}
    assert open_source(f"{nginx.url}/token/x.bin", token).read(0, 5) == data[:5]
    assert open_source(f"{nginx.url}/token/x.bin", {nginx.url: {"token": "t0ken-never-shown"}}).read(0, 5) == data[:5]


def test_a_server_that_limits_is_waited_for(nginx, data):
    with trace() as cost:
        check(
            HttpSource(
                f"{nginx.url}/busy/x.bin",
                limits=RequestLimits(gap=0),
                policy=RetryPolicy(attempts=30, longest_pause=1.0),
            ),
            data,
        )
    assert cost.requests > 300
    assert cost.retries > 0


def test_a_slow_server_meets_the_deadline(nginx):
    """Without a deadline it takes ten seconds, and is read."""
    with pytest.raises(TimedOutError, match=r"x\.bin"):
        open_source(f"{nginx.url}/slow/x.bin", {"timeout": 1}).read(0, 200_000)


def test_a_replaced_file_is_noticed(site):
    path = site.folder / "files" / "changing"
    for place in ("", "noetag/"):
        path.write_bytes(b"one" * 1000)
        os.utime(path, (1_000_000_000, 1_000_000_000))
        source = open_source(f"{site.url}/{place}changing")
        source.read(0, 3)
        path.write_bytes(b"two" * 1000)
        os.utime(path, (1_100_000_000, 1_100_000_000))
        with pytest.raises(StaleSourceError, match="changed while it was read"):
            source.read(3, 3)
        with pytest.raises(StaleSourceError, match="not the one that was scanned"):
            open_source(f"{site.url}/{place}changing", expected=source.describe()).read(3, 3)


def test_globs_over_index_pages(site):
    base = f"{site.url}/era5"
    assert expand_urls(f"{base}/**/*.nc") == [f"{base}/1999/a%20b.nc", f"{base}/1999/tas_1.nc", f"{base}/tas_2.nc"]
    assert expand_urls(f"{base}/19*/tas*.nc") == [f"{base}/1999/tas_1.nc"]
    assert open_source(str(expand_urls(f"{base}/1999/a*.nc")[0])).read(0, 99) == b"1999/a b.nc"
    assert expand_urls(f"{base}/") == [f"{base}/1999/a%20b.nc", f"{base}/1999/tas_1.nc", f"{base}/tas_2.nc"]
    with pytest.raises(NotFoundError):
        expand_urls(f"{base}/*.grib")


def test_scan_and_read(nginx, archive):
    source = CountingSource(open_source(f"{nginx.url}/archive.h5"))
    scan_format(source)
    assert source.batches <= 4
    group = insitu.scan(f"{nginx.url}/archive.h5", decode=False)
    far = insitu.read(group, "t", np.s_[::7, 3:, 8], decode=False)
    np.testing.assert_array_equal(far, insitu.read(archive, "t", np.s_[::7, 3:, 8], decode=False))


def test_a_store_that_knows_no_ranges(rclone, data):
    options = {"key": "AKINSITU", "secret": "hush-hush-never-shown", "endpoint_url": rclone.url, "region": "us-east-1"}
    source = open_source("s3://box/x.bin", options)
    check(source, data)
    with pytest.raises(AccessError) as caught:
        open_source("s3://box/x.bin", {**options, "secret": "wrong-secret"}).read(0, 5)
    assert "wrong-secret" not in str(caught.value)
