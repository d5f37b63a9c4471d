"""Choice of an engine: what `parallel=` and `insitu.options(engine=...)` name."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from insitu.engines.dask import DaskEngine, LocalDask, find_client, is_dask_client
from insitu.engines.engine_protocol import Engine
from insitu.engines.executor import ExecutorEngine

__all__ = ["check_engine", "engine_for", "settings"]


@dataclass(slots=True)
class EngineSettings:
    """The engine of this process: see `insitu.options`."""

    engine: Any = None
    """As it was given."""


settings = EngineSettings()


def check_engine(given: Any, option: str = "engine", others: str = ",") -> Any:
    """Return what names an engine, as it is.

    Parameters
    ----------
    given
        A Dask client, "dask", an executor, or None: this process.
    option
        Where it was given.
    others
        What else may be given there, for the error.

    Raises
    ------
    TypeError
        If it names none.
    """
    if given is None or isinstance(given, Executor) or is_dask_client(given):
        return given
    if isinstance(given, str) and given == "dask":
        return given
    raise TypeError(
        f"{option} must be a Dask client, 'dask', an Executor of concurrent.futures{others} or None, not {given!r}"
    )


def engine_for(given: Any, option: str = "engine", others: str = ",") -> Engine | None:
    """Return the engine that is named; None: this process. The parameters are those of `check_engine`."""
    check_engine(given, option, others)
    if isinstance(given, str):
        client = find_client()
        return LocalDask(f'{option}="dask"') if client is None else DaskEngine(client)
    if isinstance(given, Executor):
        return ExecutorEngine(given)
    return None if given is None else DaskEngine(given)
