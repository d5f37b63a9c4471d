"""What is appended of each variable, in the form in which the target stores it: its type, packing and unit of time."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cf.decode import decode_variable
from insitu.copying.repacking import FixedPacking
from insitu.copying.stored_forms import StoredForm, has_unknown_places, is_same
from insitu.errors import UnsupportedError
from insitu.expressions.element_operations import cast
from insitu.expressions.evaluate import read_all
from insitu.expressions.moves import select_box
from insitu.expressions.nodes import Expression, Stored
from insitu.model import VirtualArray
from insitu.model.cf_attributes import PACKING, TIMES
from insitu.reading import ReadContext
from insitu.scanning.member import Load, in_memory
from insitu.scanning.stored_view import stored_view
from insitu.zarr_metadata.to_documents import to_json_attributes

__all__ = ["AppendedVariable", "decode_labels"]

DECODING = (*PACKING, "calendar", "dtype")
"""Attributes by which stored values are decoded, besides units of time."""
HINT = "Leave the variable out, or copy everything to a new target"


def decode_labels(array: VirtualArray, name: str, load: Load) -> npt.NDArray[Any]:
    """Return the values of a stored array as xarray shows them."""
    return load([_decode(array, name, load)])[0]


def _decode(array: VirtualArray, name: str, load: Load) -> VirtualArray:
    return decode_variable(array, name=name, values=lambda: load([array])[0]).array


@dataclass(frozen=True, slots=True, eq=False)
class AppendedVariable:
    """A variable of the source, and the array of the target that it is added to."""

    path: str
    source: VirtualArray
    """As it is meant; a placeholder, if it is computed."""
    formula: Expression | None
    target: VirtualArray
    """As it is stored."""
    context: ReadContext
    load: Load

    def form_of(self, box: Sequence[slice]) -> StoredForm:
        """Return the stored form of a box of the source.

        Raises
        ------
        UnsupportedError
            If the target cannot hold it: the error names the variable and the reason.
        """
        meant = _decode(self.target, self.path, self.load)
        if meant.dtype.kind in "mM" or (meant.dtype.kind == "O" and self.target.dtype.kind in "iuf"):
            return self._of_times(box)
        if self.target.dtype.kind in "SUO":
            return self._of_texts(box)
        return self._of_numbers(box, meant)

    def _of_numbers(self, box: Sequence[slice], meant: VirtualArray) -> StoredForm:
        node = self.formula or Stored(self.source, self.context)
        if node.dtype.kind not in "biufc" or _is_time(self.source):
            raise self._error(f"it has values of type {node.dtype}, and the target numbers of type {meant.dtype}")
        if node.dtype.kind == "c" and self.target.dtype.kind != "c":
            raise self._error("it has complex values, and the target real ones")
        self._check_units()
        stored = self._stored_alike(node, meant.dtype)
        if stored is not None:
            return self._form(Stored(stored, self.context), box)
        given = self.target.attributes
        if "_Unsigned" in given:
            raise self._error("the target is packed with _Unsigned, and the source otherwise")
        if node.dtype.kind == "b":
            node = cast(node, np.dtype("i1"))
        scale, offset = _number(given.get("scale_factor")), _number(given.get("add_offset"))
        fill = _number(given.get("_FillValue", given.get("missing_value")))
        return self._form(node, box, FixedPacking(self.target.dtype, scale, offset, fill))

    def _stored_alike(self, node: Expression, meant: np.dtype[Any]) -> VirtualArray | None:
        """Return the stored values of the source, if the target's attributes decode them to the same."""
        if self.formula is not None or node.dtype != meant:
            return None
        try:
            stored = stored_view(self.source, self.path, self.load)
        except UnsupportedError:  # its files are packed differently
            return None
        if stored.dtype.newbyteorder("=") != self.target.dtype.newbyteorder("="):
            return None
        here, there = (_decoding(array) for array in (stored, self.target))
        return stored if here == there and not has_unknown_places(stored) else None

    def _check_units(self) -> None:
        here, there = self.source.attributes.get("units"), self.target.attributes.get("units")
        if self.formula is None and here is not None and there is not None and str(here) != str(there):
            raise self._error(f"its unit is {here!r}, and the target's is {there!r}")

    def _of_times(self, box: Sequence[slice]) -> StoredForm:
        """Return times in the target's unit."""
        if self.formula is None and not _is_time(self.source):
            raise self._error(f"the target has times, and the source values of type {self.source.dtype}")
        values = self._read(box)
        given = self.target.attributes
        encoding = {key: given[key] for key in (*TIMES, "_FillValue", "missing_value") if key in given}
        encoded = _encode_exactly(values, {**encoding, "dtype": self.target.dtype}, self.source.dims, self.path)
        if encoded is None:
            what = f"{given.get('units')!r} as {self.target.dtype}" if "units" in given else str(self.target.dtype)
            raise self._error(f"not all of its times are exact in the target's unit, {what}")
        return self._of_values(encoded)

    def _of_texts(self, box: Sequence[slice]) -> StoredForm:
        values = self._read(box)
        dtype = self.target.dtype
        if any(not isinstance(value, str | bytes) for value in values.reshape(-1).tolist()):
            raise self._error("the target has texts, and the source something else")
        if dtype.hasobject:
            return self._of_values(values.astype(str), texts=True)
        fixed = np.char.encode(values.astype(str), "utf-8") if dtype.kind == "S" else values.astype(str)
        if fixed.dtype.itemsize > dtype.itemsize:
            raise self._error(f"a text is longer than the target's type, {dtype}")
        return self._of_values(fixed.astype(dtype))

    def _read(self, box: Sequence[slice]) -> npt.NDArray[Any]:
        node = self.formula or Stored(self.source, self.context)
        return read_all([select_box(node, box)])[0]

    def _of_values(self, values: npt.NDArray[Any], texts: bool = False) -> StoredForm:
        array = in_memory(values)
        if array is None:
            raise self._error(f"values of type {values.dtype} cannot be copied")
        node = Stored(array)
        return self._form(cast(node, np.dtype(object)) if texts else node, [slice(0, n) for n in values.shape])

    def _form(self, node: Expression, box: Sequence[slice], packing: FixedPacking | None = None) -> StoredForm:
        part = select_box(node, box)
        return StoredForm(self.path, self.source.dims, part, self.target.dtype, {}, self.source, repacking=packing)

    def _error(self, reason: str) -> UnsupportedError:
        return UnsupportedError(f"it cannot be appended: {reason}", variable=self.path, hint=HINT)


