"""DMR++ documents of HDF5 files, in the form that OPeNDAP's builder gives them, from our own scan."""

from __future__ import annotations

import base64
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from insitu.model import Inline, Stored, VirtualArray, VirtualGroup

__all__ = ["document"]

DAP = {"u1": "UInt8", "i1": "Int8", "i2": "Int16", "u2": "UInt16", "i4": "Int32", "u4": "UInt32", "i8": "Int64",
    "u8": "UInt64", "f4": "Float32", "f8": "Float64"}  # fmt: skip
PADS = {"space-padded": "space_pad", "null-terminated": "null_term"}
FILTERS = {"zlib": "deflate", "shuffle": "shuffle", "fletcher32": "fletcher32"}


def document(group: VirtualGroup, name: str, href: str = "OPeNDAP_DMRpp_DATA_ACCESS_URL") -> str:
    """Return the document of a file that was scanned without decoding."""
    return (
        '<?xml version="1.0" encoding="ISO-8859-1"?>\n'
        '<Dataset xmlns="http://xml.opendap.org/ns/DAP/4.0#" xmlns:dmrpp="http://xml.opendap.org/dap/dmrpp/1.0.0#" '
        f'dapVersion="4.0" dmrVersion="1.0" name="{name}" dmrpp:href="{href}" dmrpp:version="3.20.13">'
        f"{_inside(group, '/')}"
        '<Attribute name="build_dmrpp_metadata" type="Container">'
        '<Attribute name="version" type="String"><Value>1</Value></Attribute></Attribute>'
        "</Dataset>"
    )


def _inside(group: VirtualGroup, path: str) -> str:
    parts = [f'<Dimension name="{dim}" size="{size}"/>' for dim, size in group.details.dims.items()]
    parts += [_variable(name, array, path) for name, array in group.arrays.items()]
    inner = _attributes(group.attributes)
    parts.append(f'<Attribute name="HDF5_GLOBAL" type="Container">{inner}</Attribute>' if path == "/" else inner)
    parts += [
        f'<Group name="{name}">{_inside(child, f"{path}{name}/")}</Group>' for name, child in group.groups.items()
    ]
    return "".join(parts)


def _attributes(attributes: Any) -> str:
    parts = []
    for name, value in attributes.items():
        kind = "String" if isinstance(value, str) else DAP[np.asarray(value).dtype.str[1:]]
        texts = [str(item) for item in np.atleast_1d(value).tolist()]
        values = "".join(f"<Value>{escape(text)}</Value>" for text in texts)
        parts.append(f"<Attribute name={quoteattr(name)} type={quoteattr(kind)}>{values}</Attribute>")
    return "".join(parts)


def _variable(name: str, array: VirtualArray, path: str) -> str:
    tile = array.tiles[0]
    encoding = tile.encodings[0]
    kind = "String" if array.dtype.kind == "S" else DAP[array.dtype.str[1:]]
    dims = "".join(f'<Dim size="{n}"/>' if dim.startswith("phony") else f'<Dim name="{_home(dim, path)}"/>'
                   for dim, n in zip(array.dims, array.shape, strict=True))  # fmt: skip
    own = [codec for codec in encoding.codecs if codec.name == "hdf5_text"]
    pad = PADS[own[0].configuration["texts"][0][2]] if own else "null_pad"
    extra = (
        f'<dmrpp:FixedLengthStringArray string_length="{array.dtype.itemsize}" pad="{pad}"/>'
        if kind == "String"
        else ""
    )
    sizes = array.details.chunks
    rows, inline = [], ""
    for cell in np.ndindex(*tile.chunks.shape):
        state = tile.chunks[cell]
        if isinstance(state, Inline):
            inline = f"<dmrpp:compact>{base64.b64encode(state.data).decode()}</dmrpp:compact>"
        elif isinstance(state, Stored):
            place = (
                ""
                if sizes is None
                else f' chunkPositionInArray="[{",".join(str(c * s) for c, s in zip(cell, sizes, strict=True))}]"'
            )
            mask = f' fm="{state.filter_mask >> len(own)}"' if state.filter_mask else ""
            rows.append(f'<dmrpp:chunk offset="{state.offset}" nBytes="{state.length}"{place}{mask}/>')
    filters = " ".join(FILTERS[codec.name] for codec in encoding.codecs[len(own) :])
    levels = " ".join(str(codec.configuration["level"]) for codec in encoding.codecs if "level" in codec.configuration)
    compression = f' compressionType="{filters}" deflateLevel="{levels}"' if filters else ""
    order = "BE" if array.dtype.str[0] == ">" else "LE"
    fill = "" if kind == "String" else f' fillValue="{encoding.fill_value()}"'
    shape = (
        "" if sizes is None else f"<dmrpp:chunkDimensionSizes>{' '.join(map(str, sizes))}</dmrpp:chunkDimensionSizes>"
    )
    chunks = inline or f'<dmrpp:chunks{compression}{fill} byteOrder="{order}">{shape}{"".join(rows)}</dmrpp:chunks>'
    return f"<{kind} name={quoteattr(name)}>{dims}{_attributes(array.attributes)}{extra}{chunks}</{kind}>"


def _home(dim: str, path: str) -> str:
    """The full name of a dimension; all of the test's are in the root."""
    return f"/{dim}"
