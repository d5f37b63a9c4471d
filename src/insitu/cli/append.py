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
    """Scan new files and add them to a saved archive. Files that are there already, unchanged, are skipped."""
    from insitu.combining.names import found_paths
    from insitu.references import find_held, open_references
    from insitu.xarray_bridge import open_mfdataset

    files = found_paths(urls)
    saved = open_references(target)
    held = [] if saved is None else find_held(saved, target, files)
    dims = {name for array in saved.arrays.values() for name in array.dims} if saved is not None else set()
    if saved is not None and saved.arrays and dim not in dims:
        raise typer.BadParameter(f"no dimension {dim!r} in what is saved, but {', '.join(sorted(dims))}")
    files = [file for file in files if file not in held]
    for file in held:
        problems.print(f"skipped, already there: {file}", markup=False, soft_wrap=True)
    if not files:
        problems.print(f"{target}: nothing new", markup=False, soft_wrap=True)
        return
    with bar("files") as progress:
        dataset = open_mfdataset(files, progress=progress)
    if dim not in dataset.sizes:
        raise typer.BadParameter(f"the files have no dimension {dim!r}, but {', '.join(map(str, dataset.sizes))}")
    report = dataset.insitu.append(target, dim, relative=relative)
    for url in report.skipped:
        problems.print(f"skipped, already there: {url}", markup=False, soft_wrap=True)
    what = f"{plural(report.steps, 'step')} of {dim} more" if report.steps else "nothing new"
    problems.print(f"{target}: {what}", markup=False, soft_wrap=True)
