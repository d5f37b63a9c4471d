"""References that VirtualiZarr holds in memory (`ManifestStore`, `ManifestGroup`), as a kerchunk document.

VirtualiZarr is not imported: whoever has such an object has it installed.
"""

from __future__ import annotations

import base64
from typing import Any

from insitu.errors import UnsupportedError

__all__ = ["document_of_manifests", "is_manifest_store"]


def is_manifest_store(given: Any) -> bool:
    """Return whether an object is a `ManifestStore` or a `ManifestGroup` of VirtualiZarr."""
    return any(
        kind.__module__.partition(".")[0] == "virtualizarr" and kind.__name__ in ("ManifestStore", "ManifestGroup")
        for kind in type(given).__mro__
    )


def document_of_manifests(given: Any) -> dict[str, Any]:
    """Return the references of a `ManifestStore` or `ManifestGroup` as a kerchunk document.

    Credentials in its registry of stores are not taken over: give `storage_options`.
    """
    group = getattr(given, "_group", given)
    if not hasattr(group, "arrays"):
        raise UnsupportedError(f"this version of VirtualiZarr has another {type(given).__name__}")
    references: dict[str, Any] = {}
    _add_group(group, "", references)
    return {"version": 1, "refs": references}


def _add_group(group: Any, prefix: str, references: dict[str, Any]) -> None:
    references[f"{prefix}zarr.json"] = _metadata_text(group.metadata)
    for name, array in group.arrays.items():
        references[f"{prefix}{name}/zarr.json"] = _metadata_text(array.metadata)
        for key, entry in array.manifest.dict().items():
            cell = tuple(int(part) for part in key.split(".") if part) if array.shape else ()
            place = f"{prefix}{name}/{array.metadata.encode_chunk_key(cell)}"
            if "data" in entry:
                references[place] = f"base64:{base64.b64encode(entry['data']).decode()}"
            else:
                references[place] = [entry["path"], int(entry["offset"]), int(entry["length"])]
    for name, inner in group.groups.items():
        _add_group(inner, f"{prefix}{name}/", references)


def _metadata_text(metadata: Any) -> str:
    from zarr.core.buffer import default_buffer_prototype  # which VirtualiZarr uses

    text: bytes = metadata.to_buffer_dict(prototype=default_buffer_prototype())["zarr.json"].to_bytes()
    return text.decode()
