"""Distribution of one reduction over the servers next to its data.

The portions are those of a reduction on this machine, and are merged in the same order, so that the results have the
same bits. Each portion is reduced by a server that has its bytes; servers with the same data share them. Of a portion
whose bytes lie at several servers, each sends the values that it has, and they are reduced here. The portions of a
server that fails go to another one with the same data; if there is none, they are read here, after a warning that
names the bytes.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from insitu.active.fallback import bytes_to_move, warn_of_fallback, warn_of_takeover
from insitu.active.placement import servers_of
from insitu.active.remote_expression import Leaf, expression_entry, leaves_of, name_of
from insitu.active.share_work import SharedWork, Worker, WorkerLostError
from insitu.active.transport import ServerError, client_for
from insitu.active.wire import dtype_from_wire, get_field, values_from_wire
from insitu.active.wire_folding import folding_to_wire
from insitu.engines.engine_protocol import MergeTree
from insitu.errors import InsituError, SourceError, UnsupportedError
from insitu.expressions.nodes import Expression
from insitu.model import Selection, Source
from insitu.model.selection import Stride
from insitu.reducing import portions
from insitu.reducing.expression_values import ExpressionValues
from insitu.reducing.fold_portions import Folding, Portion, PortionFolds, Results, fold_in_portions
from insitu.reducing.partial_fields import Partial
from insitu.reducing.portions import is_one_portion
from insitu.reducing.split_by_owner import MAX_OWNERS, OwnedArray, most_bytes, split_by_owner
from insitu.sources.storage_options import options_for

__all__ = ["Distribution", "StorageAccess", "arrays_from_wire", "ask_in_turn", "join_blocks", "storage_access"]

StorageAccess = tuple[dict[str, Any], tuple[str, str] | None]
"""Storage options for a server, and the secrets for a header."""
Answer = tuple[Partial, list[Any]]
"""The partial of a portion, and NumPy's warnings while it was computed."""

REFUSALS = (ServerError, SourceError, UnsupportedError)
"""Errors of a server, or on the way to it, after which another one is asked, or values are read here."""
FORWARDED_OPTIONS = ("anon", "endpoint_url", "region")
CONCURRENT_REQUESTS = 4
"""Requests that are sent to a server at once."""
REQUEST_BYTES = 16 << 30
"""Decoded bytes of a request: some ten seconds of a server's time."""
_turn = itertools.count()
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Owner:
    """Servers with the same data, and what they need to read it."""

    servers: tuple[str, ...]
    """None of them: no server has the data."""
    token: str | None = field(default=None, repr=False)
    options: tuple[tuple[str, Any], ...] = ()
    basic: tuple[str, str] | None = field(default=None, repr=False)

    @property
    def access(self) -> StorageAccess:
        """Storage options, and the secrets for a header."""
        return dict(self.options), self.basic


