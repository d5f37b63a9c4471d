"""How is the server started? Uvicorn, one or more worker processes; what they need to know is in their environment."""

from __future__ import annotations

import logging
import os
import shutil
import ssl
import tempfile
from dataclasses import replace
from typing import Any

import uvicorn

from insitu.server.metrics import PREFIX
from insitu.server.settings import VARIABLE, Settings

__all__ = ["run"]

GRACE = 30
"""Seconds that requests under way get when the server is told to stop."""

STARTING = 60
"""Seconds that a worker may take to answer the process that watches it, before it is taken for dead: it may have much to do."""


def run(
    settings: Settings,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    workers: int = 1,
    certificate: str | None = None,
    key: str | None = None,
    client_authority: str | None = None,
    log_level: str = "info",
) -> None:
    """Serve until told to stop.

    Parameters
    ----------
    settings
        What the server may do; limits are those of one worker.
    host, port
        Where it listens.
    workers
        Processes; one that dies is replaced.
    certificate, key
        Files in PEM format: then it speaks TLS.
    client_authority
        A file in PEM format: then clients must have a certificate that it signed.
    log_level
        `debug`, `info`, `warning`, `error`.
    """
    # One worker makes a folder of its own and removes it; for several this process does both.
    shared = settings.metrics is None and workers > 1
    folder = tempfile.mkdtemp(prefix=PREFIX) if shared else settings.metrics
    os.environ[VARIABLE] = replace(settings, metrics=folder).to_json()
    tls: dict[str, Any] = {} if certificate is None else {"ssl_certfile": certificate, "ssl_keyfile": key}
    if client_authority is not None:
        tls |= {"ssl_ca_certs": client_authority, "ssl_cert_reqs": ssl.CERT_REQUIRED}
    try:
        uvicorn.run(
            "insitu.server.app:from_environment",
            factory=True,
            http="insitu.server.header_limits:Door",  # by name: a worker answers its watcher before it imports this
            ws="none",
            host=host,
            port=port,
            workers=workers,
            access_log=False,  # uvicorn's would show queries
            log_config=_logging(log_level),
            server_header=False,
            timeout_graceful_shutdown=GRACE,
            timeout_worker_healthcheck=STARTING,
            **tls,
        )
    finally:
        if shared and folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _logging(level: str) -> dict[str, Any]:
    """Everything to standard error, one line an event."""
    name = logging.getLevelName(level.upper())
    if not isinstance(name, int):
        raise ValueError(f"{level!r} is not a level of logging")
    loggers = {
        logger: {"handlers": ["screen"], "level": name, "propagate": False}
        for logger in ("uvicorn", "uvicorn.error", "insitu")
    }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
        "handlers": {"screen": {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stderr"}},
        "loggers": loggers,
    }
