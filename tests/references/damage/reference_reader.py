"""Read references with the reference reader of their form: icechunk, or fsspec and zarr.

`python reference_reader.py FORM RESULT < PATHS`. RESULT is a pickle of one entry for each path: None,
if it cannot be opened, or the values of each array; None for an array that cannot be read.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any


def open_icechunk(path: str) -> Any:
    """Return the store of the tip of a repository; every container of its configuration is allowed."""
    import icechunk

    place = icechunk.local_filesystem_storage(path)
    config = icechunk.Repository.fetch_config(place)
    free = getattr(icechunk.credentials, "LocalFileSystemAccess", None)
    access = dict.fromkeys(config.virtual_chunk_containers or {}, free) if config is not None else {}
    return icechunk.Repository.open(place, authorize_virtual_chunk_access=access).readonly_session("main").store


def open_kerchunk(path: str) -> Any:
    """Return the store of references in JSON or in a directory of Parquet files."""
    from fsspec.implementations.reference import ReferenceFileSystem
    from zarr.storage import FsspecStore

    files = ReferenceFileSystem(fo=path, remote_protocol="file", asynchronous=True, skip_instance_cache=True)
    return FsspecStore(files, read_only=True, path="")


def read_values(store: Any) -> dict[str, Any]:
    """Return the values of every array by path; None: it cannot be read."""
    import zarr

    found: dict[str, Any] = {}

    def walk(group: Any, prefix: str) -> None:
        for name, member in group.members():
            if isinstance(member, zarr.Group):
                walk(member, f"{prefix}{name}/")
                continue
            found[prefix + name] = None
            with contextlib.suppress(Exception):
                found[prefix + name] = member[...]

    walk(zarr.open_group(store, mode="r"), "")
    return found


def main() -> None:
    """Read what standard input names."""
    form, result = sys.argv[1:]
    warnings.simplefilter("ignore")
    opener = open_icechunk if form == "icechunk" else open_kerchunk
    answers: list[dict[str, Any] | None] = []
    for line in sys.stdin:
        try:
            answers.append(read_values(opener(line.rstrip("\n"))))
        except BaseException:  # also a panic of Rust code, which is no Exception
            answers.append(None)
    Path(result).write_bytes(pickle.dumps(answers))


if __name__ == "__main__":
    main()
