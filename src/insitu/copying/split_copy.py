"""`run_copy`: a copy to one target, or split into the targets of a pattern: whole or not at all, all of them.

The targets of a pattern are made in a folder beside them, one after another. Then a list says that they are complete,
and they are put to their places by renames. If that is interrupted, the next run puts the rest to its place first.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from insitu.copying.append_plan import first_new
from insitu.copying.copy_options import CopyOptions, target_kind
from insitu.copying.copy_plan import CopyPlan
from insitu.copying.copy_tree import CopyReport, copy_tree, digest_of, execute_copy, plan_copy
from insitu.copying.target_pattern import TargetPart, TargetPattern
from insitu.errors import SelectionError, UnsupportedError
from insitu.expressions.nodes import Expression
from insitu.model import VirtualGroup
from insitu.reading import ReadContext
from insitu.references.atomic_write import open_atomic, to_source_error
from insitu.references.directory_swap import replace_directory
from insitu.references.file_systems import hold_file_lock, retry_while_open, sync_directory
from insitu.scanning.scan_member import Job, make_loader, scan_member
from insitu.sources.listing import local_path

__all__ = ["SplitPlan", "run_copy"]


@dataclass(frozen=True, slots=True, eq=False)
class SplitPlan:
    """The plans of the targets of a pattern."""

    target: str
    plans: Mapping[str, CopyPlan]
    """By target; those that are there already and have nothing new are left out."""
    present: tuple[str, ...] = ()
    """Targets that are there already."""

    def as_dict(self) -> dict[str, Any]:
        """Return the plans as numbers and texts, for JSON."""
        targets = {url: {**plan.as_dict(), "target": url} for url, plan in self.plans.items()}
        return {"target": self.target, "targets": targets, "present": list(self.present)}

    def __str__(self) -> str:
        lines = [str(plan).replace(plan.target.url, url, 1) for url, plan in self.plans.items()]
        return "\n".join([*lines, *(f"{url}: is there, and nothing is new" for url in self.present)])


def run_copy(
    tree: VirtualGroup,
    target: str,
    options: CopyOptions,
    *,
    formulas: Mapping[str, Expression] | None = None,
    context: ReadContext | None = None,
    dry_run: bool = False,
) -> CopyReport | CopyPlan | SplitPlan:
    """Copy, or with `dry_run` only say what would be done.

    Parameters
    ----------
    tree, options, formulas, context
        As for `copy_tree`.
    target
        One target, or a pattern of several.
    dry_run
        Whether nothing is written.
    """
    pattern = TargetPattern.find(target)
    if pattern is None:
        run = plan_copy if dry_run else copy_tree
        return run(tree, target, options, formulas=formulas, context=context)
    how = context or ReadContext()
    splitting = _SplitCopy(pattern, options, how)
    if dry_run:
        return splitting.plan(tree, formulas or {})
    return splitting.run(tree, formulas or {})


class _SplitCopy:
    """A copy to the targets of a pattern."""

    def __init__(self, pattern: TargetPattern, options: CopyOptions, context: ReadContext) -> None:
        kind = target_kind(pattern.text)
        if local_path(pattern.text) is None or kind == "icechunk":
            raise UnsupportedError(
                "a pattern of targets is for .nc and .zarr on this machine",
                url=pattern.text,
                hint="Copy to one target, which may have any number of chunks",
            )
        if options.append and pattern.dim is None:
            raise UnsupportedError(
                "the pattern names no dimension along which something could be new",
                url=pattern.text,
                hint="Name one, such as {time:%Y}",
            )
        self.pattern, self.options, self.context = pattern, options, context
        self.load = make_loader(context.storage_options)
        name = re.sub(r"[^\w.-]+", "_", os.path.relpath(pattern.text, pattern.folder or "."))
        self.folder = Path(os.path.abspath(pattern.folder or ".")) / f"{name}.copying"
        """Where the targets are made."""
        self._list = self.folder / "complete"

    def plan(
        self, tree: VirtualGroup, formulas: Mapping[str, Expression], published: Mapping[str, str] | None = None
    ) -> SplitPlan:
        """Return the plans of the targets that are to be made.

        Parameters
        ----------
        tree, formulas
            What is copied.
        published
            Digests of targets that an interrupted run has made: if it was the same copy, they are right.
        """
        plans, present = {}, []
        for part in self.pattern.parts(tree, formulas, self.load):
            digest = (published or {}).get(part.url)
            if digest is not None:
                plan = self._plan_part(part)
                if digest_of(plan).hex() == digest:
                    continue
            if self._is_wanted(part):
                plans[part.url] = self._plan_part(part)
            else:
                present.append(part.url)
        return SplitPlan(self.pattern.text, plans, tuple(present))

    def _plan_part(self, part: TargetPart) -> CopyPlan:
        options = replace(self.options, overwrite=True, append=False, progress=None)
        made = str(self._made(part.url))
        return plan_copy(part.tree, made, options, formulas=part.formulas, context=self.context)

    def _made(self, url: str) -> Path:
        """Return where a target is made."""
        return self.folder / "targets" / os.path.relpath(url, self.pattern.folder or ".")

    def run(self, tree: VirtualGroup, formulas: Mapping[str, Expression]) -> CopyReport:
        """Make all targets, then put them to their places."""
        begun = time.perf_counter()
        published: Mapping[str, str] = {}
        try:
            if self.folder.exists():
                with self._lock():
                    published = self._put_to_place()
            plan = self.plan(tree, formulas, published)
        finally:
            if published:
                self._tidy_up()
        reports = []
        if plan.plans:
            with self._lock():
                reports = self._make(plan)
            self._tidy_up()
        return self._report(plan, reports, published, time.perf_counter() - begun)

    def _make(self, plan: SplitPlan) -> list[CopyReport]:
        """Make the targets that an interrupted run has not made, and put all to their places."""
        made = self._read_made()
        sizes = [one.nbytes for one in plan.plans.values()]
        reports = []
        for number, (url, one) in enumerate(plan.plans.items()):
            digest = digest_of(one).hex()
            if made.get(url) == digest and self._made(url).exists():
                reports.append(_report_continued(one))
                continue
            os.makedirs(self._made(url).parent, exist_ok=True)
            reports.append(execute_copy(self._with_progress(one, sum(sizes[:number]), sum(sizes))))
            made[url] = digest
            self._write(self.folder / "made", made)
        self._write(self._list, {url: made[url] for url in plan.plans})
        self._put_to_place()
        return reports

    def _is_wanted(self, part: TargetPart) -> bool:
        """Return whether a target is to be made; one that is there must be replaced by intention."""
        path = local_path(part.url)
        if path is None or not os.path.lexists(path):
            return True
        if self.options.overwrite:
            return True
        if not self.options.append:
            raise UnsupportedError(
                "there is something already",
                url=part.url,
                hint="Choose another target, replace it with overwrite, or add what is new with append",
            )
        return self._has_new_labels(part, path)

    def _has_new_labels(self, part: TargetPart, path: str) -> bool:
        dim = str(self.pattern.dim)
        member = scan_member(path, Job())
        array = member.variables[dim].virtual() if dim in member.variables else None
        labels = part.labels
        assert labels is not None
        if array is None:
            raise SelectionError(f"the target has no labels of {dim!r}", url=part.url, hint="Replace it with overwrite")
        (old,) = self.load([array])
        first = first_new(old, labels, dim, part.url)
        if first == len(labels):
            return False
        if first != len(old):
            raise SelectionError(
                f"the target has {len(old)} labels of {dim!r}, and the source {first} of them and new ones: it cannot "
                "be made anew of the source",
                url=part.url,
                hint="Give all files of this target as the source",
            )
        return True

    def _with_progress(self, plan: CopyPlan, before: int, total: int) -> CopyPlan:
        report = self.options.progress
        if report is None:
            return plan
        options = replace(plan.options, progress=lambda done, _: report(before + done, total))
        return replace(plan, options=options)

    def _report(
        self, plan: SplitPlan, reports: Sequence[CopyReport], continued: Mapping[str, str], seconds: float
    ) -> CopyReport:
        notes = [f"{len(reports) + len(continued):,} targets"] if reports or continued else []
        notes += [f"{len(plan.present):,} targets are there, and nothing is new for them"] if plan.present else []
        notes += [f"{url}: {note}" for url, one in zip(plan.plans, reports, strict=True) for note in one.notes]
        return CopyReport(
            self.pattern.text,
            sum(one.objects for one in reports),
            sum(one.continued for one in reports),
            sum(one.nbytes for one in reports),
            sum(one.values for one in reports),
            seconds,
            tuple(notes),
            sum(one.verified for one in reports),
            {f"{url}: {name}": error for url, one in zip(plan.plans, reports, strict=True)
             for name, error in one.errors.items()},
        )  # fmt: skip

    # What lies in the folder.

    def _tidy_up(self) -> None:
        """Remove the folder, and in it last the list that tells that all targets are at their places."""
        shutil.rmtree(self.folder / "targets", ignore_errors=True)
        for path in (self.folder / "made", self._list):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        try:
            os.makedirs(self.folder, exist_ok=True)
            with hold_file_lock(str(self.folder / "lock")):
                yield
        except OSError as error:
            raise to_source_error(error, self.pattern.text) from error

    def _read_made(self) -> dict[str, str]:
        try:
            found: dict[str, str] = json.loads((self.folder / "made").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found

    @staticmethod
    def _write(path: Path, digests: Mapping[str, str]) -> None:
        with open_atomic(str(path)) as file:
            file.write(json.dumps(dict(digests)).encode())

    def _put_to_place(self) -> dict[str, str]:
        """Put the targets of a complete list to their places; return their digests by target."""
        try:
            digests: dict[str, str] = json.loads(self._list.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        for url in digests:
            made, path = self._made(url), str(local_path(url))
            if not made.exists():
                continue  # it is at its place already
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            if made.is_dir():
                replace_directory(path, str(made))
            else:
                retry_while_open(os.replace, str(made), path)
                sync_directory(os.path.dirname(path))
        return digests


def _report_continued(plan: CopyPlan) -> CopyReport:
    """Return the report of a target that an interrupted run has made."""
    return CopyReport(plan.target.url, 0, 0, 0, plan.nbytes, 0.0, plan.notes)
