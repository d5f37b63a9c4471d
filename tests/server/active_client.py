"""Runs in PyActiveStorage's own environment: reads cases as JSON from standard input, prints
results as JSON. Nothing of insitu is here.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any

import numpy as np
from activestorage.active import Active


def one(case: dict[str, Any]) -> Any:
    active = Active(
        case["url"],
        case["variable"],
        axis=tuple(case["axis"]) if case.get("axis") is not None else None,
        interface_type=case["interface"],
        storage_options=case.get("storage_options"),
        active_storage_url=case["server"],
        option_disable_chunk_cache=case.get("uncached", False),
    )
    active._version = 2
    active.method = case["method"]
    active.components = case.get("components", False)
    found = active[tuple(slice(*entry) for entry in case["selection"])]
    if isinstance(found, dict):
        return {name: _plain(values) for name, values in found.items()}
    return _plain(found)


def _plain(values: Any) -> Any:
    values = np.ma.asarray(values)
    return {"values": np.ma.filled(values.astype("f8"), np.nan).tolist(), "dtype": values.dtype.name}


def main() -> None:
    results = []
    for case in json.load(sys.stdin):
        output = io.StringIO()
        try:
            with contextlib.redirect_stdout(output):
                results.append(one(case))
        except Exception as error:  # what the peer does not do is told to the test, whatever class it has
            results.append({"error": f"{type(error).__name__}: {error}"})
    json.dump(results, sys.stdout)


main()
