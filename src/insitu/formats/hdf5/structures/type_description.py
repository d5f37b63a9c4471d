"""JSON descriptions of datatypes, from which the element codecs are configured.

A small tree; `insitu.formats.hdf5.codecs.records.parse_element_type` reads it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from insitu.formats.hdf5.structures.datatype import Datatype

__all__ = ["describe_type", "needs_element_decoder"]


def needs_element_decoder(datatype: Datatype) -> bool:
    """Whether elements must be decoded member by member.

    Others are stored as they are, or are one reference or one number.
    """
    base = datatype.base
    if base is not None:
        return (
            datatype.has_nested_variable_length
            or base.dtype.names is not None
            or bool(base.shape)
            or base.number is not None
        )
    return bool(datatype.members)


def describe_type(datatype: Datatype) -> dict[str, Any]:
    """Return a type as the codecs need it, without the axes that an array type adds."""
    if datatype.kind == "text":
        return {"kind": "text"}
    if datatype.kind == "sequence":
        assert datatype.base is not None
        return {"kind": "sequence", "base": describe_type(datatype.base), "dims": list(datatype.base.shape)}
    if datatype.members:
        members = [[name, offset, list(dims), describe_type(member)] for name, offset, dims, member in datatype.members]
        return {"kind": "compound", "size": datatype.size // math.prod(datatype.shape), "members": members}
    if datatype.number is not None:
        return {"kind": "number", "dtype": datatype.dtype.str, "layout": dict(datatype.number)}
    return _plain_description(datatype.dtype, {offset: padding for offset, _, padding in datatype.texts})


def _plain_description(dtype: np.dtype[Any], paddings: dict[int, str], at: int = 0) -> dict[str, Any]:
    """A type of fixed size, as JSON can say it."""
    if dtype.fields is None:
        return {"kind": "plain", "dtype": dtype.str, **({"padding": paddings[at]} if at in paddings else {})}
    members = []
    for name in dtype.names or ():
        member, offset = dtype.fields[name][:2]
        members.append([name, offset, list(member.shape), _plain_description(member.base, paddings, at + offset)])
    return {"kind": "compound", "size": dtype.itemsize, "members": members}
