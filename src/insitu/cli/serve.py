"""`insitu serve`: let others reduce and read what lies here."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from insitu.cli.screen import problems
from insitu.errors import InsituError

__all__ = ["serve"]


def serve(
    roots: Annotated[
        list[str] | None,
        typer.Argument(
            help="What may be read: folders, files, prefixes of http://, https://, s3:// URLs. URL=FOLDER: what others know by that URL lies in that folder."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 for everybody.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Which port.")] = 8080,
    workers: Annotated[int, typer.Option(min=1, help="Processes; each uses all cores for one request.")] = 1,
    memory: Annotated[float, typer.Option(min=0.05, help="GiB of decoded data under way at once, in all.")] = 2.0,
    cache: Annotated[float, typer.Option(min=0, help="GiB of decoded chunks that are kept, in all.")] = 0.25,
    queue: Annotated[int, typer.Option(min=0, help="Requests that may wait; more are told to come again.")] = 1024,
    max_request: Annotated[float, typer.Option(min=0.001, help="MiB of a request.")] = 64.0,
    max_chunk: Annotated[float, typer.Option(min=0.001, help="MiB that a chunk may decode to.")] = 512.0,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that a request may take.")] = 300.0,
    token: Annotated[
        list[str] | None, typer.Option(envvar="INSITU_TOKENS", help="A bearer token that is let in; may be repeated.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="A file of tokens, one a line; read again when it changes.")
    ] = None,
    storage_options: Annotated[
        Path | None, typer.Option(help="A JSON file of URL prefix → options: the server's own credentials.")
    ] = None,
    keep_dims: Annotated[
        bool, typer.Option(help="/v2 keeps reduced dimensions, which lets PyActiveStorage reduce any axes.")
    ] = False,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate, PEM: then it speaks TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key, PEM.")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(help="PEM: clients must have a certificate that this authority signed.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Decode and reduce next to the data: for `active=` of insitu, for PyActiveStorage, and for anything that speaks HTTP."""
    try:
        from insitu.server import Limits, Settings, run
        from insitu.server.roots import Allowed
    except ImportError as problem:
        raise InsituError(f"the server needs {problem.name}", hint="pip install 'insitu[serve]'") from problem
    if not roots:
        problems.print("no ROOT is given: nothing can be read through this server, it only answers", style="yellow")
    Allowed(roots or [])  # a wrong root is an error here, not in every worker
    limits = Limits(
        memory=int(memory * 2**30 / workers),
        cache=int(cache * 2**30 / workers),
        queue=queue,
        seconds=timeout,
        request=int(max_request * 2**20),
        chunk=int(max_chunk * 2**20),
    )
    if token_file is not None and not _has_tokens(token_file):
        problems.print(f"{token_file} holds no token: nobody is let in until it does", style="yellow")
    if (tls_key or tls_client_ca) and not tls_cert:
        raise InsituError("TLS needs a certificate", hint="--tls-cert names it")
    settings = Settings(
        roots=tuple(_absolute(root) for root in roots or []),
        tokens=tuple(token or []),
        token_file=str(token_file.absolute()) if token_file else None,
        limits=limits,
        keep_dims=keep_dims,
        storage_options=json.loads(storage_options.read_text()) if storage_options else {},
    )
    if host not in ("127.0.0.1", "localhost", "::1") and not (token or token_file or tls_client_ca):
        problems.print(
            f"everybody who reaches {host}:{port} may read the roots; --token keeps strangers out", style="yellow"
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


def _absolute(root: str) -> str:
    return root if "://" in root else os.path.abspath(os.path.expanduser(root))


def _has_tokens(path: Path) -> bool:
    from insitu.server.credentials import read_tokens

    try:
        return bool(read_tokens(str(path)))
    except (OSError, UnicodeDecodeError) as problem:
        raise InsituError(f"the file of tokens cannot be read: {problem}", hint=f"Looked at {path}") from None
