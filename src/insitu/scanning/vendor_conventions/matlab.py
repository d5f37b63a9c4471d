"""Decoding of MATLAB files (version 7.3, which is HDF5) to what MATLAB would show.

MATLAB keeps its arrays with their axes reversed, text as numbers, truth values as bytes, complex
numbers as records, empty arrays as their shape, and cells as references to objects in a hidden
group. A scan shows what is stored. Here that becomes text, bool, complex numbers, axes in their
order, a cell of texts or of single numbers as an array of them, and any other cell as a group with
a number for each element. A sparse matrix stays what it is, compressed columns: a group whose
coordinates give the position of its values. Objects (dates, strings, tables) have a form that only
MATLAB knows: they are refused by name.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.model import GroupDetails, VirtualArray, VirtualGroup
from insitu.scanning.member import Load, in_memory

__all__ = ["decode_matlab", "is_matlab"]

CLASS, EMPTY = "MATLAB_class", "MATLAB_empty"
HIDDEN = ("#refs#", "#subsystem#")
SPARSE, OBJECT = "MATLAB_sparse", "MATLAB_object_decode"
MATLAB_ATTRIBUTES = frozenset(
    {CLASS, EMPTY, SPARSE, OBJECT, "MATLAB_int_decode", "MATLAB_fields", "MATLAB_global", "H5PATH"}
)
MAX_READ_BYTES = 1 << 20
"""Bytes of a text, or of the references of a cell, that are read when a file is opened."""
DEPTH_LIMIT = 32
ELEMENTS_LIMIT = 1 << 14
ITEMS_LIMIT = 1 << 18
"""Members in all: cells that hold each other crosswise would have no end."""
MAX_SIZE = 1 << 48
"""The lengths of an empty array, multiplied: more no MATLAB has."""
DTYPES = {
    **{f"{sign}int{8 * size}": f"{sign[:1] or 'i'}{size}" for sign in ("", "u") for size in (1, 2, 4, 8)},
    "single": "f4",
    "double": "f8",
    "logical": "?",
    "char": "U1",
}

Item = VirtualArray | VirtualGroup


def is_matlab(group: VirtualGroup) -> bool:
    """Return whether MATLAB wrote a file: its variables have the attribute MATLAB_class."""
    return CLASS in group.attributes or any(CLASS in item.attributes for _, item in _members(group))


def decode_matlab(group: VirtualGroup, load: Load) -> VirtualGroup:
    """Return the tree as MATLAB would show it.

    Parameters
    ----------
    group
        The root of a file, as scanned.
    load
        Reads the values of arrays.
    """
    reader = _Reader(group, load)
    shown = reader.group(group, 0)
    return dataclasses.replace(shown, problems={**group.problems, **reader.problems})


class _Reader:
    def __init__(self, root: VirtualGroup, load: Load) -> None:
        self.count = 0
        self.problems: dict[str, str] = {}
        self.by_address: dict[int, Item] = {}
        for _, node in root.walk():
            for _, item in _members(node):
                if item.details.address is not None:
                    self.by_address.setdefault(item.details.address, item)
        small = [array for path, array in root.all_arrays() if _needs_values(array, path.startswith(f"{HIDDEN[0]}/"))]
        self.values: dict[int, Any] = dict(zip(map(id, small), load(small) if small else [], strict=True))

    def group(self, group: VirtualGroup, depth: int, path: str = "") -> VirtualGroup:
        """Return a group with its members decoded."""
        if _is_sparse(group):
            return _decode_sparse(group)
        items: dict[str, Item] = {}
        for name, item in _members(group):
            if depth == 0 and name in HIDDEN:
                continue
            shown = self.item(item, name, depth, f"{path}{name}")
            if shown is not None:
                items[name] = shown
        return dataclasses.replace(
            group,
            arrays={name: item for name, item in items.items() if isinstance(item, VirtualArray)},
            groups={name: item for name, item in items.items() if isinstance(item, VirtualGroup)},
            attributes=_without_matlab_attributes(group.attributes),
            details=dataclasses.replace(group.details, dims={}),
            unlimited=(),
        )

    def item(self, item: Item, name: str, depth: int, path: str) -> Item | None:
        """Return one member decoded; None for an object, which only MATLAB can read."""
        self.count += 1
        if depth > DEPTH_LIMIT or self.count > ITEMS_LIMIT:
            return item
        kind = str(item.attributes.get(CLASS, ""))
        if OBJECT in item.attributes:
            self.problems[path] = f"{path!r} is a MATLAB object of class {kind!r}, which only MATLAB can read"
            return None
        if isinstance(item, VirtualGroup):
            return self.group(item, depth + 1, f"{path}/")
        values = self.values.get(id(item))
        if item.attributes.get(EMPTY) and values is not None:
            return _inline_array(item, _empty_array(kind, values), name)
        if item.details.reference == "object" and values is not None:
            return self.cell(item, values, name, depth, path)
        if kind == "char" and values is not None:
            return _inline_array(item, _decode_text(values), name)
        return _reorder_axes(item, kind)

    def cell(self, item: VirtualArray, references: npt.NDArray[Any], name: str, depth: int, path: str) -> Item:
        """Return a cell, or a field of an array of structs.

        It is an array if all of its elements are texts or single numbers; else a group.
        """
        addresses = [int.from_bytes(bytes(one), "little") for one in references.reshape(-1).tolist()]
        if self.count + len(addresses) > ITEMS_LIMIT or not all(address in self.by_address for address in addresses):
            return item
        numbers = self._numbers([self.by_address[address] for address in addresses])
        if numbers is not None:
            return _inline_array(item, numbers.reshape(references.shape).T, name)
        found = [
            self.item(self.by_address[address], name, depth + 1, f"{path}/{number}")
            for number, address in enumerate(addresses)
        ]
        texts = [None if one is None else _scalar_text(one) for one in found]
        if texts and all(text is not None for text in texts):
            return _inline_array(item, np.array(texts).reshape(references.shape).T, name)
        members = {str(number): one for number, one in enumerate(found) if one is not None}
        return VirtualGroup(
            {name: one for name, one in members.items() if isinstance(one, VirtualArray)},
            {name: one for name, one in members.items() if isinstance(one, VirtualGroup)},
            {**_without_matlab_attributes(item.attributes), "shape": np.array(references.shape[::-1])},
        )

    def _numbers(self, items: list[Item]) -> npt.NDArray[Any] | None:
        """Return the values of single numbers of one class; None if that is not what they are."""
        kinds = {str(item.attributes.get(CLASS, "")) for item in items}
        plain = all(isinstance(item, VirtualArray) and item.size == 1 and _is_number(item) for item in items)
        if len(kinds) != 1 or not plain or not all(id(item) in self.values for item in items):
            return None
        values = np.array([np.asarray(self.values[id(item)]).reshape(-1)[0] for item in items])
        return values.astype(bool) if kinds == {"logical"} else values


def _members(group: VirtualGroup) -> list[tuple[str, Item]]:
    return [*group.arrays.items(), *group.groups.items()]


def _is_number(item: Item) -> bool:
    """Return whether elements are plain numbers or truth."""
    return (
        isinstance(item, VirtualArray)
        and item.dtype.kind in "iuf"
        and str(item.attributes.get(CLASS, "")) not in ("char", "cell", "struct")
        and not {EMPTY, OBJECT} & item.attributes.keys()
    )


def _needs_values(array: VirtualArray, hidden: bool) -> bool:
    """Return whether decoding needs the values of an array (`hidden`: an element of a cell)."""
    if hidden and array.size == 1 and _is_number(array):
        return True
    asked = array.attributes.get(EMPTY) or array.attributes.get(CLASS) == "char"
    cell = array.details.reference == "object" and array.size <= ELEMENTS_LIMIT
    return bool((asked or cell) and array.nbytes <= MAX_READ_BYTES)


def _without_matlab_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if name not in MATLAB_ATTRIBUTES}


def _decode_text(codes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return rows of characters (UTF-16 code units), stored column by column, as texts."""
    if not codes.size:
        return np.array("")
    rows = codes.reshape(codes.shape[0], -1).T if codes.ndim else codes.reshape(1, 1)
    texts = [row.astype("<u2").tobytes().decode("utf-16-le", "replace") for row in rows]
    return np.array(texts[0] if len(texts) == 1 else texts)


