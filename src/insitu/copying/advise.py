"""What typical reads of an archive take, as it is and in the chunks that a copy would have.

A pattern is a typical read: a box of some lengths. It is planned at `PLACES` places, spread evenly from the first
to the last along each dimension, so that chunks at edges and boxes across borders count as often as they occur; what
is said is the mean. Chunks, requests and bytes come from the plans that reads execute (`reading.estimate`), those of a
copy from plans of an array that does not exist yet. Its chunks are taken to be compressed as well as those of the
archive. No values are read but labels, and the sizes of some objects where no table has them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from insitu.copying.choose_chunks import Chunks, check_chunks
from insitu.copying.copy_options import CopyOptions
from insitu.copying.copy_plan import DECODED_PER_SECOND
from insitu.copying.sized_chunks import MOST_CELLS, CopiedChunks, CopiedObjects, is_raw, measure_density, with_sizes
from insitu.copying.stored_forms import StoredForm, stored_forms
from insitu.copying.target_arrays import TargetArray, find_time, make_target_arrays
from insitu.errors import UnsupportedError, VariableError
from insitu.expressions.chunk_grid import chunk_sizes
from insitu.expressions.nodes import Stored
from insitu.model import (
    Axis,
    Selection,
    Tile,
    VirtualArray,
    VirtualGroup,
    count_cells,
)
from insitu.model.description import format_bytes
from insitu.reading import ReadContext
from insitu.reading.estimate import estimate_fetches, estimate_read
from insitu.reading.thread_pools import count_cores
from insitu.scanning.scan_member import make_loader
from insitu.sources.resolve import estimate_seconds

__all__ = ["PATTERN_WORDS", "Advice", "Pattern", "PatternCost", "advise", "sample_places"]

PATTERN_WORDS = ("maps", "series", "boxes")
Pattern = Mapping[str, int] | str
"""Lengths by dimension (-1, and those that are not named: the whole dimension), or one of `PATTERN_WORDS`: a field of
the last two dimensions but time; one place at all times; a tenth of each dimension.
"""
PLACES = 17
"""Places at which a pattern is planned: a prime number, so that along each dimension they are in another order."""
BOX_SHARE = 10
SMALL_SHARE = 100
"""Variables of less than this part of the largest one's bytes are left out, if not named."""
AS_IT_IS = "as it is"


@dataclass(frozen=True, slots=True)
class PatternCost:
    """What a typical read of a variable takes in some chunks: means of all sampled places."""

    variable: str
    pattern: str
    box: tuple[int, ...]
    """Elements that the read wants, along each dimension."""
    grid: str
    """`as it is`, or what was asked for: `series`, `time=365,lat=20`."""
    chunks: tuple[int, ...]
    """Lengths of the chunks, of most of them."""
    touched: float
    """Chunks, and pieces of uncompressed chunks of which parts are wanted."""
    requests: float
    bytes_fetched: float
    bytes_wanted: int
    """Bytes of the values in the type in which the archive stores them."""
    seconds: float
    """An estimate."""
    cost: float | None = None
    """Of the bytes, at the price given."""

    @property
    def overhead(self) -> float:
        """Bytes fetched over bytes wanted."""
        return self.bytes_fetched / max(self.bytes_wanted, 1)

    def as_dict(self) -> dict[str, Any]:
        """Return it as numbers and texts, for JSON."""
        return {
            "variable": self.variable,
            "pattern": self.pattern,
            "box": list(self.box),
            "grid": self.grid,
            "chunks": list(self.chunks),
            "touched": round(self.touched, 2),
            "requests": round(self.requests, 2),
            "bytes_fetched": round(self.bytes_fetched),
            "bytes_wanted": self.bytes_wanted,
            "overhead": round(self.overhead, 4),
            "seconds": float(f"{self.seconds:.3g}"),
            **({} if self.cost is None else {"cost": float(f"{self.cost:.3g}")}),
        }


@dataclass(frozen=True, slots=True)
class Advice:
    """What typical reads take, as the archive is and in other chunks."""

    rows: tuple[PatternCost, ...]
    notes: tuple[str, ...] = ()
    """How the numbers are meant."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as numbers and texts, for JSON."""
        return {"rows": [row.as_dict() for row in self.rows], "notes": list(self.notes)}

    def __str__(self) -> str:
        lines = [
            f"{row.variable}, {row.pattern} {'×'.join(map(str, row.box))}, {row.grid} "
            f"({'×'.join(map(str, row.chunks))}): {row.touched:,.1f} chunks, {row.requests:,.1f} requests, "
            f"{format_bytes(round(row.bytes_fetched))} ({row.overhead:.3g} × what is wanted), about {row.seconds:.2g} s"
            + ("" if row.cost is None else f", costs {row.cost:.3g}")
            for row in self.rows
        ]
        return "\n".join([*lines, *self.notes])


