"""`insitu copy`: archives as native stores and files, in chunks of another grid."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from insitu.cli.access import Overwrite, StorageOption, storage_options
from insitu.cli.progress import bytes_bar
from insitu.cli.read import parse_labels
from insitu.cli.screen import stderr
from insitu.copying.choose_chunks import CHUNK_WORDS, Chunks

__all__ = ["copy", "parse_lengths"]


def copy(
    places: Annotated[
        list[str],
        typer.Argument(
            help="Files, patterns, saved references or stores; and last the target, which ends in .zarr, .icechunk or "
            ".nc; {time:%Y} and {variable} in its name make several.",
            metavar="SOURCE... TARGET",
        ),
    ],
    chunks: Annotated[
        str | None,
        typer.Option(
            "--chunks",
            metavar="LENGTHS",
            help="Chunks of the target: time=365,lat=20,lon=20 (-1: the whole dimension), or what they are for: "
            "series, maps, both, auto. By default those of the source.",
        ),
    ] = None,
    shards: Annotated[
        str | None, typer.Option("--shards", metavar="LENGTHS", help="Shards of Zarr V3: time=3650,lat=180,lon=360.")
    ] = None,
    codec: Annotated[
        str | None,
        typer.Option(
            "--codec",
            help="zstd:3, zlib:4, blosc:lz4, none, or source: those of the source where its chunks stay. By default "
            "the same if the specification of Zarr has them, else zstd:3; of NetCDF zlib:4.",
        ),
    ] = None,
    variable: Annotated[
        list[str] | None, typer.Option("--variable", help="Only this variable and its coordinates; may be repeated.")
    ] = None,
    sel: Annotated[
        list[str] | None,
        typer.Option("--sel", metavar="DIM=LABEL", help="Only these labels: time=2010..2020; may be repeated."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", help="Memory to take, such as 2GiB. By default a quarter of the machine's."),
    ] = None,
    zarr_format: Annotated[int, typer.Option("--zarr-format", help="3 or 2.")] = 3,
    engine: Annotated[
        str | None, typer.Option("--engine", help="dask: on the cluster of Dask's configuration, or its threads.")
    ] = None,
    commit_every: Annotated[
        int | None, typer.Option("--commit-every", help="Steps of the first dimension in each commit of Icechunk.")
    ] = None,
    append: Annotated[
        bool,
        typer.Option(
            "--append",
            help="Add what is new along the dimension of time to a target that is there; make it, if it is not. Its "
            "chunks, types and packing stay.",
        ),
    ] = False,
    along: Annotated[
        str | None, typer.Option("--along", metavar="DIM", help="With --append: another dimension than that of time.")
    ] = None,
    repack: Annotated[
        bool, typer.Option("--repack", help="Pack anew what the files pack differently; else it is stored unpacked.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read the target back and compare it with checksums of the values.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done: passes, bytes, memory, disk, time.")
    ] = False,
    as_text: Annotated[bool, typer.Option("--json", help="Print JSON lines: progress, and the result.")] = False,
    overwrite: Overwrite = False,
    option: StorageOption = None,
) -> None:
    """Copy an archive, or a part of it, into a native store or file in chunks of another grid."""
    *sources, target = places
    if not sources:
        raise typer.BadParameter("give at least one source, and last the target", param_hint="SOURCE... TARGET")
    if along is not None and not append:
        raise typer.BadParameter("only --append is along a dimension", param_hint="--along")
    from insitu.archive import Archive

    access = storage_options(option)
    archive = Archive.open(sources[0] if len(sources) == 1 else sources, storage_options=access)
    with report_progress(as_text) as progress:
        done: Any = archive.copy(
            target,
            chunks=parse_chunks(chunks),
            shards=None if shards is None else parse_lengths(shards, "--shards"),
            codec=codec,
            variables=variable or None,
            sel=parse_labels(sel) if sel else None,
            memory=memory,
            zarr_format=zarr_format,
            engine=engine,
            commit_every=commit_every,
            append=(along or True) if append else False,
            repack=repack,
            verify=verify,
            dry_run=dry_run,
            overwrite=overwrite,
            progress=progress,
            storage_options=access,
        )
    print_outcome(done, dry_run, as_text)


def print_outcome(outcome: Any, dry_run: bool, as_json: bool) -> None:
    """Print a plan to the output, or what was done beside it; as JSON both are lines of the output."""
    if as_json:
        typer.echo(json.dumps({"event": "plan" if dry_run else "done", **outcome.as_dict()}))
    elif dry_run:
        typer.echo(str(outcome))
    else:
        stderr.print(str(outcome), markup=False, soft_wrap=True)


@contextmanager
def report_progress(as_json: bool) -> Iterator[Callable[[int, int], None]]:
    """Give what is called with the bytes done and all: a bar, or a JSON line a second."""
    if not as_json:
        with bytes_bar("copying") as report:
            yield report
        return
    begun = last = time.monotonic()

    def print_line(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= 1 or done == total:
            last = now
            rate = done / max(now - begun, 1e-9)
            left = (total - done) / rate if rate else None
            line = {"event": "progress", "bytes": done, "total": total, "bytes_per_second": round(rate)}
            typer.echo(json.dumps({**line, "seconds_left": None if left is None else round(left, 1)}))

    yield print_line


def parse_chunks(text: str | None) -> Chunks:
    """Return chunks as `Archive.copy` takes them: a word, or lengths by dimension."""
    return text if text is None or text in CHUNK_WORDS else parse_lengths(text, "--chunks")


def parse_lengths(text: str, flag: str) -> dict[str, int]:
    """Return lengths by dimension.

    Examples
    --------
    >>> parse_lengths("time=365,lat=-1", "--chunks")
    {'time': 365, 'lat': -1}
    """
    found: dict[str, int] = {}
    for part in _split(text):
        dim, mark, length = part.partition("=")
        try:
            number = int(length)
        except ValueError:
            mark = ""
        if not mark or not dim:
            raise typer.BadParameter(
                f"{part!r} is neither DIM=LENGTH nor one of {', '.join(CHUNK_WORDS)}", param_hint=flag
            )
        if found.setdefault(dim, number) != number:
            raise typer.BadParameter(
                f"the variables share the dimension {dim!r}, which cannot be cut into {found[dim]} and {number}",
                param_hint=flag,
            )
    return found


def _split(text: str) -> Sequence[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
