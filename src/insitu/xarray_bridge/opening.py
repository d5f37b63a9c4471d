"""What `open_dataset`, `open_datatree` and `open_groups` do: one archive as one or several datasets."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import xarray

from insitu.archive import Archive
from insitu.errors import UnsupportedError
from insitu.formats import InsituWarning
from insitu.open_options import OpenOptions, ShowOptions
from insitu.reading import ChunkCache, ReadContext
from insitu.reading.value_cache import Owner, default_value_cache
from insitu.scanning.group_tree import images_beside
from insitu.scanning.member import Member
from insitu.sources import redact_url
from insitu.xarray_bridge import accessor, array_accessor, tree_accessor  # noqa: F401 - imported to register the accessors
from insitu.xarray_bridge.backend_array import duck_array
from insitu.xarray_bridge.dataset import drop_conflicting_variables, to_dataset
from insitu.xarray_bridge.engine_keywords import check_complex
from insitu.xarray_bridge.origin import Origin

__all__ = [
    "context_of",
    "dataset_from_archive",
    "dataset_of",
    "no_variables_message",
    "open_every_group",
    "open_one",
    "to_dask_dataset",
    "to_datatree",
]

MAX_SHOWN_GROUPS = 8


def open_one(url: Any, options: OpenOptions) -> xarray.Dataset:
    """Open one group of an archive as a dataset: see `open_dataset`."""
    archive = Archive.open_with(url, options, many=False)
    member = archive.member()
    if member.groups:
        warnings.warn(no_variables_message(member, options.scan.group), InsituWarning, stacklevel=3)
    return dataset_of(member, archive, context_of(archive, options.read.cache), options.show)


def dataset_from_archive(archive: Archive, *, group: str = "", **show: Any) -> xarray.Dataset:
    """Return one group of an archive as a dataset of virtual arrays, or of Dask arrays: `show` are
    `chunks`, `inline_array`, `create_default_indexes`.
    """
    return dataset_of(archive.member(group), archive, context_of(archive), ShowOptions(**show))


def dataset_of(member: Member, archive: Archive, context: ReadContext, show: ShowOptions) -> xarray.Dataset:
    """Return a member of an archive as a dataset, which can be saved with the archive."""
    if show.auto_complex:
        check_complex(member)
    member = drop_conflicting_variables(member) if archive.job.scan.skips_failures else member
    dataset = to_dataset(member, context, indexed=show.create_default_indexes)
    dataset = dataset if show.chunks is None else to_dask_dataset(dataset, show.chunks, show.inline_array)
    dataset.insitu.origin = Origin.of(dataset, archive)
    return dataset


def to_datatree(groups: Mapping[str, xarray.Dataset], url: Any) -> xarray.DataTree:
    """Return groups as a DataTree.

    An image of other labels than its overviews lies beside them, in a group `full_resolution`, and
    one beside pages of other labels in a group `page_0`: xarray requires a group to have the labels
    of its parents.

    Raises
    ------
    UnsupportedError
        If the labels of a group are not those of its parents for another reason.
    """
    try:
        try:
            tree = xarray.DataTree.from_dict(groups)
        except ValueError:
            beside: dict[str, xarray.Dataset] = images_beside(groups, _only_attributes)
            tree = xarray.DataTree.from_dict(beside)
    except ValueError as problem:
        raise UnsupportedError(
            "the groups do not make a tree: xarray requires a group to have the labels of its "
            f"parents ({str(problem).splitlines()[0]})",
            url=redact_url(url) if isinstance(url, str) else None,
            hint="Use xarray.open_groups(…, engine='insitu') for all groups, or open_dataset(…, group=…) "
            f"for one: {', '.join(list(groups)[:4])} …",
        ) from problem
    if all(group.insitu.origin is not None for group in groups.values()):
        tree.insitu.set_origin(next(iter(groups.values())).insitu.origin.archive)
    return tree


def _only_attributes(group: xarray.Dataset) -> xarray.Dataset:
    return xarray.Dataset(attrs=group.attrs)


def open_every_group(url: Any, options: OpenOptions) -> dict[str, xarray.Dataset]:
    """Open every group of an archive as a dataset, by path."""
    archive = Archive.open_with(url, options, many=False)
    context = context_of(archive, options.read.cache)
    return {f"/{path}": dataset_of(member, archive, context, options.show) for path, member in archive.all_members()}


def no_variables_message(member: Member, group: str | None) -> str:
    """Return the warning for a group that has groups, but no variables."""
    prefix = "".join(f"{part}/" for part in (group or "").split("/") if part)
    names = [repr(prefix + path) for path in member.groups]
    more = f" and {len(names) - MAX_SHOWN_GROUPS} more" if len(names) > MAX_SHOWN_GROUPS else ""
    where = f"group {prefix[:-1]!r}" if prefix else "root"
    return (
        f"the {where} of {redact_url(member.source or 'this archive')} has no variables, but groups below it "
        f"have: {', '.join(names[:MAX_SHOWN_GROUPS])}{more}. Open one with group=…, or all with open_datatree"
    )


def context_of(archive: Archive, cache: ChunkCache | int | bool | None = None) -> ReadContext:
    """Return how the values of an archive are read by the arrays of its datasets.

    Parameters
    ----------
    archive
        The archive.
    cache
        The option: None keeps values that were read in the cache of the process.
    """
    keeps_values = cache is None or cache is True
    values, owner = default_value_cache(), Owner()
    return ReadContext(
        None,
        archive.job.scan.storage_options,
        active=archive.active,
        cache=values.chunks_of(owner) if keeps_values else archive.cache,
        keep_alive=archive.in_memory,
        values=values if keeps_values else None,
        owner=owner,
    )


def to_dask_dataset(dataset: xarray.Dataset, chunks: Any, inline_array: bool = False) -> xarray.Dataset:
    """Return the dataset with Dask arrays in place of the virtual ones: see `open_dataset`."""
    # Not at the top: only Dask needs them.
    from insitu.lazy_array.dask_blocks import choose_blocks_together
    from insitu.lazy_array.load_values import to_dask

    arrays = {
        name: (variable.dims, array)
        for name, variable in dataset.variables.items()
        if (array := duck_array(variable)) is not None
    }
    blocks: Mapping[Any, Any]
    if isinstance(chunks, Mapping) and any(isinstance(cut, str) and cut != "auto" for cut in chunks.values()):
        # Bytes, such as "64MiB": Dask's own rules.
        blocks = {name: tuple(chunks.get(dim, "auto") for dim in dims) for name, (dims, _) in arrays.items()}
    elif isinstance(chunks, Mapping) or (isinstance(chunks, str) and chunks == "auto"):
        given = chunks.items() if isinstance(chunks, Mapping) else ()
        requested = {dim: cut for dim, cut in given if not isinstance(cut, str)}
        blocks = choose_blocks_together({name: (dims, array.node) for name, (dims, array) in arrays.items()}, requested)
    else:
        blocks = dict.fromkeys(arrays, chunks)
    made = {
        name: dataset.variables[name].copy(deep=False, data=to_dask(array, blocks[name], inline_array=inline_array))
        for name, (_, array) in arrays.items()
    }
    return dataset.assign({name: v for name, v in made.items() if name in dataset.data_vars}).assign_coords(
        {name: v for name, v in made.items() if name in dataset.coords}
    )
