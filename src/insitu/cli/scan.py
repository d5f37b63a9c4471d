"""`insitu scan`: find the chunks of files, combine them into one dataset and save the references."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import get_context
from typing import Annotated, Any

import typer
from rich.table import Table

from insitu import maintenance
from insitu.archive import Archive
from insitu.cli.access import (
    Inline,
    NativeWhereNeeded,
    Overwrite,
    StorageOption,
    Verbose,
    check_errors,
    check_overlap,
    describe_array,
    spacings_of,
    storage_options,
    takes_open_options,
    trace_storage,
)
from insitu.cli.progress import progress_bar
from insitu.cli.screen import print_table, stderr
from insitu.combining.scan_journal import Journal, journal_for, scanning_options
from insitu.combining.scan_progress import ProgressBar
from insitu.errors import InsituError, UnsupportedError
from insitu.formats.containers.open_entries import expand_entries
from insitu.model import VirtualGroup, count_cells
from insitu.model.description import count_text, format_bytes
from insitu.open_options import OpenOptions, ScanOptions
from insitu.scanning.scan_cache import reader_identity
from insitu.scanning.scan_estimate import estimate_scan, scan_counting_requests
from insitu.sources.address import is_remote

__all__ = ["scan"]


@takes_open_options
def scan(
    urls: Annotated[
        list[str],
        typer.Argument(
            help="Files: paths, URLs, patterns ('s3://bucket/**/*.nc'), prefixes that end in /, or @FILE "
            "with one per line.",
            metavar="URL...",
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="TARGET",
            help="Save the references; the suffix selects the format: *.insitu for any archive; *.json, "
            "*.parq, *.parquet, *.icechunk for archives that Zarr can represent.",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of processes (for local files) or threads (for remote files).")
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Scan on a Dask cluster: its address, e.g. tcp://host:8786, or local."),
    ] = None,
    inline: Inline = 0,
    native: NativeWhereNeeded = False,
    relative: Annotated[bool, typer.Option("--relative", help="Save URLs relative to the target.")] = False,
    overwrite: Overwrite = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start anew instead of resuming an interrupted scan.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Estimate files, requests, bytes and memory from a sample of the files."),
    ] = False,
    option: StorageOption = None,
    verbose: Verbose = False,
    **given: Any,
) -> None:
    """Find the chunks of files and show a summary;
    with -o, combine the files and save the references.
    """
    options = _open_options(given, storage_options(option))
    files = expand_entries(urls, options.scan.storage_options)
    with trace_storage(verbose):
        if dry_run:
            _show_estimate(files, options.scan)
            return
        if output is None:
            _show_files(files, options.scan)
            return
        _check_target_name(output)
        begin = time.perf_counter()
        saving: dict[str, Any] = {"inline_threshold": inline} if inline else {}
        saving |= {"relative": True} if relative else {}
        saving |= {"native": "where needed", "announce": _print_note} if native else {}
        saving |= {"mode": "w" if overwrite else "x", "storage_options": options.scan.storage_options}
        is_joined = options.combine.concat_dim is not None or options.combine.places_labels or options.combine.forecasts
        if len(files) == 1 and not is_joined and not options.scan.tree:
            total = _save_one(files[0], output, options, saving, verbose)
        else:
            total = _save_many(files, output, options, workers, dask, restart, saving)
    stderr.print(
        f"{output}: {count_text(len(files), 'file')}, {format_bytes(total)} when read, in "
        f"{time.perf_counter() - begin:.1f} s",
        markup=False,
        soft_wrap=True,
    )


def _check_target_name(target: str) -> None:
    """Raise an error if the suffix of the target is unknown, before a long scan."""
    from insitu.references import format_from_name

    if format_from_name(target) is None:
        raise typer.BadParameter(
            f"cannot tell the format from the name {target!r}: use *.insitu, *.json, *.parq, *.parquet or *.icechunk",
            param_hint="--output",
        )


def _open_options(given: Mapping[str, Any], storage: Mapping[str, Any] | None) -> OpenOptions:
    """Return the options of opening from the flags that were given, and storage options."""
    chosen = {name: value for name, value in given.items() if value not in (None, [])}
    check_errors(chosen.get("errors", "raise"))
    dims, expect = chosen.pop("concat_dim", ()), spacings_of(chosen.pop("expect", ()))
    by_group = _options_by_group(chosen.pop("by_group", ()))
    check_overlap(chosen.get("overlap"))
    if by_group and not chosen.get("tree"):
        raise typer.BadParameter("only a tree has groups to combine: give --tree, too", param_hint="--by-group")
    if chosen.get("tree") and "variables" in chosen:
        raise typer.BadParameter(
            "a tree is combined with all its variables: leave some out with --drop-variables", param_hint="--variable"
        )
    try:
        return OpenOptions.of(
            **chosen, expect=expect, **_concat_options(dims), by_group=by_group or None, storage_options=storage
        )
    except (TypeError, ValueError) as problem:
        if not by_group:
            raise
        raise typer.BadParameter(str(problem), param_hint="--by-group") from None


def _options_by_group(given: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the options that --by-group stands for.

    Examples
    --------
    >>> _options_by_group(["sweep_*:concat_dim=time", "/:concat_dim=none"])
    {'sweep_*': {'combine': 'nested', 'concat_dim': 'time'}, '/': {'combine': 'nested', 'concat_dim': None}}
    """
    found: dict[str, dict[str, Any]] = {}
    for one in given:
        pattern, colon, rest = one.partition(":")
        name, mark, value = rest.partition("=")
        if not (colon and mark and pattern and name):
            raise typer.BadParameter(f"{one!r} is not PATTERN:NAME=VALUE", param_hint="--by-group")
        options = found.setdefault(pattern, {})
        if name == "concat_dim":
            options["combine"] = "nested"
        options[name] = None if value == "none" else value
    return found


