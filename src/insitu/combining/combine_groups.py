"""Trees of groups combined: each group by itself, of one scan.

A group of a file is combined with the labels that it inherits there, as xarray's `DataTree` gives
them. Afterwards they are taken out again: the groups above it have them. At the places of files that
lack a group its values are missing, so that it still fits below the groups that those files have.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from insitu.combining.align import pandas_index, reindex_member
from insitu.combining.merge_attributes import merge_attributes
from insitu.combining.portion import ScannedFiles
from insitu.combining.survey import Survey
from insitu.errors import CombineError
from insitu.formats import InsituWarning
from insitu.scanning.group_tree import ROOT, Inherited, parent_of
from insitu.scanning.member import ConcatDim, Member
from insitu.scanning.scan_member import Failure

if TYPE_CHECKING:
    from insitu.combining.recipe import Recipe  # which calls this module

__all__ = ["CombineGroup", "combine_groups", "group_paths"]

CombineGroup = Callable[[str, ScannedFiles, "Recipe"], Member]
"""Combines one group: its path, what each file has of it (a failure: nothing), its recipe."""

SHOWN_FILES = 3


@dataclass(frozen=True, slots=True)
class _FileView:
    """One file's groups, and what each inherits."""

    groups: Mapping[str, Member]
    above: Mapping[str, Inherited]

    @classmethod
    def of(cls, root: Member) -> _FileView:
        groups, above, views = dict(root.walk()), {"": ROOT}, {"": ROOT.below(root)}
        for path, member in root.below.items():
            above[path] = views[parent_of(path)]
            views[path] = above[path].below(member)
        return cls(groups, above)

    def group(self, path: str) -> Member | None:
        """Return a group with the labels that it inherits."""
        own = self.groups.get(path)
        if own is None:
            return None
        return replace(self.above[path].given_to(own), below={}, groups=(), labels=self.groups[""].labels)


def group_paths(found: Iterable[Member | Failure]) -> list[str]:
    """Return the paths of all groups that some file has, parents first."""
    paths = dict.fromkeys(path for item in found if isinstance(item, Member) for path, _ in item.walk())
    return sorted(paths, key=lambda path: path.count("/") + bool(path))


def combine_groups(
    found: ScannedFiles, recipe: Recipe, combine_one: CombineGroup, errors: str
) -> tuple[Member, dict[str, Survey]]:
    """Return the root of the tree that files make, and by path how the files of each group differ.

    Parameters
    ----------
    found
        The root of each file, or why it could not be opened.
    recipe
        How files are combined.
    combine_one
        Combines one group.
    errors
        What happens to a group that cannot be combined: "raise"; "warn" or "skip": it is left out,
        unless nothing is left then.

    Raises
    ------
    CombineError
        If the files of a group do not make one, or if it does not fit into the tree.
    """
    views = [_FileView.of(item) if isinstance(item, Member) else item for item in found]
    combined: dict[str, Member] = {}
    surveys: dict[str, Survey] = {}
    problems: dict[str, CombineError] = {}
    above = {"": ROOT}
    below: dict[str, Inherited] = {}

    def leave_out(path: str, problem: CombineError) -> None:
        if errors == "raise":
            raise problem
        problems[path] = problem

    _check_expected(recipe, found)
    for path in group_paths(found):
        if path:
            if parent_of(path) not in combined:
                continue
            above[path] = below[parent_of(path)]
            if (clash := _name_clash(path, views)) is not None:
                leave_out(path, clash)
                continue
        try:
            items = [_item_of(path, view) for view in views]
            own = _with_known_labels(recipe.of_group(path), items)
            made = _combine_one(path, items, views, own, combine_one, above[path])
            made = _without_inherited(made, path, views, above[path], unused=True)
            if (why := above[path].conflict(made)) is not None:
                raise CombineError(f"it does not fit below the groups above it: {why}", hint=_hint_for(path, items))
            made = _without_inherited(made, path, views, above[path])
            surveys[path] = Survey.of(items, made)
        except CombineError as problem:
            leave_out(path, _in_group(problem, path))
            made = Member({}, frozenset(), _attributes(path, views, recipe.of_group(path)))
        combined[path] = made
        below[path] = above[path].below(made)
    if problems and not any(made.variables for made in combined.values()):
        raise next(iter(problems.values()))
    if errors == "warn":
        for reason in problems.values():
            warnings.warn(f"left out: {reason}", InsituWarning, stacklevel=5)
    root = combined.pop("")
    return replace(root, below=combined, problems={path: one.message for path, one in problems.items()}), surveys


def _check_expected(recipe: Recipe, found: ScannedFiles) -> None:
    """Raise if labels are expected along a dimension that no group of any file has labels of."""
    expect = recipe.options.combine.expect
    if not isinstance(expect, Mapping):
        return
    groups = [group for item in found if isinstance(item, Member) for _, group in item.walk()]
    named = _named_dims(recipe)
    unknown = [dim for dim in expect if dim not in named and all(group.index(dim) is None for group in groups)]
    if groups and unknown:
        raise CombineError(f"expect= names {unknown[0]!r}, along which no group of any file has labels")


def _named_dims(recipe: Recipe) -> set[str]:
    """Return the dimensions that names or attributes of files label, of all groups that the recipe is of."""
    combine = recipe.options.combine
    rules = (combine.concat_dim, *(own.get("concat_dim") for own in (combine.by_group or {}).values()))
    return {dim for how in rules if isinstance(how, Mapping) for dim in how}


def _with_known_labels(recipe: Recipe, items: ScannedFiles) -> Recipe:
    """Return the recipe of a group that expects labels only of dimensions that the group has labels of."""
    expect = recipe.options.combine.expect
    if not isinstance(expect, Mapping):
        return recipe
    members = [item for item in items if isinstance(item, Member)]
    named = _named_dims(recipe)
    known = {
        dim: own
        for dim, own in expect.items()
        if dim in named or any(member.index(dim) is not None for member in members)
    }
    return replace(recipe, options=recipe.options.replace(expect=known or None))


