"""Distribution of one reduction over the servers next to its data.

Each part of the values is reduced by a server that has its bytes, in pieces of bounded size, and their
partials are merged here, always in the same order. Servers with the same data share the pieces. The
pieces of a server that fails go to another one with the same data; if there is none, they are read
here, after a warning that names the bytes.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy.typing as npt

from insitu.active.fallback import bytes_to_move, warn_of_fallback, warn_of_takeover
from insitu.active.piecewise import PiecewiseReduction, Results
from insitu.active.placement import servers_of
from insitu.active.remote_values import Leaf, RemoteValues
from insitu.active.request_pieces import count_requests, cut_pieces
from insitu.active.share_work import Helper, HelperLostError, SharedWork
from insitu.active.split_by_server import MAX_OWNERS, OwnedArray, most_bytes, split_by_owner
from insitu.active.transport import ServerError, client_for
from insitu.active.wire import get_field, values_from_wire
from insitu.errors import InsituError, SourceError, UnsupportedError
from insitu.model import Selection, Source
from insitu.reducing.partial_fields import Partial
from insitu.sources.storage_options import options_for

__all__ = ["Credentials", "Distribution", "arrays_from_wire", "credentials_of_url", "to_native"]

Credentials = tuple[dict[str, Any], tuple[str, str] | None]
"""Storage options for a server, and the secrets for a header."""
Answer = tuple[Partial, list[Any]]
"""The partial of a piece, and NumPy's warnings while it was computed."""

REFUSALS = (ServerError, SourceError, UnsupportedError)
"""Errors of a server, or on the way to it, after which another one is asked, or values are read here."""
FORWARDED_OPTIONS = ("anon", "endpoint_url", "region")
CONCURRENT_REQUESTS = 4
"""Requests that are sent to a server at once."""
SHARED_CELLS = 20_000
"""Chunks of a piece that one of several servers gets: few enough that all have something to do."""
SHARED_BYTES = 256 << 20
"""Decoded bytes of such a piece."""
_turn = itertools.count()
Piece = TypeVar("Piece")


@dataclass(frozen=True, slots=True)
class Owner:
    """Servers with the same data, and what they need to read it."""

    servers: tuple[str, ...]
    """None of them: no server has the data."""
    token: str | None = field(default=None, repr=False)
    options: tuple[tuple[str, Any], ...] = ()
    basic: tuple[str, str] | None = field(default=None, repr=False)

    @property
    def credentials(self) -> Credentials:
        """Storage options, and the secrets for a header."""
        return dict(self.options), self.basic


