"""`open_dataset`, `open_mfdataset`, `open_datatree`, `open_mfdatatree`, `open_groups`: the functions that users call.

They import what does the work when they are called. So a program that names them starts without
waiting for xarray and for the modules that open files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from insitu.forking import import_before_fork
from insitu.open_options import DEFAULT, Verify
from insitu.xarray_bridge.engine_keywords import options_of_call

if TYPE_CHECKING:
    import xarray

    from insitu.active.placement import Servers
    from insitu.reading import ChunkCache

__all__ = ["open_dataset", "open_datatree", "open_forecasts", "open_groups", "open_mfdataset", "open_mfdatatree"]

_GROUPS_HAVE_VARIABLES = "unexpected keyword argument 'variables': groups have variables of their own"


def open_dataset(
    url: Any,
    *,
    group: str | None = None,
    variables: Sequence[str] | None = None,
    format: str | None = None,
    errors: str = "raise",
    chunks: Any = None,
    inline_array: bool = False,
    cache: ChunkCache | int | bool | None = None,
    active: Servers | None = None,
    active_required: bool = False,
    verify: Verify = "read",
    allow_local: bool = False,
    create_default_indexes: bool = True,
    storage_options: Mapping[str, Any] | None = None,
    **decode: Any,
) -> xarray.Dataset:
    """Open an archive as a dataset of virtual arrays.

    Only metadata and the labels of dimensions are read.

    Parameters
    ----------
    url
        A path, a URL (`http://`, `https://`, `s3://`, `gs://`, `az://`), an open binary file, or
        bytes: of a file of any format that insitu reads, a Zarr store, or a saved set of
        references; also references themselves, as a dictionary of kerchunk's, and `"reference://"`
        with `storage_options={"fo": …}`, as for fsspec.
    group
        Which group; the root if not given.
    variables
        Only these, and their coordinates.
    format
        Name of the file format; if not given, the first bytes decide.
    errors
        `"raise"`: a variable that cannot be read is an error. `"warn"`: it is left out, and a
        warning gives the reason. `"skip"`: it is left out.
    chunks
        As in `xarray.open_dataset`: Dask arrays instead of virtual ones. `{}` and `"auto"`: in blocks
        of whole stored chunks, about 128 MiB (Dask's setting `array.chunk-size`).
    inline_array
        As in `xarray.open_dataset`.
    cache
        By default values that were read are kept for the next use, and so are chunks that are read
        in parts, up to a tenth of the memory and 1 GiB for the whole process, until they are
        evicted or the dataset is closed. A `ChunkCache`, which several datasets may share, or how
        many bytes it may hold: keeps decoded chunks instead. False: nothing is kept.
    active, active_required
        The address of a server next to the data (`insitu serve`), e.g. `"http://host:8080"`:
        reductions run there. A list: servers with the same data, which share the work. A mapping of
        URL prefixes (or folders) to servers: each part of the data is reduced by the server that is
        next to it. What no server can do runs here, with a warning that gives the reason; with
        `active_required` that is an error.
    verify, allow_local
        When sources are checked for changes since the scan, and whether references from elsewhere
        may name files of this machine: see `insitu.scan`.
    create_default_indexes
        Whether the labels of dimensions become indexes, as in `xarray.open_dataset`.
    storage_options
        Credentials and endpoints: see `insitu.scan`.
    **decode
        xarray's: `decode_cf`, `mask_and_scale`, `decode_times`, `decode_timedelta`, `use_cftime`,
        `concat_characters`, `decode_coords`, `drop_variables`. Keywords of xarray's netCDF engines
        (`auto_complex`, `lock`, …) are accepted and ignored.

    Returns
    -------
    xarray.Dataset
        Once loaded, equal to that of `xarray.open_dataset`.

    Examples
    --------
    >>> ds = insitu.open_dataset("era5.nc")  # doctest: +SKIP
    >>> ds.t2m.sel(time="2020-06").mean("time")  # doctest: +SKIP
    """
    options = options_of_call(locals(), decode)
    dataset: xarray.Dataset = _load("opening").open_one(url, options)
    return dataset


def open_mfdataset(
    paths: Any,
    *,
    combine: str = "by_coords",
    concat_dim: Any = None,
    forecasts: bool | Mapping[str, str] = False,
    overlap: Literal["error", "first", "last", "newest"] | None = None,
    expect: Any = None,
    compat: str = DEFAULT,
    data_vars: str | Sequence[str] | None = DEFAULT,
    coords: str | Sequence[str] = DEFAULT,
    join: str = DEFAULT,
    combine_attrs: str | Callable[..., Any] = "override",
    pad: bool = False,
    attrs_file: Any = None,
    preprocess: Callable[[xarray.Dataset], xarray.Dataset] | None = None,
    variables: Sequence[str] | None = None,
    errors: str = "raise",
    parallel: Any = None,
    progress: bool | Callable[[int, int], None] | None = None,
    resume: bool | None = None,
    group: str | None = None,
    format: str | None = None,
    chunks: Any = None,
    cache: ChunkCache | int | bool | None = None,
    active: Servers | None = None,
    active_required: bool = False,
    verify: Verify = "read",
    allow_local: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **decode: Any,
) -> xarray.Dataset:
    r"""Open many files as one dataset of virtual arrays.

    The result is that of `xarray.open_mfdataset`, in a fraction of the time.

    Files may differ in chunk shapes, compression, stored type, packing and time units.

    Parameters
    ----------
    paths
        A pattern (`"archive/*.nc"`, `"s3://bucket/**/tas_*.nc"`), a prefix that ends in a slash,
        the name of a text file that lists paths (`"@files.txt"`), a list of any of these, or nested
        lists.
    combine
        `"by_coords"`: files are ordered by the labels of their dimensions. `"nested"`: as in the
        lists.
    concat_dim
        With `combine="nested"`: the dimension (one for each level of nesting). A mapping
        `{"member": how}` makes a new dimension: `how` is a regular expression for the files' names
        (its first group is the label), a function of the path, a list of labels, or what in each file
        gives the label: `"attr:source_id"`, a global attribute, or `"var:realization"`, a variable of
        a single value.
    forecasts
        Whether files are forecasts, or the names of their axes: see `open_forecasts`.
    overlap
        Which file gives a label that several have: `"first"` or `"last"` in the order given,
        `"newest"`: the one written last, by a date in the attributes if all files have it
        (`date_modified`, `creation_date`, `date_created`, …), else by the time of the object;
        `"error"`: none may. None: as in xarray, which combines no such files. What is shadowed is
        never read.
    expect
        The spacing of the labels: an offset of pandas (`"1D"`, `"6h"`, `"MS"`), a number, or a
        mapping of dimensions to these. Labels that no file has are there, with missing values; a
        label off the grid is an error.
    compat, data_vars, coords, join, combine_attrs, attrs_file
        As in xarray, with the installed xarray's defaults.
    pad
        Whether files of different lengths are padded with missing values at their end, to the longest,
        along the dimensions that they are not joined along. Labels and other coordinates that differ
        between files by that get the dimension that the files are joined along.
    preprocess
        Called with each file's dataset. Structural changes and arithmetic stay virtual. Other
        computed variables are read if they are small; larger ones become Dask arrays. Of what is
        computed xarray combines the files.
    variables
        Only these, and their coordinates.
    errors
        What happens to a file that cannot be opened. `"raise"`: an error. `"warn"`: it is left out
        with a warning. `"skip"`: it is left out. In a grid of files its place stays, without
        values. `ds.insitu.report()` names it. Variables that cannot be read are treated alike.
    parallel
        None: threads where they help; a number of threads; a `concurrent.futures.Executor`
        (processes, MPI, …); `"dask"` or a Dask client. Workers scan and join; the result is the
        same.
    progress
        True: a line with rate, remaining time, failures and the share of each worker; or a function
        that is called with the numbers of scanned and of all files.
    resume
        Whether what was scanned is kept until all files are, in the user's cache folder: the same
        call goes on where an interrupted one stopped. None: with `parallel=` an executor or a Dask
        client, from 1,000 files on.
    group, format, chunks, cache, active, active_required, verify, allow_local
        As for `open_dataset`.
    storage_options, **decode
        As for `open_dataset`.

    Returns
    -------
    xarray.Dataset
        One dataset.

    Examples
    --------
    >>> ds = insitu.open_mfdataset("archive/tas_*.nc")  # doctest: +SKIP
    >>> ds = insitu.open_mfdataset("cmip/*.nc", concat_dim={"member": r"_(r\d+)i1"})  # doctest: +SKIP
    """
    options = options_of_call(locals(), decode)
    dataset: xarray.Dataset = _load("open_many").open_combined(paths, options)
    return dataset


def open_forecasts(
    paths: Any,
    *,
    time: Any = None,
    step: Any = None,
    number: Any = None,
    names: Mapping[str, str] | None = None,
    concat_dim: Mapping[str, Any] | None = None,
    **how: Any,
) -> xarray.Dataset:
    r"""Open the files of forecasts as one dataset along reference time, lead time and member.

    Where a file stands along these is said by keys of GRIB, by the standard names of CF
    (`forecast_reference_time`, `forecast_period`, `realization`), by an index beside a GRIB file
    (`.idx` of NCEP, `.index` of ECMWF), which is then given instead of that file, or by `time`,
    `step` and `number`. Lead times that a run does not have are missing values. Views that stay
    virtual: `ds.insitu.best()`, `constant_lead(…)`, `run(…)`, `at_valid_time(…)`.

    Parameters
    ----------
    paths
        As for `open_mfdataset`; one file may hold any part: a field, a run, a table of runs.
    time, step, number
        What says the reference time, the lead time and the member, where files do not say it in a
        usual way: a regular expression for their names (its first group; digits of a lead time are
        hours), `"attr:NAME"`, a global attribute, `"var:NAME"`, a variable of a single value, or a
        function of the path.
    names
        Other names of the axes: `{"time": "run", "step": "lead", "number": "member"}`.
    concat_dim
        Further dimensions: `{"model": "attr:source_id"}`, as for `open_mfdataset`.
    **how
        As for `open_mfdataset`: `group` (a GRIB file of several levels has one for each), `overlap`
        (which file counts if several have a lead time of a run; an error if not given), `expect`
        (`{"time": "6h"}`: runs that are missing are there, without values), `errors`, …

    Returns
    -------
    xarray.Dataset
        With dimensions (`number`,) `time`, `step` and those of the fields, and the coordinate
        `valid_time`; a single member is no dimension.

    Examples
    --------
    >>> ds = insitu.open_forecasts("gfs/*.idx", group="heightAboveGround_2")  # doctest: +SKIP
    >>> ds = insitu.open_forecasts("runs/*.nc", time=r"_(\d{10})_", step=r"_f(\d{3})")  # doctest: +SKIP
    """
    rules = {"time": time, "step": step, "number": number}
    rules = {**{dim: rule for dim, rule in rules.items() if rule is not None}, **(concat_dim or {})}
    return open_mfdataset(paths, forecasts=names or True, concat_dim=rules or None, **how)


def open_datatree(url: Any, **how: Any) -> xarray.DataTree:
    """Open an archive with all its groups. Takes what `open_dataset` takes, but for `variables`."""
    tree: xarray.DataTree = _load("opening").to_datatree(open_groups(url, **how), url)
    return tree


def open_mfdatatree(
    paths: Any,
    *,
    combine: str = "by_coords",
    concat_dim: Any = None,
    overlap: Literal["error", "first", "last", "newest"] | None = None,
    expect: Any = None,
    pad: bool = False,
    compat: str = DEFAULT,
    data_vars: str | Sequence[str] | None = DEFAULT,
    coords: str | Sequence[str] = DEFAULT,
    join: str = DEFAULT,
    combine_attrs: str | Callable[..., Any] = "override",
    by_group: Mapping[str, Mapping[str, Any]] | None = None,
    preprocess: Callable[[xarray.DataTree], xarray.DataTree] | None = None,
    errors: str = "raise",
    parallel: Any = None,
    progress: bool | Callable[[int, int], None] | None = None,
    resume: bool | None = None,
    group: str | None = None,
    format: str | None = None,
    chunks: Any = None,
    cache: ChunkCache | int | bool | None = None,
    active: Servers | None = None,
    active_required: bool = False,
    verify: Verify = "read",
    allow_local: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **decode: Any,
) -> xarray.DataTree:
    """Open many files with all their groups as one tree of virtual arrays.

    Each group is combined as `open_mfdataset` combines files, with the labels that it inherits from
    the groups above it in its file. All groups are found in one scan. Where files lack a group, its
    values are missing; a group without variables has the attributes of its files.

    Parameters
    ----------
    paths
        As for `open_mfdataset`.
    combine, concat_dim, overlap, expect, pad, compat, data_vars, coords, join, combine_attrs
        As for `open_mfdataset`, for all groups. What labels a new dimension may lie in any group:
        `{"time": "attr:what/date"}`.
    by_group
        Other values of these for some groups: a mapping of paths or patterns to options, as in
        `{"sweep_*": {"combine": "nested", "concat_dim": "time"}}`. `*` stands for any name or a part
        of one, `/` is the root, `a/**` is `a` with all groups below it. Of several patterns the
        later one counts.
    preprocess
        Called with the tree of each file; returns another one.
    errors
        As for `open_mfdataset`. With `"warn"` and `"skip"` a group is left out, too, whose files
        cannot be joined or that does not fit below the groups above it. `tree.insitu.report()`
        names what was left out.
    group
        The group that is the root of the tree.
    parallel, progress, resume
        As for `open_mfdataset`.
    format, chunks, cache, active, active_required, verify, allow_local, storage_options, **decode
        As for `open_dataset`.

    Returns
    -------
    xarray.DataTree
        One tree.

    Examples
    --------
    >>> tree = insitu.open_mfdatatree("volumes/*.h5", combine="nested", concat_dim="volume")  # doctest: +SKIP
    """
    if "variables" in decode:
        raise TypeError(_GROUPS_HAVE_VARIABLES)
    options = options_of_call(locals(), decode)
    tree: xarray.DataTree = _load("open_many_trees").open_combined_tree(paths, options)
    return tree


def open_groups(
    url: Any, *, chunks: Any = None, inline_array: bool = False, create_default_indexes: bool = True, **how: Any
) -> dict[str, xarray.Dataset]:
    """Open every group of an archive as a dataset, by path. Takes what `open_datatree` takes."""
    if "variables" in how:
        raise TypeError(_GROUPS_HAVE_VARIABLES)
    options = options_of_call(locals(), how)
    groups: dict[str, xarray.Dataset] = _load("opening").open_every_group(url, options)
    return groups


def _load(name: str) -> Any:
    """Import a module of this package."""
    return import_before_fork(f"insitu.xarray_bridge.{name}")
