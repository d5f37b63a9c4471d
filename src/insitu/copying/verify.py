"""Comparison of a target with checksums of its values that were taken when they were written."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import google_crc32c
import numpy as np

from insitu.copying.copy_boxes import PASSED_THROUGH
from insitu.copying.decode_object import decode_object
from insitu.copying.encode import checksum_values
from insitu.copying.journal import Finished, Journal
from insitu.copying.target_arrays import TargetArray
from insitu.copying.targets import Target
from insitu.errors import ChecksumError, InsituError
from insitu.reading.thread_pools import count_cores

__all__ = ["verify_target"]


def verify_target(target: Target, arrays: Sequence[TargetArray], journal: Journal) -> int:
    """Return how many objects were read back and are what was written.

    Raises
    ------
    ChecksumError
        If one is not: the error names the variable and the object.
    """
    with ThreadPoolExecutor(count_cores(), "insitu-verify") as pool:
        for number, array in enumerate(arrays):
            records = list(journal.of_array(number).values())
            for _ in pool.map(partial(_check_object, target, array), records):
                pass
    return len(journal.finished)


def _check_object(target: Target, array: TargetArray, record: Finished) -> None:
    cell = tuple(int(at) for at in np.unravel_index(record.number, array.grid)) if array.grid else ()
    data = target.read_object(array, cell)
    if data is None:
        is_right = False
    elif record.error == PASSED_THROUGH:
        is_right = google_crc32c.value(data) == record.checksum
    else:
        try:
            values = decode_object(data, array)
        except InsituError:
            is_right = False
        else:
            shown: tuple[Any, ...] = (*map(slice, array.object_shape(cell)), ...)
            is_right = checksum_values(values[shown]) == record.values_checksum
    if not is_right:
        raise ChecksumError(
            f"the copy is wrong: what was read back of {array.key(cell)} is not what was written",
            url=target.url,
            variable=array.path,
            hint="Check the disk, then start the same copy again with overwrite",
        )
