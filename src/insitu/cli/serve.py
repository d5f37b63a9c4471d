"""`insitu serve`: run a server that decodes and reduces next to the data."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from insitu.cli.screen import stderr
from insitu.errors import InsituError
from insitu.sources.address import scheme_of

__all__ = ["serve"]


def serve(
    roots: Annotated[
        list[str] | None,
        typer.Argument(
            help="What clients may read: folders, files, prefixes of http://, https:// or s3:// URLs. "
            "URL=FOLDER: read what lies under this URL from this folder."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8080,
    workers: Annotated[
        int, typer.Option(min=1, help="Number of processes; each may use all cores for one request.")
    ] = 1,
    memory: Annotated[
        float,
        typer.Option(min=0.05, help="GiB of decoded data that running requests may hold, in all workers together."),
    ] = 2.0,
    cache: Annotated[
        float, typer.Option(min=0, help="GiB for the cache of decoded chunks, in all workers together.")
    ] = 0.25,
    queue: Annotated[int, typer.Option(min=0, help="Requests that may wait; further ones get status 429.")] = 1024,
    max_request: Annotated[float, typer.Option(min=0.001, help="Largest request, in MiB.")] = 64.0,
    max_chunk: Annotated[float, typer.Option(min=0.001, help="Largest decoded chunk, in MiB.")] = 512.0,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that a request may run.")] = 300.0,
    token: Annotated[
        list[str] | None, typer.Option(envvar="INSITU_TOKENS", help="Accepted bearer token; may be repeated.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File of accepted tokens, one per line; read again when it changes.")
    ] = None,
    storage_options: Annotated[
        Path | None,
        typer.Option(help="JSON file that maps URL prefixes to storage options: the server's own credentials."),
    ] = None,
    keep_dims: Annotated[
        bool, typer.Option(help="Keep reduced dimensions in /v2, so that PyActiveStorage can reduce any axes.")
    ] = False,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM file of a certificate: serve HTTPS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file of its key.")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(help="PEM file of an authority: clients need a certificate that it signed.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="Log level: debug, info, warning or error.")] = "info",
) -> None:
    """Run a server that decodes and reduces next to the data:
    for active= of insitu, PyActiveStorage and any HTTP client.
    """
    try:
        from insitu.server import Limits, Settings, run
        from insitu.server.roots import Roots
    except ImportError as problem:
        raise InsituError(
            f"the server needs the package {problem.name}", hint="pip install 'insitu[serve]'"
        ) from problem
    if not roots:
        stderr.print("no root is given: clients cannot read anything from this server", style="yellow")
    Roots(roots or [])  # report a wrong root here, not in every worker
    limits = Limits(
        memory=int(memory * 2**30 / workers),
        cache=int(cache * 2**30 / workers),
        queue=queue,
        seconds=timeout,
        request=int(max_request * 2**20),
        chunk=int(max_chunk * 2**20),
    )
    if token_file is not None and not _has_tokens(token_file):
        stderr.print(f"{token_file} contains no token: no client is accepted until it does", style="yellow")
    if (tls_key or tls_client_ca) and not tls_cert:
        raise InsituError("TLS needs a certificate", hint="Give it with --tls-cert")
    settings = Settings(
        roots=tuple(_absolute_root(root) for root in roots or []),
        tokens=tuple(token or []),
        token_file=str(token_file.absolute()) if token_file else None,
        limits=limits,
        keep_dims=keep_dims,
        storage_options=json.loads(storage_options.read_text()) if storage_options else {},
    )
    if host not in ("127.0.0.1", "localhost", "::1") and not (token or token_file or tls_client_ca):
        stderr.print(
            f"everybody who can connect to {host}:{port} may read the roots; use --token to restrict access",
            style="yellow",
        )
    run(
        settings,
        host=host,
        port=port,
        workers=workers,
        certificate=str(tls_cert) if tls_cert else None,
        key=str(tls_key) if tls_key else None,
        client_authority=str(tls_client_ca) if tls_client_ca else None,
        log_level=log_level,
    )


def _absolute_root(root: str) -> str:
    return root if scheme_of(root) else os.path.abspath(os.path.expanduser(root))


def _has_tokens(path: Path) -> bool:
    from insitu.server.authentication import read_tokens

    try:
        return bool(read_tokens(str(path)))
    except (OSError, UnicodeDecodeError) as problem:
        raise InsituError(
            f"cannot read the token file {path}: {problem}", hint="Give a text file with one token per line"
        ) from None