@dataclass(frozen=True, slots=True)
class Distribution:
    """The servers of some values."""

    values: RemoteValues
    required: bool = False
    """Whether it is an error if the servers cannot do everything."""

    def reduce(self, whole: PiecewiseReduction) -> Results:
        """Return the results of a reduction that can be done in pieces."""
        pieces = interleave([[(piece, owner) for piece in self._pieces(part, owner)] for part, owner in self.parts()])
        if len(pieces) == 1 and pieces[0][1].servers:
            # Partials are larger than final values: they are sent only if several must be merged.
            return self.ask_any(pieces[0][1], {**self.values.to_wire(), **whole.entries(pieces[0][0])})
        merged = whole.begin()
        for (piece, _), (found, messages) in zip(pieces, self._run(whole, pieces), strict=True):
            issue_warnings(messages)
            merged.add(piece, whole.place(piece), found)
        return whole.finalise(merged.partial)

    def reduce_at_once(self, entries: Mapping[str, Any]) -> Results:
        """Return the results of a reduction that needs all values at one place, by the server that has
        most of them.
        """
        found = self.parts()
        owners = {owner for _, owner in found}
        owner = found[0][1] if len(owners) == 1 else self._best(owners, Selection.of(..., self.values.shape))
        if not owner.servers:
            raise self._nowhere()
        return self.ask_any(owner, {**self.values.to_wire(), **entries})

    def ask_any(self, owner: Owner, job: Mapping[str, Any]) -> Results:
        """Return the results of a job from one of several servers with the same data."""
        first = next(_turn) % len(owner.servers)
        *others, last = owner.servers[first:] + owner.servers[:first]
        for server in others:
            try:
                return _values(server, owner, job)
            except REFUSALS as problem:
                warn_of_takeover(server, problem, self.values.name)
        return _values(last, owner, job)

    def parts(self) -> list[tuple[Selection, Owner]]:
        """Return the parts of the values, with the servers that reduce each of them."""
        leaves, shape = self.values.leaves(), self.values.shape
        whole = Selection.of(..., shape)
        owners = _Owners(leaves)
        if owners.is_one:
            return [(whole, owners.first)]
        arrays = owners.arrays(leaves)
        found = []
        for part, mask in split_by_owner(shape, arrays):
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
                f"the arrays of {self.values.name or 'an expression'} need different storage options, and a request to "
                "a server has one",
                hint="load() one of them first",
            )
        leaves = self.values.select(part).leaves()
        owners = _Owners(leaves)
        return owners.found[most_bytes(owners.arrays(leaves))]

    def _nowhere(self) -> UnsupportedError:
        lost = next(
            (
                leaf
                for leaf in self.values.leaves()
                if not all(servers_of(leaf.placements, s.url) for s in leaf.array.sources)
            ),
            None,
        )
        return UnsupportedError(
            f"{lost.name if lost else 'an array'} is not read by a server",
            hint="Open all arrays of an expression with active=, name a server for each prefix of their URLs, or "
            "load() the small ones",
        )

    def _pieces(self, part: Selection, owner: Owner) -> list[Selection]:
        values = self.values.select(part)
        arrays = [leaf.array for leaf in values.leaves()]
        many = count_requests(arrays) if len(owner.servers) < 2 else count_requests(arrays, SHARED_CELLS, SHARED_BYTES)
        return cut_pieces(values.grid, part, many)

    def _run(self, whole: PiecewiseReduction, pieces: Sequence[tuple[Selection, Owner]]) -> Iterator[Answer]:
        """Yield the answers for pieces, in their order."""
        many = Counter(owner for _, owner in pieces)
        helpers = [
            Helper(
                owner,
                self._asker(whole, pieces, server, owner),
                name=server,
                threads=min(CONCURRENT_REQUESTS, -(-many[owner] // len(owner.servers))),
            )
            for owner in many
            for server in owner.servers
        ]

        def reduce_here(number: int) -> Answer:
            piece, _ = pieces[number]
            with self.values.select(piece).open() as values:
                return whole.fold_piece(values, piece), []

        work = SharedWork(
            [owner for _, owner in pieces],
            helpers,
            reduce_here,
            window=2 * sum(helper.threads for helper in helpers) + 1,
            on_orphans=lambda kind, numbers, reason: self._fall_back(pieces, kind, numbers, reason),
        )
        with closing(work.run()) as answers:
            yield from answers
        for server, problem in work.lost.items():
            if any(server in owner.servers and set(owner.servers) - set(work.lost) for owner in many):
                warn_of_takeover(server, problem, self.values.name)

    def _asker(
        self, whole: PiecewiseReduction, pieces: Sequence[tuple[Selection, Owner]], server: str, owner: Owner
    ) -> Callable[[int], Answer]:
        def ask(number: int) -> Answer:
            piece = pieces[number][0]
            job = {**self.values.select(piece).to_wire(), **whole.entries(piece), "answer": "partial"}
            try:
                item = _ask(server, owner, job)
                found = arrays_from_wire(item, "partial")
                if set(found) != set(whole.fields):
                    raise ServerError(
                        "the server has another version of insitu: its partial results have other fields", url=server
                    )
            except REFUSALS as problem:
                raise HelperLostError(problem) from problem
            return found, item.get("warnings", [])

        return ask

    def _fall_back(
        self, pieces: Sequence[tuple[Selection, Owner]], owner: Any, numbers: Sequence[int], reason: InsituError | None
    ) -> None:
        """Warn that pieces are read here, and why; raise the error if the servers are required."""
        problem = self._nowhere() if reason is None else reason
        if self.required:
            raise problem
        arrays = [leaf.array for n in numbers for leaf in self.values.select(pieces[n][0]).leaves()]
        named, name = ", ".join(owner.servers) or "a server", self.values.name or "an array"
        part = name if len(numbers) == len(pieces) else f"a part of {name}"
        warn_of_fallback(named, problem, part, sum(map(bytes_to_move, arrays)), stacklevel=8)


def interleave(lists: Sequence[Sequence[Piece]]) -> list[Piece]:
    """Return the items of lists in turn, so that each list is spread evenly: few pieces are under way at a
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
    options, basic = credentials_of_url(url, leaf.storage_options)
    return Owner(servers, leaf.token, tuple(sorted(options.items())), basic)


def credentials_of_url(url: str | None, storage_options: Mapping[str, Any] | None) -> Credentials:
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
    options, basic = owner.credentials
    return client_for(server, owner.token).ask("reduce", {"jobs": [dict(job)], "options": options}, basic)[0]


def _values(server: str, owner: Owner, job: Mapping[str, Any]) -> Results:
    """Return the results of one job, after NumPy's warnings about it."""
    item = _ask(server, owner, job)
    issue_warnings(item.get("warnings", []) if isinstance(item, dict) else [])
    return arrays_from_wire(item, "values")


def arrays_from_wire(item: Any, name: str) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays in an item of a response, writeable."""
    # Copied: arrays over the response are read-only, and merging writes to them.
    return {str(key): to_native(values_from_wire(values)) for key, values in get_field(item, name, dict).items()}


def to_native(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy of values in the byte order of this machine."""
    return values.astype(values.dtype.newbyteorder("="))


def issue_warnings(messages: Any) -> None:
    """Issue the warnings of NumPy that the evaluation on the server would have issued here."""
    for message in messages if isinstance(messages, list) else []:
        what, operation = (str(part)[:100] for part in message)
        warnings.warn(f"{what} encountered in {operation}", RuntimeWarning, stacklevel=2)
