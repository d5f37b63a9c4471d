"""Scanning and combining of many files on an engine: as one table if they make one, else at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from insitu.combining.file_table import JoinPlan, NotOneTableError
from insitu.combining.recipe import Recipe
from insitu.combining.scan_journal import Journal, journal_of_files
from insitu.combining.scan_portions import scan_members, scan_table
from insitu.combining.survey import Survey
from insitu.engines.engine_protocol import Engine
from insitu.scanning.member import GridPosition, Member
from insitu.scanning.scan_cache import default_scan_cache, reader_identity
from insitu.scanning.scan_member import Failure, Job, make_loader

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
    load = make_loader(job.scan.storage_options)
    plan = JoinPlan.of(recipe, places, load) if combine_found is None else None
    if plan is not None:
        try:
            table = scan_table(urls, job, plan, engine, journal, progress)
            return CombinedFiles(*table.combine(plan, load, job.scan.errors))
        except NotOneTableError as reason:
            log.info("the files are scanned again and combined at once, because %s", reason)
    found = scan_members(urls, job, engine, journal, progress)
    if combine_found is not None:
        member = combine_found(found, places, urls)
    else:
        member = recipe.combine_found(found, places, urls, load, job.scan.errors)
    return CombinedFiles(member, Survey.of(found, member), found)


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
    key = recipe.scan_key()
    if key is None:
        return None
    question = repr((key, recipe.options.scan.errors, reader_identity()))
    return journal_of_files(urls, question)