def _item_of(path: str, view: _FileView | Failure) -> Member | Failure:
    if isinstance(view, Failure):
        return view
    member = view.group(path)
    if member is not None:
        return member
    url = view.groups[""].source or ""
    return Failure(url, f"it has no group '/{path}'", CombineError(f"there is no group '/{path}'", url=url))


def _combine_one(
    path: str,
    items: ScannedFiles,
    views: Sequence[_FileView | Failure],
    recipe: Recipe,
    combine_one: CombineGroup,
    above: Inherited,
) -> Member:
    options = recipe.options.combine
    by_labels = options.combine == "by_coords" and options.concat_dim is None
    has_variables = any(isinstance(view, _FileView) and _own_variables(view, path) for view in views)
    made = Member({}, frozenset(), _attributes(path, views, recipe))
    try:
        if has_variables or not by_labels:  # without variables, a new dimension may have labels
            made = combine_one(path, items, recipe)
    except CombineError:
        if has_variables:
            raise
    if any(isinstance(item, Failure) for item in items):
        made = _with_places_of_lacking_files(made, items, views, recipe.concat_dims(), above)
    return made


def _own_variables(view: _FileView, path: str) -> Mapping[str, object]:
    return view.groups[path].variables if path in view.groups else {}


def _attributes(path: str, views: Sequence[_FileView | Failure], recipe: Recipe) -> Mapping[str, object]:
    """Return the attributes of a group without variables."""
    own = [view.groups[path].attributes for view in views if isinstance(view, _FileView) and path in view.groups]
    return merge_attributes(own, recipe.options.combine.combine_attrs)


def _with_places_of_lacking_files(
    made: Member,
    items: ScannedFiles,
    views: Sequence[_FileView | Failure],
    dims: Sequence[ConcatDim],
    above: Inherited,
) -> Member:
    """Return a group with missing values at the places of files that lack it.

    Places are known by the labels of the groups above, or where each file is one step of a new
    dimension.
    """
    for dim, length in made.sizes.items():
        labels, own = above.labels.get(dim), made.index(dim)
        if labels is not None and own is not None:
            index, whole = pandas_index(own, dim), pandas_index(np.asarray(labels.data), dim)
            if index.is_unique and whole.is_unique and len(index) < len(whole) and index.isin(whole).all():
                made = reindex_member(made, dim, np.asarray(index.get_indexer(whole), np.int64))
                made = made.with_variables({**made.variables, dim: labels})
        elif own is None and list(dims) == [dim]:
            has = [isinstance(item, Member) for item, view in zip(items, views, strict=True) if _is_opened(view)]
            is_new = not any(isinstance(item, Member) and dim in item.sizes for item in items)
            if is_new and sum(has) == length:
                made = reindex_member(made, dim, np.where(has, np.cumsum(has) - 1, -1).astype(np.int64))
    return made


def _is_opened(view: _FileView | Failure) -> bool:
    return isinstance(view, _FileView)


def _without_inherited(
    made: Member, path: str, views: Sequence[_FileView | Failure], above: Inherited, *, unused: bool = False
) -> Member:
    """Return a combined group without the labels that no file has in the group itself; `unused`: only without those
    of dimensions that no variable of the group has.
    """
    own = {name for view in views if isinstance(view, _FileView) for name in _own_variables(view, path)}
    inherited = {name for name in above.labels if made.index(name) is not None and name not in own}
    if unused:
        inherited -= {dim for name, variable in made.variables.items() for dim in variable.dims if dim != name}
    if not inherited:
        return made
    rest = {name: variable for name, variable in made.variables.items() if name not in inherited}
    return made.with_variables(rest, made.coords - inherited)


def _name_clash(path: str, views: Sequence[_FileView | Failure]) -> CombineError | None:
    """Return the error for a group that has the name of a variable in another file."""
    parent, _, name = path.rpartition("/")
    opened = [view for view in views if isinstance(view, _FileView)]
    other = next((view for view in opened if parent in view.groups and name in view.groups[parent].variables), None)
    if other is None:
        return None
    one = next(view for view in opened if path in view.groups)
    return CombineError(
        f"'/{path}' is a group in {one.groups[''].source}, and a variable in {other.groups[''].source}",
        hint="Open them apart, or rename one: preprocess=lambda tree: … is called with the tree of each file",
    )


def _in_group(problem: CombineError, path: str) -> CombineError:
    """Return the error with the path of the group."""
    hint = problem.hint
    if "Could not find any dimension coordinates" in problem.message or "Every dimension requires" in problem.message:
        same = '{"combine": "nested", "concat_dim": None}'
        hint = (
            f'Say how this group is joined: by_group={{\'/{path}\': {{"combine": "nested", "concat_dim": …}}}}; '
            f"if it is the same in all files: by_group={{'/{path}': {same}}}"
        )
    message = problem.message if problem.message.startswith(f"'/{path}'") else f"group '/{path}': {problem.message}"
    return CombineError(message, hint=hint, **problem.place)


def _hint_for(path: str, items: ScannedFiles) -> str:
    lacking = [item.url for item in items if isinstance(item, Failure)]
    if not lacking:
        return (
            f"Join it as the groups above it, with by_group={{'/{path}': {{…}}}}, or open it alone with group={path!r}"
        )
    more = f" and {len(lacking) - SHOWN_FILES} more" if len(lacking) > SHOWN_FILES else ""
    return f"These files lack it: {', '.join(lacking[:SHOWN_FILES])}{more}. Open it alone with group={path!r}"
