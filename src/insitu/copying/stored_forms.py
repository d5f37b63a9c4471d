"""What is stored of each variable, so that xarray shows the same values of the copy as of the source.

Stored values are copied as they are where all files are packed alike, with the attributes that decode them. What is
packed differently from file to file is stored unpacked, or packed anew if that is wanted. Times get one unit in which
every label is exact.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cf.decode import decode_variable
from insitu.cf.unpack import get_unpacker
from insitu.copying.repacking import Packer, choose_repacking
from insitu.errors import InsituError, UnsupportedError
from insitu.expressions.element_operations import cast
from insitu.expressions.evaluate import read_all
from insitu.expressions.nodes import Expression, Stored
from insitu.model import Axis, Columns, Encoding, Tile, VirtualArray, VirtualGroup, count_cells
from insitu.model.cf_attributes import CHARACTERS, MISSING, PACKING, RELATIONS, SCALING, TIMES
from insitu.reading import ReadContext
from insitu.scanning.member import Load, in_memory
from insitu.scanning.stored_view import name_coordinates, stored_view, used_rows, with_given_units
from insitu.zarr_metadata.to_documents import to_json_attributes

__all__ = ["StoredForm", "has_unknown_places", "is_same", "placeholder", "stored_forms"]

MOST_LABELS = 256 << 20
"""Bytes of times that are read to find a unit for them."""
TIME_UNITS = ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds")


@dataclass(frozen=True, slots=True, eq=False)
class StoredForm:
    """A variable as it is stored in a target."""

    path: str
    dims: tuple[str, ...]
    node: Expression
    """The stored values; meant ones, if they are packed anew."""
    dtype: np.dtype[Any]
    attributes: Mapping[str, Any]
    source: VirtualArray
    """As the source shows it."""
    stored: VirtualArray | None = None
    """The array of stored values behind the node, if it is one."""
    repacking: Packer | None = None
    note: str = ""
    """What is stored in another way than in the source, and why."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension."""
        return self.node.shape


def placeholder(dims: tuple[str, ...], node: Expression, attributes: Mapping[str, Any]) -> VirtualArray:
    """Return an array without values in the place of a formula."""
    tile = Tile(
        tuple(Axis.regular(length, max(length, 1)) for length in node.shape),
        (Encoding(node.dtype),),
        Columns.of_unwritten([1 if length else 0 for length in node.shape]),
    )
    return VirtualArray.of(tile, dims=dims, attributes=attributes)


def stored_forms(
    tree: VirtualGroup,
    formulas: Mapping[str, Expression],
    context: ReadContext,
    load: Load,
    *,
    typed_attributes: bool,
    repack: bool = False,
) -> tuple[list[StoredForm], dict[str, dict[str, Any]]]:
    """Return what is stored of the variables of a tree, and the attributes of its groups.

    Parameters
    ----------
    tree
        The variables as they are meant; a formula has a `placeholder`.
    formulas
        By path, what is computed.
    context
        How values are read.
    load
        Reads values of arrays.
    typed_attributes
        Whether the target keeps the types of attributes: JSON has one type for all numbers with fractions.
    repack
        Whether what is packed differently is packed anew.
    """
    found: list[StoredForm] = []
    groups: dict[str, dict[str, Any]] = {}
    for group_path, group in tree.walk():
        arrays, unnamed = name_coordinates(group)
        attributes = dict(group.attributes)
        if unnamed and "coordinates" not in attributes:
            attributes["coordinates"] = " ".join(sorted(unnamed))
        groups[group_path] = attributes
        for name, array in arrays.items():
            path = f"{group_path}/{name}" if group_path else name
            making = _FormMaker(path, array, context.of_variable(path), load, typed_attributes)
            try:
                found.append(making.of_formula(formulas[path]) if path in formulas else making.of_array(repack))
            except InsituError as problem:
                problem.with_context(variable=path)
                raise
    return found, groups


