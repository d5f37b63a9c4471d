"""`insitu convert`: save references in another format, or with other URLs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from insitu.cli.access import AllowLocal, Inline, NativeWhereNeeded, Overwrite, StorageOption, storage_options
from insitu.cli.screen import stderr
from insitu.model.description import count_text

__all__ = ["convert", "parse_prefixes"]


def convert(
    source: Annotated[str, typer.Argument(help="Saved references, a Zarr store or an archive file.", metavar="REFS")],
    target: Annotated[
        str,
        typer.Argument(
            help="Where to save; the suffix selects the format: *.insitu, *.json(.zst|.gz), *.parq, *.parquet."
        ),
    ],
    rename: Annotated[
        list[str] | None,
        typer.Option("--rename", metavar="OLD=NEW", help="Replace the prefix OLD of URLs by NEW; may be repeated."),
    ] = None,
    pattern: Annotated[
        tuple[str, str] | None,
        typer.Option("--regex", metavar="PATTERN REPLACEMENT", help="Replace parts of URLs by a regular expression."),
    ] = None,
    relative: Annotated[
        bool,
        typer.Option(
            "--relative", help="Save URLs relative to the target, so that files and references can be moved together."
        ),
    ] = False,
    inline: Inline = 0,
    native: NativeWhereNeeded = False,
    allow_local: AllowLocal = False,
    overwrite: Overwrite = False,
    option: StorageOption = None,
) -> None:
    """Save references in another format."""
    from insitu.maintenance import convert as convert_references

    if rename and pattern:
        raise typer.BadParameter("--rename and --regex cannot be combined: give one of them")
    found = convert_references(
        source,
        target,
        rename=pattern or (parse_prefixes(rename) if rename else None),
        relative=relative,
        inline_threshold=inline,
        native="where needed" if native else None,
        announce=lambda text: stderr.print(text, markup=False, soft_wrap=True),
        allow_local=allow_local,
        mode="w" if overwrite else "x",
        storage_options=storage_options(option),
    )
    stderr.print(f"{target}: {count_text(sum(1 for _ in found.all_arrays()), 'variable')}", markup=False)


def parse_prefixes(pairs: Sequence[str]) -> dict[str, str]:
    """Return a mapping of old to new prefixes.

    Examples
    --------
    >>> parse_prefixes(["/data=s3://bucket/data"])
    {'/data': 's3://bucket/data'}
    """
    found = {}
    for pair in pairs:
        old, mark, new = pair.partition("=")
        if not mark or not old:
            raise typer.BadParameter(f"{pair!r} is not OLD=NEW", param_hint="--rename")
        found[old] = new
    return found
