"""The store whose buckets the pages name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from server.places import put_object, servers

BUCKETS = ("bucket", "mine")


@pytest.fixture(scope="session")
def buckets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """SeaweedFS with the buckets of the pages: the environment of a process that uses them."""
    if (why := servers.reason("seaweedfs")) is not None:
        pytest.skip(why)
    with servers.start("seaweedfs", tmp_path_factory.mktemp("seaweed")) as running:
        for name in BUCKETS:
            put_object(running.url, name, "first", b"")
        yield {
            "AWS_ENDPOINT_URL": running.url,
            "AWS_ACCESS_KEY_ID": servers.KEY,
            "AWS_SECRET_ACCESS_KEY": servers.SECRET,
            "AWS_REGION": "us-east-1",
            "BUCKETS": " ".join(BUCKETS),
        }
