"""Start the server: Uvicorn with one or more worker processes, configured by environment."""

from __future__ import annotations

import logging
import os
import ssl
from typing import Any

import uvicorn

from insitu.server.metrics import multiprocess_folder
from insitu.server.settings import ENVIRONMENT_VARIABLE, Settings
from insitu.server.siblings import sibling_folder

__all__ = ["run"]

SHUTDOWN_SECONDS = 30
"""Seconds that running requests get to finish when the server stops."""

HEALTHCHECK_SECONDS = 60
"""Seconds without a sign of life after which a worker is replaced;
a busy worker may be slow to answer.
"""


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
    """Serve until the process is stopped.

    Parameters
    ----------
    settings
        Roots, tokens and limits; the limits are those of one worker.
    host, port
        The address to listen on.
    workers
        Number of processes; one that dies is replaced.
    certificate, key
        PEM files; with them, the server uses TLS.
    client_authority
        A PEM file; with it, clients need a certificate that this authority signed.
    log_level
        `debug`, `info`, `warning`, `error`.
    """
    os.environ[ENVIRONMENT_VARIABLE] = settings.to_json()
    tls: dict[str, Any] = {} if certificate is None else {"ssl_certfile": certificate, "ssl_keyfile": key}
    if client_authority is not None:
        tls |= {"ssl_ca_certs": client_authority, "ssl_cert_reqs": ssl.CERT_REQUIRED}
    with multiprocess_folder(workers), sibling_folder(workers):
        uvicorn.run(
            "insitu.server.app:from_environment",
            factory=True,
            # By name: a worker answers health checks before it imports this.
            http="insitu.server.header_limits:HeaderLimitsProtocol",
            ws="none",
            host=host,
            port=port,
            workers=workers,
            access_log=False,  # Uvicorn's log shows query strings
            log_config=_log_config(log_level),
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            timeout_worker_healthcheck=HEALTHCHECK_SECONDS,
            **tls,
        )


def _log_config(level: str) -> dict[str, Any]:
    """Return a logging configuration: everything to standard error, one line per event."""
    name = logging.getLevelName(level.upper())
    if not isinstance(name, int):
        raise ValueError(f"{level!r} is not a log level: use debug, info, warning or error")
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
