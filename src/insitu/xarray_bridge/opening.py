"""What `open_dataset`, `open_datatree` and `open_groups` do: one archive as one or several datasets."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import xarray

from insitu.active.placement import Servers
from insitu.archive import Archive
from insitu.errors import UnsupportedError
from insitu.formats import InsituWarning
from insitu.lazy_array.dask_blocks import choose_blocks_together
from insitu.lazy_array.load_values import to_dask
from insitu.reading import ChunkCache, ReadContext
from insitu.reading.value_cache import Owner, default_value_cache
from insitu.scanning.member import Member
from insitu.scanning.scan_url import Verify
from insitu.sources import redact_url
from insitu.xarray_bridge import accessor, array_accessor, tree_accessor  # noqa: F401 - imported to register the accessors
from insitu.xarray_bridge.backend_array import duck_array
from insitu.xarray_bridge.dataset import drop_conflicting_variables, to_dataset
from insitu.xarray_bridge.engine_keywords import check_complex, without_engine_keywords
from insitu.xarray_bridge.origin import Origin

__all__ = [
    "OpenOptions",
    "context_of",
    "dataset_from_archive",
    "no_variables_message",
    "open_every_group",
    "open_one",
    "to_dask_dataset",
    "to_datatree",
]

MAX_SHOWN_GROUPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """The keywords of `open_dataset`, `open_datatree` and `open_mfdataset`; see `open_dataset`."""

    group: str | None = None
    variables: Sequence[str] | None = None
    format: str | None = None
    errors: str = "raise"
    chunks: Any = None
    inline_array: bool = False
    cache: ChunkCache | int | bool | None = None
    active: Servers | None = None
    active_required: bool = False
    verify: Verify = "read"
    allow_local: bool = False
    create_default_indexes: bool = True
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    decode: Mapping[str, Any] = field(default_factory=dict)
    """xarray's keywords of decoding, and those of other engines."""

    @classmethod
    def of_groups(cls, given: Mapping[str, Any]) -> OpenOptions:
        """Return the options from the keywords of a call that opens every group."""
        own = {option.name for option in fields(cls)} - {"variables", "inline_array", "decode"}
        decode = {name: value for name, value in given.items() if name not in own}
        return cls(**{name: value for name, value in given.items() if name in own}, decode=decode)

    def open_archive(self, url: Any, **more: Any) -> Archive:
        """Open an archive with these options, and further ones of `Archive.open`."""
        if self.group is not None and not isinstance(self.group, str):
            raise ValueError(f"group must be a string or None, not {self.group!r}")
        return Archive.open(
            url,
            group=self.group,
            variables=self.variables,
            errors=self.errors,
            cache=self.cache,
            active=self.active,
            active_required=self.active_required,
            verify=self.verify,
            allow_local=self.allow_local,
            storage_options=self.storage_options,
            **without_engine_keywords({"format": self.format, **self.decode}),
            **more,
        )

    def to_dataset(
        self, member: Member, archive: Archive, context: ReadContext, *, is_origin: bool = False
    ) -> xarray.Dataset:
        """Return a member of an archive as a dataset of virtual arrays, or of Dask arrays.

        Parameters
        ----------
        member, archive
            The group, and where it comes from.
        context
            How its values are read.
        is_origin
            Whether the archive describes the dataset, so that the dataset can be saved with it.
        """
        check_complex(member, self.decode)
        member = drop_conflicting_variables(member) if archive.job.skips_failures else member
        dataset = to_dataset(member, context, indexed=self.create_default_indexes)
        dataset = dataset if self.chunks is None else to_dask_dataset(dataset, self.chunks, self.inline_array)
        if is_origin:
            dataset.insitu.origin = Origin.of(dataset, archive)
        return dataset


def open_one(url: Any, options: OpenOptions) -> xarray.Dataset:
    """Open one group of an archive as a dataset: see `open_dataset`."""
    archive = options.open_archive(url, many=False)
    member = archive.member()
    if member.groups:
        warnings.warn(no_variables_message(member, options.group), InsituWarning, stacklevel=3)
    return options.to_dataset(member, archive, context_of(archive, options.cache), is_origin=True)


def dataset_from_archive(
    archive: Archive,
    *,
    group: str = "",
    chunks: Any = None,
    inline_array: bool = False,
    create_default_indexes: bool = True,
) -> xarray.Dataset:
    """Return one group of an archive as a dataset of virtual arrays, or of Dask arrays."""
    options = OpenOptions(chunks=chunks, inline_array=inline_array, create_default_indexes=create_default_indexes)
    return options.to_dataset(archive.member(group), archive, context_of(archive, options.cache), is_origin=True)


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
            tree = xarray.DataTree.from_dict(_with_images_beside(groups))
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


def _with_images_beside(groups: Mapping[str, xarray.Dataset]) -> dict[str, xarray.Dataset]:
    """Return groups with each image that has overviews or pages in a group of its own beside them."""
    found = {}
    for path, group in groups.items():
        inside = f"{path.rstrip('/')}/"
        names = [own for below, own in _NAMES_OF_IMAGES.items() if inside + below in groups]
        found[path] = xarray.Dataset(attrs=group.attrs) if names else group
        if names:
            found[inside + names[0]] = group
    return found


_NAMES_OF_IMAGES = {"overview_0": "full_resolution", "page_1": "page_0"}
"""First of the groups below an image: the name of the image beside them."""


def open_every_group(url: Any, options: OpenOptions) -> dict[str, xarray.Dataset]:
    """Open every group of an archive as a dataset, by path."""
    archive = options.open_archive(url, many=False)
    context = context_of(archive, options.cache)
    return {
        f"/{path}": options.to_dataset(member, archive, context, is_origin=True)
        for path, member in archive.all_members()
    }


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
        archive.job.storage_options,
        active=archive.active,
        cache=values.chunks_of(owner) if keeps_values else archive.cache,
        keep_alive=archive.kept,
        values=values if keeps_values else None,
        owner=owner,
    )


def to_dask_dataset(dataset: xarray.Dataset, chunks: Any, inline_array: bool = False) -> xarray.Dataset:
    """Return the dataset with Dask arrays in place of the virtual ones: see `open_dataset`."""
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
        asked = {dim: cut for dim, cut in given if not isinstance(cut, str)}
        blocks = choose_blocks_together({name: (dims, array.node) for name, (dims, array) in arrays.items()}, asked)
    else:
        blocks = dict.fromkeys(arrays, chunks)
    made = {
        name: dataset.variables[name].copy(deep=False, data=to_dask(array, blocks[name], inline_array=inline_array))
        for name, (_, array) in arrays.items()
    }
    return dataset.assign({name: v for name, v in made.items() if name in dataset.data_vars}).assign_coords(
        {name: v for name, v in made.items() if name in dataset.coords}
    )
