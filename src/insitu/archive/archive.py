"""`Archive`: the one object behind all functions, commands and servers.

An `Archive` is a file, a Zarr store, saved references, or many files combined. `insitu.scan`,
`read`, `reduce`, `check`, `refresh` and `zarr_store`, the datasets of `xarray_bridge`, the command
line and the server all go through it. What it holds and its values: `readable_archive`; here is
what saves and copies it, and changes what was saved.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from insitu import maintenance
from insitu.archive.readable_archive import ReadableArchive
from insitu.combining.file_names import absolute_path, expand_paths, iter_positions
from insitu.combining.recipe import Recipe
from insitu.errors import CombineError, SelectionError, UnsupportedError
from insitu.open_options import OpenOptions, ScanOptions
from insitu.reading import ReadContext
from insitu.scanning.scan_url import can_be_collection, is_saved_tree

if TYPE_CHECKING:
    from insitu.copying import Advice, Chunks, CopyPlan, CopyReport, Pattern, SplitPlan
    from insitu.maintenance.compacting import CompactReport
    from insitu.maintenance.pinning import PinnedPart, PinReport
    from insitu.references import AppendReport, CheckReport, RollbackReport

__all__ = ["Archive", "open_variable"]


@dataclass(slots=True, eq=False, repr=False)
class Archive(ReadableArchive):
    """An open archive. Create it with `Archive.open`.

    Examples
    --------
    >>> archive = insitu.Archive.open("archive/*.nc")  # doctest: +SKIP
    >>> archive.read("tas", np.s_[0, :10])  # doctest: +SKIP
    >>> archive.reduce("tas", "mean", dim="time")  # doctest: +SKIP
    >>> archive.save("archive.insitu")  # doctest: +SKIP
    """

    def save(self, target: str | os.PathLike[str], **how: Any) -> None:
        """Save the archive. The suffix of the target chooses the format: see
        `insitu.references.save`.
        """
        how.setdefault("storage_options", self.job.scan.storage_options)
        maintenance.save_tree(self.tree, target, recipe=self.recipe_to_save(), **how)

    def copy(
        self,
        target: str | os.PathLike[str],
        *,
        chunks: Chunks = None,
        variables: str | Sequence[str] | None = None,
        sel: Mapping[str, Any] | None = None,
        isel: Mapping[str, Any] | None = None,
        dry_run: bool = False,
        **how: Any,
    ) -> CopyReport | CopyPlan | SplitPlan:
        """Copy the archive into a native store or file, in chunks of another grid.

        The target appears whole or not at all. An interrupted copy goes on where it was if the same one is started
        again.

        Parameters
        ----------
        target
            A path or URL that ends in `.zarr`, `.icechunk` or `.nc`; or a pattern of several:
            `"tas_{time:%Y}.nc"`, `"{variable}.zarr"`.
        chunks
            Lengths by dimension (-1: the whole dimension), or what the copy is for: `"series"`, `"maps"`, `"both"`,
            `"auto"`. None: as in the source.
        variables
            Which variables, with their coordinates; by default all.
        sel, isel
            What to copy of them, by labels or by position, as for `Dataset.sel` and `Dataset.isel`.
        dry_run
            Whether only the plan is returned: passes, bytes, memory, disk, an estimate of the time.
        **how
            `shards`, `codec`, `memory`, `zarr_format`, `overwrite`, `append`, `verify`, `repack`, `commit_every`,
            `engine`, `progress`, `storage_options` (of the target): the fields of `insitu.copying.CopyOptions`.
            With `append` what is new along the dimension of time, or of the one that it names, is added to a target
            that is there.

        Returns
        -------
        CopyReport, CopyPlan or SplitPlan
            What was written; with `dry_run` what would be.
        """
        from insitu.copying import CopyOptions, run_copy

        names = [variables] if isinstance(variables, str) else variables
        if sel is not None or isel is not None:
            self.subtree(names)  # raises if there is no such variable
            dataset = self.dataset()
            chosen = dataset if names is None else dataset[list(names)]
            try:
                chosen = chosen.sel(dict(sel or {})).isel(dict(isel or {}))
            except (KeyError, IndexError, TypeError, ValueError) as problem:
                raise SelectionError(f"cannot select {dict(sel or {}) | dict(isel or {})}: {problem}") from None
            found: CopyReport | CopyPlan | SplitPlan = chosen.insitu.copy(target, chunks=chunks, dry_run=dry_run, **how)
            return found
        context = ReadContext(None, self.job.scan.storage_options, keep_alive=self.in_memory)
        options = CopyOptions.of_call(chunks=chunks, **how)
        return run_copy(self.subtree(names), os.fspath(target), options, context=context, dry_run=dry_run)

    def advise(
        self,
        variables: str | Sequence[str] | None = None,
        patterns: Sequence[Pattern] | None = None,
        *,
        chunks: Sequence[Chunks] = ("series", "maps", "both"),
        codec: str | None = None,
        price: float | None = None,
    ) -> Advice:
        """Return what typical reads take, for the archive as it is and for copies in other chunks.

        Each pattern is planned at several places, spread evenly, and what is said is the mean: chunks, requests and
        bytes as `insitu.trace` counts them when nothing is cached, and an estimate of the seconds. No values are read.

        Parameters
        ----------
        variables
            Which variables; by default all of two dimensions or more that are not small beside the largest.
        patterns
            What is read at a time: lengths by dimension (`{"lat": 1, "lon": 1}`; others are read as a whole), or
            `"maps"`, `"series"`, `"boxes"` (a tenth of each dimension). By default these three.
        chunks
            The copies to compare with: what `copy` takes as `chunks`, one for each.
        codec
            Codec of the copies: see `copy`.
        price
            Of 10^9 bytes that leave the storage: then what a read costs is said, too.

        Examples
        --------
        >>> print(archive.advise("tas", ["maps", {"lat": 1, "lon": 1}], price=0.09))  # doctest: +SKIP
        """
        from insitu.copying import advise
        from insitu.copying.advise import PATTERN_WORDS

        names = [variables] if isinstance(variables, str) else variables
        context = ReadContext(None, self.job.scan.storage_options, keep_alive=self.in_memory)
        chosen = PATTERN_WORDS if patterns is None else patterns
        return advise(self.subtree(names), names, chosen, chunks=chunks, codec=codec, price=price, context=context)

    def recipe_to_save(self) -> Recipe | None:
        """Return how the files were combined, to be saved; of a saved archive, the recipe that it
        has.
        """
        if is_saved_tree(self.location):
            return maintenance.saved_recipe(os.fspath(self.location), self.job.scan.storage_options)
        # Forecasts are refreshed and appended to by their sources, unless they may overlap: names of 166,440 indexes
        # would be most of a store.
        if self.recipe.options.combine.forecasts and not self.recipe.needs_order:
            return self.recipe
        names_files = self.recipe.options.scan.tree or not any(map(can_be_collection, map(str, self.urls)))
        if not names_files or not all(isinstance(url, str) for url in self.urls):
            return self.recipe
        if self.recipe.placed is not None:
            return self.recipe
        counts = self.recipe.options.scan.tree or self.recipe.needs_order
        left_out = getattr(self.survey, "left_out", {}) if counts else {}
        return replace(self.recipe, files=tuple(absolute_path(url) for url in self.urls if url not in left_out))

    def append(
        self,
        urls: Any,
        dim: str = "time",
        *,
        overlap: Literal["error", "first", "last", "newest"] | None = None,
        relative: bool = False,
        errors: str = "raise",
        progress: Callable[[int, int], None] | None = None,
        parallel: Any = None,
    ) -> AppendReport:
        """Append files to the saved archive. Files that it holds already, unchanged, are skipped.

        Parameters
        ----------
        urls
            The files: as for `open`. Where the files of the archive lie in a grid of two dimensions
            (`combine="nested"`), a plain list is one row or column of it; nested lists are several.
        dim
            The dimension that grows.
        overlap
            Which file gives a label that several have: see `insitu.open_mfdataset`. By default the
            rule that the archive was opened with; another one counts from now on.
        relative
            Whether the URLs of the files are written relative to the archive; they are in any case
            if those that it has are.
        errors
            What happens to files that cannot be read: "raise"; "warn" or "skip": they are left out,
            with or without a warning, and reported.
        progress, parallel
            See `insitu.open_mfdataset`.
        """
        from insitu.combining.failures import NoFilesError

        target = self._saved_location()
        options = self.job.scan.storage_options
        given = expand_paths(urls, options)
        recipe = maintenance.saved_recipe(target, options)
        if recipe is None:
            recipe = Recipe(OpenOptions(scan=ScanOptions(tree=bool(self.tree.groups))))
        maintenance.check_can_append(recipe, target, overlap)
        if overlap is not None or recipe.rebuilds_by_labels:
            urls = [str(url) for _, url in iter_positions(given)]
            placed: AppendReport = maintenance.append_placed(
                target,
                urls,
                dim,
                overlap=overlap,
                relative=relative,
                errors=errors,
                progress=progress,
                parallel=parallel,
                storage_options=options,
            )
            self._forget()
            return placed
        new, skipped = maintenance.known_files(target, [url for _, url in iter_positions(given)], dim, options)
        if not new:
            return maintenance.empty_append_report(target, dim, skipped)
        if any(isinstance(row, list) for row in given):
            new, skipped = given, []  # a grid of files stays whole: the steps that are new are found below
        try:
            opening = recipe.for_more_files(
                errors=errors, parallel=parallel, progress=progress, storage_options=options
            )
            files = Archive.open_with(recipe.nest(new, dim), opening, many=True)
        except NoFilesError as problem:
            return replace(maintenance.empty_append_report(target, dim, skipped), left_out=problem.left_out)
        names = files.recipe_to_save()
        listed = names.files if names else ()
        how: dict[str, Any] = {"relative": relative, "storage_options": options}
        done = maintenance.append_member(files.member(), target, dim, files=listed, whole_files=True, **how)
        self._forget()
        left_out = getattr(files.survey, "left_out", {})  # none where the result was found in the scan cache
        return replace(done, skipped=(*skipped, *done.skipped), left_out=left_out)

    def drop(
        self, urls: Sequence[str] = (), replacement: Any = None, *, keep_last: Mapping[str, int] | None = None
    ) -> tuple[str, ...]:
        """Take files out of the saved archive; return their URLs.

        Parameters
        ----------
        urls
            The files, as `check` names them.
        replacement
            Files to put in their place, in the same step: as for `open`.
        keep_last
            Instead of files: how many of the last steps are kept along a dimension, `{"time": 30}`.
        """
        target, options = self._saved_location(), self.job.scan.storage_options
        if keep_last is not None:
            if urls or replacement is not None:
                raise TypeError("drop takes files, or keep_last=, not both")
            gone = maintenance.keep_last(target, keep_last, options)
            self._forget()
            return gone
        put = () if replacement is None else [url for _, url in iter_positions(expand_paths(replacement, options))]
        done = maintenance.drop(target, urls, put, storage_options=options)
        self._forget()
        return done

    def check(self, **how: Any) -> CheckReport:
        """Check that no source changed since it was scanned: see `insitu.check`."""
        saved = isinstance(self.location, str) and is_saved_tree(self.location)
        found: CheckReport = maintenance.check(
            self.location if saved else self.tree, storage_options=self.job.scan.storage_options, **how
        )
        return found

    def refresh(self, **how: Any) -> CheckReport:
        """Scan changed sources again, and save the archive: see `insitu.refresh`."""
        found: CheckReport = maintenance.refresh(
            self._saved_location(), storage_options=self.job.scan.storage_options, **how
        )
        self._forget()
        return found

    def rollback(self) -> RollbackReport:
        """Undo the last change of the saved archive; return which state it is in now."""
        done = maintenance.rollback(self._saved_location(), storage_options=self.job.scan.storage_options)
        self._forget()
        return done

    def compact(self) -> CompactReport:
        """Write the references of the saved archive anew, into as few files as possible."""
        done = maintenance.compact(self._saved_location(), storage_options=self.job.scan.storage_options)
        self._forget()
        return done

    def pin(
        self,
        variables: str | Sequence[str] | None = None,
        *,
        sel: Mapping[str, Any] | None = None,
        isel: Mapping[str, Any] | None = None,
        chunks: Chunks = None,
        dry_run: bool = False,
        **how: Any,
    ) -> PinReport | CopyPlan:
        """Store a part of the saved archive as native chunks inside the store; reads take it from there.

        Everything else is read from the files as before. An append, a drop or a refresh keeps what is
        pinned where the same chunks of the same files lie below it, and warns where they do not. An
        interrupted call goes on where it was if the same one is made again.

        Parameters
        ----------
        variables
            Which variables; by default all whose values lie in files.
        sel, isel
            Which range of them, by labels or by position, as for `Dataset.sel` and `Dataset.isel`. A
            variable without one of the dimensions is pinned whole along the others.
        chunks
            See `copy`.
        dry_run
            Whether only the plan is returned: bytes, memory, an estimate of the time.
        **how
            `shards`, `codec`, `memory`, `progress`: see `copy`.

        Returns
        -------
        PinReport or CopyPlan
            All that is pinned now, and what was written; with `dry_run` what would be.

        Examples
        --------
        >>> archive.pin("tas", sel={"time": slice("2020", "2024")}, chunks="series")  # doctest: +SKIP
        """
        from insitu.copying import CopyOptions
        from insitu.maintenance.pinning import check_format, pin
        from insitu.maintenance.select_boxes import select_boxes

        target = self._saved_location()
        check_format(target)
        options = CopyOptions.of_call(chunks=chunks, **how)
        names = [variables] if isinstance(variables, str) else variables
        boxes = select_boxes(dict(self.all_members()), names, sel or {}, isel or {}, self.job.scan.group or "")
        done = pin(
            target,
            boxes,
            options,
            is_chosen=names is not None,
            dry_run=dry_run,
            storage_options=self.job.scan.storage_options,
        )
        self._forget()
        return done

    def unpin(self, variables: str | Sequence[str] | None = None) -> PinReport:
        """Read pinned variables from the files again, all if none are named. `compact` removes their
        chunks.
        """
        from insitu.maintenance.pinning import check_format, unpin

        target = self._saved_location()
        check_format(target)
        names = [variables] if isinstance(variables, str) else variables
        done = unpin(target, names, storage_options=self.job.scan.storage_options)
        self._forget()
        return done

    def pinned_parts(self) -> tuple[PinnedPart, ...]:
        """Return what is pinned in the saved archive: variable, box, number of chunks and their bytes."""
        from insitu.maintenance.pinning import find_pinned

        if not isinstance(self.location, str) or not is_saved_tree(self.location):
            return ()
        return find_pinned(self.location, storage_options=self.job.scan.storage_options)

    def _saved_location(self) -> str:
        if not isinstance(self.location, str):
            raise UnsupportedError("this archive is not saved", hint="Save it first: archive.save('x.insitu')")
        return self.location


def open_variable(url: Any, path: str, **options: Any) -> tuple[Archive, str]:
    """Return an archive of which only one variable is scanned, as others may be unreadable; and its name there.

    A group of many files that has the labels of groups above it is opened with those. For a formula, a path that
    begins with `=`, all groups are, without what is unreadable in them.
    """
    if path.startswith("="):
        return Archive.open(url, tree=True, errors="skip", **options), path
    group, _, name = path.strip("/").rpartition("/")
    try:
        return Archive.open(url, group=group or None, variables=[name], **options), name
    except CombineError:
        if not group:
            raise
        return Archive.open(url, tree=True, **options), path
