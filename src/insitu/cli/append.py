"""`insitu append`: more files at the end of a saved archive."""

from __future__ import annotations

from typing import Annotated

import typer

from insitu.cli.progress import bar
from insitu.cli.screen import plural, problems

__all__ = ["append"]


def append(
    target: Annotated[str, typer.Argument(help="An insitu store: *.insitu.", metavar="REFS")],
    urls: Annotated[list[str], typer.Argument(help="The new files: paths, URLs, patterns.", metavar="URL...")],
    dim: Annotated[str, typer.Option("--dim", "-d", help="The dimension that grows.")] = "time",
    relative: Annotated[bool, typer.Option("--relative", help="URLs relative to the target.")] = False,
) -> None:
    """Scan new files and add them to a saved archive. What was saved is neither read nor written again."""
    from insitu.xarray_bridge import open_mfdataset

    with bar("files") as progress:
        dataset = open_mfdataset(urls if len(urls) > 1 else urls[0], progress=progress)
    if dim not in dataset.sizes:
        raise typer.BadParameter(f"the files have no dimension {dim!r}, but {', '.join(map(str, dataset.sizes))}")
    dataset.insitu.append(target, dim, relative=relative)
    problems.print(f"{target}: {plural(int(dataset.sizes[dim]), 'step')} of {dim} more", markup=False)
