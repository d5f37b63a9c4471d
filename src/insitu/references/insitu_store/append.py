"""Append to an insitu store: plan on the root as it is, write only what is new, and start again if another writer was faster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from insitu.model import VirtualGroup
from insitu.references.appending import AppendReport, Reader, plan_append
from insitu.references.insitu_store.growing import grown
from insitu.references.insitu_store.read import open_store
from insitu.references.insitu_store.write import ConflictError, Named, extend_store
from insitu.references.target import folder

__all__ = ["append_store"]

_TRIES = 50
"""How often an append that lost against another writer starts again from the new root."""


def append_store(
    group: VirtualGroup,
    url: str,
    dim: str,
    *,
    named: Named | None = None,
    read: Reader | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> AppendReport:
    """Add a tree to a saved one, along a dimension.

    Arrays that have the dimension grow; the others stay as they are. Of what was saved only labels are read, and nothing is written again. Steps that are there
    already are skipped: see `plan_append`.

    Parameters
    ----------
    group, url, dim
        What, where to, and along which dimension.
    named
        How a source's URL is written.
    read
        Reads labels, so that overlaps are found; None: labels are not compared.
    storage_options
        See `insitu.sources.open_source`.

    Raises
    ------
    SourceError
        If another writer has changed the store in the meantime, and there are no labels by which a second try could be kept in order.
    """
    to = folder(url, storage_options)
    for last in [False] * _TRIES + [True]:
        opened = open_store(url, storage_options=storage_options)
        old = opened.group()
        plan = plan_append(old, group, dim, target=url, read=read)
        if plan.group is None:
            break
        try:
            extend_store(grown(old, plan.group, dim), to, opened, named)
            break
        except ConflictError:
            if last or not plan.ordered:
                raise
    return plan.report(url, dim)
