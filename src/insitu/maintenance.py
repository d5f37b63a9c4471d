"""Saved archives over time: save, append, drop, refresh, check, convert.

Whatever is done to a saved archive is a combination of what it holds and what files hold now, made by the code that combines files: so the result is what
combining all files anew would give. Only what is new is scanned and written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from insitu.combining.file_ranges import Layout, Span, ranges_without, select_range
from insitu.combining.member import CombineError, Member, Variable
from insitu.combining.recipe import Recipe
from insitu.combining.saved import member_from_tree, tree_from_member
from insitu.combining.scan_member import Job, loader, scan_member, scan_tree
from insitu.combining.stored_view import zarr_tree
from insitu.errors import (
    FormatError,
    InsituError,
    NotFoundError,
    SelectionError,
    SourceError,
    StaleSourceError,
    UnsupportedError,
    VariableError,
)
from insitu.model import VirtualArray, VirtualGroup
from insitu.sources import open_source
from insitu.sources.listing import local_path

__all__ = [
    "append_member",
    "append_tree",
    "check",
    "convert",
    "drop",
    "known_files",
    "refresh",
    "rename_sources",
    "rollback",
    "save_tree",
]

if TYPE_CHECKING:
    from insitu.references import AppendReport, Report

Progress = Callable[[int, int], None]
ATTEMPTS = 20
"""How often an update is made anew because another writer was faster."""
UNDECODED = ("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned", "units", "calendar")
"""Attributes that say how stored values are meant; of variables that were decoded, only units of measurement are left."""
COMBINE_ANEW = "Combine the archive anew: insitu.open_mfdataset(...), then save"


def save_tree(
    tree: VirtualGroup,
    target: str | os.PathLike[str],
    *,
    format: str | None = None,
    recipe: Recipe | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **how: Any,
) -> None:
    """Save a tree of decoded arrays in the form that the target's name says.

    Parameters
    ----------
    tree
        What to save.
    target, format, storage_options, **how
        See `insitu.references.save`.
    recipe
        How files were combined into it; kept where the form has room for it.
    """
    from insitu import references  # not at the top: Arrow takes longer to import than a file to scan

    kind = format or references.format_of(os.fspath(target))
    if kind == "insitu":
        document = _document(recipe, tree)
        references.save(tree, target, format=format, recipe=document, storage_options=storage_options, **how)
        return
    ready = zarr_tree(tree, loader(storage_options), int(how.get("inline_threshold", 0)))
    references.save(ready, target, format=format, storage_options=storage_options, **how)


def _document(recipe: Recipe | None, tree: VirtualGroup) -> dict[str, Any] | None:
    """Return a recipe as it is saved; the files only where the sources of the tree do not say them."""
    if recipe is None:
        return None
    if recipe.files and set(recipe.files) == {source.url for source in tree.sources}:
        recipe = replace(recipe, files=())
    return recipe.to_document()


# -- growing and shrinking


def append_member(
    member: Member,
    target: str,
    dim: str,
    *,
    relative: bool = False,
    whole_files: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> AppendReport:
    """Add what files hold to a saved archive, along a dimension.

    The result is what combining all files anew gives. Where only some variables are added, those that do not have the dimension stay as they are; not
    with `whole_files`, which says that nothing was left out.

    Files that are in the archive already, unchanged, are left out; so a command that runs twice does nothing the second time.

    Raises
    ------
    StaleSourceError
        If a file is in the archive but was changed since: refresh the archive.
    CombineError
        If labels along the dimension are in the archive already, or the variables do not fit.
    SourceError
        If another writer is faster and there are no labels to order the steps by; nothing is changed.
    """
    from insitu import references
    from insitu.references import AppendReport

    kind = references.kind_of(target)
    if kind not in ("insitu", "icechunk"):
        raise UnsupportedError(
            "only an insitu store or an Icechunk repository can be appended to",
            url=target,
            hint="Convert it first: insitu convert REFS TARGET.insitu",
        )
    if dim not in member.sizes:
        raise CombineError(f"the files have no dimension {dim!r}, but {', '.join(map(str, member.sizes)) or 'none'}")
    load = loader(storage_options)
    if kind == "icechunk":
        return _append_to_icechunk(member, target, dim, storage_options)
    for _ in range(ATTEMPTS):
        opened = references.open_for_update(target, storage_options=storage_options)
        saved = _saved_member(opened.tree, load, target)
        recipe = opened.recipe(Recipe)
        new, skipped = _without_known(member, opened.tree, dim, target, recipe, load)
        if new is None:
            return AppendReport(target, dim, 0, (), skipped)
        _check_fit(saved, new, dim, target)
        added = tuple(source for source in _urls(new) if source not in skipped)
        constant = {} if whole_files else _constant(saved, new, dim)
        rest = saved.renewed({name: each for name, each in saved.variables.items() if name not in constant})
        try:
            whole = recipe.join_in_order([rest, new], dim, load)
            whole = whole.renewed({**whole.variables, **constant}, whole.coords | (saved.coords & constant.keys()))
        except CombineError as problem:
            message = f"the files do not fit with those of {target}: {problem.message}"
            raise CombineError(message, url=next(iter(added), None), hint=problem.hint or COMBINE_ANEW) from problem
        tree = tree_from_member(whole, opened.tree.groups)
        if opened.replace(tree, relative=relative):
            return AppendReport(target, dim, new.sizes[dim], added, skipped)
        if saved.index(dim) is None or new.index(dim) is None:
            # Without labels nothing tells whether these steps may come behind those of the other writer.
            raise SourceError("another writer has changed the archive in the meantime", url=target, hint="Try again")
    raise _overtaken(target)


def _constant(saved: Member, new: Member, dim: str) -> dict[str, Variable]:
    """Return the variables of an archive that do not grow along a dimension and that what is added does not have; not labels."""
    return {
        name: variable
        for name, variable in saved.variables.items()
        if dim not in variable.dims and name not in new.variables and variable.dims != (name,)
    }


def append_tree(
    tree: VirtualGroup,
    target: str | os.PathLike[str],
    dim: str,
    *,
    relative: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> AppendReport:
    """Add a tree of arrays to saved references, along a dimension: see `append_member`."""
    from insitu.references import kind_of

    url, load = os.fspath(target), loader(storage_options)
    if kind_of(url) == "icechunk":
        return _append_arrays_to_icechunk(tree, url, dim, storage_options)
    member = member_from_tree(tree, Job().how, load)
    return append_member(member, url, dim, relative=relative, storage_options=storage_options)


def _append_to_icechunk(
    member: Member, target: str, dim: str, storage_options: Mapping[str, Any] | None
) -> AppendReport:
    """Add what files hold to an Icechunk repository, whose arrays hold stored values: times are counted as they are there."""
    from insitu.references.icechunk import open_icechunk

    load = loader(storage_options)
    known = open_icechunk(target, storage_options=storage_options)
    variables = {}
    for name, variable in member.variables.items():
        there = known.arrays.get(name)
        counted = there is not None and "units" in there.attributes and variable.dtype.kind in "mMO"
        if there is not None and counted and not isinstance(variable.data, VirtualArray):
            told = {key: there.attributes[key] for key in ("units", "calendar") if key in there.attributes}
            variable = replace(variable, encoding={**told, "dtype": there.dtype})
        variables[name] = variable
    tree = zarr_tree(tree_from_member(member.renewed(variables)), load)
    return _append_arrays_to_icechunk(tree, target, dim, storage_options)


def _append_arrays_to_icechunk(
    tree: VirtualGroup, target: str, dim: str, storage_options: Mapping[str, Any] | None
) -> AppendReport:
    from insitu.references.icechunk import append_icechunk
    from insitu.references.list_objects import explicit

    load = loader(storage_options)
    return append_icechunk(
        explicit(tree, storage_options),
        target,
        dim,
        read=lambda array: load([array])[0],
        storage_options=storage_options,
    )


def drop(
    target: str,
    urls: Collection[str],
    *,
    replacement: Member | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[str, ...]:
    """Take files out of a saved archive, and put what other files hold in their place, in one step. Returns the URLs of those taken out.

    Raises
    ------
    NotFoundError
        If a file is not in the archive.
    UnsupportedError
        If the files do not follow each other along one dimension: what is left has no definite shape then.
    """
    from insitu import references

    load = loader(storage_options)
    for _ in range(ATTEMPTS):
        opened = references.open_for_update(target, storage_options=storage_options)
        layout = Layout.of(opened.tree)
        chosen = tuple(_match(layout.spans, url, target) for url in urls)
        dim = layout.joined_dim()
        if dim is None:
            raise UnsupportedError(
                "its files do not follow each other along one dimension, so none can be taken out",
                url=target,
                hint=COMBINE_ANEW,
            )
        rest = ranges_without(layout, dim, chosen)
        if not rest and replacement is None:
            raise UnsupportedError("nothing would be left", url=target, hint="Remove the archive itself")
        saved = _saved_member(opened.tree, load, target)
        pieces = [(span[0], select_range(saved, dim, span)) for span in rest]
        if replacement is not None:
            pieces.append((min(layout.spans[url][dim][0] for url in chosen), replacement))
            _check_disjoint([piece for _, piece in pieces], dim)
        in_order = [piece for _, piece in sorted(pieces, key=lambda item: item[0])]
        whole = opened.recipe(Recipe).join_in_order(in_order, dim, load)
        if opened.replace(tree_from_member(whole, opened.tree.groups)):
            return chosen
    raise _overtaken(target)


def report_of_append(target: str, dim: str, skipped: Sequence[str]) -> AppendReport:
    """Return the report of an append that found nothing new."""
    from insitu.references import AppendReport

    return AppendReport(target, dim, 0, (), tuple(skipped))


def saved_recipe(target: str, storage_options: Mapping[str, Any] | None = None) -> Recipe | None:
    """Return how the files of a saved archive were combined; None if that was not saved with it."""
    from insitu import references

    document = references.recipe_of(target, storage_options=storage_options)
    return None if document is None else Recipe.from_document(document)


def _match(known: Collection[str], url: str, target: str) -> str:
    """Return the source that a user names: by URL, path or relative path."""
    for name in (url, os.path.abspath(url)):
        if name in known:
            return name
    raise NotFoundError(f"{url} is not a file of this archive", url=target, hint="`insitu check` lists its files")


def _overtaken(target: str) -> InsituError:
    return SourceError(
        f"other writers changed the archive {ATTEMPTS} times while this change was made", url=target, hint="Try again"
    )


def _saved_member(tree: VirtualGroup, load: Any, url: str) -> Member:
    return member_from_tree(tree, Job().how, load, url=url)


def _urls(member: Member) -> list[str]:
    """Return the files that a member has a part of. Chunk tables may name more: they share lists of sources."""
    return list(Layout.of(tree_from_member(member)).spans)


def _without_known(
    member: Member, tree: VirtualGroup, dim: str, target: str, recipe: Recipe, load: Any
) -> tuple[Member | None, tuple[str, ...]]:
    """Return the part of a member that is not in a tree yet (None: there is none), and the files that are there as a whole.

    Chunks are compared, not names: an archive may hold the first half of a file, and the second half is new to it.
    """
    from insitu.references.appending import find_held_steps

    new = tree_from_member(member)
    known = {name: array for name, array in tree.arrays.items() if dim in array.dims}
    mine = {name: array for name, array in new.arrays.items() if dim in array.dims}
    there, elsewhere = find_held_steps(known, mine, dim, member.sizes[dim], target)
    if not there.any():
        return member, ()
    if (there & elsewhere).any():
        raise CombineError(
            f"step {int(np.argmax(there & elsewhere))} of {dim!r} comes from several files, and {target} has some of them already",
            hint=COMBINE_ANEW,
        )
    pieces = [select_range(member, dim, span) for span in _runs(~there)]
    rest = recipe.join_in_order(pieces, dim, load) if pieces else None
    added = () if rest is None else _urls(rest)
    return rest, tuple(url for url in _urls(member) if url not in added)


def _runs(chosen: npt.NDArray[np.bool_]) -> list[Span]:
    """Return the ranges of steps that are chosen.

    Examples
    --------
    >>> _runs(np.array([True, False, True, True]))
    [(0, 1), (2, 4)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]]).astype("i1")))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _check_fit(saved: Member, new: Member, dim: str, target: str) -> None:
    """Refuse labels that are in the archive already or that break its order, and stored values that are packed differently."""
    from insitu.references.appending import check_new_labels

    old, fresh = saved.index(dim), new.index(dim)
    if old is not None and fresh is not None and len(old) and len(fresh):
        with suppress(TypeError):  # dates of different calendars do not compare: combining them says so
            check_new_labels(
                np.asarray(old), np.asarray(fresh), tree_from_member(new).arrays, dim, target, may_precede=True
            )
    for name, variable in new.variables.items():
        there = saved.variables.get(name)
        if there is None or dim not in variable.dims:
            continue
        for key in UNDECODED:
            one, other = there.attributes.get(key), variable.attributes.get(key)
            counts = key != "units" or " since " in f"{one} {other}"
            if counts and repr(one) != repr(other):
                raise CombineError(
                    f"{key} of {name!r} is {one} in {target}, and {other} in what is to be added: stored values of both cannot be one variable",
                    hint="Open and save the files decoded, as insitu.open_dataset does",
                )


