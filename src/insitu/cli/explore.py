"""`insitu explore`: look at archives in the browser."""

from __future__ import annotations

import os
import re
import webbrowser
from typing import Annotated

import typer

from insitu.cli.access import StorageOption, storage_options
from insitu.cli.option_sources import refuse_empty_variables
from insitu.cli.screen import stderr
from insitu.combining.file_names import absolute_path, expand_paths, is_many
from insitu.errors import InsituError, NotFoundError
from insitu.sources import detach_secrets
from insitu.sources.address import is_remote

__all__ = ["explore"]


def explore(
    urls: Annotated[
        list[str],
        typer.Argument(help="Archives: paths, URLs, patterns, folders. Several are shown as one dataset, too."),
    ],
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the browser, or only print the address.")
    ] = True,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any that is free.")] = 0,
    memory: Annotated[float, typer.Option(min=0.05, help="GiB of decoded data that may be held at a time.")] = 2.0,
    token: Annotated[
        str | None,
        typer.Option(envvar="INSITU_TOKEN", help="Ask for this token: other users of this machine need it, too."),
    ] = None,
    option: StorageOption = None,
    log_level: Annotated[str, typer.Option(help="Log level: debug, info, warning or error.")] = "warning",
) -> None:
    """Look at archives in the browser: their contents, values and chunks.

    Starts a server that only programs of this machine can reach, and that reads with your own credentials.
    """
    try:
        from insitu.server import Limits, Settings, run
        from insitu.server.authentication import check_tokens
    except ImportError as problem:
        raise InsituError(
            f"the explorer needs the package {problem.name}", hint="pip install 'insitu[serve]'"
        ) from problem
    refuse_empty_variables({"INSITU_TOKEN": token})
    if token is not None:
        check_tokens([token])
    options = storage_options(option) or {}
    archives = []
    for url in urls:
        # Signatures and passwords move to the options: the page, its address and its clients get names without them.
        public, options = detach_secrets(url, options)
        if public != url and is_many(public):  # they hold for what the pattern matches
            options[f"{re.split(r'[*[]', public)[0].rpartition('/')[0]}/"] = options.pop(public)
        archives.append(_check_location(public, options))
    gib = 1 << 30
    settings = Settings(
        roots=tuple(url for url in archives if _can_be_root(url)),
        archives=tuple(dict.fromkeys(archives)),
        tokens=(token,) if token else (),
        limits=Limits(memory=int(memory * gib), cache=gib // 4),
        storage_options=options,
    )

    def announce(address: str) -> None:
        typer.echo(address)
        if browser and not webbrowser.open(address):
            stderr.print("no browser could be opened: open the address yourself", style="yellow")
        stderr.print("Ctrl+C ends the explorer", style="dim")

    run(settings, host="127.0.0.1", port=port, log_level=log_level, on_ready=announce)


def _check_location(url: str, options: dict[str, object]) -> str:
    """Return a location as an absolute one; an error if nothing is there on this machine."""
    found: str = absolute_path(url)
    if is_many(found):
        expand_paths(found, options)  # raises if nothing matches
    elif not is_remote(found) and "::" not in found and not os.path.exists(_without_scheme(found)):
        raise NotFoundError("no such file or folder", url=url)
    # A folder as the listing names it: without a slash at its end.
    return found.rstrip("/") if len(found) > 1 and os.path.isdir(found) else found


def _can_be_root(url: str) -> bool:
    """Return whether a location can be a root of a server: patterns and members of archives cannot."""
    from insitu.server.roots import Roots

    if is_many(url) or "::" in url:
        return False
    try:
        Roots([url])
    except InsituError:
        return False  # a scheme that only fsspec knows: it can be opened by exactly this name
    return True


def _without_scheme(url: str) -> str:
    from insitu.server.roots import local_path

    return local_path(url) or url
