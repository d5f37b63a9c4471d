"""The recipe of a saved dataset: how it was opened and appended to, so that it can be made again after files changed.

A recipe is plain JSON: `{"steps": [{"function", "urls", "places", "options"}, {"dim", …}]}`, where every step but the first was appended along `dim`. Where a dataset cannot be
made again by the same calls (a function was given, it was changed after it was opened), the recipe is `{"unknown": reason}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from insitu.errors import AccessError, FormatError
from insitu.references.urls import Base, absolute, is_relative

__all__ = ["KEY", "extend_recipe", "is_portable", "map_urls", "resolve_recipe", "steps_of"]

KEY = "recipe"
"""In the details of the root group."""
_NONE = "the store does not say how it was made"


def steps_of(recipe: Any) -> list[dict[str, Any]] | str:
    """Return the steps of a recipe, or the reason why it has none."""
    if not isinstance(recipe, Mapping):
        return _NONE
    steps = recipe.get("steps")
    if not isinstance(steps, list):
        return str(recipe.get("unknown") or _NONE)
    for step in steps:
        urls = step.get("urls") if isinstance(step, dict) else None
        if not isinstance(urls, list) or not all(isinstance(url, str) for url in urls):
            raise FormatError("the recipe of the store is damaged: a step has no 'urls'", structure=KEY)
        if step.get("function") not in ("open_dataset", "open_mfdataset") or not isinstance(step.get("options"), dict):
            raise FormatError("the recipe of the store is damaged: a step names no function", structure=KEY)
    return steps


def extend_recipe(old: Any, new: Any, dim: str) -> dict[str, Any]:
    """Return the recipe of what was saved by `old` and then appended to by `new`."""
    before, added = steps_of(old), steps_of(new)
    for reason in (before, added):
        if isinstance(reason, str):
            return {"unknown": reason}
    return {"steps": [*before, *({**step, "dim": dim} for step in added if isinstance(step, dict))]}


def map_urls(recipe: Any, function: Callable[[str], str]) -> Any:
    """Return a recipe with other URLs."""
    if not isinstance(recipe, Mapping) or not isinstance(recipe.get("steps"), list):
        return recipe
    steps = [{**step, "urls": [_mapped(url, function) for url in step["urls"]]} for step in recipe["steps"]]
    return {**recipe, "steps": steps}


def _mapped(url: str, function: Callable[[str], str]) -> str:
    """Return another URL of a file; of a member of an archive (`a.zip::x.nc`), of the archive."""
    place, mark, member = url.partition("::")
    if mark and "://" not in place:
        return f"{function(place)}::{member}"
    slash = "/" if url.endswith("/") else ""
    return f"{function(url).rstrip('/')}{slash}" if slash else function(url)


def resolve_recipe(recipe: Any, base: Base) -> Any:
    """Return a recipe as it was saved, with absolute URLs."""
    if isinstance(steps_of(recipe), str):
        return recipe
    try:
        return map_urls(recipe, lambda url: absolute(base.resolve(url)))
    except AccessError as problem:
        return {"unknown": problem.message}


def is_portable(recipe: Any) -> bool:
    """Whether URLs of a recipe, as it was saved, are relative to the store."""
    steps = steps_of(recipe)
    return not isinstance(steps, str) and any(is_relative(url) for step in steps for url in step["urls"])
