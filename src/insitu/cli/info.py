"""`insitu info`: show the contents of a file, and a map of its bytes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.table import Table
from rich.text import Text

from insitu.cli.access import StorageOption, Verbose, storage_options, trace_storage
from insitu.cli.screen import print_table, stdout
from insitu.cli.tree import as_json, as_table
from insitu.codecs.undecodable import find_undecodable
from insitu.errors import SourceError
from insitu.model import VirtualGroup, byte_ranges
from insitu.model.description import count_text, detail_notes, format_bytes
from insitu.open_options import ScanOptions
from insitu.scanning.scan_url import scan_stored
from insitu.sources.redaction import redact_url

if TYPE_CHECKING:
    import pandas

    from insitu.maintenance.pinning import PinnedPart
    from insitu.scanning.member import Member

__all__ = ["info"]

COLOURS = (
    *("blue", "green", "yellow", "magenta", "cyan", "red"),
    *("bright_blue", "bright_green", "bright_yellow", "bright_magenta"),
)
"""Colours of the variables in a map."""
MAX_MISSING = 12
"""Labels in no file that are listed."""
ROWS = 6
"""Height of a map."""


def info(
    url: Annotated[str, typer.Argument(help="A path or a URL.")],
    group: Annotated[str | None, typer.Option(help="Show only this group.")] = None,
    attributes: Annotated[bool, typer.Option("--attributes", "-a", help="Show attributes, too.")] = False,
    where: Annotated[bool, typer.Option("--map", "-m", help="Draw a map of the chunks in the file.")] = False,
    as_text: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    files: Annotated[
        bool, typer.Option("--files", help="List the files behind it: size, time, range of labels, shadowed or not.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(help="Write a report to this file instead: contents, attributes and pictures of the chunks."),
    ] = None,
    option: StorageOption = None,
    verbose: Verbose = False,
) -> None:
    """Show the contents of a file:
    variables, shapes, types, chunks, codecs, sizes, and what cannot be read and why.
    """
    with warnings.catch_warnings(), trace_storage(verbose):
        warnings.simplefilter("ignore")  # the table shows what cannot be read
        found = scan_stored(url, ScanOptions(group=group, errors="warn", storage_options=storage_options(option)))
        if html is not None:
            _write_report(html, found, url)
            return
    if files:
        _show_files(url, group, as_text, storage_options(option))
        return
    pinned = _find_pinned(url, storage_options(option))
    if as_text:
        parts = {"pinned": [part.as_dict() for part in pinned]} if pinned else {}
        typer.echo(json.dumps({**as_json(found), "notes": notes(found), **parts}, indent=2))
        return
    print_table(as_table(found))
    if attributes:
        for path, node in found.walk():
            for name, value in node.attributes.items():
                stdout.print(f"{path}:{name} = {value!r}", markup=False)
            for variable, array in node.arrays.items():
                for name, value in array.attributes.items():
                    stdout.print(f"{path + '/' if path else ''}{variable}:{name} = {value!r}", markup=False)
    if where:
        stdout.print(chunk_map(found, stdout.width))
    for path, node in found.walk():
        for name, reason in node.problems.items():
            stdout.print(Text(f"{path + '/' if path else ''}{name}: {reason}", style="red"), soft_wrap=True)
    for path, text in notes(found):
        stdout.print(Text(f"{path}: {text}", style="yellow"))
    for text in _missing_labels(url, storage_options(option)):
        stdout.print(Text(text, style="yellow"), soft_wrap=True)
    for part in pinned:
        stdout.print(Text(f"pinned: {part}"), soft_wrap=True)
    count = sum(1 for _ in found.all_arrays())
    left = sum(len(node.problems) for _, node in found.walk())
    total = sum(array.nbytes for _, array in found.all_arrays())
    line = Text(f"{count_text(count, 'variable')}, {format_bytes(total)} when read")
    if left:
        line.append(f"; {count_text(left, 'variable')} cannot be read", style="red")
    stdout.print(line)


def _show_files(url: str, group: str | None, as_text: bool, storage: Mapping[str, Any] | None) -> None:
    """Print the table of the files behind an archive; of a tree one for each group that has chunks."""
    tables = _list_files(url, group, storage)
    if as_text:
        rows = {path: json.loads(found.to_json(orient="records", date_format="iso")) for path, found in tables.items()}
        typer.echo(json.dumps(rows[""] if list(rows) == [""] else rows, indent=2))
        return
    for path, found in tables.items():
        if len(tables) > 1 or path:
            stdout.print(Text(f"/{path}", style="bold"))
        _print_files(found)


def _list_files(url: str, group: str | None, storage: Mapping[str, Any] | None) -> dict[str, pandas.DataFrame]:
    """Return the table of the files of each group that has chunks, by its path; of an archive without any
    that of the root.
    """
    from insitu.archive import Archive
    from insitu.combining.file_list import list_files
    from insitu.references import open_files_tree
    from insitu.scanning.saved_members import tree_from_member

    archive = Archive.open(url, many=False, group=group, errors="warn", storage_options=storage)
    recipe, tables = archive.recipe_to_save(), {}
    members = {"": archive.member()} if group is not None else dict(archive.all_members())
    pinned = _find_pinned(url, storage)
    below = open_files_tree(url, allow_local=True, storage_options=storage) if pinned else None
    for path, member in members.items():
        tree = tree_from_member(member)
        if below is not None:  # the files that the archive was made of, not the chunks inside the store
            inner = "/".join(part for part in ((group or "").strip("/"), path) if part)
            tree = dict(below.walk())[inner]
        if tree.sources or (recipe is not None and recipe.placed is not None):
            names = path.split("/") if path else []
            above = [members["/".join(names[:end])] for end in range(len(names), -1, -1)]

            def labels(dim: str, above: Sequence[Member] = above) -> Any:
                """Return the labels of a group, or those that it inherits."""
                return next((found for one in above if (found := one.index(dim)) is not None), None)

            tables[path] = list_files(tree, labels, None if recipe is None else recipe.of_group(path))
    return tables or {"": list_files(tree_from_member(members[""]), members[""].index, recipe)}


def _print_files(found: pandas.DataFrame) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in found.columns:
        heading = f"time ({found.attrs['time']})" if name == "time" else name.replace("_", " ")
        table.add_column(heading, justify="left" if name == "url" else "right", overflow="fold")
    for row in found.itertuples(index=False):
        table.add_row(*(_format_field(name, value) for name, value in zip(found.columns, row, strict=True)))
    print_table(table)
    line = count_text(len(found), "file")
    if hidden := int((found["shadowed"] > 0).sum()):
        line += f", {hidden} shadowed by others, partly or wholly"
    stdout.print(line)


def _format_field(name: str, value: Any) -> str:
    import pandas

    if value is None or value is pandas.NA or value is pandas.NaT:
        return "–"
    if name == "size":
        return format_bytes(int(value))
    if isinstance(value, pandas.Timestamp):
        return f"{value:%Y-%m-%d %H:%M:%S}".removesuffix(" 00:00:00")
    return redact_url(value) if name == "url" else str(value)


def _find_pinned(url: str, storage: Mapping[str, Any] | None) -> tuple[PinnedPart, ...]:
    """Return the parts of a saved archive that lie inside the store."""
    from insitu.scanning.scan_url import is_saved_tree

    if not is_saved_tree(url):
        return ()
    from insitu.maintenance.pinning import find_pinned

    return find_pinned(url, storage_options=storage)


def _missing_labels(url: str, storage: Mapping[str, Any] | None) -> list[str]:
    """Return lines about the labels of a saved archive that were expected, and that no file has."""
    from insitu.scanning.scan_url import is_saved_tree

    if not is_saved_tree(url):
        return []
    from insitu.maintenance import saved_recipe

    recipe = saved_recipe(url, storage)
    if recipe is None or (recipe.placed is None and not recipe.options.combine.forecasts):
        return []
    from insitu.archive import Archive
    from insitu.combining.expected_labels import format_label
    from insitu.combining.file_list import list_missing
    from insitu.scanning.saved_members import tree_from_member

    member = Archive.open(url, many=False, storage_options=storage).member()
    lines = []
    for dims, labels in list_missing(tree_from_member(member), member.index, recipe).items():
        first = labels[:MAX_MISSING]
        each = first.tolist() if isinstance(dims, tuple) else [(own,) for own in first]
        shown = ", ".join(" + ".join(map(format_label, own)) for own in each)
        shown += ", …" if len(labels) > MAX_MISSING else ""
        names = dims if isinstance(dims, tuple) else (dims,)
        count = int(np.prod([member.sizes[name] for name in names]))
        lines.append(f"{' × '.join(names)}: {len(labels):,} of {count:,} labels are in no file: {shown}")
    return lines


def _write_report(path: Path, group: VirtualGroup, url: str) -> None:
    """Write the report; texts with characters that no file can hold are written as `?`."""
    from insitu.cli.html_report import html_report  # imports xarray, which looking into a file does not need

    text = html_report(group, redact_url(url), notes(group))
    try:
        path.write_bytes(text.encode("utf-8", "replace"))
    except OSError as problem:
        raise SourceError(f"writing failed: {problem.strerror or problem}", url=str(path)) from problem
    stdout.print(f"wrote {path}, {format_bytes(path.stat().st_size)}", markup=False)


def notes(group: VirtualGroup) -> list[tuple[str, str]]:
    """Return paths and notes:
    codecs without a decoder, attributes that are not read, missing sources.
    """
    found: list[tuple[str, str]] = []
    for path, node in group.walk():
        found += [(path or "/", text) for text in detail_notes(node.details)]
    for path, array in group.all_arrays():
        found += [(path, f"cannot be decoded: {problem}") for problem in find_undecodable(array)]
        found += [(path, text) for text in detail_notes(array.details)]
    return found


def chunk_map(group: VirtualGroup, width: int = 100) -> Text:
    """Return a map of the file that a group was scanned from: its bytes, coloured by variable."""
    sources = group.sources
    end = max((source.size or 0 for source in sources), default=0)
    arrays = [(name, array) for name, array in group.all_arrays() if array.sources]
    if not arrays or not end:
        return Text("the file has no chunks apart from its metadata")
    width = max(min(width - 2, 120), 20)
    bins = width * ROWS
    share = np.zeros((len(arrays), bins))
    for number, (_, array) in enumerate(arrays):
        for _, offset, length in byte_ranges(array):
            share[number] += _bytes_per_bin(offset, length, end, bins)
    owner = share.argmax(0)
    bin_bytes = end / bins
    filled = share.sum(0) / bin_bytes
    text = Text()
    for row in range(ROWS):
        for at in range(row * width, (row + 1) * width):
            if filled[at] < 0.02:
                text.append("·", style="dim")
            else:
                text.append("█" if filled[at] > 0.6 else "▄", style=COLOURS[owner[at] % len(COLOURS)])
        text.append("\n")
    order = np.argsort(-share.sum(1))
    for number in order[: len(COLOURS)]:
        text.append("█ ", style=COLOURS[number % len(COLOURS)])
        text.append(f"{arrays[number][0]} {format_bytes(int(share[number].sum()))}   ")
    if len(order) > len(COLOURS):
        text.append(f"and {len(order) - len(COLOURS)} more   ")
    text.append("· ", style="dim")
    unused = format_bytes(max(end - int(share.sum()), 0))
    text.append(f"metadata or unused {unused}   (one character: {format_bytes(round(bin_bytes))})")
    return text


def _bytes_per_bin(
    offset: npt.NDArray[np.int64], length: npt.NDArray[np.int64], end: int, bins: int
) -> npt.NDArray[np.float64]:
    """Return how many bytes of some ranges lie in each bin."""
    edges = np.linspace(0, end, bins + 1)
    order = np.argsort(offset, kind="stable")
    starts, sizes = offset[order], np.maximum(length[order], 0)
    before = np.concatenate([[0], np.cumsum(sizes)])
    # Bytes before each edge:
    # those of all ranges that begin before it, minus what the last has behind it.
    started = np.searchsorted(starts, edges, side="left")
    last = np.maximum(started - 1, 0)
    overhang = np.where(started > 0, np.maximum(starts[last] + sizes[last] - edges, 0), 0) if len(starts) else 0.0
    return np.diff(before[started] - overhang)
