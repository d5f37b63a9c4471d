"""`insitu serve`: run a server that decodes and reduces next to the data."""

from __future__ import annotations

import json
import logging.config
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from insitu.cli.option_sources import (
    apply_option_file,
    read_options_again,
    refuse_empty_variables,
    unknown_variables,
    variable_name,
)
from insitu.errors import InsituError
from insitu.sources.address import scheme_of
from insitu.sources.redaction import redact_url

if TYPE_CHECKING:
    from insitu.server import Settings

__all__ = ["CONTEXT_SETTINGS", "serve"]

PREFIX = "INSITU_SERVE"
"""Of the environment variables that set options."""
CONTEXT_SETTINGS = {"auto_envvar_prefix": PREFIX}
DEFAULT_MEMORY = 2.0
"""GiB of decoded data, if no other number is given."""
FIXED_OPTIONS = (
    *("host", "port", "workers", "cache", "grace", "config", "log_level", "log_format"),
    *("tls_cert", "tls_key", "tls_client_ca"),
)
"""Options that a running server keeps; SIGHUP reads the others again."""
serve_log = logging.getLogger("insitu.serve")


def _apply_config(context: typer.Context, path: Path | None) -> Path | None:
    if path is not None:
        apply_option_file(context, path, serve, "config")
        if (context.default_map or {}).get("token") == []:
            raise InsituError(f"{path}: the list of tokens is empty", hint="Give tokens, or leave the key out")
    return path


def _parse_quotas(text_or_table: str | dict[str, Any]) -> dict[str, Any]:
    """Return quotas that the file gives as tables, and everything else as JSON."""
    from insitu.server.quotas import parse_quotas

    try:
        found = json.loads(text_or_table) if isinstance(text_or_table, str) else text_or_table
        if not isinstance(found, dict):
            raise ValueError("it must be an object")
        parse_quotas(found)
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None
    return found


