"""Parsing and checking of batch requests: the jobs of `/reduce` and `/read`, and the request of
`/scan`.

A job has an expression, and what to do with it. An array that it names instead, by URL and variable or as a
table of its chunks, is the simplest expression.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.active.message_decoder import MAX_ITEMS
from insitu.active.wire import declared_elements, excerpt, selection_from_wire, values_from_wire
from insitu.active.wire_array import array_from_wire
from insitu.active.wire_expression import expression_from_wire
from insitu.codecs.registry import OUTSIDE_VALUES, is_own
from insitu.errors import CodecError
from insitu.expressions.node_table import ArrayNode, NodeTable
from insitu.model import Selection, VirtualArray
from insitu.reducing.expression_values import ExpressionValues
from insitu.reducing.fold_portions import Folding, PlainFolding
from insitu.reducing.grouped_statistics import GroupedFolding, Groups
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reductions import ReductionRules
from insitu.reducing.sketches import check_edges
from insitu.reducing.statistics import STATISTICS
from insitu.reducing.weighted_statistics import WeightedFolding, Weights
from insitu.server.error_responses import RequestError
from insitu.server.request_body import decode_body

__all__ = [
    "ArrayRequest",
    "BatchJob",
    "BatchRequest",
    "parse_batch",
    "parse_scan_request",
]

MAX_JOBS = 10_000
MAX_NAME_CHARS = 16 << 10
"""Longest URL or name of a variable: scans are cached by them."""
MAX_GROUPS = 1 << 24
CLIENT_OPTIONS = ("anon", "endpoint_url", "region")
"""Storage options that a client may send; secrets belong into the Authorization header."""
JOB_FIELDS = {
    *("url", "variable", "decode", "array", "selection", "axes", "dim", "methods", "skipna", "ddof"),
    *("min_count", "q", "edges", "keepdims", "weights", "groups", "answer", "expression"),
}
ARRAY_FIELDS = ("url", "variable", "decode", "array", "selection")
"""Entries that name an array, or a part of one."""


@dataclass(frozen=True, slots=True)
class ArrayRequest:
    """One array, and what is selected of it."""

    url: str | None
    variable: str | None
    decode: bool
    table: Any
    """The array in wire format, if the request lists its chunks."""
    selection: Any

    def array(self) -> VirtualArray:
        """Return the array of a request that lists its chunks."""
        array = array_from_wire(self.table)
        for tile in array.tiles:
            for encoding in tile.encodings:
                for codec in encoding.codecs:
                    if not is_own(codec.name) and codec.name not in OUTSIDE_VALUES:
                        raise CodecError(f"this server does not decode the codec {codec.name!r}", codec=codec.name)
        return array

    def resolve_selection(self, array: VirtualArray) -> Selection:
        """Return the selection, for the shape of the array."""
        return selection_from_wire(self.selection, array.shape)


@dataclass(frozen=True, slots=True)
class BatchJob:
    """An expression, and what to compute from it."""

    expression: NodeTable
    """Its arrays are `ArrayRequest`s."""
    selection: Any
    """What is selected of the expression."""
    methods: tuple[str, ...]
    axes: tuple[int, ...] | None
    dim: tuple[str, ...] | None
    """Dimensions by name, instead of axes."""
    rules: ReductionRules
    keepdims: bool
    weights: Weights | None
    groups: Groups | None
    partial: bool
    """Whether to return partials, which the client merges with others; else values."""

    @property
    def arrays(self) -> tuple[ArrayRequest, ...]:
        """The arrays that it names."""
        return self.expression.arrays

    def folding(self, values: ExpressionValues) -> Folding:
        """Return the reduction of some values; an error if it cannot be done in portions."""
        query = ReductionQuery(self.methods, self.axes, ..., self.rules, self.keepdims)
        if self.weights is not None:
            return WeightedFolding(values, query, self.weights)
        if self.groups is not None:
            return GroupedFolding(values, query, self.groups)
        if whole := [method for method in self.methods if not STATISTICS.can_stream(method, values.dtype)]:
            raise RequestError(f"answer: partial is not possible with {' and '.join(whole)} of {values.dtype} values")
        return PlainFolding(values, query)


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """The content of one request."""

    jobs: tuple[BatchJob, ...]
    options: dict[str, Any] = field(default_factory=dict)
    cache: bool = True
    """Whether decoded chunks may be stored in the cache and taken from it."""
    declared: int = 0
    """How many numbers its tables and selections have once they are expanded."""


def parse_batch(body: bytes, content_type: str, *, reducing: bool, most: int = MAX_ITEMS) -> BatchRequest:
    """Return the batch in the body of a request.

    Parameters
    ----------
    body, content_type
        CBOR, or JSON if the content type says so.
    reducing
        Whether every job needs methods.
    most
        How many items the body may have.
    """
    data = decode_body(body, content_type, most)
    if not isinstance(data, dict):
        raise RequestError("the request must be a map with the entry jobs")
    jobs, options = data.get("jobs"), data.get("options") or {}
    if set(data) - {"jobs", "options", "cache"} or not isinstance(jobs, list) or not isinstance(options, dict):
        raise RequestError(
            "the request must be a map of jobs (a list) and, optionally, options (a map) and cache (true or false)"
        )
    if not 1 <= len(jobs) <= MAX_JOBS:
        raise RequestError(f"the request must have 1 to {MAX_JOBS} jobs, not {len(jobs)}")
    cache = True if data.get("cache") is None else _parse_flag(data, "cache")
    return BatchRequest(
        tuple(_parse_job(job, reducing) for job in jobs), _parse_options(options), cache, declared_elements(jobs)
    )


def parse_scan_request(body: bytes, content_type: str) -> tuple[str, str | None, dict[str, Any]]:
    """Return URL, group and storage options of a request for metadata."""
    data = decode_body(body, content_type)
    if not isinstance(data, dict) or set(data) - {"url", "group", "options"} or not isinstance(data.get("url"), str):
        raise RequestError("the request must be a map of url and, optionally, group and options")
    group, options = data.get("group"), data.get("options") or {}
    if not isinstance(group, (str, type(None))) or not isinstance(options, dict):
        raise RequestError("group must be a string, and options a map")
    if len(data["url"]) > MAX_NAME_CHARS or len(group or "") > MAX_NAME_CHARS:
        raise RequestError(f"url and group must not be longer than {MAX_NAME_CHARS} characters")
    return data["url"], group, _parse_options(options)


def _parse_options(options: dict[Any, Any]) -> dict[str, Any]:
    for name, value in options.items():
        if (
            name not in CLIENT_OPTIONS
            or not isinstance(value, (str, bool, type(None)))
            or len(str(value)) > MAX_NAME_CHARS
        ):
            raise RequestError(
                f"options must be {', '.join(CLIENT_OPTIONS)}, each a short string or a flag; got {excerpt(name)}"
            )
    return dict(options)


def _parse_job(data: Any, reducing: bool) -> BatchJob:
    if not isinstance(data, dict) or set(data) - JOB_FIELDS:
        unknown = sorted(map(excerpt, set(data) - JOB_FIELDS)) if isinstance(data, dict) else []
        raise RequestError(
            f"a job must be a map of {', '.join(sorted(JOB_FIELDS))}{'; unknown: ' + unknown[0] if unknown else ''}"
        )
    expression = _parse_expression(data)
    weights, groups = _parse_weights(data.get("weights")), _parse_groups(data.get("groups"))
    if weights is not None and groups is not None:
        raise RequestError("weights and groups cannot be combined in one job")
    methods = _parse_methods(data.get("methods"), weights is not None) if reducing else ()
    for statistic in (STATISTICS[method] for method in methods):
        if statistic.required is not None and data.get(statistic.required) is None:
            raise RequestError(f"{statistic.name} needs {statistic.required}")
        if groups is not None and not statistic.groups:
            raise RequestError(f"{statistic.name} cannot be combined with groups")
    answer = data.get("answer", "values")
    if answer not in ("values", "partial"):
        raise RequestError("answer must be values or partial")
    partial = answer == "partial"
    if partial and (whole := [method for method in methods if STATISTICS[method].needs_all_values]):
        raise RequestError(f"answer: partial is not possible with {' and '.join(whole)}")
    return BatchJob(
        expression=expression,
        selection=None if data.get("expression") is None else data.get("selection"),
        methods=methods,
        axes=_parse_axes(data.get("axes")),
        dim=_parse_dim(data),
        rules=_parse_rules(data),
        keepdims=_parse_flag(data, "keepdims"),
        weights=weights,
        groups=groups,
        partial=partial,
    )


def _parse_array(data: Mapping[str, Any], what: str = "a job") -> ArrayRequest:
    """Return the array that a job, or an entry of an expression, names."""
    url, variable, table = data.get("url"), data.get("variable"), data.get("array")
    if table is None and not (isinstance(url, str) and isinstance(variable, str)):
        raise RequestError(f"{what} needs url and variable, or array")
    if any(isinstance(text, str) and len(text) > MAX_NAME_CHARS for text in (url, variable)):
        raise RequestError(f"url and variable must not be longer than {MAX_NAME_CHARS} characters")
    if table is not None and (url is not None or variable is not None):
        raise RequestError(f"{what} has either url and variable, or array, not both")
    return ArrayRequest(url, variable, _parse_flag(data, "decode", default=True), table, data.get("selection"))


def _parse_expression(data: Mapping[str, Any]) -> NodeTable:
    """Return the expression of a job, with its arrays parsed; an array, with its selection, is one of a single row."""
    if data.get("expression") is None:
        return NodeTable((_parse_array(data),), (), (ArrayNode(0),))
    if any(data.get(name) is not None for name in ("url", "variable", "array", "decode")):
        raise RequestError("a job has either an expression, or url and variable, or array")
    expression = expression_from_wire(data["expression"])
    for entry in expression.arrays:
        if not isinstance(entry, dict) or set(entry) - set(ARRAY_FIELDS):
            raise RequestError(f"an array of an expression must be a map of {', '.join(ARRAY_FIELDS)}")
    arrays = tuple(_parse_array(entry, "an array of an expression") for entry in expression.arrays)
    return replace(expression, arrays=arrays)


def _parse_methods(data: Any, weighted: bool) -> tuple[str, ...]:
    known = STATISTICS.names(lambda statistic: statistic.weighted if weighted else statistic.is_plain)
    names = [name for name in data if isinstance(name, str)] if isinstance(data, list) else []
    if not names or len(set(names)) != len(data) or any(name not in known for name in names):
        raise RequestError(f"methods must be a list, without repetition, out of {', '.join(sorted(known))}")
    return tuple(names)


def _parse_axes(data: Any) -> tuple[int, ...] | None:
    if data is None:
        return None
    axes = data if isinstance(data, list) else [data]
    if any(not isinstance(axis, int) or isinstance(axis, bool) for axis in axes):
        raise RequestError("axes must be integers")
    return tuple(axes)


def _parse_dim(data: Mapping[str, Any]) -> tuple[str, ...] | None:
    dim = data.get("dim")
    if dim is None:
        return None
    names = [dim] if isinstance(dim, str) else dim
    if not isinstance(names, list) or any(not isinstance(name, str) for name in names):
        raise RequestError("dim must be a name or a list of names")
    if data.get("axes") is not None:
        raise RequestError("give either dim or axes")
    if data.get("array") is not None:
        raise RequestError("dim needs url and variable: an array in wire format has no names of dimensions. Give axes")
    return tuple(names)


def _parse_flag(data: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    value = data.get(name)
    if value is not None and not isinstance(value, bool):
        raise RequestError(f"{name} must be true or false")
    return default if value is None else value


def _parse_rules(data: Mapping[str, Any]) -> ReductionRules:
    skipna, ddof, min_count = data.get("skipna"), data.get("ddof"), data.get("min_count")
    if skipna is not None and not isinstance(skipna, bool):
        raise RequestError("skipna must be true, false or null")
    for name, value in (("ddof", ddof), ("min_count", min_count)):
        if value is not None and not _is_number(value):
            raise RequestError(f"{name} must be a number")
    q = data.get("q")
    if q is not None:
        numbers = _parse_numbers(q, "q")
        if not ((numbers >= 0) & (numbers <= 1)).all():
            raise RequestError("q must lie between 0 and 1")
        q = numbers if isinstance(q, (list, dict)) else float(numbers[()])
    edges = data.get("edges")
    known = None if edges is None else check_edges(_parse_numbers(edges, "edges"))
    return ReductionRules(skipna, ddof or 0, None if min_count is None else int(min_count), q, known)


def _is_number(value: Any) -> bool:
    """Return whether a value is a number that fits 64 bits."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63


