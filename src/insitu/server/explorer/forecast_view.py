"""Views of a forecast collection: the best forecast of each time, one lead time of every run.

`forecast:best:URL` and `forecast:6h:URL` name them wherever the explorer's API takes the URL of an
archive. A view is a selection that holds no values, made by `insitu.xarray_bridge.forecast_views`.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from insitu.errors import InsituError, SelectionError
from insitu.reading import ReadContext
from insitu.server.explorer.opened_archives import OpenedArchive

__all__ = ["BEST", "forecast_views", "open_forecast_view", "python_of_view", "split_view"]

BEST = "best"
MAX_LEADS = 200
"""Lead times that are offered."""
_VIEW = re.compile(r"forecast:([\w.+-]+):(.+)", re.DOTALL)
_AXES = ({"forecast_reference_time", "time"}, {"forecast_period", "step"})
"""Standard names of the axes of run and lead time, and usual names."""


def split_view(url: str) -> tuple[str | None, str]:
    """Return the view that a URL names, if any, and the URL of the archive."""
    found = _VIEW.fullmatch(url)
    return (found[1], found[2]) if found else (None, url)


def open_forecast_view(archive: OpenedArchive, view: str, context: ReadContext) -> OpenedArchive:
    """Return a view of an archive, as an archive with one group."""
    from insitu.xarray_bridge.dataset import to_member  # xarray is loaded for forecasts only

    name = f"forecast:{view}:{archive.url}"
    if name not in archive.memo:
        forecasts = _forecasts(archive, context)
        dataset = forecasts.best() if view == BEST else forecasts.constant_lead(_lead_label(forecasts, view))
        member = to_member(dataset)
        version = archive.version + view
        archive.memo[name] = OpenedArchive(name, archive.archive, {"": member}, archive.options, version, archive)
    found: OpenedArchive = archive.memo[name]
    return found


def forecast_views(archive: OpenedArchive, context: ReadContext) -> list[dict[str, str]]:
    """Return the URL of each view of an archive, and what it shows in words; none if it holds no runs of forecasts."""
    member = archive.members.get("")
    axes = {} if member is None else {
        name: variable.attributes.get("standard_name", name)
        for name, variable in member.variables.items() if variable.dims == (name,)
    }  # fmt: skip
    if member is None or not all(names & {*axes, *axes.values()} for names in _AXES):
        return []
    try:
        forecasts = _forecasts(archive, context)
    except InsituError:  # axes of other things
        return []
    lead = forecasts.dataset[forecasts.lead]
    if forecasts.dataset.sizes[forecasts.run] < 2 or not any(
        lead.dims[0] in v.dims for v in forecasts.dataset.values()
    ):
        return []
    units = "" if lead.dtype.kind == "m" else f" {lead.attrs.get('units', '')}".rstrip()
    return [
        {"url": archive.url, "text": "all runs and lead times"},
        {"url": f"forecast:{BEST}:{archive.url}", "text": "the newest of each time"},
        *(
            {"url": f"forecast:{label}:{archive.url}", "text": f"lead time {label}{units}"}
            for label in map(_label_text, lead.values[:MAX_LEADS])
        ),
    ]


def python_of_view(view: str | None) -> str:
    """Return the Python code that makes a view of a dataset."""
    if view is None:
        return ""
    if view == BEST:
        return ".insitu.best()"
    return f".insitu.constant_lead({view if _is_number(view) else repr(view)})"


def _forecasts(archive: OpenedArchive, context: ReadContext) -> Any:
    from insitu.xarray_bridge.dataset import to_dataset
    from insitu.xarray_bridge.forecast_views import Forecasts

    return Forecasts.of(to_dataset(archive.member(""), context))


def _label_text(lead: Any) -> str:
    """Return a lead time as the URL of its view names it."""
    return f"{lead / np.timedelta64(1, 'h'):g}h" if isinstance(lead, np.timedelta64) else f"{lead:g}"


def _lead_label(forecasts: Any, text: str) -> Any:
    """Return the lead time whose text is given: the text has fewer digits than it."""
    for lead in forecasts.dataset[forecasts.lead].values:
        if _label_text(lead) == text:
            return lead
    raise SelectionError(f"the collection has no lead time {text}")


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?", text) is not None
