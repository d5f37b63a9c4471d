"""Many files as one dataset: scan, arrange, join. The only way from files to what they make together.

Scanning gives the facts of each file (`FilesTable`) and its tables. `arrange` decides by the facts of
all files where each goes. Then they are joined (`join_files`): files of this process at once, those
that other processes scanned after neighbours that agree were joined there (`join_pieces`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from insitu.combining.arrange import (
    Arrangement,
    FindMembers,
    arrange_by_labels,
    arrange_by_lists,
    find_shadowed,
    place_listed_labels,
)
from insitu.combining.arrange_by_names import arrange_by_names, with_inner_grids
from insitu.combining.arrange_forecasts import arrange_forecasts
from insitu.combining.combine_groups import combine_groups
from insitu.combining.combine_rules import CombineRules
from insitu.combining.failures import report_failures
from insitu.combining.file_names import labels_of_files
from insitu.combining.file_ranges import find_shadowed_sources
from insitu.combining.files_table import FilesTable
from insitu.combining.join_files import join_files
from insitu.combining.join_pieces import plan_lines
from insitu.combining.placed_files import PlacedFiles, PlacedGroup
from insitu.combining.portion import Portion, ScannedFiles
from insitu.combining.scan_by_kind import order_as_given, scan_by_kind
from insitu.combining.scan_journal import Journal, journal_of_files, scanning_options
from insitu.combining.scan_many import scan_many, thread_count
from insitu.combining.scan_portions import PortionScan
from insitu.combining.scan_progress import ScanProgress, open_progress
from insitu.combining.survey import Survey
from insitu.engines.choose import engine_for
from insitu.engines.executor import ExecutorEngine, ThisThread
from insitu.engines.worth_sending import WorthSending
from insitu.errors import InsituError
from insitu.open_options import CombineOptions, RunOptions
from insitu.scanning.decoding_cache import DecodingCache
from insitu.scanning.forecast_axes import ForecastAxes
from insitu.scanning.member import ConcatDim, GridPosition, Load, Member
from insitu.scanning.scan_cache import default_scan_cache, reader_identity
from insitu.scanning.scan_member import Failure, Job, make_loader
from insitu.sources.address import is_remote

if TYPE_CHECKING:
    from insitu.combining.recipe import Recipe  # which calls this module

__all__ = ["CombineFound", "CombinedFiles", "combine", "combine_by_coords", "combine_nested", "combine_portion"]

MIN_JOURNAL_FILES = 1000
"""Files from which on a scan on other machines is kept while it runs, without being asked to."""

CombineFound = Callable[..., Member]
"""Combines files in another way: what came of each, their positions and names; of a tree also the path of the group
and its recipe.
"""


@dataclass(frozen=True, slots=True)
class CombinedFiles:
    """What many files make together."""

    member: Member
    """Of a tree: its root."""
    survey: Survey
    files: FilesTable
    placed: Recipe | None = None
    """The recipe, with the place of each file, or with those that are shadowed; None if it says neither."""
    surveys: Mapping[str, Survey] = field(default_factory=dict)
    """Of a tree: how the files of each group differ, by path."""


def combine(
    urls: Sequence[Any],
    places: Sequence[GridPosition],
    job: Job,
    recipe: Recipe,
    run: RunOptions,
    *,
    combine_found: CombineFound | None = None,
) -> CombinedFiles:
    """Scan files and combine them.

    Parameters
    ----------
    urls, places
        The files, and their positions in the nested lists that the caller gave.
    job, recipe
        How they are scanned and combined.
    run
        Where, and whether what was scanned is kept until all is.
    combine_found
        Combines the files instead of the recipe.
    """
    engine = None if isinstance(run.parallel, int) else engine_for(run.parallel, "parallel", ", a number")
    is_plain = combine_found is None and not job.scan.tree and job.forecasts is None
    check = recipe.type_check() if is_plain else None
    journal = None
    if engine is not None or run.resume:
        journal = run.resume if isinstance(run.resume, Journal) else _choose_journal(run.resume, urls, recipe)
    found = _scan_if_small(urls, job, run.progress) if engine is not None and journal is None else None
    if found is None and (engine is not None or run.resume):
        count = thread_count(urls, run.parallel) if engine is None else 1
        with ThreadPoolExecutor(count) if count > 1 else ThisThread() as executor:
            scan = PortionScan(urls, job, engine or ExecutorEngine(executor), journal, run.progress, check)
            scan.run()
            combined = _combine_scanned(scan, urls, places, job, recipe, combine_found)
        if journal is not None and journal is not run.resume:
            journal.done()
        return combined
    tables: list[FilesTable] = []

    def look(done: ScannedFiles) -> None:
        tables.append(FilesTable.of(done))
        if check is not None:
            check.add(tables[-1])

    if found is None and job.forecasts is not None:
        of_kinds = scan_by_kind(urls, job, job.forecasts, run.progress)
        single = scan_many(of_kinds.rest, job, parallel=run.parallel, progress=run.progress) if of_kinds.rest else []
        found = order_as_given(urls, of_kinds, single, job.forecasts, recipe.options.combine)
        look(found)
    elif found is None:
        found = scan_many(urls, job, parallel=run.parallel, progress=run.progress, look=look)
    else:
        look(found)
    return _combine_scanned(Portion(found, FilesTable.join(tables)), urls, places, job, recipe, combine_found)


def _combine_scanned(
    scanned: Portion | PortionScan,
    urls: Sequence[Any],
    places: Sequence[GridPosition],
    job: Job,
    recipe: Recipe,
    combine_found: CombineFound | None,
) -> CombinedFiles:
    if job.scan.tree:
        return _combine_trees(Portion(scanned.members(), scanned.files), urls, places, job, recipe, combine_found)
    if combine_found is not None:
        scanned = Portion(scanned.members(), scanned.files)
        member = combine_found(scanned.found, places, urls)
    else:
        load = make_loader(job.scan.storage_options)
        member, recipe = combine_portion(scanned, places, urls, recipe, load, job.scan.errors)
    placed = recipe if recipe.placed is not None or recipe.shadowed else None
    if isinstance(scanned, Portion):
        return CombinedFiles(member, Survey.of(scanned.found, member), scanned.files, placed)
    survey = replace(scanned.survey, tiles=Survey.count_tiles(member))
    return CombinedFiles(member, survey, scanned.files, placed)


def _combine_trees(
    scanned: Portion,
    urls: Sequence[Any],
    places: Sequence[GridPosition],
    job: Job,
    recipe: Recipe,
    combine_found: CombineFound | None,
) -> CombinedFiles:
    """Combine files group by group. `combine_found` is called for each, with further arguments: its path and recipe."""
    load = make_loader(job.scan.storage_options)
    report_failures(scanned.files.failures.values(), len(scanned.files), job.scan.errors)

    made: dict[str, tuple[Member, Recipe]] = {}

    def combine_one(path: str, found: ScannedFiles, own: Recipe) -> Member:
        if combine_found is not None:
            return combine_found(found, places, urls, path, own)
        made[path] = combine_portion(Portion.of(found), places, urls, own, load, "skip")
        return made[path][0]

    root, surveys = combine_groups(scanned.found, recipe, combine_one, job.scan.errors)
    placed = None
    groups = {path: place for path, own in made.items() if (place := _place_group(scanned.found, path, own, root))}
    if groups or recipe.options.combine.may_shadow:
        members = [item for item in scanned.found if isinstance(item, Member)]
        placed = replace(recipe, shadowed=find_shadowed_sources(members, root), groups=groups)
    return CombinedFiles(root, Survey.of(scanned.found, root), scanned.files, placed, surveys)


def _place_group(found: ScannedFiles, path: str, made: tuple[Member, Recipe], root: Member) -> PlacedGroup | None:
    """Return where the files of a group are in a tree; None if that was not decided for each label."""
    member, recipe = made
    groups = dict(root.walk())
    if recipe.placed is None or path not in groups:
        return None
    names = path.split("/") if path else []
    above = [groups["/".join(names[:end])] for end in range(len(names), -1, -1)]  # labels may be inherited
    placed = recipe.placed.with_labels(
        member.index, lambda dim: next((index for one in above if (index := one.index(dim)) is not None), None)
    )
    row_of = {item.source: row for row, item in enumerate(item for item in found if isinstance(item, Member))}
    return None if placed is None else PlacedGroup(tuple(row_of[url] for url in recipe.files), placed)


def combine_portion(
    scanned: Portion | PortionScan,
    places: Sequence[GridPosition],
    urls: Sequence[Any],
    recipe: Recipe,
    load: Load,
    errors: str,
) -> tuple[Member, Recipe]:
    """Return what files make together, and the recipe with their places: see `Recipe.combine_found`."""
    files = scanned.files
    rules, dims = recipe.rules(load), recipe.concat_dims()
    report_failures(files.failures.values(), len(files), errors)

    def find(numbers: Sequence[int]) -> list[Member]:
        found = scanned.members() if numbers else []
        return [item for number in numbers if isinstance(item := found[number], Member)]

    arrangement = _arrange(files, places, urls, recipe, dims, find)
    rules = rules.for_files(arrangement, files)
    lines = None if isinstance(scanned, Portion) else plan_lines(arrangement, files, rules)
    axes = ForecastAxes.of(recipe.options.combine)
    # Before they are joined where they were scanned. Of other files there is a row for each (`placed`).
    lost = [] if axes is None else find(find_shadowed(arrangement))
    member = join_files(arrangement, scanned.pieces(lines), rules)
    if lost and (shadowed := find_shadowed_sources(lost, member)):
        recipe = replace(recipe, shadowed=shadowed)
    if axes is not None:
        return axes.finish(member), recipe
    found = PlacedFiles.of(arrangement, files, member, recipe.options.combine)
    return member, recipe if found is None else replace(recipe, files=found[0], placed=found[1])


def _arrange(
    files: FilesTable,
    places: Sequence[GridPosition],
    urls: Sequence[Any],
    recipe: Recipe,
    dims: Sequence[ConcatDim],
    find: FindMembers,
) -> Arrangement:
    """Return where each file goes, as the recipe says."""
    options, opened = recipe.options.combine, files.opened
    if (axes := ForecastAxes.of(options)) is not None:
        return arrange_forecasts(files, axes, options)
    if isinstance(options.concat_dim, Mapping):
        grid = arrange_by_names(labels_of_files(urls, options.concat_dim, files.given), set(opened))
        return with_inner_grids(grid, files, find, options)
    if options.combine == "nested":
        if options.places_labels:
            return place_listed_labels(files, places, dims, options)
        return arrange_by_lists(places, dims, set(opened))
    return arrange_by_labels(files, opened, find, options)


def combine_by_coords(members: Sequence[Member], rules: CombineRules) -> Member:
    """Return members combined by their labels."""
    files = FilesTable.of(members)
    find = lambda numbers: [members[number] for number in numbers]  # noqa: E731
    arrangement = arrange_by_labels(files, files.opened, find, CombineOptions())
    return join_files(arrangement, dict(enumerate(members)), rules.for_files(arrangement, files))


def combine_nested(grid: Mapping[GridPosition, Member], dims: Sequence[ConcatDim], rules: CombineRules) -> Member:
    """Return a grid of members combined along one dimension for each level of nesting."""
    arrangement, members = arrange_by_lists(list(grid), dims, range(len(grid))), list(grid.values())
    if rules.pad:
        rules = rules.for_files(arrangement, FilesTable.of(members))
    return join_files(arrangement, dict(enumerate(members)), rules)


def _scan_if_small(urls: Sequence[Any], job: Job, progress: Any) -> list[Member | Failure] | None:
    """Return what came of each file, scanned here; None if they are worth sending, or cannot be read here."""
    here = replace(job, scan=replace(job.scan, errors="raise"))
    cache, rule = DecodingCache(), WorthSending(len(urls))
    found: list[Member | Failure] = []
    try:
        if is_remote(str(urls[0])):
            # All of them in the time of the slowest: no engine is faster.
            return scan_many(urls, here, progress=progress) if len(urls) <= thread_count(urls, None) else None
        for url in urls:
            began = perf_counter()
            found.append(here.one(url, cache))
            if rule.after(perf_counter() - began):
                return None
    except (InsituError, OSError, MemoryError):  # a worker may have what is missing here, and says best what it is
        return None
    with open_progress(progress) as shown:
        state = ScanProgress(len(urls))
        state.add(len(urls), 0, "this process")
        shown.show(state)
    return found


def _choose_journal(resume: bool | None, urls: Sequence[Any], recipe: Recipe) -> Journal | None:
    """Return the journal of a scan; None if it is not kept.

    Parameters
    ----------
    resume
        Whether it is kept; None: if there are many files.
    urls, recipe
        The files, and how they are opened.
    """
    if resume is False or (resume is None and (len(urls) < MIN_JOURNAL_FILES or default_scan_cache() is None)):
        return None
    key = None if recipe.unknown is not None else scanning_options(recipe.options).scan_key()
    if key is None:
        return None
    question = repr((key, recipe.options.scan.errors, reader_identity()))
    return journal_of_files(urls, question)
