"""Icechunk repositories in a bucket, with references to another."""

from __future__ import annotations

import numpy as np
import obstore
import pytest
from obstore.store import AzureStore, S3Store

import insitu
from insitu.errors import UnsupportedError
from insitu.maintenance import append_tree as append
from insitu.references import save

icechunk = pytest.importorskip("icechunk")
zarr = pytest.importorskip("zarr")

pytestmark = [
    pytest.mark.xdist_group("remote"),
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr", "ignore:.*Zarr V3 specification"),
]
OLD = icechunk.__version__.startswith("1.")
KEY, SECRET = "AKINSITU", "hush-hush-never-shown"


@pytest.fixture
def options(seaweed):
    return {"key": KEY, "secret": SECRET, "endpoint_url": seaweed.url, "region": "us-east-1"}


def open_with_icechunk(seaweed, prefix):
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
    np.testing.assert_array_equal(open_with_icechunk(seaweed, "refs/all.icechunk")["t"][:], expected)
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
    np.testing.assert_array_equal(open_with_icechunk(seaweed, "refs/all.icechunk")["t"][:], both)


def test_found_by_what_lies_there(options):
    group = insitu.scan("s3://private/archive.h5", storage_options=options, decode=False)
    save(group, "s3://private/plain-name", format="icechunk", storage_options=options)
    found = insitu.scan("s3://private/plain-name/", storage_options=options, decode=False)
    assert found.details.format == "icechunk"
    np.testing.assert_array_equal(
        insitu.read(found, "plain", storage_options=options, decode=False),
        insitu.read(group, "plain", storage_options=options, decode=False),
    )


class TestAzure:
    """References to objects in Azure, which icechunk 2 has."""

    @pytest.fixture
    def options(self, azurite):
        return {
            "account_name": azurite.extra["account"],
            "account_key": azurite.extra["key"],
            "endpoint_url": azurite.endpoint,
        }

    def open_with_icechunk(self, azurite, name):
        """What icechunk and zarr read from a repository, by themselves."""
        account, keys = azurite.extra["account"], {"access_key": azurite.extra["key"]}
        where = {"endpoint": azurite.endpoint, "allow_http": "true"}
        place = icechunk.azure_storage(account=account, container="private", prefix=name, config=where, **keys)
        config = icechunk.Repository.fetch_config(place)
        access = icechunk.containers_credentials(
            dict.fromkeys(config.virtual_chunk_containers, icechunk.azure_credentials(**keys))
        )
        repo = icechunk.Repository.open(place, authorize_virtual_chunk_access=access)
        return zarr.open_group(repo.readonly_session("main").store, mode="r")

    @pytest.mark.skipif(OLD, reason="icechunk 1 cannot refer to objects in Azure")
    @pytest.mark.parametrize("scheme", ["az", "abfs"])
    def test_written_read_and_appended(self, azurite, options, scheme):
        url, target = f"{scheme}://private/archive.h5", f"az://private/refs/{scheme}.icechunk"
        group = insitu.scan(url, storage_options=options, decode=False)
        expected = insitu.read(group, "t", storage_options=options, decode=False)
        save(group, target, message="from Azure", storage_options=options)
        np.testing.assert_array_equal(self.open_with_icechunk(azurite, f"refs/{scheme}.icechunk")["t"][:], expected)
        found = insitu.scan(target, storage_options=options, decode=False)
        assert found.array("t").sources[0].url == url
        for _ in range(2):
            np.testing.assert_array_equal(insitu.read(found, "t", storage_options=options, decode=False), expected)
        dim = found.array("t").dims[0]
        again = append(group, target, dim, storage_options=options)
        assert (again.steps, again.skipped) == (0, (url,))
        config = {"account_name": options["account_name"], "account_key": options["account_key"]}
        box = AzureStore(
            "private", config={**config, "endpoint": azurite.endpoint}, client_options={"allow_http": True}
        )
        obstore.copy(box, "archive.h5", f"second {scheme}.h5")
        second = insitu.scan(f"{scheme}://private/second {scheme}.h5", storage_options=options, decode=False)
        append(second, target, dim, storage_options=options)
        both = np.concatenate([expected, expected])
        np.testing.assert_array_equal(insitu.read(target, "t", storage_options=options, decode=False), both)
        np.testing.assert_array_equal(self.open_with_icechunk(azurite, f"refs/{scheme}.icechunk")["t"][:], both)

    @pytest.mark.skipif(OLD, reason="icechunk 1 cannot refer to objects in Azure")
    def test_read_without_credentials(self, azurite, options):
        group = insitu.scan("az://public/archive.h5", storage_options=options, decode=False)
        save(group, "az://public/refs.icechunk", storage_options=options)
        public = {name: options[name] for name in ("account_name", "endpoint_url")} | {"anon": True}
        np.testing.assert_array_equal(
            insitu.read("az://public/refs.icechunk", "t", storage_options=public, decode=False),
            insitu.read(group, "t", storage_options=options, decode=False),
        )

    @pytest.mark.skipif(OLD, reason="icechunk 1 cannot refer to objects in Azure")
    def test_a_url_that_names_the_account_is_refused(self, options, tmp_path):
        url = "abfs://private@devstoreaccount1.dfs.core.windows.net/archive.h5"
        group = insitu.scan(url, storage_options=options, decode=False)
        with pytest.raises(UnsupportedError, match=r"only by container and name.*az://private/"):
            save(group, tmp_path / "refs.icechunk", storage_options=options)

    @pytest.mark.skipif(not OLD, reason="icechunk 2 can refer to objects in Azure")
    def test_icechunk_1_is_refused_by_its_version(self, options, tmp_path):
        group = insitu.scan("az://private/archive.h5", storage_options=options, decode=False)
        with pytest.raises(UnsupportedError, match=r"icechunk 1\.[0-9.]+ cannot refer to objects in Azure"):
            save(group, tmp_path / "refs.icechunk", storage_options=options)
        assert not (tmp_path / "refs.icechunk").exists()
