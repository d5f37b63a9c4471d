"""Start the server: Uvicorn with one or more worker processes, configured by environment."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import uvicorn
from uvicorn.config import STARTUP_FAILURE

from insitu.server.certificate_files import CertificateFiles, context_factory
from insitu.server.log_format import log_config
from insitu.server.metrics import multiprocess_folder
from insitu.server.quotas import quota_folder
from insitu.server.reloading import SettingsReloader, reload_folder
from insitu.server.request_spans import check_exporter
from insitu.server.settings import ENVIRONMENT_VARIABLE, Settings
from insitu.server.supervisor import Supervisor

__all__ = ["run"]

serve_log = logging.getLogger("insitu.serve")

POLL_SECONDS = 0.05
"""Seconds between two attempts to connect to the server that is starting."""

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
    tls_files: CertificateFiles | None = None,
    log_level: str = "info",
    log_format: str = "text",
    on_ready: Callable[[str], None] | None = None,
    reload: Callable[[], Settings] | None = None,
) -> None:
    """Serve until the process is stopped.

    Parameters
    ----------
    settings
        Roots, tokens and limits; the limits are those of one worker.
    host, port
        The address to listen on; port 0: any that is free.
    workers
        Number of processes; one that dies is replaced.
    tls_files
        With them, the server uses TLS.
    log_level
        `debug`, `info`, `warning`, `error`.
    log_format
        `text`, or `json`: one object a line.
    on_ready
        Called with the address of the explorer's page once the server accepts connections, on a thread
        of its own; without it, the address is logged.
    reload
        Returns the settings as they are now: at SIGHUP the server goes on with these. Without it, SIGHUP ends the
        server, as it ends other programs of a terminal.
    """
    check_exporter()  # report what is missing here, not in every worker
    os.environ[ENVIRONMENT_VARIABLE] = settings.to_json()
    tls: dict[str, Any] = {}
    if tls_files is not None:
        tls_files.context()  # the same for wrong files
        tls = {"ssl_certfile": tls_files.certificate, "ssl_context_factory": partial(context_factory, tls_files)}
    reloaded = 1 if reload is None else workers
    with multiprocess_folder(workers), quota_folder(workers), reload_folder(reloaded) as folder:
        reloader = None if reload is None else SettingsReloader(reload, folder)
        ended = threading.Event()
        if (found := _free_port(host, port)) is not None:  # else Uvicorn says what is wrong
            port, address = found, f"{'https' if tls else 'http'}://{_shown_host(host)}:{found}/"
            threading.Thread(target=_announce, args=(host, port, address, on_ready, ended), daemon=True).start()
        try:
            config = uvicorn.Config(
                "insitu.server.app:from_environment",
                factory=True,
                # By name: a worker answers health checks before it imports this.
                http="insitu.server.header_limits:HeaderLimitsProtocol",
                ws="none",
                host=host,
                port=port,
                workers=workers,
                access_log=False,  # Uvicorn's log shows query strings
                log_config=log_config(log_level, log_format),
                server_header=False,
                timeout_graceful_shutdown=settings.grace,
                timeout_worker_healthcheck=HEALTHCHECK_SECONDS,
                **tls,
            )
            if workers > 1:
                listening = [config.bind_socket()]
                Supervisor(config, listening, lambda: reloader is not None and reloader.read() is not None).run()
            else:
                if reloader is not None and hasattr(signal, "SIGHUP"):
                    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the worker follows it
                _serve(config)
        finally:
            ended.set()


def _serve(config: uvicorn.Config) -> None:
    """Serve in this process."""
    server = uvicorn.Server(config)
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(STARTUP_FAILURE)


def _free_port(host: str, port: int) -> int | None:
    """Return the port that the server can have, any for 0; None if it is taken or the address is wrong."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as found:
            if os.name != "nt":  # there it would allow a port that somebody listens on
                found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((host, port))
            return int(found.getsockname()[1])
    except OSError:
        return None


def _announce(
    host: str, port: int, address: str, on_ready: Callable[[str], None] | None, ended: threading.Event
) -> None:
    """Wait until the server accepts connections, then name the address to open."""
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    while not ended.is_set():
        try:
            socket.create_connection((near, port), timeout=1).close()
        except OSError:
            time.sleep(POLL_SECONDS)
            continue
        if on_ready is not None:
            on_ready(address)
        else:
            serve_log.info("listening on %s: open it in a browser to explore the archives", address)
        return


def _shown_host(host: str) -> str:
    """Return a host as a browser finds it."""
    name = socket.gethostname() if host in ("0.0.0.0", "::", "") else host
    return f"[{name}]" if ":" in name else name