@dataclass(frozen=True, slots=True)
class Distribution:
    """The servers of an expression."""

    expression: Expression
    required: bool = False
    """Whether it is an error if the servers cannot do everything."""

    @property
    def name(self) -> str:
        """What the expression is called in messages."""
        return name_of(self.expression) or "an array"

    def reduce(self, whole: Folding) -> Results:
        """Return the results of a reduction of the expression that can be done in portions."""
        owners = {owner for _, owner in self.parts()}
        only = next(iter(owners)) if len(owners) == 1 else None
        if only is not None and only.servers and self._is_one_request(only):
            # Partials are larger than final values: they are sent only if several must be merged.
            return self.ask_any(only, {**expression_entry(self.expression), **folding_to_wire(whole)})
        return whole.finalise(fold_in_portions(whole, self._run))

    def _is_one_request(self, owner: Owner) -> bool:
        """Return whether one server gets everything at once: not if others could help it."""
        values = ExpressionValues(self.expression)
        if values.count_chunks() > portions.PORTION_CHUNKS or math.prod(values.shape) * values.itemsize > REQUEST_BYTES:
            return False
        return len(owner.servers) == 1 or is_one_portion(values)

    def reduce_at_once(self, entries: Mapping[str, Any]) -> Results:
        """Return the results of a reduction that needs all values at one place, by the server that has
        most of them.
        """
        found = self.parts()
        owners = {owner for _, owner in found}
        owner = found[0][1] if len(owners) == 1 else self._best(owners, Selection.of(..., self.expression.shape))
        if not owner.servers:
            raise self._nowhere()
        return self.ask_any(owner, {**expression_entry(self.expression), **entries})

    def ask_any(self, owner: Owner, job: Mapping[str, Any]) -> Results:
        """Return the results of a job from one of several servers with the same data."""
        first = next(_turn) % len(owner.servers)
        servers = owner.servers[first:] + owner.servers[:first]

        def report(server: str, problem: InsituError) -> None:
            warn_of_takeover(server, problem, self.name)

        return ask_in_turn(servers, lambda server: _values(server, owner, job), report)

    def parts(self) -> list[tuple[Selection, Owner]]:
        """Return the parts of the values, with the servers that have each of them."""
        leaves, shape = leaves_of(self.expression), self.expression.shape
        owners = _Owners(leaves)
        if owners.is_one:
            return [(Selection.of(..., shape), owners.first)]
        found = []
        for part, mask in split_by_owner(shape, owners.arrays(leaves)):
            several = [owners.found[bit] for bit in range(MAX_OWNERS) if mask >> bit & 1]
            if not several:  # nothing is stored: anybody can do that
                several = [owners.anybody(leaves)]
            found.append((part, several[0] if len(several) == 1 else self._best(set(several), part)))
        return found

    def _best(self, several: set[Owner], part: Selection) -> Owner:
        """Return which of several owners of a part reduces it: the one with most of the bytes."""
        if not all(owner.servers for owner in several):
            raise self._nowhere()
        if len({(owner.options, owner.basic) for owner in several}) > 1:
            raise UnsupportedError(
                f"the arrays of {self.name} need different storage options, and a request to a server has one",
                hint="load() one of them first",
            )
        leaves = leaves_of(ExpressionValues(self.expression).select(part).expression)
        owners = _Owners(leaves)
        return owners.found[most_bytes(owners.arrays(leaves))]

    def _nowhere(self) -> UnsupportedError:
        lost = next(
            (
                leaf
                for leaf in leaves_of(self.expression)
                if not all(servers_of(leaf.placements, s.url) for s in leaf.array.sources)
            ),
            None,
        )
        return UnsupportedError(
            f"{lost.name if lost else 'an array'} is not read by a server",
            hint="Open all arrays of an expression with active=, name a server for each prefix of their URLs, or "
            "load() the small ones",
        )

    def _run(self, job: PortionFolds, groups: Sequence[Sequence[Portion]]) -> Iterator[Any]:
        """Yield the merged states of groups of portions, in order: they are reduced by servers."""
        wanted = [portion for group in groups for portion in group]
        owners = self._find_owners(job, wanted)
        numbers_of: dict[Owner | None, list[int]] = {}
        for number, owner in enumerate(owners):
            numbers_of.setdefault(owner, []).append(number)
        order = interleave(list(numbers_of.values()))
        group_of = [number for number, group in enumerate(groups) for _ in group]
        begins = [0, *itertools.accumulate(map(len, groups))]
        # Merged in the order of the portions, as here, though they are answered server by server: the bits must not
        # depend on who is faster. The portions of each server are spread evenly, so that few states wait.
        trees, following, states = [MergeTree(job) for _ in groups], begins[:-1], {}
        done = 0
        for number, (found, messages) in zip(order, self._ask_all(job, wanted, owners, order), strict=True):
            issue_warnings(messages)
            states[number] = job.state(wanted[number], found)
            group = group_of[number]
            while following[group] < begins[group + 1] and following[group] in states:
                trees[group].add(states.pop(following[group]))
                following[group] += 1
            while done < len(groups) and following[done] == begins[done + 1]:
                yield trees[done].result()
                trees[done] = MergeTree(job)
                done += 1

    def _find_owners(self, job: PortionFolds, wanted: Sequence[Portion]) -> list[Owner | None]:
        """Return who reduces each portion; None if its bytes lie at several servers. Portions are cut out only of parts
        that lie at several: there may be thousands.
        """

        def find_owner(folding: Folding) -> Owner | None:
            owners = {owner for _, owner in Distribution(folding.values.expression).parts()}
            return next(iter(owners)) if len(owners) == 1 else None

        of_parts = [find_owner(part) for part in job.parts]
        return [of_parts[portion.part] or find_owner(job.of_portion(portion)) for portion in wanted]

    def _ask_all(
        self, job: PortionFolds, wanted: Sequence[Portion], owners: Sequence[Owner | None], order: Sequence[int]
    ) -> Iterator[Answer]:
        """Yield the answers for portions, in an order."""
        many = Counter(owner for owner in owners if owner is not None and owner.servers)
        workers = [
            Worker(
                owner,
                self._asker(lambda position: job.of_portion(wanted[order[position]]), server, owner),
                name=server,
                threads=min(CONCURRENT_REQUESTS, -(-many[owner] // len(owner.servers))),
            )
            for owner in many
            for server in owner.servers
        ]

        def reduce_here(position: int) -> Answer:
            folding = job.of_portion(wanted[order[position]])
            if owners[order[position]] is None:
                folding = folding.with_values(replace(folding.values, known=self._read(folding.values.expression)))
            return folding.fold_whole(), []

        def tell(owner: Any, positions: Sequence[int], reason: InsituError | None) -> None:
            if owner is not None:
                lost = [job.of_portion(wanted[order[position]]).values.expression for position in positions]
                self._fall_back(owner, lost, len(lost) == len(wanted), reason)

        work = SharedWork(
            [owners[number] for number in order],
            workers,
            reduce_here,
            window=2 * sum(worker.threads for worker in workers) + 1,
            on_unserved=tell,
        )
        with closing(work.run()) as answers:
            yield from answers
        for server, problem in work.lost.items():
            if any(server in owner.servers and set(owner.servers) - set(work.lost) for owner in many):
                warn_of_takeover(server, problem, self.name)

    def _asker(self, folding_of: Callable[[int], Folding], server: str, owner: Owner) -> Callable[[int], Answer]:
        def ask(position: int) -> Answer:
            folding = folding_of(position)
            entries = {**expression_entry(folding.values.expression), **folding_to_wire(folding)}
            try:
                item = _ask(server, owner, {**entries, "answer": "partial"})
                found = arrays_from_wire(item, "partial")
                if set(found) != set(folding.fields):
                    raise ServerError(
                        "the server has another version of insitu: its partial results have other fields", url=server
                    )
            except REFUSALS as problem:
                raise WorkerLostError(problem) from problem
            return found, item.get("warnings", [])

        return ask

    def _read(self, expression: Expression) -> npt.NDArray[Any]:
        """Return the values of an expression, each part read by a server that has it."""
        values = np.empty(expression.shape, expression.dtype)
        for part, owner in Distribution(expression).parts():
            piece = ExpressionValues(expression).select(part)
            where = np.ix_(*(key.positions if isinstance(key, Stride) else key for key in part.selectors))
            problem: InsituError | None = None
            try:
                if owner.servers:
                    values[where] = ask_in_turn(owner.servers, partial(_read, owner=owner, expression=piece.expression))
                    continue
            except REFUSALS as refusal:
                problem = refusal
            self._fall_back(owner, [piece.expression], False, problem)
            values[where] = piece.read()
        return values

    def _fall_back(self, owner: Owner, lost: Sequence[Expression], is_all: bool, reason: InsituError | None) -> None:
        """Warn that portions are read here, and why; raise the error if the servers are required."""
        problem = self._nowhere() if reason is None else reason
        if self.required:
            raise problem
        arrays = [leaf.array for expression in lost for leaf in leaves_of(expression)]
        named = ", ".join(owner.servers) or "a server"
        part = self.name if is_all else f"a part of {self.name}"
        warn_of_fallback(named, problem, part, sum(map(bytes_to_move, arrays)), stacklevel=8)


def interleave(lists: Sequence[Sequence[Item]]) -> list[Item]:
    """Return the items of lists in turn, so that each list is spread evenly: few portions are under way at a
    time, and all servers should have some of them.

    Examples
    --------
    >>> interleave([["a", "b", "c", "d"], ["x", "y"]])
    ['a', 'x', 'b', 'c', 'y', 'd']
    """
    placed = [
        ((2 * number + 1) / len(items), which, item)
        for which, items in enumerate(lists)
        for number, item in enumerate(items)
    ]
    return [item for _, _, item in sorted(placed, key=lambda entry: entry[:2])]


def ask_in_turn(
    servers: Sequence[str], ask: Callable[[str], Item], report: Callable[[str, InsituError], None] | None = None
) -> Item:
    """Return what the first of several servers with the same data answers; raise the refusal of the last.

    Parameters
    ----------
    servers
        Their URLs.
    ask
        Asks one of them.
    report
        Called with each that refuses, and why, if another one is asked then.
    """
    *others, last = servers
    for server in others:
        try:
            return ask(server)
        except REFUSALS as problem:
            if report is not None:
                report(server, problem)
    return ask(last)


class _Owners:
    """The owners of the sources of some arrays, numbered as they are found."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self.found: list[Owner] = []
        self._numbers: dict[Owner, int] = {}
        self._known: dict[tuple[int, str], int] = {}
        self.is_one = not leaves or (
            all(_is_everywhere(leaf) for leaf in leaves) and len({_owner(leaf) for leaf in leaves}) == 1
        )
        """Whether all sources have the same owner, which was found without looking at them."""
        if self.is_one:
            self.found = [_owner(leaf) for leaf in leaves[:1]] or [Owner(())]

    @property
    def first(self) -> Owner:
        """The owner that was found first."""
        return self.found[0]

    def arrays(self, leaves: Sequence[Leaf]) -> list[OwnedArray]:
        """Return arrays with the numbers of their owners."""
        return [OwnedArray(leaf.array, partial(self._number, leaf)) for leaf in leaves]

    def anybody(self, leaves: Sequence[Leaf]) -> Owner:
        """Return an owner that has servers, for what nobody stores."""
        known = next((owner for owner in self.found if owner.servers), None)
        return known or Owner(leaves[0].placements[0].servers, leaves[0].token)

    def _number(self, leaf: Leaf, source: Source) -> int:
        key = (id(leaf), source.url)
        if key not in self._known:
            owner = _owner(leaf, source.url)
            if owner not in self._numbers:
                if len(self.found) >= MAX_OWNERS:
                    raise UnsupportedError(
                        f"the data lies at more than {MAX_OWNERS} servers, or needs as many credentials"
                    )
                self._numbers[owner] = len(self.found)
                self.found.append(owner)
            self._known[key] = self._numbers[owner]
        return self._known[key]


def _is_everywhere(leaf: Leaf) -> bool:
    """Return whether all sources of an array have one owner, whatever their URLs are."""
    by_prefix = any(isinstance(value, Mapping) and "/" in name for name, value in (leaf.storage_options or {}).items())
    return len(leaf.placements) == 1 and not leaf.placements[0].prefix and not by_prefix


def _owner(leaf: Leaf, url: str | None = None) -> Owner:
    """Return the owner of a source of an array; None: of any."""
    servers = leaf.placements[0].servers if url is None else servers_of(leaf.placements, url)
    if not servers:
        return Owner(())
    if url is None:
        first = next((s for tile in leaf.array.tiles for s in tile.chunks.sources[:1]), None)
        url = None if first is None else first.url
    options, basic = storage_access(url, leaf.storage_options)
    return Owner(servers, leaf.token, tuple(sorted(options.items())), basic)


def storage_access(url: str | None, storage_options: Mapping[str, Any] | None) -> StorageAccess:
    """Return the storage options that a server gets to read a URL, and the secrets for a header."""
    options = options_for(url, storage_options) if url is not None else {}
    nested = dict(options.get("client_kwargs") or {})
    merged = {**nested, **options}
    forwarded = {name: merged[name] for name in FORWARDED_OPTIONS if merged.get(name) is not None}
    if merged.get("region_name"):
        forwarded.setdefault("region", merged["region_name"])
    key, secret = merged.get("key"), merged.get("secret")
    return forwarded, (str(key), str(secret)) if key and secret else None


def _ask(server: str, owner: Owner, job: Mapping[str, Any]) -> Any:
    """Return the first item of the response of a server to one job."""
    options, basic = owner.access
    return client_for(server, owner.token).ask("reduce", {"jobs": [dict(job)], "options": options}, basic)[0]


def _read(server: str, owner: Owner, expression: Expression) -> npt.NDArray[Any]:
    """Return the values of an expression, computed by a server."""
    options, basic = owner.access
    jobs = {"jobs": [expression_entry(expression)], "options": options}
    return join_blocks(client_for(server, owner.token).ask("read", jobs, basic))


def _values(server: str, owner: Owner, job: Mapping[str, Any]) -> Results:
    """Return the results of one job, after NumPy's warnings about it."""
    item = _ask(server, owner, job)
    issue_warnings(item.get("warnings", []) if isinstance(item, dict) else [])
    return arrays_from_wire(item, "values")


def arrays_from_wire(item: Any, name: str) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays in an item of a response, writeable."""
    # Copied: arrays over the response are read-only, and merging writes to them.
    return {str(key): _to_native(values_from_wire(values)) for key, values in get_field(item, name, dict).items()}


def join_blocks(items: Sequence[Any]) -> npt.NDArray[Any]:
    """Return the array in a response to `read`."""
    head, blocks = items[0], [item for item in items[1:] if not isinstance(item, dict)]
    dtype, shape = get_field(head, "dtype"), get_field(head, "shape")
    has_objects = dtype_from_wire(dtype).hasobject
    if not all(isinstance(block, list if has_objects else bytes) for block in blocks):
        raise ServerError("the response of the server has blocks of the wrong type")
    if has_objects:
        return values_from_wire({"shape": shape, "items": [item for block in blocks for item in block]})
    return _to_native(values_from_wire({"shape": shape, "dtype": dtype, "data": b"".join(blocks)}))


def _to_native(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy of values in the byte order of this machine."""
    return values.astype(values.dtype.newbyteorder("="))


def issue_warnings(messages: Any) -> None:
    """Issue the warnings of NumPy that the evaluation on the server would have issued here."""
    for message in messages if isinstance(messages, list) else []:
        what, operation = (str(part)[:100] for part in message)
        warnings.warn(f"{what} encountered in {operation}", RuntimeWarning, stacklevel=2)
