"""Pictures of the demonstration: a map of the mean, and the mosaic of chunks, as PNG."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from insitu.cli.screen import format_codecs
from insitu.errors import UnsupportedError
from insitu.model import VirtualArray

__all__ = ["draw_map", "draw_mosaic"]

COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#eeca3b", "#9d755d")


def _import_pyplot() -> Any:
    try:
        matplotlib = import_module("matplotlib")
        matplotlib.use("Agg")  # no window, no display
        return import_module("matplotlib.pyplot")
    except ImportError:
        raise UnsupportedError(
            "the pictures of the demonstration need the package matplotlib", hint="pip install 'insitu[demo]'"
        ) from None


def draw_map(mean: Any, outline: Any, path: Path, title: str) -> None:
    """Draw a map of a DataArray over lat and lon."""
    plot = _import_pyplot()
    figure, axes = plot.subplots(figsize=(9, 4.6), constrained_layout=True)
    lon, lat = mean.lon.values, mean.lat.values
    shown = axes.pcolormesh(lon, lat, mean.values, cmap="RdYlBu_r", shading="nearest", rasterized=True)
    axes.contour(lon, lat, outline, levels=[0.5], colors="black", linewidths=0.8)
    axes.set(title=title, xlabel="longitude (°E)", ylabel="latitude (°N)", xlim=(0, 358), ylim=(-89, 89))
    figure.colorbar(shown, ax=axes, label="K", shrink=0.9)
    figure.savefig(path, dpi=130)
    plot.close(figure)


def draw_mosaic(array: VirtualArray, path: Path, title: str) -> None:
    """Draw the chunks of an array over time and latitude, coloured by encoding."""
    plot = _import_pyplot()
    patches: Any = import_module("matplotlib.patches")
    figure, axes = plot.subplots(figsize=(9, 4.6), constrained_layout=True)
    colours: dict[str, str] = {}
    for tile, origin in zip(array.tiles, array.origins.tolist(), strict=True):
        time, lat = tile.axis_of(0), tile.axis_of(1)
        rows = np.arange(time.count)
        begins, extents = time.begin(rows), time.show(rows).extent
        stored = time.show(rows).stored
        index = [np.zeros(time.count, np.int64)] * len(tile.axes)
        index[tile.dimensions[0]] = rows
        encodings = np.asarray(tile.chunks.locate(index).encoding)
        for begin, extent, whole, number in zip(
            begins.tolist(), extents.tolist(), stored.tolist(), encodings.tolist(), strict=True
        ):
            encoding = tile.encodings[number]
            kind = f"{encoding.dtype.name}, {format_codecs([encoding])}"
            colour = colours.setdefault(kind, COLOURS[len(colours) % len(COLOURS)])
            for at in range(lat.count):
                height = int(lat.show(np.array([at])).extent[0])
                corner = (origin[0] + begin, origin[1] + int(lat.begin(np.array([at]))[0]))
                hatch = "///" if whole > extent else None  # a part of a stored chunk
                axes.add_patch(
                    patches.Rectangle(
                        corner, extent, height, facecolor=colour, edgecolor="white", linewidth=0.4, hatch=hatch
                    )
                )
    axes.set(
        title=title, xlabel=f"{array.dims[0]} (days)", ylabel=f"{array.dims[1]} (rows)",
        xlim=(0, array.shape[0]), ylim=(0, array.shape[1]),
    )  # fmt: skip
    handles = [patches.Patch(color=colour, label=kind) for kind, colour in colours.items()]
    handles.append(
        patches.Patch(facecolor="lightgray", hatch="///", edgecolor="white", label="shows a part of its chunk")
    )
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8)
    figure.savefig(path, dpi=130)
    plot.close(figure)