@dataclass(slots=True)
class _FormMaker:
    """Decides how one variable is stored."""

    path: str
    array: VirtualArray
    context: ReadContext
    load: Load
    typed_attributes: bool

    def of_formula(self, node: Expression) -> StoredForm:
        """Return the form of something that is computed."""
        if node.dtype.kind in "mMO":
            return self._of_values(read_all([node])[0])
        return self._of_meant(node, "")

    def of_array(self, repack: bool) -> StoredForm:
        """Return the form of a stored array: its stored values where there is one packing."""
        if self._holds_times() and all(tile.packings.identity for tile in self.array.tiles):
            return self._of_values(self.load([self.array])[0])  # joined in memory: decoded already
        try:
            stored = stored_view(self.array, self.path, self.load)
        except UnsupportedError as problem:
            return self._of_other_packings(str(problem.args[0]), repack)
        reason = self._find_difference(stored)
        if reason:
            return self._of_other_packings(reason, repack)
        attributes = dict(stored.attributes)
        if stored.dtype == bool:
            node: Expression = cast(Stored(stored, self.context), np.dtype("i1"))
            return self._form(node, {**attributes, "dtype": "bool"}, None)
        return self._form(Stored(stored, self.context), attributes, stored)

    def _holds_times(self) -> bool:
        return self.array.dtype.kind in "mM" or (self.array.dtype.kind == "O" and "calendar" in self.array.encoding)

    def _find_difference(self, stored: VirtualArray) -> str:
        """Return why the stored values and their attributes do not mean the same in the target; empty: they do."""
        if self.array.dtype.kind in "iufc" and stored.dtype.kind in "iufc":
            reason = self._find_other_numbers(stored)
            if reason:
                return reason
        fill = stored.attributes.get("_FillValue")
        if (
            not self.typed_attributes
            and str(stored.attributes.get("_Unsigned", "")).lower() == "false"
            and stored.dtype.kind == "u"
            and fill is not None
            and int(fill) > np.iinfo(stored.dtype.str.replace("u", "i")).max
        ):
            return f"xarray could not read the _FillValue {fill} of unsigned numbers that are meant with a sign"
        if has_unknown_places(stored):
            return "no file covers some places, and its stored type has no value that means missing"
        if stored.dtype.kind in "OSU" and (count_cells(stored).absent or _has_gaps(stored)):
            raise UnsupportedError(
                "no file covers some places, and texts have no value that means missing",
                hint="Leave the variable out, or select what files cover",
            )
        if stored.dtype.kind in "V":
            raise UnsupportedError(f"values of type {stored.dtype} cannot be copied", hint="Leave the variable out")
        return ""

    def _find_other_numbers(self, stored: VirtualArray) -> str:
        """Return why the target's attributes would not decode stored numbers to the same; empty: they do."""
        given = stored.attributes if self.typed_attributes else to_json_attributes(stored.attributes)
        is_scaled = any(name in stored.attributes for name in SCALING)
        if is_scaled and all(tile.packings.identity for tile in self.array.tiles):
            return self._find_rounding(replace(stored, attributes=given))  # decoded in memory, and encoded again
        one = VirtualArray.from_values(np.zeros((), stored.dtype), attributes=given)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they were given when the source was opened
            meant = decode_variable(one, decode_times=False).array
        if meant.dtype != self.array.dtype:
            return f"the target's attributes would decode to {meant.dtype}, and its values are {self.array.dtype}"
        there = get_unpacker(meant.tiles[0].packings[0], stored.dtype).scaled
        wide = [name for name in SCALING if np.asarray(stored.attributes.get(name, 0)).dtype == np.float64]
        if there == np.float32 and wide and not self.typed_attributes:
            return f"{wide[0]} is float64 and would be applied as float32, as JSON has no types"
        here = self._scaled_types() - {there} if is_scaled else None
        if here:
            return f"the target's attributes would be applied as {there}, and the files' are as {min(map(str, here))}"
        return ""

    def _find_rounding(self, stored: VirtualArray) -> str:
        """Return that values in memory are not what their stored ones decode to; empty: they are."""
        back, values = self.load([decode_variable(stored, decode_times=False).array, self.array])
        if back.dtype == values.dtype and np.array_equal(back, values, equal_nan=True):
            return ""
        return "packed, its values would be others"

    def _scaled_types(self) -> set[np.dtype[Any] | None]:
        """Return the types in which the files' scales and offsets are applied."""
        return {
            get_unpacker(tile.packings[row], encoding.dtype).scaled
            for tile in self.array.tiles
            for row in used_rows(tile)
            for encoding in tile.encodings
        }

    def _of_other_packings(self, reason: str, repack: bool) -> StoredForm:
        """Return the form of an array that is not packed alike everywhere."""
        array = self.array
        if array.dtype.kind in "mM" or (array.dtype.kind == "O"):
            if array.size * 8 > MOST_LABELS:
                raise UnsupportedError(
                    f"its times are {array.size:,} values in several units: {reason}",
                    hint="Leave the variable out, or copy fewer files at a time",
                )
            return self._of_values(self.load([array])[0])
        node = Stored(array, self.context)
        if repack:
            packing = choose_repacking(array)
            if packing is not None:
                attributes = {**self._meant_attributes(), **packing.attributes}
                note = f"packed anew, with an error of up to {packing.largest_error:.3g}: {reason}"
                return replace(self._form(node, attributes, None, note), repacking=packing, dtype=packing.dtype)
        return self._of_meant(node, f"stored unpacked: {reason}")

    def _of_meant(self, node: Expression, note: str) -> StoredForm:
        attributes = self._meant_attributes()
        if node.dtype.kind == "b":
            return self._form(cast(node, np.dtype("i1")), {**attributes, "dtype": "bool"}, None, note)
        return self._form(node, attributes, None, note)

    def _meant_attributes(self) -> dict[str, Any]:
        """Return the attributes of values as they are meant: those that name other variables, none that decode."""
        decoding = (*PACKING, *TIMES, *CHARACTERS)
        related = {key: self.array.encoding[key] for key in ("coordinates", *RELATIONS) if key in self.array.encoding}
        own = {key: value for key, value in self.array.attributes.items() if key not in decoding or key == "units"}
        if self.array.dtype.kind in "mMO":
            own.pop("units", None)
        return {**related, **own}

    def _of_values(self, values: npt.NDArray[Any]) -> StoredForm:
        """Return the form of values that are in memory: times and texts."""
        dims = self.array.dims
        from xarray import Variable  # slow to import, and needed here only

        variable = Variable(dims, values, self._meant_attributes())
        if values.dtype.kind in "mM" or (values.size and hasattr(values.reshape(-1)[0], "calendar")):
            encoded = _encode_times(variable, self.array.encoding, self.path)
        else:
            from xarray.conventions import encode_cf_variable

            encoded = encode_cf_variable(variable, name=self.path)
        stored = np.asarray(encoded.values)
        texts = stored.dtype.kind == "O"
        array = in_memory(stored.astype(str) if texts else stored)
        if array is None:
            raise UnsupportedError(f"values of type {self.array.dtype} cannot be copied", hint="Leave the variable out")
        array = replace(array, dtype=np.dtype(object)) if texts else array
        return self._form(Stored(array, self.context), dict(encoded.attrs), None)

    def _form(
        self, node: Expression, attributes: dict[str, Any], stored: VirtualArray | None, note: str = ""
    ) -> StoredForm:
        dtype = node.dtype
        if dtype.kind not in "biufcSUO" or (dtype.kind == "O" and not _is_text(node)):
            raise UnsupportedError(f"values of type {dtype} cannot be copied", hint="Leave the variable out")
        if dtype.kind == "U":  # of a fixed length: texts of any length are what both targets have
            node, dtype = cast(node, np.dtype(object)), np.dtype(object)
            stored = None
        native = dtype if dtype.hasobject else dtype.newbyteorder("<")
        return StoredForm(self.path, self.array.dims, node, native, attributes, self.array, stored, note=note)