def serve(
    context: typer.Context,
    roots: Annotated[
        list[str] | None,
        typer.Argument(
            envvar=variable_name(PREFIX, "roots"),
            help="What clients may read: folders, files, prefixes of http://, https:// or s3:// URLs. "
            "URL=FOLDER: read what lies under this URL from this folder.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8080,
    workers: Annotated[
        int, typer.Option(min=1, help="Number of processes; each may use all cores for one request.")
    ] = 1,
    memory: Annotated[
        float | None,
        typer.Option(
            min=0.05,
            help="GiB of decoded data that running requests may hold, in all workers together; at least one "
            "--max-chunk for each worker. By default 2, or that.",
        ),
    ] = None,
    cache: Annotated[
        float, typer.Option(min=0, help="GiB for the cache of decoded chunks, in all workers together.")
    ] = 0.25,
    queue: Annotated[int, typer.Option(min=0, help="Requests that may wait; further ones get status 429.")] = 1024,
    max_request: Annotated[float, typer.Option(min=0.001, help="Largest request, in MiB.")] = 64.0,
    max_chunk: Annotated[float, typer.Option(min=0.001, help="Largest decoded chunk, in MiB.")] = 512.0,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that a request may run.")] = 300.0,
    min_rate: Annotated[
        float,
        typer.Option(min=0, help="Bytes a second that a client has to read; slower replies are ended. 0: any rate."),
    ] = 1024.0,
    grace: Annotated[
        int, typer.Option(min=0, help="Seconds that running requests get to finish when the server stops.")
    ] = 30,
    token: Annotated[
        list[str] | None, typer.Option(envvar="INSITU_TOKENS", help="Accepted bearer token; may be repeated.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File of accepted tokens, one per line; read again when it changes.")
    ] = None,
    storage_options: Annotated[
        str | None,
        typer.Option(help="JSON, or a file of it: storage options by URL prefix, the server's own credentials."),
    ] = None,
    quotas: Annotated[
        dict[str, Any] | None,
        typer.Option(
            parser=_parse_quotas,
            metavar="JSON",
            help="What tokens may use in an hour; in the TOML file tables: [quotas.default] requests, bytes, "
            "processor_seconds.",
        ),
    ] = None,
    trust_copies: Annotated[
        bool,
        typer.Option(
            help="Read the folders of roots URL=FOLDER without comparing them with the objects; only sizes must be "
            "equal."
        ),
    ] = False,
    keep_dims: Annotated[
        bool, typer.Option(help="Keep reduced dimensions in /v2, so that PyActiveStorage can reduce any axes.")
    ] = False,
    tls_cert: Annotated[
        Path | None, typer.Option(help="PEM file of a certificate: serve HTTPS. Read again when it changes.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file of its key.")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(help="PEM file of an authority: clients need a certificate that it signed.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="Log level: debug, info, warning or error.")] = "info",
    log_format: Annotated[str, typer.Option(help="Log format: text, or json for one JSON object a line.")] = "text",
    config: Annotated[
        Path | None,
        typer.Option(
            callback=_apply_config,
            is_eager=True,
            help="TOML file of options: port = 8080, and so on. Flags and the environment come first.",
        ),
    ] = None,
) -> None:
    """Run a server that decodes and reduces next to the data:
    for active= of insitu, PyActiveStorage and any HTTP client.
    """
    try:
        from insitu.server import CertificateFiles, log_config, run
    except ImportError as problem:
        raise InsituError(
            f"the server needs the package {problem.name}", hint="pip install 'insitu[serve]'"
        ) from problem
    logging.config.dictConfig(log_config(log_level, log_format))
    for name in unknown_variables(PREFIX, serve):
        serve_log.warning("the environment variable %s is no option of insitu serve and is ignored", name)
    if (tls_key or tls_client_ca) and not tls_cert:
        raise InsituError("TLS needs a certificate", hint="Give it with --tls-cert")
    settings = _make_settings(context.params)
    if host not in ("127.0.0.1", "localhost", "::1") and not (token or token_file or tls_client_ca):
        serve_log.warning(
            "everybody who can connect to %s:%d may read the roots; use --token to restrict access", host, port
        )
    serve_log.info("memory: at most %s", settings.limits.describe_memory(workers))
    run(
        settings,
        host=host,
        port=port,
        workers=workers,
        tls_files=CertificateFiles(
            str(tls_cert), str(tls_key) if tls_key else None, str(tls_client_ca) if tls_client_ca else None
        )
        if tls_cert
        else None,
        log_level=log_level,
        log_format=log_format,
        reload=lambda: _reload_settings(context),
    )


def _make_settings(options: Mapping[str, Any]) -> Settings:
    """Return the settings of a server with these options, checked."""
    from insitu.server import Limits, Settings
    from insitu.server.authentication import check_tokens
    from insitu.server.operator_options import unmatched_options
    from insitu.server.roots import Roots, split_root

    roots = [_absolute_root(root) for root in options["roots"] or ()]
    if not roots:
        serve_log.warning("no root is given: clients cannot read anything from this server")
    Roots(roots)  # report a wrong root here, not in every worker
    workers, max_chunk = options["workers"], options["max_chunk"]
    memory = options["memory"]
    if memory is None:
        memory = max(DEFAULT_MEMORY, workers * max_chunk / 1024)
    if memory * 1024 < workers * max_chunk:
        raise InsituError(
            f"--memory {memory:g} is less than one --max-chunk, {max_chunk:g} MiB, for each of {workers} workers",
            hint=f"Give --memory {workers * max_chunk / 1024:g} or --max-chunk {memory * 1024 / workers:g}",
        )
    limits = Limits(
        memory=int(memory * 2**30 / workers),
        cache=int(options["cache"] * 2**30 / workers),
        queue=options["queue"],
        seconds=options["timeout"],
        request=int(options["max_request"] * 2**20),
        chunk=int(max_chunk * 2**20),
        rate=options["min_rate"],
    )
    tokens, token_file = tuple(options["token"] or ()), options["token_file"]
    restricting = ("token", "token_file", "tls_client_ca", "tls_cert", "config")
    refuse_empty_variables({variable_name(PREFIX, name): options[name] for name in restricting})
    refuse_empty_variables({"INSITU_TOKENS": tokens})
    check_tokens(tokens)
    if token_file is not None:
        check_tokens(_read_token_file(Path(token_file)))
    own = _read_storage_options(options["storage_options"]) if options["storage_options"] else {}
    for name in unmatched_options([split_root(root)[0] for root in roots], own):
        serve_log.warning(
            "the storage options for %r match no root and are not used: name a prefix of a root, such as s3://bucket/",
            redact_url(name),
        )
    return Settings(
        roots=tuple(roots),
        tokens=tokens,
        token_file=os.path.abspath(token_file) if token_file is not None else None,
        limits=limits,
        keep_dims=options["keep_dims"],
        trust_copies=options["trust_copies"],
        storage_options=own,
        quotas=options["quotas"] or {},
        grace=options["grace"],
    )


def _reload_settings(context: typer.Context) -> Settings:
    """Return the settings as files and environment give them now; an error if these are wrong."""
    options = read_options_again(context)
    for name in FIXED_OPTIONS:
        if options[name] != context.params[name]:
            serve_log.warning("%s changes only when the server is started again", name)
            options[name] = context.params[name]
    return _make_settings(options)


def _read_storage_options(text: str) -> dict[str, Any]:
    is_json = text.lstrip().startswith(("{", "["))  # it is not shown: it holds secrets
    place = "--storage-options" if is_json else text
    try:
        found = json.loads(text if is_json else Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else problem
        raise InsituError(
            f"cannot read the storage options in {place}: {reason}", hint="Give JSON, or a file of it"
        ) from None
    if not isinstance(found, dict):
        raise InsituError(f"{place} holds no storage options", hint='Write a JSON object: {"s3://bucket/": {"key": …}}')
    return found


def _absolute_root(root: str) -> str:
    from insitu.server.roots import split_root

    url, folder = split_root(root)
    if folder is not None:
        return f"{url}={os.path.abspath(os.path.expanduser(folder))}"
    return root if scheme_of(root) else os.path.abspath(os.path.expanduser(root))


def _read_token_file(path: Path) -> tuple[str, ...]:
    from insitu.server.authentication import read_tokens

    try:
        found = read_tokens(str(path))
    except (OSError, UnicodeDecodeError) as problem:
        raise InsituError(
            f"cannot read the token file {path}: {problem}", hint="Give a text file with one token per line"
        ) from None
    if not found:
        raise InsituError(f"{path} contains no token: no client would be let in", hint="Write one token per line")
    return found
