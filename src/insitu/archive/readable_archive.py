"""`ReadableArchive`: an archive that was opened, with its groups, variables and values.

It is scanned and decoded once, and its values are those that xarray shows, whichever interface asks
for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy.typing as npt

from insitu.combining.cached_archive import CachedArchive
from insitu.combining.file_names import (
    expand_paths,
    is_many,
    iter_positions,
    one_location,
    open_objects,
    resolve_references,
)
from insitu.combining.recipe import Recipe
from insitu.errors import (
    GroupError,
    InsituError,
    ModelError,
    UnsupportedError,
    VariableError,
    error_context,
)
from insitu.forking import fork_safe_rlock
from insitu.formats.variable_filter import select_variables
from insitu.model import Selection, VirtualArray, VirtualGroup
from insitu.model.description import Row, count_text, describe_html, describe_text, variable_row
from insitu.model.group import hint_for_names, nest_groups
from insitu.open_options import OpenOptions, RunOptions, Verify
from insitu.reading import ChunkCache, ReadContext, ReadStatistics, cache_from_option, read_selection
from insitu.scanning.file_labels import label_rules
from insitu.scanning.forecast_axes import ForecastAxes
from insitu.scanning.member import Member, Variable
from insitu.scanning.saved_members import array_from_variable, tree_from_member
from insitu.scanning.scan_member import Job, make_loader, scan_member, scan_tree
from insitu.scanning.scan_url import is_saved_tree, scan_stored
from insitu.sources.address import is_remote
from insitu.sources.redaction import redact_url

if TYPE_CHECKING:
    import xarray

    from insitu.active import Active
    from insitu.active.placement import Servers
    from insitu.combining.combine import CombineFound
    from insitu.combining.scan_journal import Journal
    from insitu.combining.survey import Survey
    from insitu.expressions.build_formula import NamedExpression
    from insitu.reading.zarr_store.store import InsituStore

__all__ = ["ReadableArchive", "register_dataset_maker", "zarr_store_of"]

VIEW_CACHE_BYTES = 128 << 20
"""Bytes of decoded chunks that a Zarr view caches: neighbouring chunks of a mosaic need the same
ones.
"""


@dataclass(slots=True, eq=False, repr=False)
class ReadableArchive:
    """An archive that was opened: what it holds, and its values."""

    job: Job
    recipe: Recipe
    location: Any = None
    """What was opened; None if many files were combined."""
    urls: tuple[Any, ...] = ()
    """The files that were opened."""
    survey: Survey | Callable[[], Survey] | None = None
    """The differences between files that were combined; a function if they must be scanned for it.
    """
    active: Active | None = None
    """The server that reduces next to the data, if one is used."""
    cache: ChunkCache | None = None
    """Cache of decoded chunks, for later reads."""
    in_memory: tuple[Any, ...] = field(default=(), repr=False)
    """Sources in memory: they are found by name only while something refers to them."""
    group_surveys: Mapping[str, Survey] | Callable[[], Mapping[str, Survey]] = field(default_factory=dict, repr=False)
    """The same of each group, where files were combined with all their groups."""
    only_groups: Member | None = field(default=None, repr=False)
    """The first of many files that has variables in its groups only, without its contents."""
    _members: dict[str, Member] = field(default_factory=dict, repr=False)
    _tree: VirtualGroup | None = field(default=None, repr=False)
    _scanning: Any = field(default_factory=fork_safe_rlock, repr=False)
    """Of tasks that read at once, one scans and the others wait."""

    def __getstate__(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "_scanning"}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self._scanning = fork_safe_rlock()

    def __repr__(self) -> str:
        return describe_text(*self._description())

    def _repr_html_(self) -> str:
        return describe_html(*self._description())

    def _description(self) -> tuple[str, list[Row], list[str], Mapping[str, Any]]:
        """Return what is shown of an archive: its metadata is read for that if it is local."""
        names = [redact_url(str(url)) for url in self.urls]
        many = f"{names[0]} … {names[-1]}" if len(names) > 1 else names[0]
        title = f"Archive of {count_text(len(names), 'file')}: {many}" if self.location is None else f"Archive {many}"
        notes = [f"reductions run at {self.active!r}"] if self.active is not None else []
        if "" not in self._members and self.location is not None and is_remote(str(self.location)):
            return title, [], ["its metadata is read when it is needed", *notes], {}
        try:
            member = self.member()
        except (InsituError, OSError) as problem:
            return title, [], [f"it cannot be read: {problem}", *notes], {}
        rows = [variable_row(name, found.dims, found.data) for name, found in member.variables.items()]
        groups = [f"{name}/" for name in (member.groups or member.below)]
        notes = [*([f"groups: {', '.join(groups[:8])}{' …' * (len(groups) > 8)}"] if groups else []), *notes]
        return title, rows, notes, member.attributes

    # -- opening

    @classmethod
    def open(
        cls,
        urls: Any,
        *,
        many: bool | None = None,
        group: str | None = None,
        variables: str | Sequence[str] | None = None,
        tree: bool = False,
        format: str | None = None,
        errors: str = "raise",
        combine: str = "by_coords",
        concat_dim: Any = None,
        forecasts: bool | Mapping[str, str] = False,
        overlap: Literal["error", "first", "last", "newest"] | None = None,
        expect: Any = None,
        by_group: Mapping[str, Mapping[str, Any]] | None = None,
        parallel: Any = None,
        progress: Any = None,
        resume: bool | Journal | None = None,
        cache: ChunkCache | int | bool | None = None,
        active: Servers | Active | None = None,
        active_required: bool = False,
        verify: Verify = "read",
        allow_local: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        finish: Callable[[Member], Member] | None = None,
        combine_found: CombineFound | None = None,
        **more: Any,
    ) -> Self:
        """Open an archive: one URL, or many files combined.

        Parameters
        ----------
        urls
            A path, URL, open file or bytes. The files of a pattern, a list or nested lists are
            combined into one dataset.
        many
            Whether `urls` are files to combine; by default patterns and lists of several are.
        group, variables, format, errors, cache
            See `insitu.open_dataset`.
        tree, by_group
            Whether all groups of many files are combined, and not one: see `insitu.open_mfdatatree`.
        active, active_required, verify, allow_local, storage_options
            See `insitu.open_dataset`.
        combine, concat_dim, forecasts, overlap, expect, parallel, progress, resume
            See `insitu.open_mfdataset`. `resume` may be the journal itself, which then stays.
        finish, combine_found
            Called with the member of each file before files are combined; combines the files
            instead of the recipe.
        **more
            xarray's keywords of decoding (`mask_and_scale`, `decode_times`, …) and of combining
            (`data_vars`, `coords`, `compat`, `join`, `combine_attrs`, `pad`).
        """
        given = OpenOptions.of_call(locals(), more)
        return cls.open_with(urls, given, many=many, finish=finish, combine_found=combine_found)

    @classmethod
    def open_with(
        cls,
        urls: Any,
        options: OpenOptions,
        *,
        many: bool | None = None,
        finish: Callable[[Member], Member] | None = None,
        combine_found: CombineFound | None = None,
    ) -> Self:
        """Open an archive with the options of another call: see `open`."""
        urls, storage_options = resolve_references(urls, options.scan.storage_options)
        combine = options.combine
        if many is None:
            is_joined = combine.combine != "by_coords" or combine.concat_dim is not None or combine.places_labels
            many = is_many(urls) or (is_joined and isinstance(urls, (list, tuple)))
            many = many or combine.places_labels or bool(combine.forecasts)
        nested = expand_paths(urls, storage_options) if many else [one_location(urls)]
        pairs = list(iter_positions(nested))
        if not pairs:
            raise OSError("there are no files to open: the list is empty")
        found, storage_options, in_memory = open_objects([url for _, url in pairs], storage_options)
        scan = options.scan
        if storage_options is not scan.storage_options:
            scan = replace(scan, storage_options=storage_options)
        unknown = None if finish is None else "it was opened with preprocess=, a function, which cannot be saved"
        server = options.read.active
        if server is not None:
            from insitu.active import Active

            server = server if isinstance(server, Active) else Active(server, options.read.active_required)
        archive = cls(
            Job(scan, options.decode, finish, label_rules(combine), ForecastAxes.of(combine)),
            Recipe(OpenOptions(scan=scan, decode=options.decode, combine=combine), unknown=unknown),
            None if many else found[0],
            tuple(found),
            active=server,
            cache=cache_from_option(options.read.cache),
            in_memory=in_memory,
        )
        if many:
            archive._combine_files([place for place, _ in pairs], combine_found, options.run)
        return archive

    def _combine_files(self, places: Sequence[Any], combine_found: CombineFound | None, run: RunOptions) -> None:
        """Scan the files and combine them, or take the result from the scan cache."""
        job, known = self.job, None
        if run.parallel is None and not run.resume and combine_found is None:
            known = CachedArchive.of(self.urls, places, job, self.recipe)
        cached = None if known is None else known.find(job, make_loader(job.scan.storage_options))
        if known is not None and cached is not None:
            self._members[""] = cached
            self.recipe = known.recipe or self.recipe
            self.survey = lambda: self._scan_for_survey(cached)
            self.group_surveys = lambda: self._scan_for_group_surveys(places)
            return
        # Imports xarray and pandas, which what is cached does not need.
        from insitu.combining.combine import combine

        with known.recorder.recording() if known is not None else nullcontext():
            combined = combine(self.urls, places, job, self.recipe, run, combine_found=combine_found)
        if known is not None and not combined.survey.left_out:
            known.keep(combined.member, self.recipe if combined.placed is None else combined.placed)
        self._members[""] = combined.member
        self.recipe = combined.placed or self.recipe
        self.survey, self.group_surveys = combined.survey, combined.surveys
        self.only_groups = combined.files.only_groups()

    def _scan_for_survey(self, member: Member) -> Survey:
        """Return the survey of files whose combination was found in the scan cache."""
        from insitu.combining.scan_many import scan_many  # not at the top: seldom needed
        from insitu.combining.survey import Survey

        return Survey.of(scan_many(self.urls, self.job), member)

    def _scan_for_group_surveys(self, places: Sequence[Any]) -> Mapping[str, Survey]:
        """Return the surveys of the groups of such files."""
        from insitu.combining.combine import combine  # not at the top: seldom needed

        return combine(self.urls, places, self.job, self.recipe, RunOptions()).surveys

    # -- what it holds

    def member(self, path: str = "") -> Member:
        """Return one group, decoded: the group that was opened, or one below it."""
        path = path.strip("/")
        if path not in self._members:
            if self.location is None:
                return self._combined_group(path)
            whole = "/".join(part for part in ((self.job.scan.group or "").strip("/"), path) if part)
            job = replace(self.job, scan=replace(self.job.scan, group=whole or None)) if path else self.job
            with self._scanning:
                if path not in self._members:
                    self._members[path] = self._scan_member(job)
        return self._members[path]

    def _combined_group(self, path: str) -> Member:
        """Return a group of combined files."""
        root = self._members[""]
        if path in root.below:
            return root.below[path]
        if path in root.problems:
            raise GroupError(f"the group {path!r} was left out: {root.problems[path]}")
        there = ", ".join(root.below) or "none"
        hint = f"There are: {there}" if self.job.scan.tree else "Files are combined with all their groups by tree=True"
        raise GroupError(f"no group {path!r}", hint=hint)

    def _scan_member(self, job: Job) -> Member:
        known = None
        if self.active is None and job is self.job:
            known = CachedArchive.of([self.location], None, job, self.recipe)
        if known is not None and (cached := known.find(job, make_loader(job.scan.storage_options))) is not None:
            return cached
        with known.recorder.recording() if known is not None else nullcontext():
            found = scan_member(self.location, job, from_server=self._scan_by_server(job))
        if known is not None:
            known.keep(found, self.recipe)
        return found if job.finish is None else job.finish(found)

    def _scan_by_server(self, job: Job) -> VirtualGroup | None:
        """Return the group as the server next to the data scanned it; None if no server is used."""
        url = self.location
        if self.active is None or not isinstance(url, str) or not is_remote(url) or job.scan.format is not None:
            return None
        return self.active.scan(url, group=job.scan.group, storage_options=job.scan.storage_options)

    def all_members(self, *, remember: bool = False) -> Iterator[tuple[str, Member]]:
        """Yield every group, decoded, with its path; `remember`: see `scan_tree`."""
        if self.location is None:
            yield from self.member().walk()
        else:
            yield from scan_tree(self.location, self.job, remember=remember)

    @property
    def tree(self) -> VirtualGroup:
        """The groups and arrays, with the shapes, types and values that xarray shows."""
        if self._tree is None:
            groups = {path: tree_from_member(member) for path, member in self.all_members(remember=True)}
            self._tree = nest_groups(groups)
        return self._tree

    def subtree(self, variables: Collection[str] | None = None) -> VirtualGroup:
        """Return the tree with only these variables and their coordinates; None: with all."""
        if variables is None:
            return self.tree
        if self.location is None:
            with error_context(url=f"{len(self.urls)} files"):
                return select_variables(self.tree, variables)
        groups: dict[str, VirtualGroup] = {"": VirtualGroup({})}
        by_group: dict[str, list[str]] = {}
        for path in variables:
            group, _, name = path.strip("/").rpartition("/")
            by_group.setdefault(group, []).append(name)
        for path, names in by_group.items():
            whole = "/".join(part for part in ((self.job.scan.group or "").strip("/"), path) if part)
            scan = replace(self.job.scan, group=whole or None, variables=tuple(names))
            member = self._scan_member(replace(self.job, scan=scan))
            missing = [name for name in names if name not in member.variables]
            if missing:
                raise VariableError(f"no variable {', '.join(map(repr, missing))}", url=member.source)
            for end in range(path.count("/") + 1 if path else 0):
                groups.setdefault("/".join(path.split("/")[:end]), VirtualGroup({}))
            groups[path] = tree_from_member(member)
        return nest_groups(groups)

    def variable(self, path: str) -> Variable:
        """Return a variable by its path, e.g. `forecast/tas`; an unknown one raises with the names
        that exist.
        """
        group, _, name = path.strip("/").rpartition("/")
        member = self.member(group)
        if name not in member.variables:
            raise VariableError(
                f"no variable {path!r}", url=member.source, hint=hint_for_names(self._paths(member), [path])
            )
        return member.variables[name]

    def _paths(self, member: Member) -> list[str]:
        """Return the names in a group, and if it has none the paths in the groups below."""
        if member.variables:
            return list(member.variables)
        return [f"{group}/{name}" for group, found in self.all_members() for name in found.variables]

    def array(self, path: str, *, decode: bool = True) -> VirtualArray:
        """Return a variable as a virtual array.

        Parameters
        ----------
        path
            The variable, e.g. `forecast/tas`.
        decode
            Whether to show the values that xarray shows, or the stored ones.

        Raises
        ------
        UnsupportedError
            If stored values are requested and the files of the variable are packed differently.
        """
        if not decode and self.location is not None and not is_saved_tree(self.location):
            # Also what cannot be decoded.
            return scan_stored(self.location, replace(self.job.scan, variables=(path,))).array(path)
        found = array_from_variable(path, self.variable(path))
        if decode:
            return found
        from insitu.scanning.stored_view import stored_view

        return stored_view(found, path, make_loader(self.job.scan.storage_options))

    # -- values

    def read(
        self,
        path: str,
        selection: Any = ...,
        *,
        start: Sequence[int] | None = None,
        count: Sequence[int] | None = None,
        points: Sequence[Any] | None = None,
        out: npt.NDArray[Any] | None = None,
        decode: bool = True,
        tally: ReadStatistics | None = None,
    ) -> npt.NDArray[Any]:
        """Read one hyperslab of a variable: see `insitu.read`."""
        array = self.array(path, decode=decode)
        context = ReadContext(path, self.job.scan.storage_options, cache=self.cache, tally=tally)
        return read_selection(array, selection, context, start=start, count=count, points=points, out=out)

    async def read_async(
        self,
        path: str,
        selection: Any = ...,
        *,
        start: Sequence[int] | None = None,
        count: Sequence[int] | None = None,
        points: Sequence[Any] | None = None,
        decode: bool = True,
        tally: ReadStatistics | None = None,
    ) -> npt.NDArray[Any]:
        """Read one hyperslab of a variable without blocking the event loop: see `read`.

        Any number of tasks may read at once. A task that is cancelled ends its read: nothing more is
        requested and decoded for it.
        """
        from insitu.reading.await_read import await_read

        return await await_read(
            self.read, path, selection, start=start, count=count, points=points, decode=decode, tally=tally
        )

    def reduce(
        self,
        path: str,
        methods: str | Sequence[str] = "mean",
        *,
        dim: str | Sequence[str] | None = None,
        axes: int | Sequence[int] | None = None,
        selection: Any = ...,
        decode: bool = True,
        tally: ReadStatistics | None = None,
        **how: Any,
    ) -> Any:
        """Return one statistic of a variable, or several by name: see `insitu.reduce`. Further
        keywords are those of `insitu.reducing.ReductionQuery.of`. A path that begins with `=` is a
        formula of variables, as in the explorer: `"=tas - 273.15"`.
        """
        from insitu.active import answer_array
        from insitu.active.answer import answer
        from insitu.expressions.moves import select_elements
        from insitu.reducing import ReductionQuery, axes_of_dims

        context = ReadContext(path, self.job.scan.storage_options, tally=tally, keep_alive=self.in_memory)
        if path.startswith("="):
            if not decode:
                raise ModelError(
                    "a formula is computed of decoded values, not of stored ones",
                    hint="Leave out --raw, in Python decode=False",
                )
            named = self._formula(path[1:].strip(), replace(context, active=self.active))
            shape = named.expression.shape
            query = ReductionQuery.of(methods, axes_of_dims(named.dims, shape, selection, dim, axes), **how)
            found = answer(select_elements(named.expression, Selection.of(selection, shape)), query)
        else:
            array = self.array(path, decode=decode)
            along = axes_of_dims(array.dims, array.shape, selection, dim, axes)
            query = ReductionQuery.of(methods, along, selection, **how)
            found = answer_array(array, query, context, self.active)
        return found[methods] if isinstance(methods, str) else found

    def _formula(self, text: str, context: ReadContext) -> NamedExpression:
        """Return what a formula computes of the variables that it names."""
        from insitu.expressions.build_formula import NamedExpression, build_formula
        from insitu.expressions.nodes import Stored
        from insitu.expressions.parse_formula import parse_formula
        from insitu.scanning.formula_variables import find_formula_variables

        formula = parse_formula(text)
        members = dict(self.all_members())
        paths = find_formula_variables(formula, members)

        def find(name: str) -> NamedExpression | None:
            if name not in paths:
                return None
            group, _, last = paths[name].rpartition("/")
            array = array_from_variable(paths[name], members[group].variables[last])
            return NamedExpression(array.dims, Stored(array, context.of_variable(paths[name])))

        return build_formula(formula, find)

    def _forget(self) -> None:
        """Drop what was scanned, so that the next access scans again."""
        self._members.clear()
        self._tree = None

    def zarr_store(self, **how: Any) -> InsituStore:
        """Return the archive as a read-only Zarr store: see `insitu.zarr_store`."""
        return zarr_store_of(self.tree, storage_options=self.job.scan.storage_options, **how)

    def dataset(self, **how: Any) -> xarray.Dataset:
        """Return the archive as a lazy dataset; keywords as for `insitu.open_dataset`
        (`chunks`).
        """
        if not _dataset_makers:
            raise UnsupportedError("nothing is registered that makes datasets", hint="Take `insitu.Archive`")
        return _dataset_makers[-1](self, **how)


_dataset_makers: list[Callable[..., xarray.Dataset]] = []


def register_dataset_maker(make: Callable[..., xarray.Dataset]) -> None:
    """Let a layer above say how an archive becomes a dataset."""
    _dataset_makers.append(make)


def zarr_store_of(
    tree: VirtualGroup,
    *,
    zarr_format: Literal[2, 3] = 3,
    compression: str | None = None,
    portable: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> InsituStore:
    """Return a tree of decoded arrays as a read-only Zarr store: see `insitu.zarr_store`."""
    from insitu.reading.zarr_store import ZarrTree
    from insitu.scanning.stored_view import zarr_tree

    try:
        from insitu.reading.zarr_store.store import InsituStore  # not at the top: zarr-python takes long to import
    except ModuleNotFoundError as problem:
        raise UnsupportedError("a Zarr store needs zarr-python", hint="pip install 'insitu[zarr]'") from problem
    ready = zarr_tree(tree, make_loader(storage_options))
    cache = ChunkCache(VIEW_CACHE_BYTES)
    return InsituStore(ZarrTree(ready, zarr_format, compression, portable, storage_options, cache))
