"""A Dask cluster of processes, for tests that ask whether work survives between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["start_cluster"]


@contextmanager
def start_cluster() -> Iterator[Any]:
    """Yield a client of two processes of one thread each."""
    import distributed

    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client