def advise(
    tree: VirtualGroup,
    variables: Sequence[str] | None = None,
    patterns: Sequence[Pattern] = PATTERN_WORDS,
    *,
    chunks: Sequence[Chunks] = ("series", "maps", "both"),
    codec: str | None = None,
    price: float | None = None,
    context: ReadContext | None = None,
) -> Advice:
    """Return what typical reads of the variables of a tree take.

    Parameters
    ----------
    tree
        The variables as they are meant, with their coordinates.
    variables
        Paths of some; by default all of two dimensions or more that are not small beside the largest.
    patterns
        The reads.
    chunks
        Chunks of the copies to compare with, as for a copy.
    codec
        Codec of the copies, as for a copy.
    price
        Of 10^9 bytes that leave the storage.
    context
        How sources are opened.
    """
    if price is not None and not 0 <= price < math.inf:
        raise UnsupportedError(f"a price of {price} is not possible", hint="Give that of a gigabyte, such as 0.09")
    how = context or ReadContext()
    forms, _ = stored_forms(tree, {}, how, make_loader(how.storage_options), typed_attributes=False)
    chosen = _choose_forms(forms, variables)
    sizes = {dim: length for form in chosen for dim, length in zip(form.dims, form.shape, strict=True)}
    for pattern in patterns:
        _check_pattern(pattern, sizes)
    time = find_time(forms)
    targets: dict[str, dict[str, TargetArray]] = {}
    for given in chunks:
        made = make_target_arrays(forms, CopyOptions(chunks=given, codec=codec), "zarr")
        targets[_name_of(given)] = {array.path: array for array in made}
    rows = []
    for form in chosen:
        grids = [_Grid.of_source(form, how)]
        grids += [grids[0].of_copy(name, arrays[form.path]) for name, arrays in targets.items()]
        for pattern, grid in product(patterns, grids):
            box = _box_of(pattern, form, time)
            rows.append(_measure(form, _name_of(pattern), box, grid, price))
    return Advice(tuple(rows), tuple(_notes(targets)))


def _notes(targets: Mapping[str, Any]) -> Iterator[str]:
    yield f"Means of up to {PLACES} places, spread evenly from the first to the last along each dimension."
    if targets:
        yield (
            "Copies: Zarr, an object for each chunk, where the archive lies, compressed as well as the archive is; one "
            "that is not compressed is taken not to become smaller."
        )
    yield "Seconds are an estimate, with nothing in a cache."


def _choose_forms(forms: Sequence[StoredForm], variables: Sequence[str] | None) -> list[StoredForm]:
    if variables is not None:
        by_path = {form.path: form for form in forms}
        missing = [name for name in variables if name.strip("/") not in by_path]
        if missing:
            raise VariableError(f"no variable {missing[0]!r}", hint=f"There are: {', '.join(by_path) or 'none'}")
        return [by_path[name.strip("/")] for name in variables]
    found = [form for form in forms if len(form.dims) > 1 and _url_of(form.source)]
    largest = max((form.source.nbytes for form in found), default=0)
    found = [form for form in found if form.source.nbytes * SMALL_SHARE >= largest]
    if not found:
        raise VariableError(
            "no variable of two or more dimensions is stored in chunks", hint="Name the variables that are read"
        )
    return found


def _name_of(given: Chunks | Pattern) -> str:
    """Return lengths as the command line takes them.

    Examples
    --------
    >>> _name_of("series"), _name_of({"lat": 1, "lon": -1})
    ('series', 'lat=1,lon=-1')
    """
    if given is None:
        return "source"
    return given if isinstance(given, str) else ",".join(f"{dim}={length}" for dim, length in given.items())


def _check_pattern(pattern: Pattern, sizes: Mapping[str, int]) -> None:
    if not isinstance(pattern, str):
        check_chunks(pattern, sizes, "patterns")
    elif pattern not in PATTERN_WORDS:
        raise UnsupportedError(
            f"pattern {pattern!r} is unknown",
            hint=f"Give one of {', '.join(PATTERN_WORDS)}, or lengths by dimension, such as lat=1,lon=1",
        )


