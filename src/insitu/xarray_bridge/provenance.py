"""How a dataset was opened, remembered with it, so that what is saved from it can say how it is made again.

The record is only believed while the dataset is the one that was opened: the same variables with the same data, attributes and coordinates.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import xarray

from insitu.combining.rules import DEFAULT

__all__ = ["Provenance"]


@dataclass(slots=True)
class Provenance:
    """The call that opened a dataset, and what the dataset was then."""

    function: str
    urls: list[Any]
    places: list[list[int]] | None
    """Where each file is in the nested lists that were given."""
    options: dict[str, Any]
    variables: dict[Any, tuple[Any, ...]]
    """Name: dimensions, data, attributes, encoding."""
    coords: frozenset[Any]
    indexed: frozenset[Any]
    attributes: dict[Any, Any]

    @classmethod
    def of(
        cls,
        dataset: xarray.Dataset,
        function: str,
        urls: Sequence[Any],
        options: Mapping[str, Any],
        places: Sequence[Sequence[int]] | None = None,
    ) -> Provenance:
        """Return the record of a dataset that was just opened; options that have their default value are left out."""
        given = {name: value for name, value in options.items() if value is not None and value is not DEFAULT}
        return cls(
            function,
            list(urls),
            None if places is None else [list(place) for place in places],
            given,
            _variables(dataset),
            frozenset(dataset.coords),
            frozenset(dataset.xindexes),
            dict(dataset.attrs),
        )

    def recipe(self, dataset: xarray.Dataset) -> dict[str, Any]:
        """Return how the dataset is made again, or why that is not known; see `insitu.references.recipe`."""
        if not self._describes(dataset):
            return {"unknown": "the dataset was changed after it was opened and before it was saved"}
        if not all(isinstance(url, str) for url in self.urls):
            return {"unknown": "it was opened from what is not a URL"}
        # Not at the top: Arrow takes longer to import than a file to scan.
        from insitu import references

        for url in self.urls:
            if references.matches(url):
                return {"unknown": f"it was opened from other references: {url}"}
        step = {"function": self.function, "urls": self.urls, "places": self.places, "options": self.options}
        try:
            plain = json.loads(json.dumps(step, allow_nan=False))
        except (TypeError, ValueError):
            for name, value in self.options.items():
                if not _is_plain(value):
                    return {"unknown": f"it was opened with {name}=, whose value cannot be kept"}
            raise
        return (
            {"steps": [plain]} if plain == step or _listed(step) == plain else {"unknown": "its options are not plain"}
        )

    def _describes(self, dataset: xarray.Dataset) -> bool:
        now = _variables(dataset)
        return (
            now.keys() == self.variables.keys()
            and all(_is_same(now[name], self.variables[name]) for name in now)
            and frozenset(dataset.coords) == self.coords
            and frozenset(dataset.xindexes) == self.indexed
            and _equal(dict(dataset.attrs), self.attributes)
        )


def _variables(dataset: xarray.Dataset) -> dict[Any, tuple[Any, ...]]:
    return {
        name: (variable.dims, variable._data, dict(variable.attrs), dict(variable.encoding))
        for name, variable in dataset.variables.items()
    }


def _is_same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return one[0] == other[0] and one[1] is other[1] and _equal(one[2], other[2]) and _equal(one[3], other[3])


def _equal(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> bool:
    """Whether two mappings hold the same objects, or equal ones."""
    if list(one) != list(other):
        return False
    return all(value is other[key] or repr(value) == repr(other[key]) for key, value in one.items())


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def _listed(value: Any) -> Any:
    """Return a value as JSON gives it back: lists for tuples."""
    if isinstance(value, Mapping):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, (list, tuple)) else value
