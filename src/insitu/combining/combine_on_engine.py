"""Scanning and combining of many files on an engine: as one table if they make one, else at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from insitu.combining.file_table import JoinPlan, NotOneTableError
from insitu.combining.recipe import Recipe
from insitu.combining.scan_journal import Journal, journal_of_files
from insitu.combining.scan_many import scan_many, thread_count
from insitu.combining.scan_portions import PortionScan
from insitu.combining.scan_progress import ScanProgress, open_progress
from insitu.combining.survey import Survey
from insitu.engines.engine_protocol import Engine
from insitu.engines.worth_sending import WorthSending
from insitu.errors import InsituError
from insitu.open_options import CombineOptions
from insitu.scanning.decoding_memory import DecodingMemory
from insitu.scanning.member import GridPosition, Member
from insitu.scanning.scan_cache import default_scan_cache, reader_identity
from insitu.scanning.scan_member import Failure, Job, make_loader
from insitu.sources.address import is_remote

__all__ = ["CombinedFiles", "choose_journal", "combine_on_engine"]

log = logging.getLogger("insitu.scan")

MIN_JOURNAL_FILES = 1000
"""Files from which on a scan on other machines is kept while it runs, without being asked to."""

ScannedFiles = Sequence[Member | Failure]
CombineFound = Callable[[ScannedFiles, Sequence[GridPosition], Sequence[Any]], Member]


@dataclass(frozen=True, slots=True)
class CombinedFiles:
    """What many files make together."""

    member: Member
    survey: Survey
    found: ScannedFiles = ()
    """What came of each file, where they were combined at once."""


def combine_on_engine(
    urls: Sequence[Any],
    places: Sequence[GridPosition],
    job: Job,
    recipe: Recipe,
    engine: Engine,
    *,
    journal: Journal | None = None,
    progress: Any = None,
    combine_found: CombineFound | None = None,
) -> CombinedFiles:
    """Scan files on the workers of an engine and combine them.

    Parameters
    ----------
    urls, places
        The files, and their positions in the nested lists that the caller gave.
    job, recipe
        How they are scanned and combined.
    engine
        Where.
    journal
        Keeps what was scanned until all is.
    progress
        See `open_progress`.
    combine_found
        Combines the files instead of the recipe.
    """
    found = _scan_if_small(urls, job, progress) if journal is None else None
    if found is not None:
        return _combine_at_once(found, urls, places, job, recipe, combine_found)
    load = make_loader(job.scan.storage_options)
    plan = JoinPlan.of(recipe, places, load) if combine_found is None else None
    scan = PortionScan(urls, job, plan, engine, journal, progress)
    table, reason = scan.run(), scan.refused
    if table is not None and plan is not None:
        try:
            return CombinedFiles(*table.combine(plan, load, job.scan.errors))
        except NotOneTableError as refused:
            reason = str(refused)
    if reason:
        log.info("the files are combined at once, because %s", reason)
    return _combine_at_once(scan.files(), urls, places, job, recipe, combine_found)


def _combine_at_once(
    found: ScannedFiles,
    urls: Sequence[Any],
    places: Sequence[GridPosition],
    job: Job,
    recipe: Recipe,
    combine_found: CombineFound | None,
) -> CombinedFiles:
    if combine_found is not None:
        member = combine_found(found, places, urls)
    else:
        member = recipe.combine_found(found, places, urls, make_loader(job.scan.storage_options), job.scan.errors)
    return CombinedFiles(member, Survey.of(found, member), found)


def _scan_if_small(urls: Sequence[Any], job: Job, progress: Any) -> ScannedFiles | None:
    """Return what came of each file, scanned here; None if they are worth sending, or cannot be read here."""
    here = replace(job, scan=replace(job.scan, errors="raise"))
    memory, rule = DecodingMemory(), WorthSending(len(urls))
    found: list[Member | Failure] = []
    try:
        if is_remote(str(urls[0])):
            # All of them in the time of the slowest: no engine is faster.
            return scan_many(urls, here, progress=progress) if len(urls) <= thread_count(urls, None) else None
        for url in urls:
            began = perf_counter()
            found.append(here.one(url, memory))
            if rule.after(perf_counter() - began):
                return None
    except (InsituError, OSError, MemoryError):  # a worker may have what is missing here, and says best what it is
        return None
    with open_progress(progress) as shown:
        state = ScanProgress(len(urls))
        state.add(len(urls), 0, "this process")
        shown.show(state)
    return found


def choose_journal(resume: bool | None, urls: Sequence[Any], recipe: Recipe) -> Journal | None:
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
    # How files are combined is no part of it: what was scanned is combined in any way.
    key = None if recipe.unknown is not None else replace(recipe.options, combine=CombineOptions()).scan_key()
    if key is None:
        return None
    question = repr((key, recipe.options.scan.errors, reader_identity()))
    return journal_of_files(urls, question)
