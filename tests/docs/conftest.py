"""The store whose buckets the pages name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from server.places import servers
from waiting import wait_until

BUCKETS = ("bucket", "mine")


@pytest.fixture(scope="session")
def buckets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """SeaweedFS with the buckets of the pages: the environment of a process that uses them."""
    if (why := servers.reason("seaweedfs")) is not None:
        pytest.skip(why)
    import obstore
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    with servers.start("seaweedfs", tmp_path_factory.mktemp("seaweed")) as running:

        def create(name: str) -> bool:
            store = S3Store(
                name, endpoint=running.url, access_key_id=servers.KEY, secret_access_key=servers.SECRET,
                region="us-east-1", client_options={"allow_http": True},
            )  # fmt: skip
            try:
                obstore.put(store, "first", b"")
            except (BaseError, OSError):
                return False  # a store that answers may not be ready to store
            return True

        for name in BUCKETS:
            wait_until(lambda name=name: create(name), f"{name} cannot be created")  # type: ignore[misc]
        yield {
            "AWS_ENDPOINT_URL": running.url,
            "AWS_ACCESS_KEY_ID": servers.KEY,
            "AWS_SECRET_ACCESS_KEY": servers.SECRET,
            "AWS_REGION": "us-east-1",
            "BUCKETS": " ".join(BUCKETS),
        }
