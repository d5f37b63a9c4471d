"""Zarr V2 and V3 metadata documents of virtual arrays and groups."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import UnsupportedError
from insitu.model import Encoding, VirtualGroup
from insitu.zarr_metadata import dtypes, fill, naming
from insitu.zarr_metadata.to_zarr import ZarrArraySpec
from insitu.zarr_metadata.typed_attributes import type_hints

__all__ = ["array_documents", "consolidate", "group_documents", "to_json_attributes"]


def array_documents(spec: ZarrArraySpec, zarr_format: int) -> dict[str, dict[str, Any]]:
    """Return the documents of an array whose cells were all checked, by name."""
    return {"zarr.json": _array_v3(spec)} if zarr_format == 3 else _array_v2(spec)


def group_documents(tree: VirtualGroup, zarr_format: int) -> dict[str, dict[str, Any]]:
    """Return the documents of all groups of a tree, by key."""
    documents: dict[str, dict[str, Any]] = {}
    for path, node in tree.walk():
        prefix, attributes = f"{path}/" if path else "", to_json_attributes(node.attributes)
        if zarr_format == 3:
            documents[f"{prefix}zarr.json"] = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
        else:
            documents |= {f"{prefix}.zgroup": {"zarr_format": 2}, f"{prefix}.zattrs": attributes}
    return documents


def consolidate(documents: Mapping[str, Any], zarr_format: int, *, all_groups: bool = False) -> dict[str, Any]:
    """Return the documents of a hierarchy by key, that of the root with all below it: readers need not
    list anything, not even what is in an empty group.

    Parameters
    ----------
    documents, zarr_format
        What there is.
    all_groups
        Whether each group gets what is below it, so that it can be opened by itself.
    """
    mark = "zarr.json" if zarr_format == 3 else ".zgroup"
    marks = {
        key: _parent(key) for key, value in documents.items()
        if key.rpartition("/")[2] == mark and value.get("node_type", "group") == "group"
    }  # fmt: skip
    rows: dict[str, dict[str, Any]] = {path: {} for path in (marks.values() if all_groups else [""])}
    # What one group holds stands together: zarr-python takes a group in two parts for the second of them.
    for key in sorted(documents, key=lambda key: _parent(_parent(key))):  # stable: a group keeps its order
        document, path = documents[key], _parent(key)
        if path and key in marks:
            document = {**document, "consolidated_metadata": _listing({})}
        inside = path if zarr_format == 2 else _parent(path) if path else None
        while inside is not None:
            if inside in rows:
                rows[inside][key[len(inside) :].lstrip("/").removesuffix("/zarr.json")] = document
            inside = _parent(inside) if inside else None
    result = dict(documents)
    for path, below in rows.items():
        prefix = f"{path}/" if path else ""
        if zarr_format == 2:
            result[f"{prefix}.zmetadata"] = {"zarr_consolidated_format": 1, "metadata": below}
        else:
            key = f"{prefix}zarr.json"
            result[key] = {**documents[key], "consolidated_metadata": _listing(below)}
    return result


def _listing(rows: Mapping[str, Any]) -> dict[str, Any]:
    return {"kind": "inline", "must_understand": False, "metadata": dict(rows)}


def _parent(key: str) -> str:
    return key.rpartition("/")[0]


def _array_v2(spec: ZarrArraySpec) -> dict[str, dict[str, Any]]:
    encoding = spec.encoding
    filters, compressor = naming.to_v2(encoding)
    order = _order_v2(encoding, spec)
    attributes = attributes_as_stored(spec)
    value = _fill_v2(spec, encoding, attributes)
    document = {
        "zarr_format": 2,
        "shape": list(spec.array.shape),
        "chunks": list(spec.chunks),
        "dtype": dtypes.to_v2(encoding.dtype),
        "fill_value": value,
        "order": order,
        "filters": filters,
        "compressor": compressor,
        "dimension_separator": ".",
    }
    return {
        ".zarray": document,
        ".zattrs": {"_ARRAY_DIMENSIONS": list(spec.array.dims), **to_json_attributes(attributes)},
    }


def _array_v3(spec: ZarrArraySpec) -> dict[str, Any]:
    encoding = spec.encoding
    attributes = attributes_as_stored(spec)
    text_values = _is_text(encoding)
    raw = _missing_chunk_fill(spec, encoding)
    if isinstance(attributes.get("_FillValue"), str) and encoding.dtype.kind in "OU":
        # xarray cannot open V3 stores with a text _FillValue. It masks missing_value as well.
        marks = [attributes.pop("_FillValue"), *np.ravel(attributes.get("missing_value", [])).tolist()]
        attributes["missing_value"] = marks if len(set(marks)) > 1 else marks[0]
    elif "_FillValue" in attributes:
        attributes["_FillValue"] = _encode_fill_value(attributes["_FillValue"], encoding.dtype)
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(spec.array.shape),
        "data_type": dtypes.to_v3(encoding.dtype, text_values=text_values),
        "chunk_grid": _chunk_grid(spec),
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill.to_json(raw, encoding.dtype, zarr_format=3, text_values=text_values),
        "codecs": naming.to_v3(encoding),
        "attributes": to_json_attributes(attributes),
        "dimension_names": list(spec.array.dims),
        "storage_transformers": [],
    }


def _chunk_grid(spec: ZarrArraySpec) -> dict[str, Any]:
    if not spec.cuts:
        return {"name": "regular", "configuration": {"chunk_shape": list(spec.chunks)}}
    rows = zip(spec.chunks, spec.grid, spec.cuts, strict=True)
    shapes = [_run_lengths((size,) * count if cut is None else cut) for size, count, cut in rows]
    return {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": shapes}}


def _run_lengths(sizes: tuple[int, ...]) -> list[Any]:
    """Return lengths with equal neighbours as `[length, times]`."""
    runs = [(size, len([*many])) for size, many in groupby(sizes)]
    return [[size, times] if times > 1 else size for size, times in runs]


def attributes_as_stored(spec: ZarrArraySpec) -> dict[str, Any]:
    """Return the attributes of the stored values, CF ones included, and the types that JSON loses."""
    attributes = spec.array.stored_attributes(spec.packing)
    return attributes | type_hints(attributes)


def _fill_v2(spec: ZarrArraySpec, encoding: Encoding, attributes: dict[str, Any]) -> Any:
    """Return `fill_value` of a V2 document: both the value of missing chunks and what xarray masks."""
    text_values = _is_text(encoding)
    masks = attributes.pop("_FillValue", None)
    needed = _missing_chunk_fill(spec, encoding) if spec.unwritten or spec.absent else None
    if masks is None:
        if needed is None or not any(needed):
            return None
        if encoding.dtype.kind in "OSU" or _is_nan(needed, encoding.dtype):  # masking it changes nothing
            return fill.to_json(needed, encoding.dtype, zarr_format=2, text_values=text_values)
        raise UnsupportedError(
            f"chunks that were never written hold {_format_fill(needed, encoding.dtype)}, "
            "which is not declared as missing: Zarr V2 would mask it (V3 can hold it)"
        )
    raw = _to_element_bytes(masks, encoding.dtype)
    if (spec.unwritten or spec.absent) and not _is_same_fill(raw, needed, encoding.dtype):
        raise UnsupportedError(
            f"chunks that were never written hold {_format_fill(needed, encoding.dtype)}, but _FillValue is {masks!r}: "
            "Zarr V2 has one value for both (V3 has two)"
        )
    return fill.to_json(raw, encoding.dtype, zarr_format=2, text_values=text_values)


def _is_nan(raw: bytes, dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" and bool(np.isnan(np.frombuffer(raw, dtype, count=1)[0]))


def _missing_chunk_fill(spec: ZarrArraySpec, encoding: Encoding) -> bytes | None:
    """Return the value of missing chunks."""
    if not spec.absent or not spec.packing.identity:
        if spec.absent:
            raise UnsupportedError(
                "Zarr cannot distinguish places that no file covers from chunks that were never written"
            )
        return encoding.fill
    raw = _to_element_bytes(spec.array.absent_value(), encoding.dtype)
    if spec.unwritten and not _is_same_fill(raw, encoding.fill, encoding.dtype):
        raise UnsupportedError("Zarr cannot distinguish places that no file covers from chunks that were never written")
    return raw


def _to_element_bytes(value: Any, dtype: np.dtype[Any]) -> bytes:
    if dtype.hasobject:
        return str(value).encode("utf-8", "surrogateescape")
    cast = _cast_first(value, dtype)
    if cast is None:
        raise UnsupportedError(f"{value!r} is not a value of the stored type {dtype}")
    return cast.tobytes()


def _cast_first(value: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any] | None:
    """Return the first of some values in a type; None if it is not a value of that type."""
    try:
        first = np.asarray(value).reshape(-1)[:1]
        with np.errstate(all="ignore"):
            cast: npt.NDArray[Any] = first.astype(dtype)
    except (TypeError, ValueError, OverflowError):  # what NumPy raises for values that it cannot convert
        return None
    if not len(cast) or (dtype.kind in "iub" and not bool(cast[0] == first[0])):
        return None
    return cast


def _is_same_fill(one: bytes | None, other: bytes | None, dtype: np.dtype[Any]) -> bool:
    zero = b"" if dtype.hasobject else bytes(dtype.itemsize)
    one, other = one or zero, other or zero
    if one == other:
        return True
    if dtype.kind == "f":
        a, b = (np.frombuffer(raw, dtype)[0] for raw in (one, other))
        return bool(a == b or (np.isnan(a) and np.isnan(b)))
    return False


def _format_fill(raw: bytes | None, dtype: np.dtype[Any]) -> str:
    return repr(Encoding(dtype, fill=raw).fill_value())


def _order_v2(encoding: Encoding, spec: ZarrArraySpec) -> str:
    if encoding.order is None:
        return "C"
    # Axes of length 1 do not matter.
    real = [axis for axis in encoding.order if spec.chunks[axis] > 1]
    if real == sorted(real):
        return "C"
    if real == sorted(real, reverse=True):
        return "F"
    stored_dims = tuple(spec.array.dims[axis] for axis in encoding.order)
    raise UnsupportedError(
        f"its chunks are stored in the axis order {encoding.order}, and Zarr V2 has only C and F "
        f"(transposed to {stored_dims} it can be saved)"
    )


def _is_text(encoding: Encoding) -> bool:
    return not any(codec.name in ("vlen-bytes", "vlen-array") for codec in encoding.codecs[:1])


def _encode_fill_value(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a `_FillValue` as xarray writes it to V3 stores."""
    scalar = np.asarray(value).reshape(-1)[0] if np.ndim(value) else value
    if dtype.kind == "f":
        return base64.standard_b64encode(struct.pack("<d", float(scalar))).decode()
    if dtype.kind == "c":
        number = complex(scalar)
        return [base64.standard_b64encode(struct.pack("<d", part)).decode() for part in (number.real, number.imag)]
    if dtype.kind == "S":
        raw = scalar if isinstance(scalar, bytes) else str(scalar).encode()
        return base64.standard_b64encode(raw).decode()
    if dtype.kind in "iu":
        return int(scalar)
    if dtype.kind == "b":
        return bool(scalar)
    return str(scalar)


def to_json_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes for JSON: NumPy scalars as numbers, arrays as lists, bytes as text."""
    return {str(name): _to_json_value(value) for name, value in attributes.items()}


def _to_json_value(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_to_json_value(item) for item in value.tolist()] if value.ndim else _to_json_value(value[()])
    if isinstance(value, np.longdouble | np.clongdouble):  # whose `item` is of the same type
        return _to_json_value(complex(value) if isinstance(value, np.clongdouble) else float(value))
    if isinstance(value, np.generic):
        return _to_json_value(value.item()) if value.dtype.kind not in "mMV" else str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list | tuple):
        return [_to_json_value(item) for item in value]
    if isinstance(value, Mapping):
        return to_json_attributes(value)
    if isinstance(value, complex):
        return [value.real, value.imag]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return str(value)
