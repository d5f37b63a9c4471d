"""Under an access policy real stores are read and listed as without one: SeaweedFS checks
signatures, Azurite shared keys.
"""

from __future__ import annotations

import pytest

import insitu
from insitu.errors import AccessError, NotFoundError
from insitu.server.roots import Roots
from insitu.sources import listing, open_source
from insitu.sources.access_policy import RefusedError, access_policy_scope

pytestmark = pytest.mark.xdist_group("remote")

KEY, SECRET = "AKINSITU", "hush-hush-never-shown"


def same(url, options, roots, data):
    """What is read and listed behind the gate is what is read and listed without."""
    box = url.rpartition("/")[0]
    free = (
        listing.list_all_objects(f"{box}/era5", options),
        listing.list_folder(f"{box}/era5", options),
        listing.list_folder(box, options),
    )
    with access_policy_scope(Roots(roots)):
        assert free == (
            listing.list_all_objects(f"{box}/era5", options),
            listing.list_folder(f"{box}/era5", options),
            listing.list_folder(box, options),
        )
        source = open_source(url, options)
        assert source.read(10, 50) == data[10:60]
        ranges = [(at * 9970 % 299_000, 1 + at % 300) for at in range(40)]
        assert source.read_many(ranges) == [data[offset : offset + length] for offset, length in ranges]
        assert source.size() == len(data)
        with pytest.raises(NotFoundError):
            open_source(f"{box}/nothing", options).read(0, 1)
        group = insitu.scan(f"{box}/archive.h5", storage_options=options, decode=False)
        assert {source.url for tile in group.array("t").tiles for source in tile.chunks.sources} == {
            f"{box}/archive.h5"
        }


def test_s3_with_keys(seaweed, data):
    options = {"key": KEY, "secret": SECRET, "endpoint_url": seaweed.url}
    same("s3://private/x.bin", options, [f"{seaweed.url}/private"], data)
    with access_policy_scope(Roots([f"{seaweed.url}/private"])):
        with pytest.raises(RefusedError):
            open_source("s3://public/x.bin", options)
        for wrong in ({**options, "secret": "no"}, {"anon": True, "endpoint_url": seaweed.url}):
            with pytest.raises(AccessError):
                open_source("s3://private/x.bin", wrong).read(0, 1)
            with pytest.raises(AccessError):
                listing.list_folder("s3://private/era5", wrong)


def test_s3_at_the_usual_endpoint(seaweed, data, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", seaweed.url)
    same("s3://private/x.bin", {"key": KEY, "secret": SECRET}, ["s3://private"], data)
    same("s3://public/x.bin", {"anon": True}, ["s3://public"], data)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    # Keys of the environment are the operator's: behind a gate they are used where the operator
    # says so, and not else.
    same("s3://private/x.bin", {"anon": False}, ["s3://private"], data)
    assert open_source("s3://private/x.bin").read(0, 4) == data[:4]
    with access_policy_scope(Roots(["s3://private"])), pytest.raises(AccessError):
        open_source("s3://private/x.bin").read(0, 4)


def test_azure(azurite, data):
    keys = {"account_name": azurite.extra["account"], "account_key": azurite.extra["key"]}
    same("az://private/x.bin", {**keys, "endpoint_url": azurite.endpoint}, [f"{azurite.endpoint}/private"], data)
    anonymous = {"account_name": azurite.extra["account"], "anon": True, "endpoint_url": azurite.endpoint}
    same("az://public/x.bin", anonymous, [f"{azurite.endpoint}/public"], data)
    with access_policy_scope(Roots([azurite.endpoint])), pytest.raises((AccessError, NotFoundError)):
        open_source("az://private/x.bin", anonymous).read(0, 1)