def _encode_exactly(
    values: npt.NDArray[Any], encoding: Mapping[str, Any], dims: Sequence[str], name: str
) -> npt.NDArray[Any] | None:
    """Return times in an encoding; None if they are not exact in it."""
    from xarray import Variable  # slow to import, and needed here only
    from xarray.conventions import decode_cf_variable, encode_cf_variable

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stored = np.asarray(encode_cf_variable(Variable(dims, values, encoding=dict(encoding)), name=name).values)
            # xarray may have taken a finer unit: what counts is what the target's attributes make of the numbers.
            given = {key: value for key, value in encoding.items() if key != "dtype"}
            back = np.asarray(decode_cf_variable(name, Variable(dims, stored, given)).values)
    except (ValueError, OverflowError, TypeError, ArithmeticError):  # the unit does not fit
        return None
    if stored.dtype != np.dtype(encoding["dtype"]).newbyteorder("="):
        return None
    if values.dtype.kind in "mM":
        back = back.astype(values.dtype)
    return stored if is_same(back, values) else None


def _is_time(array: VirtualArray) -> bool:
    return array.dtype.kind in "mM" or (array.dtype.kind == "O" and "calendar" in array.stored_attributes())


def _decoding(array: VirtualArray) -> dict[str, Any]:
    """Return the attributes that decode an array, as JSON has them; NaN of floats means missing in any case."""
    found = to_json_attributes({key: value for key, value in array.attributes.items() if key in DECODING})
    is_float = array.dtype.kind in "fc"
    return {key: value for key, value in found.items() if not (is_float and key == "_FillValue" and value != value)}


def _number(value: Any) -> Any:
    """Return an attribute as a number; None if there is none."""
    if value is None or isinstance(value, str):
        return float(value) if isinstance(value, str) and value.strip().lower() == "nan" else None
    return np.asarray(value).reshape(-1)[0].item()