def _is_text(node: Expression) -> bool:
    """Return whether the objects of an array are texts, as far as that is known without reading."""
    if not isinstance(node, Stored):
        return True
    found = [
        codec.configuration.get("type", codec.configuration).get("kind")
        for tile in node.array.tiles
        for encoding in tile.encodings
        if encoding.dtype.hasobject
        for codec in encoding.codecs[:1]
    ]
    is_bytes = any(encoding.dtype.kind == "S" for tile in node.array.tiles for encoding in tile.encodings)
    return not is_bytes and all(kind in (None, "text", "string") for kind in found)


def has_unknown_places(stored: VirtualArray) -> bool:
    """Return whether no file covers some places of an array of stored values, and none of its values means missing."""
    if stored.dtype.kind not in "iub" or stored.fill_value is not None:
        return False
    return bool(count_cells(stored).absent) or _has_gaps(stored)


def _has_gaps(array: VirtualArray) -> bool:
    """Return whether tiles leave places free."""
    return sum(int(np.prod(tile.shape, dtype=object)) for tile in array.tiles) < array.size


def _encode_times(variable: Any, given: Mapping[str, Any], name: str) -> Any:
    """Return times as numbers of the first unit in which all are exact."""
    from xarray.conventions import decode_cf_variable, encode_cf_variable

    for encoding in _time_encodings(variable, given):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                trial = variable.copy(deep=False)
                trial.encoding = encoding
                encoded = encode_cf_variable(trial, name=name)
                back = decode_cf_variable(name, encoded)
        except (ValueError, KeyError, TypeError, ArithmeticError):  # the unit does not fit
            continue
        if back.dtype == variable.dtype and is_same(np.asarray(back.values), variable.values):
            return with_given_units(encoded, encoding.get("units"))
    raise UnsupportedError(
        "there is no unit of time in which all its values are exact",
        variable=name,
        hint="Leave the variable out, or copy fewer files at a time",
    )


def is_same(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Return whether times are the same, those that are missing at the same places."""
    if one.dtype.kind in "mM":
        return bool(np.array_equal(one.view("i8"), other.view("i8")))
    return one.shape == other.shape and all(
        a == b or (a != a and b != b) for a, b in zip(one.flat, other.flat, strict=True)
    )


def _time_encodings(variable: Any, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield encodings to try: that of the first file, then whole numbers of ever finer units."""
    settings = {key: given[key] for key in (*TIMES, *MISSING, "dtype") if key in given}
    if "units" in settings:
        yield dict(settings)
    calendar = {"calendar": settings["calendar"]} if "calendar" in settings else {}
    if variable.dtype.kind == "m":
        yield from ({"units": unit, "dtype": "int64"} for unit in TIME_UNITS)
        return
    _, since, date = str(settings.get("units", "")).partition(" since ")
    for begin in ([date] if since else []) + ["1970-01-01"]:
        for unit in TIME_UNITS:
            yield {"units": f"{unit} since {begin}", "dtype": "int64", **calendar}
