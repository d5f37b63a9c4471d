"""The accessor `da.insitu` of data arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import xarray

from insitu.expressions.nodes import Stored, stored_arrays
from insitu.model import VirtualArray, count_cells
from insitu.xarray_bridge.backend_array import find_lazy_array

__all__ = ["InsituArrayAccessor"]

ONLY_VARIABLE = "_the_variable"
"""Name of a variable whose dataset is made for it alone."""


class InsituArrayAccessor:
    """The accessor `da.insitu`: sources, references and statistics of one variable."""

    def __init__(self, array: xarray.DataArray) -> None:
        self._array = array

    @property
    def virtual(self) -> bool:
        """Whether the values are not in memory."""
        return find_lazy_array(self._array.variable) is not None

    @property
    def array(self) -> VirtualArray | None:
        """Where the chunks lie and how they are encoded; None if the values are in memory, or computed."""
        lazy = find_lazy_array(self._array.variable)
        return lazy.array if lazy is not None and lazy.is_stored else None

    @property
    def nbytes_virtual(self) -> int:
        """Bytes that loading it gives; 0 if it is loaded."""
        return self._array.nbytes if self.virtual else 0

    @property
    def nbytes_stored(self) -> int:
        """Bytes in the archive behind it."""
        return sum(count_cells(stored.array).nbytes for stored in self._stored_arrays())

    @property
    def sources(self) -> list[str]:
        """The files behind it."""
        return list(dict.fromkeys(source.url for stored in self._stored_arrays() for source in stored.array.sources))

    def _stored_arrays(self) -> list[Stored]:
        """Return the stored arrays that it is, or that its formula consists of."""
        lazy = find_lazy_array(self._array.variable)
        return [] if lazy is None else stored_arrays(lazy.node)

    def references(self) -> dict[str, Any]:
        """Return where the chunks lie: see `Dataset.insitu.references`."""
        found = self._dataset().insitu.references(ONLY_VARIABLE)
        result: dict[str, Any] = found.get(ONLY_VARIABLE, {})
        return result

    def stats(
        self, methods: Sequence[str] | str = ("count", "min", "max", "mean", "std"), dim: Any = None
    ) -> xarray.Dataset:
        """Return several statistics in one pass; variables are named by them."""
        found = self._dataset().insitu.stats(methods, dim)
        result: xarray.Dataset = found.rename(
            {name: str(name).removeprefix(f"{ONLY_VARIABLE}_") for name in found.data_vars}
        )
        return result

    def _dataset(self) -> xarray.Dataset:
        return self._array.to_dataset(name=ONLY_VARIABLE)


_register_array: Any = xarray.register_dataarray_accessor
if not hasattr(xarray.DataArray, "insitu"):
    _register_array("insitu")(InsituArrayAccessor)
