"""Icechunk repositories in a bucket, with references to another."""

from __future__ import annotations

import numpy as np
import obstore
import pytest
from obstore.store import S3Store

import insitu
from insitu.maintenance import append_tree as append
from insitu.references import save

icechunk = pytest.importorskip("icechunk")
zarr = pytest.importorskip("zarr")

pytestmark = [
    pytest.mark.xdist_group("remote"),
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr", "ignore:.*Zarr V3 specification"),
]
KEY, SECRET = "AKINSITU", "hush-hush-never-shown"


@pytest.fixture
def options(seaweed):
    return {"key": KEY, "secret": SECRET, "endpoint_url": seaweed.url, "region": "us-east-1"}


def theirs(seaweed, prefix):
    keys = {"access_key_id": KEY, "secret_access_key": SECRET}
    where = {"endpoint_url": seaweed.url, "region": "us-east-1", "allow_http": True, "force_path_style": True}
    place = icechunk.s3_storage(bucket="private", prefix=prefix, **where, **keys)
    config = icechunk.Repository.fetch_config(place)
    access = icechunk.containers_credentials(
        dict.fromkeys(config.virtual_chunk_containers, icechunk.s3_static_credentials(**keys))
    )
    repo = icechunk.Repository.open(place, authorize_virtual_chunk_access=access)
    return zarr.open_group(repo.readonly_session("main").store, mode="r")


def test_written_read_and_appended(seaweed, options):
    group = insitu.scan("s3://private/archive.h5", storage_options=options, decode=False)
    expected = insitu.read(group, "t", storage_options=options, decode=False)
    target = "s3://private/refs/all.icechunk"
    save(group, target, message="from a bucket", storage_options=options)
    np.testing.assert_array_equal(theirs(seaweed, "refs/all.icechunk")["t"][:], expected)
    found = insitu.scan(target, storage_options=options, decode=False)
    assert found.array("t").sources[0].url == "s3://private/archive.h5"
    np.testing.assert_array_equal(insitu.read(found, "t", storage_options=options, decode=False), expected)
    dim = found.array("t").dims[0]
    again = append(group, target, dim, storage_options=options)  # the same object: it is there already
    assert (again.steps, again.skipped) == (0, ("s3://private/archive.h5",))
    np.testing.assert_array_equal(insitu.read(target, "t", storage_options=options, decode=False), expected)
    bucket = S3Store("private", config=seaweed.config, client_options={"allow_http": True})
    obstore.copy(bucket, "archive.h5", "second.h5")
    append(
        insitu.scan("s3://private/second.h5", storage_options=options, decode=False),
        target,
        dim,
        storage_options=options,
    )
    both = np.concatenate([expected, expected])
    np.testing.assert_array_equal(insitu.read(target, "t", storage_options=options, decode=False), both)
    np.testing.assert_array_equal(theirs(seaweed, "refs/all.icechunk")["t"][:], both)


def test_found_by_what_lies_there(options):
    group = insitu.scan("s3://private/archive.h5", storage_options=options, decode=False)
    save(group, "s3://private/plain-name", format="icechunk", storage_options=options)
    found = insitu.scan("s3://private/plain-name/", storage_options=options, decode=False)
    assert found.details.format == "icechunk"
    np.testing.assert_array_equal(
        insitu.read(found, "plain", storage_options=options, decode=False),
        insitu.read(group, "plain", storage_options=options, decode=False),
    )
