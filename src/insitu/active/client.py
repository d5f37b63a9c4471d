"""Client of the servers next to the data: statistics and reads that are computed there.

A reduction is split here into a few requests, runs on the servers, and its partial results are
merged here (see `distribute`). A server gets the location of every chunk, so it needs no metadata of
its own, and any selection, join or mosaic works. It returns the same partial results as the threads
of this machine. What no server can do is reduced here, with a warning that says why and how many
bytes that moves (see `fallback`); or an error is raised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from insitu.active.distribute import arrays_from_wire, ask_in_turn, join_blocks, storage_access
from insitu.active.fallback import bytes_to_move, warn_of_fallback
from insitu.active.placement import Placement, Servers, place_servers, servers_of
from insitu.active.transport import ServerError, client_for
from insitu.active.wire import get_field, selection_keys_to_wire
from insitu.active.wire_array import array_to_wire
from insitu.active.wire_folding import query_to_wire
from insitu.active.wire_group import group_from_wire
from insitu.errors import InsituError, SourceError, UnsupportedError
from insitu.model import Selection, VirtualArray, VirtualGroup
from insitu.reading import ReadContext, read_array
from insitu.reducing.query import ReductionQuery
from insitu.sources.redaction import redact_url

__all__ = ["Active"]


@dataclass(frozen=True, slots=True, repr=False)
class Active:
    """The servers next to the data, and what to do if they cannot compute something.

    Examples
    --------
    >>> Active({"s3://a/": "http://one:8080", "/data/": ["http://two:8080", "http://three:8080"]}).url
    'http://two:8080, http://three:8080, http://one:8080'
    """

    servers: Servers = field(compare=False)
    """A URL, e.g. `http://host:8080`; a list of servers with the same data, which share the work; or a
    mapping of URL prefix to one of these.
    """
    required: bool = False
    """Whether to raise an error if the servers cannot;
    else the values are read here, with a warning.
    """
    token: str | None = None
    placements: tuple[Placement, ...] = field(init=False)
    """Which servers are next to which data."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "placements", place_servers(self.servers))

    @property
    def url(self) -> str:
        """The URLs of all servers as text, without tokens, which may be part of them."""
        return ", ".join(dict.fromkeys(redact_url(url) for place in self.placements for url in place.servers))

    def __repr__(self) -> str:
        return f"Active({self.url!r}, required={self.required})"

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
            **query_to_wire(query),
            "selection": selection_keys_to_wire(query.selection),
            "decode": decode,
            **({"dim": list(dim)} if dim else {}),
        }
        options, basic = storage_access(url, storage_options)
        items = self._ask_first(url, "reduce", {"jobs": [job], "options": options}, basic)
        return arrays_from_wire(items[0], "values"), items[-1]

    def scan(
        self, url: str, *, group: str | None = None, storage_options: Mapping[str, Any] | None = None
    ) -> VirtualGroup | None:
        """Return the metadata of an archive, scanned by the server;
        None if the server cannot scan it.
        """
        options, basic = storage_access(url, storage_options)
        try:
            items = self._ask_first(url, "scan", {"url": url, "group": group, "options": options}, basic)
            return group_from_wire(get_field(items[0], "group"))
        except InsituError:
            return None

    def read(self, array: VirtualArray, selection: Any = ..., context: ReadContext | None = None) -> npt.NDArray[Any]:
        """Return the values of a selection, decoded next to the data."""
        context = context or ReadContext()
        chosen = Selection.of(selection, array.shape)
        try:
            job = {"array": array_to_wire(array[chosen]), "selection": None}
            first = next((s.url for tile in array.tiles for s in tile.chunks.sources[:1]), "")
            options, basic = storage_access(first, context.storage_options)
            return join_blocks(self._ask_first(first, "read", {"jobs": [job], "options": options}, basic))
        except (ServerError, SourceError, UnsupportedError) as problem:
            self.fall_back(problem, context.name, array[chosen])
            return read_array(array, chosen, context)

    def _ask_first(self, url: str, route: str, request: Mapping[str, Any], basic: tuple[str, str] | None) -> list[Any]:
        """Return the items of the response of the first server next to a URL that answers."""
        servers = servers_of(self.placements, url)
        if not servers:
            raise UnsupportedError(
                f"no server of active= is next to {redact_url(url)}", hint="Add its prefix to active="
            )
        return ask_in_turn(servers, lambda server: client_for(server, self.token).ask(route, request, basic))

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