def _concat_options(given: Sequence[str]) -> dict[str, Any]:
    """Return the options that --concat-dim stands for."""
    if not given:
        return {}
    if len(given) == 1 and "=" not in given[0]:
        return {"combine": "nested", "concat_dim": given[0]}
    rules = {name: pattern for name, mark, pattern in (one.partition("=") for one in given) if mark}
    if len(rules) < len(given):
        raise typer.BadParameter(
            "several dimensions need the labels of each: NAME=REGEX, NAME=attr:ATTRIBUTE or NAME=var:VARIABLE, each "
            f"name once; given are {', '.join(given)}",
            param_hint="--concat-dim",
        )
    return {"concat_dim": rules}


def _begin(
    files: Sequence[Any], target: str, options: OpenOptions, saving: dict[str, Any], restart: bool = False
) -> Journal | None:
    """Return the journal of a scan; None: an earlier run was killed when all was saved."""
    from insitu.references.open_and_save import is_occupied

    # Without credentials: those that have expired are replaced by others, and the scan goes on.
    scanning = scanning_options(options)
    question = repr((scanning.scan_key(), options.scan.errors, reader_identity()))
    journal = journal_for(target, question, _print_note)
    if saving["mode"] == "x" and is_occupied(target, options.scan.storage_options):
        # Checked before a long scan, not after it.
        if journal.has_begun_saving(files, repr(options.combine)):
            journal.done()
            return None
        with suppress(OSError):
            journal.folder.rmdir()  # nothing is kept there
        raise UnsupportedError("the target exists already", url=target, hint="Use --overwrite to replace it")
    if restart:
        journal.done()
        journal = journal_for(target, question, _print_note)
    return journal


def _count_saved(target: str, options: OpenOptions) -> int:
    """Return the bytes of what an earlier run saved."""
    _print_note("an earlier run of this command had saved all, and was ended after that")
    tree = Archive.open(target, storage_options=options.scan.storage_options).tree
    return sum(array.nbytes for _, array in tree.all_arrays())


def _save_one(url: Any, target: str, options: OpenOptions, saving: dict[str, Any], verbose: bool) -> int:
    """Save one file, with all its groups."""
    journal = _begin([url], target, options, saving)
    if journal is None:
        return _count_saved(target, options)
    archive = Archive.open_with(url, options, many=False)
    tree = archive.subtree(options.scan.variables)
    if verbose:
        for name, array in tree.all_arrays():
            stderr.print(describe_array(name, array, tree), markup=False, soft_wrap=True)
    if saving["mode"] == "x":
        journal.begin_saving([url], repr(options.combine))
    maintenance.save_tree(tree, target, recipe=archive.recipe_to_save(), **saving)
    journal.done()
    return sum(array.nbytes for _, array in tree.all_arrays())