def known_files(
    target: str, urls: Sequence[Any], dim: str, storage_options: Mapping[str, Any] | None = None
) -> tuple[list[Any], list[str]]:
    """Return which files are new to an archive that grows along a dimension, and which it has already, unchanged: they need not be scanned.

    An Icechunk repository does not say which files it holds as a whole: all of them count as new, and are compared step by step when they are added.

    Raises
    ------
    SelectionError
        If the archive does not have the dimension.
    StaleSourceError
        If a file is in the archive and was changed since.
    """
    from insitu import references

    if references.kind_of(target) == "icechunk":
        _check_dim(_open(target, True, storage_options), dim, target)
        return list(urls), []
    opened = references.open_for_update(target, storage_options=storage_options)
    tree = opened.tree
    _check_dim(tree, dim, target)
    named = {source.url for source in tree.sources}.intersection(map(str, urls))
    # A store names files that were dropped, too. And one that was cut out of a dataset may have a part of a file.
    known = Layout.of(tree).sources if named and opened.recipe_document is not None else {}
    new, there = [], []
    for url in urls:
        if str(url) not in known:
            new.append(url)
            continue
        with open_source(url, storage_options) as source:
            reason = known[str(url)].difference(source.describe())
        if reason is not None:
            raise StaleSourceError(
                f"the file is in {target} already, and was changed since: {reason}",
                url=str(url),
                hint=f"Renew it in the archive: insitu refresh {target}",
            )
        there.append(str(url))
    return new, there


