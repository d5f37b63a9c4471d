"""Groups of rows: what NumPy gives group by group, from values, side by side or scattered.

Modules: reducing/grouped_statistics.py, reducing/query.py, reducing/reduce_expression.py
"""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

from insitu.expressions.nodes import Stored
from insitu.model import Codec
from insitu.reading import ReadContext, ReadStatistics, SourcePool
from insitu.reducing import Reduction, group_rows
from insitu.reducing.group_rows import merge_groups, reduce_rows
from insitu.reducing.grouped_statistics import GroupedFolding, Groups
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reduce_expression import fold_expression
from insitu.sources import MemorySource
from reducing.test_small_chunks import written

CODES: dict[str, np.ndarray] = {
    "months": np.repeat(np.arange(4), 15),
    "months again": np.tile(np.repeat(np.arange(3), 10), 2),
    "hours": np.arange(60) % 7,
    "left out": np.where(np.arange(60) % 5 == 0, -1, np.arange(60) % 3),
    "left out side by side": np.repeat([0, -1, 2, 1], 15),
    "each its own": np.arange(60),
    "random": np.random.default_rng(0).integers(-1, 9, 60),
    "none": np.full(60, -1),
}


def expected(values: np.ndarray, axis: int, codes: np.ndarray, count: int, of: Any, others: tuple[int, ...]) -> Any:
    """NumPy's statistic of each group that has members."""
    found = {}
    for code in range(count):
        if (codes == code).any():
            part = np.compress(codes == code, values, axis).astype("f8")
            found[code] = of(part, axis=(axis, *others), keepdims=True)
    return found


@pytest.mark.parametrize("others", [(), (1,)], ids=["one axis", "two axes"])
@pytest.mark.parametrize("axis", [0, 2])
@pytest.mark.parametrize("name", CODES)
def test_like_numpy(name: str, axis: int, others: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    codes = CODES[name]
    count = int(codes.max()) + 2
    shape = [6, 5, 4]
    shape[axis] = 60
    values = np.random.default_rng(1).normal(size=shape).astype("f4")
    values[values > 1.5] = np.nan
    for step_bytes, run_bytes in itertools.product((group_rows.STEP_BYTES, 500), (group_rows.LONG_RUN_BYTES, 0)):
        monkeypatch.setattr(group_rows, "STEP_BYTES", step_bytes)
        monkeypatch.setattr(group_rows, "LONG_RUN_BYTES", run_bytes)
        for method, of in {"sum": np.nansum, "max": np.nanmax, "std": np.nanstd}.items():
            reduction = Reduction((method,), values.dtype)
            lengths = [1 if number in others else length for number, length in enumerate(shape)]
            lengths[axis] = count
            total = reduction.empty_partial(lengths)
            where = tuple(slice(0, length) for length in lengths)
            for part in reduce_rows(values, axis, codes, others, reduction):
                merge_groups(total, where, axis, part, reduction)
            found = reduction.finalise(total, 60)[method]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # of groups without values
                for code, wanted in expected(values, axis, codes, count, of, others).items():
                    np.testing.assert_allclose(
                        found.take([code], axis), wanted, rtol=1e-4, atol=1e-5, err_msg=f"{method} of {code}"
                    )


@pytest.mark.parametrize("chunks", [(7, 31, 9), (1, 31, 9), (60, 2, 3), (4, 5, 2)])
def test_every_chunk_once_and_no_partial_of_a_row(chunks: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(3).normal(size=(60, 31, 9)).astype("f4")
    array, data = written(values, chunks, (Codec("zlib"),))
    tally = ReadStatistics()
    opened = SourcePool(opener=lambda source: MemorySource(data))
    monkeypatch.delattr(Reduction, "collapse")  # merges partials of single rows
    codes = CODES["months"]
    stored = Stored(array, ReadContext("t", sources=opened, tally=tally))
    query = ReductionQuery.of(["mean"], (0,))
    found = fold_expression(stored, lambda values: GroupedFolding(values, query, Groups(0, codes, 4)))["mean"]
    for code in range(4):
        np.testing.assert_allclose(found[code], values[codes == code].mean(0, dtype="f8"), rtol=1e-5, atol=1e-6)
    assert tally.chunks == np.prod([-(-n // c) for n, c in zip(values.shape, chunks, strict=True)])