def _scalar_text(item: Item) -> str | None:
    """Return the text that an array of one holds."""
    if isinstance(item, VirtualArray) and item.details.text is not None and not item.shape:
        return item.details.text
    return None


def _is_sparse(group: VirtualGroup) -> bool:
    """Return whether a group is a sparse matrix, with all that belongs to one."""
    rows = group.attributes.get(SPARSE)
    shapes = {name: array.shape for name, array in group.arrays.items()}
    jc, data, ir = (shapes.get(name) for name in ("jc", "data", "ir"))
    whole = jc is not None and len(jc) == 1 and data == ir and (data is None or len(data) == 1)
    return isinstance(rows, (int, np.integer)) and whole


def _decode_sparse(group: VirtualGroup) -> VirtualGroup:
    """Return a sparse matrix: values, their rows (`ir`), where each column begins (`jc`)."""
    dims = {"data": "element", "ir": "element", "jc": "column_boundary"}
    logical = str(group.attributes.get(CLASS, "")) == "logical"
    arrays: dict[str, VirtualArray] = {}
    for name, array in group.arrays.items():
        if name in dims:
            array = _reorder_axes(array, "logical" if logical and name == "data" else "")
            arrays[name] = dataclasses.replace(array, dims=(dims[name],))
    jc = arrays["jc"]
    for name in ("data", "ir"):  # of a matrix of zeros, MATLAB writes neither
        if name not in arrays:
            kind = np.dtype("u8") if name == "ir" else np.dtype(bool if logical else "f8")
            empty = _inline_array(jc, np.empty(0, kind), name)
            arrays[name] = dataclasses.replace(empty, dims=("element",), attributes={})
    shape = np.array([int(group.attributes[SPARSE]), max(jc.shape[0] - 1, 0)])
    told = {"sparse": "compressed columns", "shape": shape}
    details = GroupDetails(group.details.format)
    return VirtualGroup(
        arrays, {}, {**_without_matlab_attributes(group.attributes), **told}, details, coordinates=("ir", "jc")
    )