def _save_many(
    files: Sequence[Any],
    target: str,
    options: OpenOptions,
    workers: int | None,
    dask: str | None,
    restart: bool,
    saving: dict[str, Any],
) -> int:
    """Combine many files and save them as one dataset."""
    journal = _begin(files, target, options, saving, restart)
    if journal is None:
        return _count_saved(target, options)
    with _engine(files, workers, dask) as engine, ProgressBar(stderr) as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore" if options.scan.errors == "skip" else "default")
        archive = Archive.open_with([*files], options.replace(parallel=engine, progress=progress, resume=journal))
    if journal.found:
        stderr.print(f"resumed: {count_text(journal.found, 'file')} had been scanned before", markup=False)
    if saving["mode"] == "x":
        journal.begin_saving(files, repr(options.combine))
    archive.save(target, **saving)
    journal.done()
    return sum(array.nbytes for _, array in archive.tree.all_arrays())


def _print_note(text: str) -> None:
    stderr.print(text, style="yellow", markup=False, soft_wrap=True)


@contextmanager
def _engine(files: Sequence[Any], workers: int | None, dask: str | None) -> Iterator[Any]:
    """Yield where a scan runs:
    a Dask client, threads for remote files, processes for local ones; None: this thread.
    """
    if dask is not None:
        try:
            distributed: Any = import_module("distributed")
        except ImportError:
            raise UnsupportedError("--dask needs the package distributed", hint="pip install 'insitu[dask]'") from None
        with distributed.Client(None if dask == "local" else dask) as client:
            yield client
        return
    if is_remote(str(files[0])):
        with ThreadPoolExecutor(workers or 32, thread_name_prefix="insitu-scan") as threads:
            yield threads
        return
    if workers is None or workers == 1:
        yield None
        return
    # Not by fork: this process has threads, and a lock that one of them holds would stay locked.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as processes:
        yield processes


def _show_files(files: Sequence[Any], options: ScanOptions) -> None:
    """Print a table with a row for each file: its contents, and the cost of the scan."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("file", "variables", "chunks", "stored", "virtual", "requests", "bytes read", "ms"):
        table.add_column(heading, justify="left" if heading == "file" else "right", overflow="fold")
    failed = 0
    with progress_bar("files") as progress:
        for number, url in enumerate(files, 1):
            begin = time.perf_counter()
            try:
                found, requests, read = scan_counting_requests(url, options)
            except InsituError as problem:
                if not options.skips_failures:
                    raise
                failed += 1
                stderr.print(f"left out: {problem}", style="yellow", markup=False, soft_wrap=True)
                continue
            finally:
                progress(number, len(files))
            milliseconds = 1000 * (time.perf_counter() - begin)
            arrays, chunks, stored, virtual = _totals(found)
            table.add_row(
                str(url), f"{arrays:,}", f"{chunks:,}", format_bytes(stored), format_bytes(virtual),
                "–" if requests is None else f"{requests:,}", "–" if read is None else format_bytes(read),
                f"{milliseconds:.1f}",
            )  # fmt: skip
    print_table(table)
    if failed:
        stderr.print(f"{count_text(failed, 'file')} left out", style="yellow")
        raise typer.Exit(1)


def _show_estimate(files: Sequence[Any], options: ScanOptions) -> None:
    """Print what a scan would cost, by a sample of the files."""
    with progress_bar("files") as progress:
        found = estimate_scan(files, options, progress=progress)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("files", f"{found.files:,} ({found.sampled:,} were scanned for this estimate)")
    if found.requests is not None and found.bytes_read is not None:
        table.add_row("requests", f"{found.requests:,}")
        table.add_row("bytes to read", format_bytes(found.bytes_read))
    table.add_row("time, one file after another", f"{found.seconds:,.1f} s")
    table.add_row("chunks", f"{found.chunks:,}")
    table.add_row("size of the chunks", format_bytes(found.stored_bytes))
    table.add_row("size of the values", format_bytes(found.virtual_bytes))
    table.add_row("memory of the tables", format_bytes(found.memory_bytes))
    table.add_row("size of an *.insitu store", format_bytes(found.store_bytes))
    print_table(table)
    for reason in found.failed:
        _print_note(f"cannot be scanned: {reason}")
    if found.failed:
        raise typer.Exit(1)


def _totals(group: VirtualGroup) -> tuple[int, int, int, int]:
    counts = [(count_cells(array), array.nbytes) for _, array in group.all_arrays()]
    return (
        len(counts),
        sum(counted.cells for counted, _ in counts),
        sum(counted.nbytes for counted, _ in counts),
        sum(virtual for _, virtual in counts),
    )
