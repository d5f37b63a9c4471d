"""`Archive`, with the way in which it becomes a dataset: what `insitu.Archive` is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from insitu.archive import Archive, register_dataset_maker

if TYPE_CHECKING:
    import xarray

__all__ = ["Archive"]


def _make_dataset(archive: Archive, **how: Any) -> xarray.Dataset:
    from insitu.xarray_bridge.opening import dataset_from_archive  # an archive may be opened without xarray's hooks

    return dataset_from_archive(archive, **how)


register_dataset_maker(_make_dataset)
