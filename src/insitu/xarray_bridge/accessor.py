"""The accessors `ds.insitu` and `da.insitu`: sources, references, saving, statistics.

Every dataset that is opened gets one, so statistics and explanations are imported when they are asked
for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import xarray

from insitu import maintenance
from insitu.archive import Archive
from insitu.combining.file_names import absolute_path
from insitu.errors import UnsupportedError
from insitu.expressions.chunk_grid import grid_of
from insitu.expressions.nodes import stored_arrays
from insitu.lazy_array.duck_array import LazyArray
from insitu.model import Source, VirtualArray, VirtualGroup, byte_ranges, count_cells
from insitu.model.description import format_bytes
from insitu.model.tile import distinct_sources
from insitu.reading import ReadContext
from insitu.scanning.member import Variable as MemberVariable
from insitu.scanning.saved_members import tree_from_member
from insitu.xarray_bridge.backend_array import dataset_name, find_lazy_array, stored_name
from insitu.xarray_bridge.dataset import to_member
from insitu.xarray_bridge.origin import Origin, recipe_of

if TYPE_CHECKING:
    import pandas

    from insitu.combining.recipe import Recipe
    from insitu.combining.survey import Report, Survey
    from insitu.copying import Chunks, CopyPlan, CopyReport, SplitPlan
    from insitu.lazy_array.explain import Explanation
    from insitu.references import AppendReport
    from insitu.xarray_bridge.explain_dataset import DatasetExplanation
    from insitu.xarray_bridge.forecast_views import Forecasts
    from insitu.xarray_bridge.grouped_accessor import Grouped
    from insitu.xarray_bridge.notebook_explorer import ExplorerFrame
    from insitu.xarray_bridge.weighted_accessor import Weighted

__all__ = ["InsituAccessor"]


class InsituAccessor:
    """The accessor `ds.insitu`: sources, references, saving and statistics of a dataset."""

    def __init__(self, dataset: xarray.Dataset) -> None:
        self._dataset = dataset
        self.survey: Survey | Callable[[], Survey] | None = None
        self.origin: Origin | None = None
        """The archive that the dataset was opened from; None for datasets made from it."""

    def __getstate__(self) -> dict[str, Any]:
        # Archives hold open objects, which cannot travel, and all variables, of which a dataset may
        # need a few.
        return {**self.__dict__, "origin": None}

    def _lazy(self) -> Iterator[tuple[str, LazyArray]]:
        for name, variable in self._dataset.variables.items():
            if (array := find_lazy_array(variable)) is not None:
                yield stored_name(name), array

    @property
    def virtual(self) -> list[str]:
        """The variables that are not in memory."""
        return [name for name, _ in self._lazy()]

    @property
    def nbytes_virtual(self) -> int:
        """Bytes that loading everything that is still virtual gives."""
        return sum(array.nbytes for _, array in self._lazy())

    @property
    def nbytes_stored(self) -> int:
        """Bytes in the archive behind it; a chunk that two cells share counts twice."""
        return sum(
            count_cells(stored.array).nbytes for _, array in self._lazy() for stored in stored_arrays(array.node)
        )

    @property
    def sources(self) -> list[str]:
        """The files behind it."""
        every = (stored for _, array in self._lazy() for stored in stored_arrays(array.node))
        sources = distinct_sources(tile for stored in every for tile in stored.array.tiles)
        return list(dict.fromkeys(source.url for source in sources))

    @property
    def files(self) -> pandas.DataFrame:
        """The files behind it as a table: URL, size, time, range of labels, and how many of these come from
        other files (`shadowed`).

        Of a dataset that was opened with `overlap=` also those that are shadowed wholly. The
        attribute `time` of the table says where times are from.
        """
        recipe = None
        if self.origin is not None and self.origin.is_unchanged(self._dataset):
            recipe = self.origin.archive.recipe_to_save()
        return self.list_files(recipe)

    def list_files(self, recipe: Recipe | None) -> pandas.DataFrame:
        """Return the table of the files behind it: see `files`; `recipe` is how they were combined."""
        from insitu.combining.file_list import list_files

        return list_files(self._stored_group(), self._find_labels, recipe)

    def _stored_group(self) -> VirtualGroup:
        """Return the arrays that are stored, with their dimensions."""
        arrays = {}
        for name, lazy in self._lazy():
            dims = tuple(map(str, self._dataset.variables[dataset_name(name)].dims))
            if lazy.is_stored:
                arrays[name] = _with_dims_and_attributes(lazy.array, dims, {})
        return VirtualGroup(arrays)

    def _find_labels(self, dim: str) -> Any:
        indexes = self._dataset.indexes
        return indexes[dim].to_numpy() if dim in indexes else None

    @property
    def missing(self) -> dict[Any, Any]:
        """The labels along each dimension that were expected (`expect=`), and that no file has.

        Of forecasts also what their runs lack: `missing["time", "step"]` is a `pandas.MultiIndex` of the
        runs and lead times that no file has.
        """
        from insitu.combining.file_list import list_missing

        origin = self.origin
        recipe = None if origin is None or not origin.is_unchanged(self._dataset) else origin.archive.recipe_to_save()
        return list_missing(self._stored_group(), self._find_labels, recipe)

    def group(self) -> VirtualGroup:
        """Return the virtual arrays as a group, with names, dimensions and attributes."""
        arrays = {}
        for name, lazy in self._lazy():
            if not lazy.is_stored:
                raise ValueError(
                    f"variable {name!r} was masked, filled or converted after opening, so no stored array is "
                    "behind it: load() or drop it"
                )
            variable = self._dataset.variables[dataset_name(name)]
            arrays[name] = _with_dims_and_attributes(lazy.array, tuple(map(str, variable.dims)), dict(variable.attrs))
        return VirtualGroup(arrays, attributes=dict(self._dataset.attrs))

    def save(
        self,
        target: str | PathLike[str],
        format: str | None = None,
        mode: str = "w",
        *,
        storage_options: Mapping[str, Any] | None = None,
        **how: Any,
    ) -> None:
        """Save the dataset as references, which are small and open again at once.

        Values in memory are saved inline.

        Parameters
        ----------
        target
            Its name decides the format: `*.insitu` holds every dataset; `*.json` and `*.parq`
            (kerchunk) hold those whose files are cut, encoded and packed alike.
        format
            One of `insitu.references.FORMATS`, if not by the name.
        mode
            `"w"`: what lies there is replaced. `"x"`: nothing may lie there.
        storage_options
            For the target, and for sources that have to be looked at; those that the dataset was
            opened with, if not given.
        **how
            Of `insitu.references.save`: `inline_threshold`, `relative`, …; `native="where needed"`: what
            the format cannot hold is copied, as native chunks beside the references or in the
            repository; `announce`: a function that is told before which variables, why, and how many
            bytes.

        Raises
        ------
        UnsupportedError
            If the format cannot hold some variable: which, because of which files, and what to do.
        """
        options = self._options(storage_options)
        maintenance.save_tree(
            self.tree(),
            target,
            format=format,
            mode=mode,
            recipe=recipe_of(self._dataset, self.origin),
            storage_options=options,
            **how,
        )

    def append(
        self, target: str | PathLike[str], dim: str, *, storage_options: Mapping[str, Any] | None = None, **how: Any
    ) -> AppendReport:
        """Append the dataset to a saved one, along a dimension.

        Only labels of the saved dataset are read, and nothing of it is written again.

        Appending is idempotent: files that are there already, unchanged, are left out, and the
        report names them.

        Parameters
        ----------
        target
            An insitu store, or an Icechunk repository.
        dim
            Variables that have it grow; the others stay as they are.
        storage_options, **how
            As for `save`.

        Returns
        -------
        AppendReport
            Which files were added, and which were there already.
        """
        options = self._options(storage_options)
        recipe = maintenance.saved_recipe(fspath(target), options)
        if recipe is not None and recipe.needs_files:
            origin = self.origin
            if origin is None or not origin.is_unchanged(self._dataset) or origin.archive.job.finish is not None:
                raise UnsupportedError(
                    "where files go in the archive follows from all that each of them has, and which files this "
                    "dataset has is unknown: it was changed after it was opened",
                    url=fspath(target),
                    hint="Give the files: insitu.Archive.open(archive).append(files)",
                )
            archive = Archive.open(fspath(target), many=False, storage_options=options)
            return archive.append(list(origin.archive.urls), dim, **how)
        member = to_member(self._dataset)
        return maintenance.append_member(member, fspath(target), dim, storage_options=options, **how)

    def copy(
        self, target: str | PathLike[str], *, chunks: Chunks = None, dry_run: bool = False, **how: Any
    ) -> CopyReport | CopyPlan | SplitPlan:
        """Copy the dataset into a native store or file, in chunks of another grid: what is virtual streams, selected
        and computed variables too.

        Parameters
        ----------
        target, chunks, dry_run, **how
            See `insitu.Archive.copy`.

        Examples
        --------
        >>> ds.sel(time="2020").insitu.copy("2020.zarr", chunks="series")  # doctest: +SKIP
        """
        from insitu.copying import CopyOptions, placeholder, run_copy

        formulas = {name: array.node for name, array in self._lazy() if not array.is_stored}
        member = to_member(self._dataset.drop_vars([dataset_name(name) for name in formulas]))
        for name, node in formulas.items():
            variable = self._dataset.variables[dataset_name(name)]
            dims, attributes = tuple(map(str, variable.dims)), dict(variable.attrs)
            member.variables[name] = MemberVariable(dims, placeholder(dims, node, attributes), attributes)
        order = {stored_name(name): member.variables[stored_name(name)] for name in self._dataset.variables}
        coords = frozenset(stored_name(name) for name in self._dataset.coords)
        keep_alive = tuple(one for _, array in self._lazy() for one in array.context.keep_alive)
        return run_copy(
            tree_from_member(member.with_variables(order, coords)),
            fspath(target),
            CopyOptions.of_call(chunks=chunks, **how),
            formulas=formulas,
            context=ReadContext(None, self._options(None), keep_alive=keep_alive),
            dry_run=dry_run,
        )

    def tree(self) -> VirtualGroup:
        """Return the dataset as a group of virtual arrays; values in memory are inline."""
        return tree_from_member(to_member(self._dataset))

    def _options(self, given: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the given options; else those that the dataset's arrays are read with."""
        if given is not None:
            return given
        every = [array.context.storage_options for _, array in self._lazy() if array.context.storage_options]
        return {key: value for options in every for key, value in options.items()} if every else None

    def tiles(self) -> dict[str, int]:
        """Return the number of tiles of each virtual variable.

        It is 1 where all files have the same chunk shapes across the join.
        """
        return {name: len(grid_of(array.node).tiles) for name, array in self._lazy()}

    def references(self, variable: str | None = None) -> dict[str, dict[str, Any]]:
        """Return where the chunks of each variable lie in the files.

        These are columns `source`, `offset`, `length`, and the `urls` that `source` numbers.
        """
        found = {}
        for name, array in self._lazy():
            if variable in (None, name):
                sources: dict[Source, int] = {}
                parts = list(byte_ranges(grid_of(array.node), sources))
                columns = (
                    [np.concatenate(column) for column in zip(*parts, strict=True)]
                    if parts
                    else [np.zeros(0, np.int64)] * 3
                )
                urls = [source.url for source in sources]
                found[name] = {"urls": urls, **dict(zip(("source", "offset", "length"), columns, strict=True))}
        return found

    def instance(
        self, instance: int | str | None = None, *, label: Any = None, dim: str | None = None
    ) -> xarray.Dataset:
        """Return one instance of CF's discrete sampling geometries: a station, a profile, a trajectory.

        Of contiguous and indexed ragged arrays only the counts or indices are read; samples stay virtual.
        Where instances are nested (profiles of stations), this is one of the outer ones with all its
        inner ones, unless `dim` names the inner dimension. It is chosen before other selections.

        Parameters
        ----------
        instance
            Its number, from 0 (negative: from the last), or a text: its label.
        label
            Its label in the variable that has the attribute `cf_role`; numbers may be labels, too.
        dim
            The dimension of the instances, if the dataset does not say it, or has several.

        Raises
        ------
        SelectionError
            If there is no such instance, or no telling what the instances are.
        FormatError
            If counts or indices contradict the dimensions.

        Examples
        --------
        >>> ds.insitu.instance("Halley").temp.plot()  # doctest: +SKIP
        >>> ds.insitu.instance(0).obs.size  # doctest: +SKIP
        """
        from insitu.xarray_bridge.instances import select_instance

        return select_instance(self._dataset, instance, label, dim)

    def expand_gathered(self, dim: str | None = None, *, sizes: Mapping[str, int] | None = None) -> xarray.Dataset:
        """Return the dataset with what CF's compression by gathering has left out as missing values.

        Variables get the dimensions of the grid that the attribute `compress` of the list variable
        names. Only that list is read; the rest stays virtual, and can be saved.

        Parameters
        ----------
        dim
            The gathered dimension; all if not given.
        sizes
            Lengths of dimensions of the grid that no variable has.

        Raises
        ------
        SelectionError
            If nothing is gathered, or how long a dimension of the grid is is unknown.
        FormatError
            If the list names places that the grid does not have, or one twice.
        """
        from insitu.xarray_bridge.gathering import expand_gathered

        return expand_gathered(self._dataset, dim, sizes)

    def name_bands(self) -> xarray.Dataset:
        """Return the dataset of an image with the descriptions of its bands as labels: `ds.sel(band="red")`.

        Raises
        ------
        SelectionError
            If bands have no descriptions, or two the same.
        """
        from insitu.xarray_bridge.bands import name_bands

        return name_bands(self._dataset)

    def split_bands(self) -> xarray.Dataset:
        """Return the dataset of an image with a variable for each band, virtual as before.

        They are `band_1`, … and have the attributes that rioxarray gives them with `band_as_variable=True`;
        after `name_bands()` they are called by their names.
        """
        from insitu.xarray_bridge.bands import split_bands

        return split_bands(self._dataset)

    def report(self) -> Report:
        """Return a report of how files differ, which were left out, and what did not fuse."""
        if self.survey is None:
            raise ValueError(
                "only the very dataset that insitu.open_mfdataset returned has a report, not those made from it"
            )
        if callable(self.survey):
            self.survey = self.survey()
        return self.survey.report()

    @overload
    def explain(self, array: None = None, reduction: str | None = None, dim: Any = None) -> DatasetExplanation: ...
    @overload
    def explain(self, array: xarray.DataArray | str, reduction: str | None = None, dim: Any = None) -> Explanation: ...
    def explain(
        self, array: xarray.DataArray | str | None = None, reduction: str | None = None, dim: Any = None
    ) -> Explanation | DatasetExplanation:
        """Return how the values of a variable or formula come about: blocks, chunks, files, requests, bytes,
        memory, and where.

        Nothing of it is read.

        Parameters
        ----------
        array
            A data array that is virtual, or the name of a variable; by default all virtual variables
            of the dataset.
        reduction
            Name of a statistic (`mean`, `max`, …): what it would take to compute that.
        dim
            Along which dimension(s); all if not given.

        Examples
        --------
        >>> ds.insitu.explain(ds.pr * 86400 > 20, "sum", "time")  # doctest: +SKIP
        """
        from insitu.xarray_bridge.explain_dataset import explain_dataset, explain_variable

        if array is None:
            return explain_dataset(self._dataset, reduction, dim)
        return explain_variable(self._dataset[array] if isinstance(array, str) else array, reduction, dim)

    def stats(
        self, methods: Sequence[str] | str = ("count", "min", "max", "mean", "std"), dim: Any = None, **how: Any
    ) -> xarray.Dataset:
        """Return several statistics of every numeric variable, each array read once.

        Parameters
        ----------
        methods
            Names such as `mean`, `max`.
        dim
            Along which dimension(s); all if not given.
        **how
            `skipna`, `ddof`, `min_count`.

        Returns
        -------
        xarray.Dataset
            Variables `tas_mean`, `tas_max`, …
        """
        from insitu.xarray_bridge.dataset_statistics import statistics

        return statistics(self._dataset, methods, dim, how)

    def weighted(self, weights: xarray.DataArray) -> Weighted:
        """Return weighted reductions, each array in one pass, here or next to the data.

        Results are those of `Dataset.weighted`.
        """
        from insitu.xarray_bridge.weighted_accessor import Weighted

        return Weighted(self._dataset, weights)

    def groupby(self, group: Any = None, **how: Any) -> Grouped:
        """Return reductions of groups, each array in one pass and one request.

        Results are those of `Dataset.groupby`.
        """
        return self._reduce_groups(lambda dataset: dataset.groupby(group, **how))

    def groupby_bins(self, group: Any, bins: Any, **how: Any) -> Grouped:
        """Return the same for `Dataset.groupby_bins`."""
        return self._reduce_groups(lambda dataset: dataset.groupby_bins(group, bins, **how))

    def resample(self, indexer: Any = None, **how: Any) -> Grouped:
        """Return the same for `Dataset.resample`."""
        return self._reduce_groups(lambda dataset: dataset.resample(indexer, **how))

    def _reduce_groups(self, group: Callable[[xarray.Dataset], Any]) -> Grouped:
        from insitu.xarray_bridge.grouped_accessor import Grouped

        return Grouped(self._dataset, group)

    def histogram(self, edges: Any, dim: Any = None, weights: Any = None) -> xarray.Dataset:
        """Return how many values of every numeric variable lie between edges, each array read once.

        Parameters
        ----------
        edges
            Of the bins, increasing. As for `numpy.histogram`: the last bin has both its edges,
            missing values are in none.
        dim
            Along which dimension(s); all if not given.
        weights
            Not supported: any value but None is an error.

        Returns
        -------
        xarray.Dataset
            The variables with a last dimension `bin`; coordinates `bin` (the middle), `bin_left`,
            `bin_right`.
        """
        from insitu.xarray_bridge.dataset_statistics import histogram

        return histogram(self._dataset, edges, dim, weights)

    def quantile(
        self,
        q: Any,
        dim: Any = None,
        *,
        approximate: bool = False,
        skipna: bool | None = None,
        keep_attrs: bool | None = None,
    ) -> xarray.Dataset:
        """Return quantiles of every numeric variable, in the form of `Dataset.quantile`.

        Parameters
        ----------
        q
            From 0 to 1, one or several.
        dim
            Along which dimension(s); all if not given.
        approximate
            Whether a t-digest is taken, in one pass over the chunks and in fixed space: what it
            gives for `q` is a true quantile of some `q'` with `|q' - q|` up to `2 pi sqrt(q (1 -
            q)) / 512`, which is 0.6 % for a median and less towards the ends. If not, all values
            that an answer depends on are held at once, as for `Dataset.quantile`.
        skipna, keep_attrs
            As for `Dataset.quantile`.
        """
        if approximate:
            from insitu.xarray_bridge.dataset_statistics import quantile

            return quantile(self._dataset, q, dim, skipna=skipna, keep_attrs=keep_attrs)
        return self._dataset.quantile(q, dim, skipna=skipna, keep_attrs=keep_attrs)

    def explore(
        self,
        shown: str | None = None,
        index: Mapping[str, int] | None = None,
        *,
        height: int = 760,
        proxy: str | None = None,
    ) -> ExplorerFrame:
        """Show the dataset, as it is selected, on the explorer's page in the notebook.

        A server for it runs in a process of its own, reachable from this machine only, with a token of its own. It ends
        with this process, or by `close()` of what is returned. On JupyterHub the page is reached through
        jupyter-server-proxy.

        Parameters
        ----------
        shown
            The variable that is shown first, or a formula: `"tas - 273.15"`. Variables that were computed are not
            shown, because references hold stored values only: give the formula.
        index
            Position along dimensions.
        height
            Of the frame, in pixels.
        proxy
            The address under which a browser reaches a port of this machine, with `{port}` in it, where that is not
            found out: `https://notebooks.example.org/proxy/{port}/`.

        Returns
        -------
        ExplorerFrame
            The frame as the result of the cell. `url` is the page, with the token.

        Examples
        --------
        >>> ds.isel(time=slice(0, 12)).insitu.explore("tas - 273.15")  # doctest: +SKIP
        """
        from insitu.xarray_bridge.notebook_explorer import explore_dataset

        origin, address = self.origin, None
        if origin is not None and origin.is_unchanged(self._dataset) and len(origin.archive.urls) == 1:
            (only,) = origin.archive.urls
            plain = isinstance(only, str) and origin.archive.location is not None
            address = absolute_path(only) if plain and not self._options(None) else None
        return explore_dataset(self._dataset, shown, index or {}, address, self._options(None), height, proxy)

    def best(self, as_of: Any = None) -> xarray.Dataset:
        """Return for every valid time the newest run of a forecast collection that has it.

        Nothing is read. Of runs that lack some variables at a time (precipitation at lead time 0),
        those count first that have most.

        Parameters
        ----------
        as_of
            What was known then: runs with later reference times do not count. A date or a text like
            `"2024-03-01T06"`, as in `ds.sel(time=slice(None, as_of))`.

        Returns
        -------
        xarray.Dataset
            Along `valid_time`, with the reference time and the lead time of each as coordinates.

        Examples
        --------
        >>> ds = insitu.open_forecasts("runs/*.grib2")  # doctest: +SKIP
        >>> ds.insitu.best().t2m.sel(latitude=52, longitude=5).plot()  # doctest: +SKIP
        """
        return self._forecasts().best(as_of)

    def constant_lead(self, lead: Any) -> xarray.Dataset:
        """Return one lead time of every run that has it, along `valid_time`.

        Parameters
        ----------
        lead
            The lead time: hours, or a duration such as `"36h"`.
        """
        return self._forecasts().constant_lead(lead)

    def run(self, time: Any = None) -> xarray.Dataset:
        """Return the lead times of one run that it has, along `valid_time`.

        Parameters
        ----------
        time
            The reference time of the run; the newest if not given.
        """
        return self._forecasts().one_run(time)

    def at_valid_time(self, time: Any) -> xarray.Dataset:
        """Return what every run says of one valid time, along the reference time.

        Parameters
        ----------
        time
            The valid time.
        """
        return self._forecasts().at_valid_time(time)

    def _forecasts(self) -> Forecasts:
        from insitu.xarray_bridge.forecast_views import Forecasts

        return Forecasts.of(self._dataset)

    def __repr__(self) -> str:
        return (
            f"<insitu: {len(self.virtual)} virtual variables in {len(self.sources):,} file(s), "
            f"{format_bytes(self.nbytes_stored)} stored, {format_bytes(self.nbytes_virtual)} virtual>"
        )


def _with_dims_and_attributes(
    array: VirtualArray, dims: tuple[str, ...], attributes: Mapping[str, Any]
) -> VirtualArray:
    return replace(array, dims=dims, attributes=dict(attributes))


_register: Any = xarray.register_dataset_accessor
if not hasattr(xarray.Dataset, "insitu"):  # registering twice, after a reload, would warn
    _register("insitu")(InsituAccessor)
