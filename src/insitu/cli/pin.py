"""`insitu pin`: parts of a saved archive as native chunks inside the store."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from insitu.cli.access import StorageOption, storage_options
from insitu.cli.copy import parse_chunks, parse_lengths, print_outcome, report_progress
from insitu.cli.read import parse_labels

__all__ = ["pin"]


def pin(
    target: Annotated[str, typer.Argument(help="An insitu store.", metavar="REFS")],
    variables: Annotated[
        list[str] | None,
        typer.Argument(help="Variables; by default all whose values lie in files.", metavar="VARIABLE..."),
    ] = None,
    sel: Annotated[
        list[str] | None,
        typer.Option("--sel", metavar="DIM=LABEL", help="Only these labels: time=2020..2024; may be repeated."),
    ] = None,
    chunks: Annotated[
        str | None,
        typer.Option(
            "--chunks",
            metavar="LENGTHS",
            help="Chunks: time=365,lat=20,lon=20 (-1: the whole dimension), or what they are for: series, maps, "
            "both, auto. By default those of the files.",
        ),
    ] = None,
    shards: Annotated[
        str | None,
        typer.Option("--shards", metavar="LENGTHS", help="Chunks that are one object: time=3650,lat=180,lon=360."),
    ] = None,
    codec: Annotated[
        str | None,
        typer.Option(
            "--codec",
            help="zstd:3, zlib:4, blosc:lz4, none. By default that of the files where chunks stay, else zstd:3.",
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", help="Memory to take, such as 2GiB. By default a quarter of the machine's."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done: bytes, memory, time.")
    ] = False,
    as_text: Annotated[bool, typer.Option("--json", help="Print JSON lines: progress, and the result.")] = False,
    option: StorageOption = None,
) -> None:
    """Store a part of a saved archive as native chunks inside the store, from which it is read then.

    `insitu unpin` undoes it.
    """
    from insitu.archive import Archive

    archive = Archive.open(target, many=False, storage_options=storage_options(option))
    with report_progress(as_text) as progress:
        done: Any = archive.pin(
            variables or None,
            sel=parse_labels(sel) if sel else None,
            chunks=parse_chunks(chunks),
            shards=None if shards is None else parse_lengths(shards, "--shards"),
            codec=codec,
            memory=memory,
            dry_run=dry_run,
            progress=progress,
        )
    print_outcome(done, dry_run, as_text)