def _empty_array(kind: str, shape: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array without elements; of no characters, an empty text."""
    lengths = (
        [int(length) for length in shape.reshape(-1)] if shape.dtype.kind in "iuf" and np.isfinite(shape).all() else []
    )
    if kind == "char" and (not lengths or lengths[0] in (0, 1)):
        return np.array("")
    whole = math.prod(length for length in lengths if length)
    if 0 not in lengths or min(lengths) < 0 or len(lengths) > 32 or whole > MAX_SIZE:
        lengths = [0]
    return np.empty(lengths, DTYPES.get(kind, "f8"))


def _inline_array(item: VirtualArray, values: npt.NDArray[Any], name: str) -> VirtualArray:
    """Return values as an array that carries them inline."""
    array = in_memory(values)
    assert array is not None
    text = values.item() if values.dtype.kind == "U" and not values.shape else None
    return dataclasses.replace(
        array,
        dims=tuple(f"{name}_{axis}" for axis in range(values.ndim)),
        attributes=_without_matlab_attributes(item.attributes),
        details=dataclasses.replace(item.details, text=text),
    )


def _reorder_axes(item: VirtualArray, kind: str) -> VirtualArray:
    """Return the array in MATLAB's order of axes, with bool and complex types."""
    dtype = item.dtype
    names = dtype.names or ()
    if kind == "logical" and dtype == np.uint8:
        item = _view_as(item, np.dtype(bool), 1)
    elif names == ("real", "imag") and {dtype[0].str, dtype[1].str} in ({"<f4"}, {"<f8"}, {">f4"}, {">f8"}):
        item = _view_as(item, np.dtype(f"{dtype[0].byteorder}c{2 * dtype[0].itemsize}"), dtype.itemsize)
    item = item.transpose(*reversed(range(item.ndim))) if item.ndim > 1 else item
    return dataclasses.replace(item, attributes=_without_matlab_attributes(item.attributes))


def _view_as(item: VirtualArray, dtype: np.dtype[Any], size: int) -> VirtualArray:
    """Return the same bytes as elements of another type, if they are that large."""
    if dtype.itemsize != size:
        return item
    tiles = tuple(
        dataclasses.replace(tile, encodings=tuple(dataclasses.replace(e, dtype=dtype) for e in tile.encodings))
        for tile in item.tiles
    )
    fill = None if item.fill_value is None else np.asarray(item.fill_value).view(dtype)[()]
    return dataclasses.replace(item, dtype=dtype, tiles=tiles, fill_value=fill)
