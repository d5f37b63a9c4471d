"""Choice of an engine: what `parallel=` and `insitu.options(engine=...)` name."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

from insitu.engines.dask import DaskEngine, LocalDask, find_client
from insitu.engines.engine_protocol import Engine
from insitu.engines.executor import ExecutorEngine
from insitu.process_options import check_engine

__all__ = ["engine_for"]


def engine_for(given: Any, option: str = "engine", others: str = ",") -> Engine | None:
    """Return the engine that is named; None: this process. The parameters are those of `check_engine`."""
    check_engine(given, option, others)
    if isinstance(given, str):
        client = find_client()
        return LocalDask(f'{option}="dask"') if client is None else DaskEngine(client)
    if isinstance(given, Executor):
        return ExecutorEngine(given)
    return None if given is None else DaskEngine(given)