def _box_of(pattern: Pattern, form: StoredForm, time: str | None) -> tuple[int, ...]:
    """Return what a pattern wants of a variable, along each dimension."""
    lengths: dict[str, int]
    whole = dict(zip(form.dims, form.shape, strict=True))
    long = time if time in whole else form.dims[0] if form.dims else None
    fields = [dim for dim in form.dims if dim != long]
    if pattern == "maps":
        lengths = dict.fromkeys([dim for dim in form.dims if dim not in fields[-2:]], 1)
    elif pattern == "series":
        lengths = dict.fromkeys(fields, 1)
    elif isinstance(pattern, str):
        lengths = {dim: max(length // BOX_SHARE, 1) for dim, length in whole.items()}
    else:
        lengths = {dim: length for dim, length in pattern.items() if length != -1}
    return tuple(min(lengths.get(dim, length), length) for dim, length in whole.items())


def sample_places(shape: Sequence[int], box: Sequence[int]) -> list[tuple[int, ...]]:
    """Return where boxes begin that stand for all of their size: all, if they are few.

    Examples
    --------
    >>> sample_places((3, 5), (1, 5))
    [(0, 0), (1, 0), (2, 0)]
    >>> places = sample_places((1000, 100), (1, 1))
    >>> len(places), places[:3], places[-1], max(lat for _, lat in places)
    (17, [(0, 0), (62, 12), (125, 25)], (999, 93), 99)
    """
    counts = [length - size + 1 for length, size in zip(shape, box, strict=True)]
    if math.prod(counts) <= PLACES:
        return list(product(*map(range, counts)))
    return [
        tuple(
            round(place * (step % (PLACES - 1) + 1) % PLACES * (count - 1) / (PLACES - 1))
            for step, count in enumerate(counts)
        )
        for place in range(PLACES)
    ]


@dataclass(frozen=True, slots=True)
class _Grid:
    """A variable in some chunks."""

    name: str
    array: VirtualArray
    chunks: tuple[int, ...]
    density: float
    """Stored bytes of an element."""

    @classmethod
    def of_source(cls, form: StoredForm, context: ReadContext) -> _Grid:
        """Return a variable as it is; sizes of objects that no table has are asked for, and estimated of the others."""
        array = form.source
        counts = count_cells(array, MOST_CELLS)
        nbytes = float(counts.nbytes)
        if counts.stored and not counts.nbytes:
            tiles = [with_sizes(tile, measure_density(tile, context)) for tile in array.tiles]
            array = replace(array, tiles=tuple(tiles))
            nbytes = float(count_cells(array, MOST_CELLS).nbytes)
        return cls(AS_IT_IS, array, tuple(chunk_sizes(Stored(array, context))), nbytes / max(array.size, 1))

    def of_copy(self, name: str, target: TargetArray) -> _Grid:
        """Return the same variable as a copy would have it."""
        encoding = target.encoding if target.through is None else target.through.array.encoding
        axes = tuple(Axis.regular(length, size) for length, size in zip(target.shape, target.chunks, strict=True))
        table = CopiedChunks(target.grid, CopiedObjects(_url_of(self.array), math.prod(target.grid)))
        density = min(self.density or math.inf, target.itemsize)
        tile = with_sizes(Tile(axes, (encoding,), table), density)
        return _Grid(name, VirtualArray.of(tile, dims=target.form.dims), target.chunks, density)


def _url_of(array: VirtualArray) -> str:
    """Return the URL of an object of an array; empty if it has none."""
    return next((tile.chunks.sources[0].url for tile in array.tiles if len(tile.chunks.sources)), "")


def _measure(form: StoredForm, pattern: str, box: tuple[int, ...], grid: _Grid, price: float | None) -> PatternCost:
    """Return what a read takes, on average of the places where it may be."""
    array, url = grid.array, _url_of(grid.array)
    itemsize = max((encoding.dtype.itemsize for tile in form.source.tiles for encoding in tile.encodings), default=0)
    has_codecs = not is_raw(array.tiles)
    totals = np.zeros(4)
    places = sample_places(array.shape, box)
    for place in places:
        slices = tuple(slice(at, at + size) for at, size in zip(place, box, strict=True))
        selection = Selection.of(slices, array.shape)
        found = estimate_fetches(array, selection)
        seconds = estimate_seconds(url, found.requests, found.bytes_fetched)
        if found.chunks and has_codecs:
            decoded = estimate_read(array, selection).decoded
            seconds += decoded / min(count_cores(), found.chunks) / DECODED_PER_SECOND
        totals += (found.chunks, found.requests, found.bytes_fetched, seconds)
    touched, requests, nbytes, seconds = (totals / len(places)).tolist()
    return PatternCost(
        variable=form.path,
        pattern=pattern,
        box=box,
        grid=grid.name,
        chunks=grid.chunks,
        touched=touched,
        requests=requests,
        bytes_fetched=nbytes,
        bytes_wanted=math.prod(box) * itemsize,
        seconds=seconds,
        cost=None if price is None else nbytes / 1e9 * price,
    )
