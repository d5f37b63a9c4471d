"""Client of a server next to the data: statistics and reads that are computed there.

A reduction is split here into a few requests, runs on the server, and its partial results are
merged here. The server gets the location of every chunk, so it needs no metadata of its own, and
any selection, join or mosaic works. It returns the same partial results as the threads of this
machine, so the result is the same, too. If the server cannot do it, the values are reduced here,
with a warning that says why and how many bytes that moves (see `fallback`); or an error is raised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.active.fallback import ActiveWarning, bytes_to_move, warn_of_fallback
from insitu.active.request_pieces import cut_axis, merge_pieces, split_for_requests
from insitu.active.transport import ServerError, client_for
from insitu.active.wire import dtype_from_wire, get_field, selection_keys_to_wire, values_from_wire, values_to_wire
from insitu.active.wire_array import array_to_wire
from insitu.active.wire_group import group_from_wire
from insitu.errors import InsituError, SourceError, UnsupportedError
from insitu.model import Selection, VirtualArray, VirtualGroup
from insitu.reading import ReadContext, read_array
from insitu.reducing.partial_fields import Partial
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reduce import UNCHANGED_WITHOUT_AXES, compute_statistics, normalise_axes, squeeze_axes
from insitu.reducing.reductions import STREAMED, Reduction, ReductionRules
from insitu.sources.redaction import redact_url
from insitu.sources.storage_options import options_for

__all__ = [
    "Active",
    "ActiveWarning",
    "Credentials",
    "arrays_from_wire",
    "credentials_for",
    "rules_to_wire",
]

Credentials = tuple[dict[str, Any], tuple[str, str] | None]
"""Storage options for a server, and the secrets for a header."""

CONCURRENT_REQUESTS = 4
"""Requests that are sent at once: a server has several workers."""
REMOTE_METHODS = (*STREAMED, "median", "quantile")
FORWARDED_OPTIONS = ("anon", "endpoint_url", "region")


@dataclass(frozen=True, slots=True, repr=False)
class Active:
    """A server next to the data, and what to do if it cannot compute something."""

    url: str
    """Its URL, e.g. `http://host:8080`."""
    required: bool = False
    """Whether to raise an error if the server cannot;
    else the values are read here, with a warning.
    """
    token: str | None = None

    def __repr__(self) -> str:
        # The token may be part of the URL, too.
        return f"Active({redact_url(self.url)!r}, required={self.required})"

    def compute_statistics(
        self, array: VirtualArray, query: ReductionQuery, context: ReadContext | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """Return statistics that are computed next to the data, as
        `insitu.reducing.compute_statistics` does here.
        """
        context = context or ReadContext()
        query = replace(query, selection=Selection.of(query.selection, array.shape))
        try:
            return self._statistics(array, query, context)
        except (ServerError, SourceError, UnsupportedError) as problem:
            self.fall_back(problem, context.name, array[query.selection])
            return compute_statistics(array, query, context)

    def reduce_url(
        self,
        url: str,
        variable: str,
        query: ReductionQuery,
        *,
        dim: Sequence[str] | None = None,
        decode: bool = True,
        storage_options: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Return statistics of a variable that the server opens itself, and what it read for them.

        Parameters
        ----------
        url, variable
            URL of the archive, as the server sees it, and the variable.
        query
            What to compute; its selection consists of integers, slices, index arrays, an Ellipsis.
        dim
            Dimensions by name, instead of axes.
        decode
            Whether the CF conventions are applied.
        storage_options
            Credentials and endpoints.
        """
        job = {
            "url": url,
            "variable": variable,
            "methods": list(query.methods),
            "selection": selection_keys_to_wire(query.selection),
            "axes": None if query.axes is None else np.atleast_1d(query.axes).tolist(),
            "decode": decode,
            **({"dim": list(dim)} if dim else {}),
            **rules_to_wire(query.rules),
        }
        options, basic = _credentials(url, storage_options)
        items = client_for(self.url, self.token).ask("reduce", {"jobs": [job], "options": options}, basic)
        return arrays_from_wire(items[0], "values"), items[-1]

    def scan(
        self, url: str, *, group: str | None = None, storage_options: Mapping[str, Any] | None = None
    ) -> VirtualGroup | None:
        """Return the metadata of an archive, scanned by the server;
        None if the server cannot scan it.
        """
        options, basic = _credentials(url, storage_options)
        try:
            items = client_for(self.url, self.token).ask(
                "scan", {"url": url, "group": group, "options": options}, basic
            )
            return group_from_wire(get_field(items[0], "group"))
        except InsituError:
            return None

    def read(self, array: VirtualArray, selection: Any = ..., context: ReadContext | None = None) -> npt.NDArray[Any]:
        """Return the values of a selection, decoded next to the data."""
        context = context or ReadContext()
        chosen = Selection.of(selection, array.shape)
        try:
            job = {"array": array_to_wire(array[chosen]), "selection": None}
            items = self._ask("read", [job], array, context.storage_options)
            return _join_blocks(items)
        except (ServerError, SourceError, UnsupportedError) as problem:
            self.fall_back(problem, context.name, array[chosen])
            return read_array(array, chosen, context)

    def run_job(
        self,
        job: Callable[[], dict[str, Any]],
        here: Callable[[], dict[str, npt.NDArray[Any]]],
        array: VirtualArray,
        context: ReadContext,
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the result of a job; compute it here if the server cannot.

        Parameters
        ----------
        job
            Makes the job; it may raise `UnsupportedError`.
        here
            Computes the same on this machine.
        array, context
            The selected array and how it is read, for credentials and messages.
        """
        try:
            return arrays_from_wire(self._ask("reduce", [job()], array, context.storage_options)[0], "values")
        except (ServerError, SourceError, UnsupportedError) as problem:
            self.fall_back(problem, context.name, array)
            return here()

    def _statistics(
        self, array: VirtualArray, query: ReductionQuery, context: ReadContext
    ) -> dict[str, npt.NDArray[Any]]:
        methods, axes = query.methods, query.axes
        shape = query.selection.result_shape
        along = normalise_axes(axes, len(shape))
        if axes is not None and not along and any(method in UNCHANGED_WITHOUT_AXES for method in methods):
            raise UnsupportedError("a reduction along no axis is not sent to a server: the values are read")
        unknown = [method for method in methods if method not in REMOTE_METHODS]
        if unknown or array.dtype.kind not in "biufcmM":
            raise UnsupportedError(
                f"servers do not compute {', '.join(unknown) or 'statistics'} of {array.dtype} values"
            )
        selected = array[query.selection]
        # Partials are larger than final values: they are sent only if several must be merged.
        known: Mapping[str, Any] = STREAMED if len(split_for_requests(selected)) > 1 else {}
        streamed = [m for m in methods if m in known and array.dtype.kind in known[m].kinds]
        found: dict[str, npt.NDArray[Any]] = {}
        if streamed:
            reduction = Reduction(tuple(streamed), array.dtype, query.rules)
            partial = self._partial(selected, along, reduction, context.storage_options)
            found = reduction.finalise(partial, math.prod(shape[axis] for axis in along))
            if not query.keepdims:
                found = {method: squeeze_axes(values, along, len(shape)) for method, values in found.items()}
        whole = [method for method in methods if method not in found]
        if whole:
            job = {
                "array": array_to_wire(selected),
                "methods": whole,
                # Reducing all axes and none give the same value of a scalar, but of another type.
                "axes": None if axes is None else list(along),
                "keepdims": query.keepdims,
                **rules_to_wire(query.rules),
            }
            found |= arrays_from_wire(self._ask("reduce", [job], array, context.storage_options)[0], "values")
        return {method: found[method] for method in methods}

    def _partial(
        self,
        array: VirtualArray,
        along: tuple[int, ...],
        reduction: Reduction,
        storage_options: Mapping[str, Any] | None,
    ) -> Partial:
        """Return the partial of an array, from as many requests as its table and its size need."""
        pieces = split_for_requests(array)

        def ask(piece: tuple[int, VirtualArray]) -> Partial:
            job = {
                "array": array_to_wire(piece[1]),
                "methods": list(reduction.methods),
                "axes": list(along),
                "answer": "partial",
                **rules_to_wire(reduction.rules),
            }
            found = arrays_from_wire(self._ask("reduce", [job], array, storage_options)[0], "partial")
            if set(found) != set(reduction.fields):
                raise ServerError(
                    "the server has another version of insitu: its partial results have other fields", url=self.url
                )
            return found

        if len(pieces) == 1:
            return ask(pieces[0])
        with ThreadPoolExecutor(CONCURRENT_REQUESTS) as pool:
            found = list(pool.map(ask, pieces))
        begins, shapes = [begin for begin, _ in pieces], [piece.shape for _, piece in pieces]
        return merge_pieces(found, begins, shapes, array.shape, along, cut_axis(array), reduction)

    def _ask(
        self, route: str, jobs: list[dict[str, Any]], array: VirtualArray, storage_options: Mapping[str, Any] | None
    ) -> list[Any]:
        return self.ask(route, jobs, credentials_for(array, storage_options))

    def ask(self, route: str, jobs: list[dict[str, Any]], credentials: Credentials) -> list[Any]:
        """Return the items of the response to some jobs."""
        options, basic = credentials
        return client_for(self.url, self.token).ask(route, {"jobs": jobs, "options": options}, basic)

    def fall_back(self, problem: InsituError, name: str | None, *arrays: VirtualArray) -> None:
        """Warn that values are read here, and why; raise the error if `required` is set.

        Parameters
        ----------
        problem
            Why the server cannot.
        name
            The variable.
        arrays
            What has to be read.
        """
        if self.required:
            raise problem
        warn_of_fallback(self.url, problem, name, sum(map(bytes_to_move, arrays)), stacklevel=4)


def rules_to_wire(rules: ReductionRules) -> dict[str, Any]:
    """Return rules as entries of a job."""
    entries: dict[str, Any] = {"skipna": rules.skipna, "ddof": rules.ddof, "min_count": rules.min_count}
    if rules.q is not None:
        entries["q"] = values_to_wire(np.asarray(rules.q, np.float64)) if np.ndim(rules.q) else float(rules.q)
    if rules.edges is not None:
        entries["edges"] = values_to_wire(np.array(rules.edges))
    return entries


def arrays_from_wire(item: Any, name: str) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays in an item of a response, writeable."""
    # Copied: arrays over the response are read-only, and merging writes to them.
    return {str(key): _to_native(values_from_wire(values)) for key, values in get_field(item, name, dict).items()}


def _to_native(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values.astype(values.dtype.newbyteorder("="))


def _join_blocks(items: list[Any]) -> npt.NDArray[Any]:
    """Return the array in a response to `read`."""
    head, blocks = items[0], [item for item in items[1:] if not isinstance(item, dict)]
    dtype, shape = get_field(head, "dtype"), get_field(head, "shape")
    has_objects = dtype_from_wire(dtype).hasobject
    if not all(isinstance(block, list if has_objects else bytes) for block in blocks):
        raise ServerError("the response of the server has blocks of the wrong type")
    if has_objects:
        return values_from_wire({"shape": shape, "items": [item for block in blocks for item in block]})
    return _to_native(values_from_wire({"shape": shape, "dtype": dtype, "data": b"".join(blocks)}))


def credentials_for(array: VirtualArray, storage_options: Mapping[str, Any] | None) -> Credentials:
    """Return what a server gets to read an array: the options and secrets of its first source."""
    first = next((s for tile in array.tiles for s in tile.chunks.sources[:1]), None)
    return _credentials(first.url if first is not None else None, storage_options)


def _credentials(url: str | None, storage_options: Mapping[str, Any] | None) -> Credentials:
    """Return the storage options that a server gets, and the secrets for a header:
    those of the first source.
    """
    options = options_for(url, storage_options) if url is not None else {}
    nested = dict(options.get("client_kwargs") or {})
    merged = {**nested, **options}
    forwarded = {name: merged[name] for name in FORWARDED_OPTIONS if merged.get(name) is not None}
    if merged.get("region_name"):
        forwarded.setdefault("region", merged["region_name"])
    key, secret = merged.get("key"), merged.get("secret")
    return forwarded, (str(key), str(secret)) if key and secret else None
