"""Mergeable summaries of distributions in fixed space: histograms and t-digests (quantiles).

A histogram counts values between given edges, exactly. A t-digest (Dunning 2019) represents the
values by `CENTROIDS` means with weights, narrow towards both ends, so that quantiles of any number
of values can be estimated. Each is one field of a partial, whose elements are records; they are
sent and merged as every other field.

The error of a quantile from a t-digest is one of *rank*: the result for `q` is a true quantile for
some `q'` with `|q' - q| <= RANK_ERROR_BOUND * sqrt(q (1 - q)) / CENTROIDS + 1 / n`. For the median
of any data that is 0.6 %: what is returned lies between the true quantiles 0.494 and 0.506. It is
exact at both ends, and if there are so few values that each has its own centroid. No proof covers
every order of merging; the tests keep the bound on sorted, alternating, heavy-tailed and repeated
values that are merged from hundreds of parts, where the largest error seen is 70 % of it.

Why not a library: `datasketches` (Apache) has t-digests, and KLL sketches whose bound is proved.
But there a sketch is an object of its own for every element of a result, and a map has a million;
here they are one array of records, measured and merged by the same NumPy calls for all elements.
And sketches come from servers over the network: an array of numbers is checked as all others are,
while the library parses bytes of its own format in C++.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import ModelError
from insitu.reducing.block_facts import Array, ValueBlock
from insitu.reducing.partial_fields import Partial, PartialField

__all__ = [
    "CENTROIDS",
    "RANK_ERROR_BOUND",
    "check_edges",
    "histogram_counts",
    "histogram_field",
    "tdigest_field",
    "tdigest_quantiles",
]

CENTROIDS = 512
"""Number of centroids of a t-digest: 8 KiB for each element of the result."""
RANK_ERROR_BOUND = 2 * np.pi
"""Twice the width of a centroid:
values may lie anywhere in it or, after merging, in its neighbours.
"""
MAX_BINS = 65_536
DIGEST = np.dtype(
    [
        ("mean", "f8", (CENTROIDS,)),
        ("weight", "f8", (CENTROIDS,)),
        ("low", "f8"),
        ("high", "f8"),
        ("missing", "i8"),
    ]
)
"""Record of a t-digest. Means are sorted; those without weight are infinite and come last."""


def check_edges(edges: Any) -> tuple[float, ...]:
    """Return increasing edges of bins as a tuple; an error if they are not valid."""
    try:
        found = np.asarray(edges, np.float64)
    except (TypeError, ValueError, OverflowError) as problem:  # what NumPy raises for what is no number
        raise ModelError(f"the edges of a histogram must be numbers: {problem}") from problem
    if found.ndim != 1 or not 2 <= len(found) <= MAX_BINS + 1:
        raise ModelError(f"the edges of a histogram must be a list of 2 to {MAX_BINS + 1} numbers")
    if not (np.diff(found) >= 0).all():  # NaN fails this, too
        raise ModelError("the edges of a histogram must increase")
    return tuple(found.tolist())


# Histograms.


@lru_cache(maxsize=64)
def histogram_field(edges: tuple[float, ...]) -> PartialField:
    """Return the field of counts between edges, as in `numpy.histogram`:
    the last bin includes both its edges.
    """
    bins = len(edges) - 1
    record = np.dtype([("n", "i8", (bins,))])
    borders = np.array(edges)

    def measure(part: ValueBlock) -> Array:
        rows, shape = part.rows(), part.shape
        found = np.zeros(len(rows), record)
        if len(rows) == 1:
            found["n"][0] = _count_between(np.sort(rows[0]), borders)
        else:
            place = np.searchsorted(borders, rows, side="right") - 1
            place[rows == borders[-1]] = bins - 1
            inside = (place >= 0) & (place < bins) & (rows <= borders[-1])
            place += np.arange(len(rows))[:, None] * bins
            found["n"] = np.bincount(place[inside], minlength=len(rows) * bins).reshape(len(rows), bins)
        return found.reshape(shape)

    def join(one: Partial, other: Partial, skipna: bool, out: Array | None) -> Array:
        return _make_records(record, n=one["histogram"]["n"] + other["histogram"]["n"])

    def again(found: Array, times: Any) -> Array:
        return _make_records(record, n=found["n"] * np.asarray(times)[..., None])

    return PartialField(measure, join, lambda dtype, skipna: np.zeros((), record), again)


def _count_between(values: Array, edges: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return how many of the sorted values (NaN last) lie between the edges."""
    below = np.append(values.searchsorted(edges[:-1], "left"), values.searchsorted(edges[-1:], "right"))
    return np.diff(below)


def _make_records(dtype: np.dtype[Any], **fields: Array) -> Array:
    first = next(iter(fields.values()))
    made = np.empty(first.shape[:-1], dtype)
    for name, values in fields.items():
        made[name] = values
    return made


def histogram_counts(partial: Partial) -> Array:
    """Return the counts of a partial, with the bins as first axis."""
    return np.moveaxis(partial["histogram"]["n"], -1, 0)


# Quantiles.


