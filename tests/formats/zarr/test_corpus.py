"""Do the real stores in the corpus read as zarr-python reads them, array by array?"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import zarr

from insitu.errors import InsituError, UnknownCodecError
from insitu.formats.scan_request import ScanRequest
from insitu.formats.zarr import open_zarr
from insitu.reading import ReadContext, read_array

pytestmark = pytest.mark.filterwarnings("ignore:.*")

# Of 83 stores these are refused, and no other: two whose images are damaged on purpose, two of
# zarrs' own type `optional`.
RAISES = {
    "uint16_imagecodecs_tiff_invalid_tiff.zarr", "uint16_imagecodecs_tiff_too_many_bands.zarr",
    "array_optional.zarr/array", "array_optional_nested.zarr/array",
}  # fmt: skip

# What zarr-python cannot read: codecs and types that it does not know, an lzma filter it refuses, a
# transposed shard it measures wrongly (TensorStore agrees with us on that one).
ALONE = {
    "lzma_with_filters.zarr", "transposed_sharding.zarr", "data.zarr", "array_zfpy.zarr", "array_pcodec.zarr",
    "bitround_float32.zarr", "bitround_uint8.zarr",
}  # fmt: skip


def test_every_store(corpus: Path) -> None:
    with (corpus / "MANIFEST.csv").open() as file:
        stores = [row["file"] for row in csv.DictReader(file) if row["kind"] == "zarr"]
    compared, alone, raised = 0, set(), set()
    for name in stores:
        path = corpus / name
        try:
            group = open_zarr(str(path), ScanRequest())
            assert group is not None, name
            for variable, array in group.all_arrays():
                actual = read_array(array, context=ReadContext(variable))
                expected = _oracle(path, variable)
                if expected is None:
                    alone.add(path.name)
                else:
                    _equal(actual, expected, f"{name}: {variable}")
                    compared += 1
        except UnknownCodecError:
            if not any(
                library in name for library in ("pcodec", "zfpy")
            ):  # these need a library that may not be installed
                raise
        except InsituError:
            raised.add(name)
    unexpected = {name for name in raised if not any(name.endswith(known) for known in RAISES)}
    assert not unexpected
    assert alone <= ALONE
    assert compared >= 180
    assert len(stores) - len(raised) >= len(stores) - len(RAISES)


def _oracle(path: Path, variable: str) -> np.ndarray | None:
    """What zarr-python reads: through the group (consolidated metadata), or the array by itself;
    None if it cannot.
    """
    for find in (
        lambda: zarr.open_group(path, mode="r")[variable],
        lambda: zarr.open_array(path / variable, mode="r"),
        lambda: zarr.open_array(path, mode="r"),
    ):
        try:
            return np.asarray(find()[...])
        except Exception:
            continue  # whatever it raises, it is no oracle for this array
    return None


def _equal(actual: np.ndarray, expected: np.ndarray, what: str) -> None:
    assert actual.shape == expected.shape, what
    if expected.dtype.kind in "TO":
        assert [str(v) for v in actual.reshape(-1)] == [str(v) for v in expected.reshape(-1)], what
        return
    assert actual.dtype.newbyteorder("=") == expected.dtype.newbyteorder("="), what
    assert actual.astype(expected.dtype).tobytes() == expected.tobytes(), what
