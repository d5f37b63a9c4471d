"""What a dataset was opened from, so that what is saved from it can say how it is made again.

That is only believed while the dataset is the one that was opened: the same variables with the same
data, attributes and coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import xarray

from insitu.archive import Archive
from insitu.combining.recipe import Recipe

__all__ = ["Origin", "recipe_of"]


@dataclass(slots=True)
class Origin:
    """The archive behind a dataset, and what the dataset was when it was opened."""

    archive: Archive
    variables: dict[Any, tuple[Any, ...]]
    """Name: dimensions, data, attributes, encoding."""
    coords: frozenset[Any]
    indexed: frozenset[Any]
    attributes: dict[Any, Any]

    @classmethod
    def of(cls, dataset: xarray.Dataset, archive: Archive) -> Origin:
        """Return the record of a dataset that was just opened."""
        return cls(
            archive, _variables(dataset), frozenset(dataset.coords), frozenset(dataset.xindexes), dict(dataset.attrs)
        )

    def is_unchanged(self, dataset: xarray.Dataset) -> bool:
        """Return whether a dataset is still what was opened."""
        now = _variables(dataset)
        return (
            now.keys() == self.variables.keys()
            and all(_is_same(now[name], self.variables[name]) for name in now)
            and frozenset(dataset.coords) == self.coords
            and frozenset(dataset.xindexes) == self.indexed
            and _is_equal(dict(dataset.attrs), self.attributes)
        )


def recipe_of(dataset: xarray.Dataset, origin: Origin | None) -> Recipe | None:
    """Return the recipe to make a dataset again from its files; None if it is unknown."""
    if origin is not None and origin.is_unchanged(dataset):
        return origin.archive.recipe_to_save()
    return replace(
        Recipe() if origin is None else replace(origin.archive.recipe, files=(), placed=None),
        unknown="the dataset was changed after it was opened and before it was saved",
    )


def _variables(dataset: xarray.Dataset) -> dict[Any, tuple[Any, ...]]:
    return {  # `_data`: `Variable.data` would read what is lazily indexed, and make new objects
        name: (variable.dims, variable._data, dict(variable.attrs), dict(variable.encoding))
        for name, variable in dataset.variables.items()
    }


def _is_same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return one[0] == other[0] and one[1] is other[1] and _is_equal(one[2], other[2]) and _is_equal(one[3], other[3])


def _is_equal(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> bool:
    """Return whether two mappings hold the same objects, or equal ones."""
    if list(one) != list(other):
        return False
    return all(value is other[key] or repr(value) == repr(other[key]) for key, value in one.items())