def _parse_numbers(data: Any, name: str) -> npt.NDArray[np.float64]:
    """Return numbers that were sent as a list or as an array in wire format."""
    if isinstance(data, dict):
        values = values_from_wire(data)
    else:
        try:
            values = np.asarray(data)
        except (ValueError, OverflowError) as problem:  # lists of different lengths; integers beyond float64
            raise RequestError(f"{name} must be numbers: {str(problem)[:100]}") from None
    if values.dtype.kind not in "biuf":
        raise RequestError(f"{name} must be numbers")
    return values.astype(np.float64)


def _parse_weights(data: Any) -> dict[int | tuple[int, ...], npt.NDArray[np.float64]] | None:
    if data is None:
        return None
    if not isinstance(data, dict) or not data:
        raise RequestError("weights must be a map of axis to numbers")
    found: dict[int | tuple[int, ...], npt.NDArray[np.float64]] = {}
    for axis, numbers in data.items():
        axes = [part.strip() for part in str(axis)[:200].split(",")]  # "0", or "0,1" for both together
        if not all(re.fullmatch(r"-?[0-9]{1,3}", part) for part in axes):
            raise RequestError("weights must be a map of axis to numbers")
        key = tuple(int(part) for part in axes)
        found[key if len(key) > 1 else key[0]] = _parse_numbers(numbers, "weights")
    return found


def _parse_groups(data: Any) -> Groups | None:
    if data is None:
        return None
    if not isinstance(data, dict) or set(data) != {"axis", "codes", "count"}:
        raise RequestError("groups must be a map of axis, codes and count")
    axis, count = data["axis"], data["count"]
    whole = all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= MAX_GROUPS for n in (axis, count))
    if not whole:
        raise RequestError(f"axis and count of groups must be integers from 0 to {MAX_GROUPS}")
    codes = _parse_numbers(data["codes"], "codes")
    if codes.ndim != 1 or not ((codes == np.floor(codes)) & (np.abs(codes) <= MAX_GROUPS)).all():
        raise RequestError("codes of groups must be integers, one for each element along the axis")
    return Groups(axis, codes.astype(np.int64), count)
