"""Encodings and packings as short texts for legends, tables and reports."""

from __future__ import annotations

from typing import Any

import numpy as np

from insitu.model.encoding import Encoding
from insitu.model.packing import Packing

__all__ = ["codec_chain_text", "encoding_text", "packing_text"]


def codec_chain_text(encoding: Encoding) -> str:
    """Return the codecs of an encoding in the order of writing, `none` if there are none.

    Examples
    --------
    >>> import numpy as np
    >>> from insitu.model.encoding import Codec
    >>> codec_chain_text(Encoding(np.dtype("i2"), (Codec("shuffle"), Codec("zlib", {"level": 4}))))
    'shuffle → zlib(4)'
    """
    names = (
        f"{codec.name}({level})" if (level := codec.configuration.get("level")) is not None else codec.name
        for codec in encoding.codecs
    )
    return " → ".join(names) or "none"


def encoding_text(encoding: Encoding) -> str:
    """Return the stored type of an encoding and its codecs."""
    dtype = encoding.dtype
    if dtype.hasobject:
        name = "varying length"
    elif dtype.names:
        name = "{" + ", ".join(dtype.names) + "}"
    else:
        name = dtype.name if dtype.isnative else f"{dtype.name} BE"
    return f"{name}, {codec_chain_text(encoding)}"


def packing_text(packing: Packing) -> str:
    """Return how stored values are decoded: scale, offset, missing values, time units."""
    kind = packing.kind
    parts = [] if kind.invalid is None else [f"not possible: {kind.invalid}"]
    if packing.scale is not None or packing.offset is not None:
        scale = "" if packing.scale is None else f"× {packing.scale:.7g}"
        offset = "" if packing.offset is None else f"{'−' if packing.offset < 0 else '+'} {abs(packing.offset):.7g}"
        parts.append(" ".join(part for part in (scale, offset) if part))
    missing = (*packing.missing, *kind.missing)
    if missing:
        parts.append(f"missing {', '.join(map(_number_text, missing))}")
    if kind.unit is not None:
        since = f" since {kind.epoch}" if kind.epoch is not None else ""
        parts.append(f"time in {kind.unit}{since}")
    if kind.unsigned is not None:
        parts.append("unsigned" if kind.unsigned else "signed")
    if kind.charset is not None:
        parts.append(kind.charset)
    if kind.dtype is not None:
        parts.append(f"to {kind.dtype}")
    return "; ".join(parts) or "as stored"


def _number_text(value: Any) -> str:
    return f"{value:.7g}" if isinstance(value, (float, np.floating)) else str(value)
