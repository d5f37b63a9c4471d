"""`insitu convert`: the same references in another form, or for another place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from insitu.cli.access import Options, storage_options
from insitu.cli.screen import plural, problems

__all__ = ["convert", "parse_prefixes"]


def convert(
    source: Annotated[
        str, typer.Argument(help="A saved set of references, a Zarr store or an archive file.", metavar="REFS")
    ],
    target: Annotated[
        str, typer.Argument(help="Where to; the name says the form: *.insitu, *.json(.zst|.gz), *.parq, *.parquet.")
    ],
    rename: Annotated[
        list[str] | None,
        typer.Option(
            "--rename", metavar="OLD=NEW", help="URLs that begin with OLD begin with NEW instead; may be repeated."
        ),
    ] = None,
    pattern: Annotated[
        tuple[str, str] | None,
        typer.Option("--regex", metavar="PATTERN REPLACEMENT", help="The same by a regular expression."),
    ] = None,
    relative: Annotated[
        bool, typer.Option("--relative", help="URLs relative to the target: the archive can be moved as a whole.")
    ] = False,
    inline: Annotated[int, typer.Option("--inline", help="Keep chunks of up to so many bytes inline.")] = 0,
    allow_local: Annotated[
        bool, typer.Option("--allow-local", help="References from elsewhere may name files of this machine.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what lies there.")] = False,
    option: Options = None,
) -> None:
    """Save references in another form."""
    from insitu.maintenance import convert as convert_references

    if rename and pattern:
        raise typer.BadParameter("give either --rename or --regex")
    found = convert_references(
        source,
        target,
        rename=pattern or (parse_prefixes(rename) if rename else None),
        relative=relative,
        inline_threshold=inline,
        allow_local=allow_local,
        mode="w" if overwrite else "x",
        storage_options=storage_options(option),
    )
    problems.print(f"{target}: {plural(sum(1 for _ in found.all_arrays()), 'variable')}", markup=False)


def parse_prefixes(pairs: Sequence[str]) -> dict[str, str]:
    """Old prefix → new prefix.

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