def _digest(mean: Array, weight: Array, low: Array, high: Array, missing: Array) -> Array:
    """Return the digests of rows of sorted means with weights."""
    total = weight.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        q = (np.cumsum(weight, axis=-1) - weight / 2) / total
        # Dunning's k1: the arc sine makes centroids narrow where q is near 0 or 1.
        place = np.floor(CENTROIDS * (np.arcsin(np.clip(2 * q - 1, -1, 1)) / np.pi + 0.5))
    place = np.clip(np.nan_to_num(place), 0, CENTROIDS - 1).astype(np.int64)
    place += np.arange(len(mean))[:, None] * CENTROIDS
    size = len(mean) * CENTROIDS
    # Means without weight are infinite: leave them out.
    moment = np.multiply(mean, weight, out=np.zeros(mean.shape), where=weight > 0)
    weights = np.bincount(place.reshape(-1), weight.reshape(-1), size).reshape(-1, CENTROIDS)
    sums = np.bincount(place.reshape(-1), moment.reshape(-1), size).reshape(-1, CENTROIDS)
    found = np.empty(len(mean), DIGEST)
    found["weight"], found["low"], found["high"], found["missing"] = weights, low, high, missing
    found["mean"] = np.divide(sums, weights, out=np.full(weights.shape, np.inf), where=weights > 0)
    return _sort_centroids(found)


def _sort_centroids(found: Array) -> Array:
    order = np.argsort(found["mean"], axis=-1, kind="stable")
    for name in ("mean", "weight"):
        found[name] = np.take_along_axis(found[name], order, -1)
    return found


def _measure_digest(part: ValueBlock) -> Array:
    rows, shape = part.rows(), part.shape
    if not part.size:
        return np.full(shape, _empty_digest(rows.dtype, part.skipna))
    values = np.sort(rows, axis=-1)  # NaN last
    is_missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
    missing = np.count_nonzero(is_missing, axis=-1)
    last = np.maximum(values.shape[-1] - missing - 1, 0)
    none = missing == values.shape[-1]
    high = np.take_along_axis(values, last[:, None], -1)[:, 0].astype(np.float64)
    low = values[:, 0].astype(np.float64)
    low[none], high[none] = np.inf, -np.inf
    wide = values.astype(np.float64)
    wide[is_missing] = np.inf
    return _digest(wide, (~is_missing).astype(np.float64), low, high, missing).reshape(shape)


def _join_digests(one: Partial, other: Partial, skipna: bool, out: Array | None) -> Array:
    a, b = np.broadcast_arrays(one["tdigest"], other["tdigest"])
    shape, a, b = a.shape, a.reshape(-1), b.reshape(-1)
    mean = np.concatenate([a["mean"], b["mean"]], axis=-1)
    weight = np.concatenate([a["weight"], b["weight"]], axis=-1)
    order = np.argsort(mean, axis=-1, kind="stable")
    merged = _digest(
        np.take_along_axis(mean, order, -1), np.take_along_axis(weight, order, -1), np.minimum(a["low"], b["low"]),
        np.maximum(a["high"], b["high"]), a["missing"] + b["missing"],
    )  # fmt: skip
    # A digest that is merged with an empty one stays unchanged.
    merged = np.where(b["weight"].sum(axis=-1) == 0, _add_missing(a, b), merged)
    merged = np.where(a["weight"].sum(axis=-1) == 0, _add_missing(b, a), merged)
    return merged.reshape(shape)


def _add_missing(some: Array, none: Array) -> Array:
    found = some.copy()
    found["missing"] += none["missing"]
    return found


def _empty_digest(dtype: np.dtype[Any], skipna: bool) -> Any:
    empty = np.zeros((), DIGEST)
    empty["mean"], empty["low"], empty["high"] = np.inf, np.inf, -np.inf
    return empty


def _repeat_digest(found: Array, times: Any) -> Array:
    times = np.asarray(times)
    many = np.array(np.broadcast_arrays(found, times)[0])
    many["weight"] = many["weight"] * times[..., None]
    many["missing"] = many["missing"] * times
    return many


tdigest_field = PartialField(_measure_digest, _join_digests, _empty_digest, _repeat_digest)


def tdigest_quantiles(partial: Partial, q: Any, skips: bool) -> Array:
    """Return quantiles from the digests of a partial, in float64; several give a first axis."""
    wanted = np.atleast_1d(np.asarray(q, np.float64))
    if wanted.ndim > 1 or not ((wanted >= 0) & (wanted <= 1)).all():
        raise ModelError("q must be a number from 0 to 1, or a list of them")
    digests = partial["tdigest"]
    flat = digests.reshape(-1)
    found = np.full((len(wanted), len(flat)), np.nan)
    for row, digest in enumerate(flat):
        weight = digest["weight"][digest["weight"] > 0]
        if not len(weight) or (digest["missing"] and not skips):
            continue
        ends = np.cumsum(weight)
        at = np.concatenate([[0.5], ends - weight / 2, [ends[-1] - 0.5]])
        values = np.concatenate([[digest["low"]], digest["mean"][: len(weight)], [digest["high"]]])
        found[:, row] = np.interp(wanted * (ends[-1] - 1) + 0.5, at, values)
    return found.reshape(len(wanted), *digests.shape) if np.ndim(q) else found.reshape(digests.shape)
