"""What the values of a flag variable mean, in words: CF's `flag_values`, `flag_masks` and `flag_meanings` (CF 3.5)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["flags_of"]

MAX_FLAGS = 1000
"""Flags that are described; classifications have some hundred."""


def flags_of(attributes: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return for each flag its `meaning`, its `value` and `mask` (None where there is none), and its `colour` if
    `flag_colors` gives one; None for a variable that is no flag.

    Examples
    --------
    >>> flags_of({"flag_values": np.array([1, 2], "i1"), "flag_meanings": "land sea"})[1]
    {'meaning': 'sea', 'value': 2, 'mask': None, 'colour': None}
    """
    meanings = _words(attributes.get("flag_meanings"))
    values, masks = _numbers(attributes.get("flag_values")), _numbers(attributes.get("flag_masks"))
    colours = [text for text in _words(attributes.get("flag_colors")) if re.fullmatch("#[0-9a-fA-F]{6}", text)]
    count = min(len(meanings), len(values) or len(masks), MAX_FLAGS)
    if not count or (values and masks and len(values) != len(masks)):
        return None
    return [
        {
            "meaning": meanings[number].replace("_", " "),
            "value": values[number] if values else None,
            "mask": masks[number] if masks else None,
            "colour": colours[number] if len(colours) == len(meanings) else None,
        }
        for number in range(count)
    ]


def _words(given: Any) -> list[str]:
    if isinstance(given, (list, tuple, np.ndarray)):
        return [str(word).strip() for word in np.ravel(np.asarray(given, object))]
    return str(given).split() if isinstance(given, str) else []


def _numbers(given: Any) -> list[int | float]:
    """Return the numbers of an attribute; some files have them as text, such as `0b, 1b`."""
    if isinstance(given, str):
        return [float(text) if "." in text else int(text) for text in re.findall(r"[-+]?\d+(?:\.\d+)?", given)]
    found = np.ravel(np.asarray([] if given is None else given))
    return list(found.tolist()) if found.dtype.kind in "iuf" and np.isfinite(found).all() else []