def _check_dim(tree: VirtualGroup, dim: str, target: str) -> None:
    """Refuse a dimension that an archive does not have, unless it is empty."""
    dims = {name: None for _, array in tree.all_arrays() for name in array.dims}
    if dims and dim not in dims:
        raise SelectionError(f"the archive has no dimension {dim!r}", url=target, hint=f"There are: {', '.join(dims)}")


# -- keeping it true


def check(
    references: str | os.PathLike[str] | VirtualGroup,
    *,
    progress: Progress | None = None,
    allow_local: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Report:
    """Ask every source of a set of references whether it still is what was scanned, and look for sources that were added twice.

    Of an insitu store all files are read first, and compared with their checksums.

    Parameters
    ----------
    references
        Where they are, or what was opened.
    progress
        Called after each source with how many are done, and how many there are.
    allow_local, storage_options
        See `insitu.scan`.

    Examples
    --------
    >>> print(insitu.check("era5.insitu"))  # doctest: +SKIP
    120 sources: 119 ok, 1 changed
    changed: s3://bucket/2020-06.nc: its ETag was "a41…" and is now "0f2…"
    """
    from insitu.references import Report, find_damage, kind_of
    from insitu.references import check as check_tree

    if isinstance(references, VirtualGroup):
        return check_tree(references, progress=progress, duplicates=True, storage_options=storage_options)
    url = os.fspath(references)
    tree = _open(url, allow_local, storage_options)
    if kind_of(url) == "insitu" and (damaged := find_damage(url, storage_options=storage_options)):
        return Report((), damaged=damaged)
    return check_tree(tree, progress=progress, duplicates=True, storage_options=storage_options)


def _open(url: str | os.PathLike[str], allow_local: bool, options: Mapping[str, Any] | None) -> VirtualGroup:
    """Return the tree of a set of references."""
    from insitu.references import open_references

    url = os.fspath(url)
    tree = open_references(url, allow_local=allow_local, storage_options=options)
    if tree is None:
        if (path := local_path(url)) is not None and not os.path.exists(path):
            raise NotFoundError("no such file or directory", url=url)
        raise FormatError("there are no references", url=url)
    return tree


def refresh(
    references: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    allow_local: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Report:
    """Scan again the sources that changed, and combine them with the rest of the archive as they are now.

    Everything that a file says is renewed: where its chunks lie, encodings, packings, attributes, labels, its length. An insitu store knows how it was
    combined; references of other tools keep the variables that they have.

    Returns
    -------
    Report
        What was found before; nothing was written if all sources are what they were.

    Raises
    ------
    StaleSourceError
        If a source is gone, or if what it holds now does not fit with the rest: the error says why.
    """
    from insitu import references as forms

    url = os.fspath(references)
    # Read before anything else: a store that somebody changes while its files are scanned is not overwritten.
    update = forms.open_for_update(url, storage_options=storage_options) if forms.kind_of(url) == "insitu" else None
    tree = _open(url, allow_local, storage_options) if update is None else update.tree
    report = forms.check(tree, progress=progress, storage_options=storage_options)
    suspects = [*report.stale, *_without_identity(report)]
    if not suspects:
        return report
    for finding in report.stale:
        if finding.status != "changed":
            raise StaleSourceError(
                finding.reason, url=finding.source.url, hint=f"Bring it back, or take it out: insitu drop {url} FILE"
            )
    changed = {finding.source.url for finding in suspects}
    known = update is not None and update.recipe_document is not None
    recipe = update.recipe(Recipe) if update is not None else Recipe()
    if recipe.unknown is not None:
        raise StaleSourceError(
            f"{url} cannot be made again from its files: {recipe.unknown}", url=min(changed), hint=COMBINE_ANEW
        )
    job = Job(recipe.decoding_options(), storage_options=storage_options, allow_local=allow_local)
    try:
        fresh = {}
        for path, member in scan_tree(url, job):
            fresh[path] = _renew(member, path, changed, recipe, job)
            if not known and fresh[path] is not member:
                fresh[path] = _only_known(fresh[path], member, changed)
        renewed = nest_groups({path: tree_from_member(member) for path, member in fresh.items()})
        if update is None:
            save_tree(renewed, url, format=forms.format_of(url), storage_options=storage_options)
    except (CombineError, VariableError, UnsupportedError) as problem:
        raise StaleSourceError(
            f"what the changed sources hold does not fit with the rest: {problem.message}",
            url=next(iter(changed)) if len(changed) == 1 else url,
            hint=COMBINE_ANEW,
        ) from problem
    if update is not None and not update.replace(renewed, relative=update.is_relative):
        raise SourceError(
            "another writer has changed the store in the meantime; nothing was refreshed", url=url, hint="Try again"
        )
    return report


def _without_identity(report: Report) -> list[Any]:
    """Return the findings about sources of which nothing is recorded that would tell a change, as in kerchunk's formats."""
    return [
        finding
        for finding in report.findings
        if finding.status == "ok"
        and not finding.source.optional
        and finding.source.size is None
        and finding.source.etag is None
        and finding.source.modified is None
    ]


def _renew(member: Member, path: str, changed: Collection[str], recipe: Recipe, job: Job) -> Member:
    """Return one group with what the changed files hold now."""
    load = loader(job.storage_options)
    layout = Layout.of(tree_from_member(member))
    mine = [url for url in layout.spans if url in changed]
    if not mine:
        return member
    where = "/".join(part for part in ((recipe.group or "").strip("/"), path) if part) or None
    job = replace(job, group=where, format=recipe.format, variables=recipe.variables if not path else None)
    dim = layout.joined_dim()
    if dim is None or recipe.files or isinstance(recipe.concat_dim, Mapping):
        # Not simply one after another: everything is scanned again and combined as it was the first time.
        urls = list(recipe.files or layout.spans)
        found = [scan_member(url, job) for url in urls]
        if len(found) > 1:
            whole = recipe.combine_found(found, [(number,) for number in range(len(found))], urls, load)
        else:
            whole = found[0]
    else:
        parts = [(layout.spans[url][dim][0], scan_member(url, job)) for url in mine]
        kept = [(span[0], select_range(member, dim, span)) for span in ranges_without(layout, dim, mine)]
        _check_disjoint([part for _, part in [*parts, *kept]], dim)
        parts += kept
        whole = recipe.join_in_order([part for _, part in sorted(parts, key=lambda item: item[0])], dim, load)
    return _with_computed(whole, member, layout)


def _only_known(renewed: Member, before: Member, changed: Collection[str]) -> Member:
    """Return the variables of a renewed group that were saved, if they can be told to be made of the files in the plain way.

    References of other tools, and trees that a program made, do not say how they came about: they may show the steps of a file in another order.

    Raises
    ------
    CombineError
        If they are not.
    """
    for name, variable in before.variables.items():
        old, new = variable.data, renewed.variables[name].data if name in renewed.variables else None
        if not isinstance(old, VirtualArray) or not any(source.url in changed for source in old.sources):
            continue
        if new is None or renewed.variables[name].dims != variable.dims:
            raise CombineError(f"it has no variable {name!r} with the dimensions {', '.join(variable.dims)} now")
        if isinstance(new, VirtualArray) and not _are_in_same_order(old, new):
            raise CombineError(f"the chunks of {name!r} lie in another order than in what was saved")
    return renewed.renewed({name: renewed.variables[name] for name in before.variables})


def _are_in_same_order(old: VirtualArray, new: VirtualArray) -> bool:
    """Return whether the chunks of two arrays lie in the same order in their files, or both in their own order if they are cut differently."""
    one, other = _order(old), _order(new)
    if one.shape == other.shape:
        return np.array_equal(one, other)
    return all(np.array_equal(order, np.arange(order.size)) for order in (one, other))


def _order(array: VirtualArray) -> npt.NDArray[np.intp]:
    """Return the rank of each stored chunk of an array among those of it, by place in its file."""
    places: list[tuple[str, int]] = []
    for tile in array.tiles:
        shape = tuple(tile.chunks.shape)
        total = int(np.prod(shape, dtype=object))
        rows = tile.chunks.locate(list(np.unravel_index(np.arange(total), shape)) if shape else [])
        stored = np.asarray(rows.source) >= 0
        urls = [tile.chunks.sources[number].url for number in np.asarray(rows.source)[stored].tolist()]
        places += list(zip(urls, np.asarray(rows.offset)[stored].tolist(), strict=True))
    return np.argsort(sorted(range(len(places)), key=places.__getitem__))


def _check_disjoint(members: Sequence[Member], dim: str) -> None:
    """Refuse members that have a label along a dimension in common."""
    seen: set[Any] = set()
    for member in members:
        labels = member.index(dim)
        mine = set() if labels is None else set(labels.tolist())
        if mine & seen:
            raise CombineError(f"the label {min(mine & seen, key=str)} of {dim!r} is in two files")
        seen |= mine


def _with_computed(whole: Member, before: Member, layout: Layout) -> Member:
    """Return the renewed group with variables that no file holds: they were computed when the archive was made."""
    lost = [name for name in before.variables if name not in whole.variables]
    for name in lost:
        data = before.variables[name].data
        if isinstance(data, VirtualArray) and data.sources:
            raise StaleSourceError(f"it does not hold {name!r} any more", url=data.sources[0].url, hint=COMBINE_ANEW)
        sizes = before.variables[name].sizes
        if any(whole.sizes.get(dim, length) != length for dim, length in sizes.items()):
            raise StaleSourceError(
                f"{name!r} was computed when the archive was made, and does not fit any more",
                url=next(iter(layout.spans)),
                hint=COMBINE_ANEW,
            )
    kept = {name: before.variables[name] for name in lost}
    coords = whole.coords | {name for name in lost if name in before.coords}
    order = [*(name for name in before.variables if name in whole.variables), *whole.variables]
    variables = {name: whole.variables[name] for name in dict.fromkeys(order)}
    return whole.renewed({**variables, **kept}, coords)


def rename_sources(target: str, rename: Mapping[str, str], *, storage_options: Mapping[str, Any] | None = None) -> None:
    """Change the URLs of the files of a saved archive in place: prefixes by their new ones."""
    from insitu import references

    for _ in range(ATTEMPTS):
        opened = references.open_for_update(target, storage_options=storage_options)
        if opened.replace(references.renamed(opened.tree, rename)):
            return
    raise _overtaken(target)


def rollback(target: str, *, storage_options: Mapping[str, Any] | None = None) -> None:
    """Put the state of an insitu store before its last change in place again. Doing it twice undoes it."""
    from insitu import references

    references.rollback_store(target, storage_options=storage_options)


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    rename: Any = None,
    allow_local: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> VirtualGroup:
    """Save references in another form, or for another place.

    Parameters
    ----------
    source
        A saved set of references; also whatever else `insitu.scan` takes.
    target
        Where to: its name says the form.
    rename
        New URLs of the sources: a mapping of prefixes, a pair of regular expression and replacement, or a function.
    allow_local, storage_options
        See `insitu.scan`.
    options
        As for `insitu.references.save`.

    Returns
    -------
    VirtualGroup
        What was saved.
    """
    from insitu import references

    job = Job(storage_options=storage_options, allow_local=allow_local)
    tree = nest_groups({path: tree_from_member(member) for path, member in scan_tree(source, job)})
    tree = tree if rename is None else references.renamed(tree, rename)
    recipe = references.recipe_of(os.fspath(source), storage_options=storage_options)
    how = None if recipe is None else Recipe.from_document(recipe)
    save_tree(tree, target, recipe=how, storage_options=storage_options, **options)
    return tree


def nest_groups(groups: Mapping[str, VirtualGroup]) -> VirtualGroup:
    """Return the tree of groups that are given by path, parents first."""
    children: dict[str, list[str]] = {path: [] for path in groups}
    for path in groups:
        if path:
            children[path.rpartition("/")[0]].append(path)

    def build(path: str) -> VirtualGroup:
        inner = {child.rpartition("/")[2]: build(child) for child in children[path]}
        return replace(groups[path], groups=inner)

    return build("")
