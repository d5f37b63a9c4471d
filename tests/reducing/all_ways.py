"""Random archives, random questions about them, and the ways by which insitu answers: for `test_all_ways.py`.

A question is a Python expression about a dataset `ds`, so that a failure prints what to type.
"""

from __future__ import annotations

import functools
import json
import pickle
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import xarray as xr
from hypothesis import strategies as st
from typer.testing import CliRunner

import insitu
from insitu.cli import app

__all__ = [
    "ARCHIVES",
    "EXAMPLES",
    "KINDS",
    "LARGE_QUESTIONS",
    "LARGE_WAYS",
    "PORTION",
    "STORED_METHODS",
    "WAYS",
    "Archive",
    "Question",
    "Setting",
    "make_large_archive",
    "questions",
]

PORTION = 12 << 20
"""Bytes of a portion, here and on the servers: a twentieth of what it is, so that an array of several is small."""
ARCHIVES = 8
"""How many archives there are; the last two are larger."""
VARIABLES = ("f4", "f8", "packed", "turned")
"""Variables with missing values; `ratio` has values near 1, `n` has integers."""
DIMS = ("time", "lat", "lon")
PACKING: dict[str, Any] = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768}


@dataclass(frozen=True)
class Archive:
    """Files of one dataset, which lie in two folders by turns."""

    paths: tuple[str, ...]
    saved: str
    """Where the dataset is saved as one virtual archive."""

    @functools.cached_property
    def loaded(self) -> xr.Dataset:
        """What xarray's own engine reads, with all floating-point numbers in float64."""
        with xr.open_mfdataset(self.paths, engine="netcdf4") as opened:
            return opened.load().map(lambda v: v.astype("f8") if v.dtype.kind == "f" else v)

    def open(self, **how: Any) -> xr.Dataset:
        """Return it as a virtual dataset."""
        return insitu.open_mfdataset(list(self.paths), **how)


def make_archive(folder: Path, seed: int) -> Archive:
    """Write the archive of a seed into the folders `one` and `two`."""
    dice, random = Random(seed), np.random.default_rng(seed)
    large = seed >= ARCHIVES - 2
    lat, lon = (dice.randint(30, 40), dice.randint(40, 50)) if large else (dice.randint(5, 14), dice.randint(6, 20))
    lengths = [dice.randint(70, 90) if large else dice.randint(9, 31) for _ in range(dice.randint(3, 4))]
    begin, paths = np.datetime64("2001-01-20", "ns"), []
    least = {"time": 20, "lat": 9, "lon": 11} if large else {"time": 2, "lat": 2, "lon": 3}
    common = {
        name: _chunks(dice, least, lengths[0], lat, lon) for name in ("f4", "f8", "packed", "turned", "ratio", "n")
    }
    for number, length in enumerate(lengths):
        time = begin + np.arange(length) * np.timedelta64(1, "D")
        begin = time[-1] + np.timedelta64(1, "D")
        part = _make_part(random, time, lat, lon)
        encoding: dict[str, dict[str, Any]] = {}
        for name, variable in part.data_vars.items():
            # Most files are cut alike, at borders that lie anywhere in the whole; some are not.
            chunks = common[str(name)] if dice.random() < 0.7 else _chunks(dice, least, length, lat, lon)
            sizes = tuple(min(chunks[dim], variable.sizes[dim]) for dim in variable.dims)
            how = {"zlib": dice.random() < 0.7, "complevel": 1, "shuffle": dice.random() < 0.5}
            encoding[str(name)] = {"chunksizes": sizes, **how}
        encoding["packed"] |= PACKING if dice.random() < 0.7 else {**PACKING, "scale_factor": 0.02}
        encoding["f4"]["_FillValue"] = np.float32(1e20)
        path = folder / ("one", "two")[number % 2] / f"{seed}-{number}.nc"
        path.parent.mkdir(exist_ok=True)
        part.to_netcdf(path, engine="netcdf4", encoding=encoding)
        paths.append(str(path))
    return _save(paths, folder / f"{seed}.insitu")


def _save(paths: list[str], target: Path) -> Archive:
    insitu.open_mfdataset(paths).insitu.save(target)
    return Archive(tuple(paths), str(target))


def _chunks(dice: Random, least: dict[str, int], *most: int) -> dict[str, int]:
    return {dim: dice.randint(least[dim], length) for dim, length in zip(DIMS, most, strict=True)}


def _make_part(random: np.random.Generator, time: Any, lat: int, lon: int) -> xr.Dataset:
    shape = (len(time), lat, lon)

    def draw(dtype: str) -> Any:
        values = random.normal(280, 30, shape)
        return np.where(random.random(shape) < 0.1, np.nan, values).astype(dtype)

    return xr.Dataset(
        {
            "f4": (DIMS, draw("f4")),
            "f8": (DIMS, draw("f8")),
            "packed": (DIMS, draw("f8")),
            "turned": (("lon", "time", "lat"), draw("f8").transpose(2, 0, 1)),
            "ratio": (DIMS, random.normal(1, 0.01, shape)),
            "n": (DIMS, random.integers(-90, 90, shape).astype("i4")),
        },
        {"time": time, "lat": np.linspace(-70, 65, lat), "lon": np.arange(float(lon))},
    )


def make_large_archive(folder: Path) -> Archive:
    """Write files of bytes that are unpacked to 17 MiB of float64, more than a portion (`PORTION`)."""
    random, begin, paths = np.random.default_rng(7), np.datetime64("2001-01-01", "ns"), []
    packing = {"scale_factor": 0.013, "add_offset": 280.1, "_FillValue": np.int8(-120)}
    for number, length in enumerate((230, 221, 240, 201)):
        time = begin + np.arange(length) * np.timedelta64(1, "D")
        begin = time[-1] + np.timedelta64(1, "D")
        stored = random.integers(-120, 120, (length, 50, 50), dtype="i1")
        coords = {"time": time, "lat": np.linspace(-80, 80, 50), "lon": np.arange(50.0)}
        path = folder / ("one", "two")[number % 2] / f"large-{number}.nc"
        path.parent.mkdir(exist_ok=True)
        made = xr.Dataset({"x": (DIMS, stored, packing)}, coords)
        made.to_netcdf(path, engine="netcdf4", encoding={"x": {"chunksizes": (50, 18, 50)}})
        paths.append(str(path))
    return _save(paths, folder / "large.insitu")


@dataclass(frozen=True)
class Stored:
    """A statistic of a stored variable, which `Archive.reduce` and the command line take, too."""

    variable: str
    method: str
    dim: tuple[str, ...] | None
    selection: tuple[slice, ...]
    option: tuple[str, tuple[float, ...]] | None = None
    """What the statistic needs besides: the name, and numbers."""


@dataclass(frozen=True)
class Question:
    """A question about a dataset. `histogram` in its text is that of insitu, or NumPy's."""

    text: str
    stored: Stored | None = None

    def ask(self, ds: xr.Dataset) -> xr.DataArray:
        """Return the answer, loaded."""
        return self._evaluate(ds, _histogram)

    def _evaluate(self, ds: xr.Dataset, histogram: Callable[..., xr.DataArray]) -> xr.DataArray:
        return eval(self.text, {"np": np, "xr": xr, "ds": ds, "histogram": histogram}).load()  # type: ignore[no-any-return]

    def ask_xarray(self, ds: xr.Dataset) -> tuple[xr.DataArray, xr.DataArray]:
        """Return xarray's answer, which a digest has between two: the least and the largest that is right."""
        text = self.text.replace(".insitu.", ".")  # the accessor's methods have the names of xarray's
        if ", approximate=True" not in text:
            found = Question(text)._evaluate(ds, _histogram_by_numpy)
            return found, found
        text = text.replace(", approximate=True", "")
        least, most = (Question(text.replace(str(DIGEST), str(q))).ask(ds) for q in (BELOW, ABOVE))
        return least, most


def _histogram(values: xr.DataArray, edges: list[float], dim: tuple[str, ...] | None) -> xr.DataArray:
    counts = values.to_dataset(name="x").insitu.histogram(edges, dim).x
    return counts.transpose("bin", ...)  # type: ignore[no-any-return]


def _histogram_by_numpy(values: xr.DataArray, edges: list[float], dim: tuple[str, ...] | None) -> xr.DataArray:
    dims = values.dims if dim is None else dim

    def count(numbers: Any) -> Any:
        rows = numbers.reshape(*numbers.shape[: numbers.ndim - len(dims)], -1)
        return np.apply_along_axis(lambda row: np.histogram(row[~np.isnan(row)], edges)[0], -1, rows)

    counts = xr.apply_ufunc(count, values, input_core_dims=[dims], output_core_dims=[["bin"]])
    return counts.transpose("bin", ...)


EDGES = [200.25, 255.5, 280.125, 281.0, 350.75]
"""Edges of bins; some values lie outside."""
DIGEST, BELOW, ABOVE = [0.1, 0.5, 0.93], [0.07, 0.47, 0.9], [0.13, 0.53, 0.96]
"""Quantiles that are asked for by digests, and the exact ones that they must lie between."""
DIMENSIONS = (("time",), ("lat", "lon"), ("lon",), ("time", "lat"), None)
FORMULAS = (
    "(ds.f4 * ds.f8)",
    "(ds.packed - 273.15)",
    "np.hypot(ds.f8, ds.turned)",
    "(ds.turned + ds.f8)",
    "ds.f8.where(ds.packed > 270)",
    "(ds.f4 - ds.f4.isel(time=0).load() / 3)",
    "(ds.f8 * 2 + ds.n)",
    "ds.f4.astype('f8')",
)
MASKED = ("ds.f8.where(ds.lat > 0)", "ds.turned.where(ds.lon > 4)", "ds.packed.where(ds.time.dt.month == 2)")
MOVES = ("", ".transpose('lon', 'lat', 'time')", ".isel(time=slice(None, None, -1))", ".isel(lat=[3, 0, 3, 2])")


@st.composite
def _subjects(
    draw: Any, variables: tuple[str, ...] = VARIABLES, formulas: tuple[str, ...] = FORMULAS, moves: Any = MOVES
) -> str:
    """Return a stored variable, or a formula, as it is or selected."""
    text = draw(st.sampled_from(formulas) | st.sampled_from([f"ds.{name}" for name in variables]))
    return f"{text}{draw(st.sampled_from(moves))}"


def _reduction(subject: str, method: str, dim: Any, more: str = "") -> str:
    return f"{subject}.{method}({dim!r}{more})"


@st.composite
def _plain(draw: Any, methods: tuple[str, ...], **of: Any) -> Question:
    return Question(
        _reduction(draw(_subjects(**of)), draw(st.sampled_from(methods)), draw(st.sampled_from(DIMENSIONS)))
    )


EXACT = (
    "ds.n.sum({dim!r})", "ds.n.argmax('time')", "ds.f8.fillna(0.0).argmin('lat')", "(ds.f4 > 290).any({dim!r})",
    "{subject}.min({dim!r})", "{subject}.max({dim!r})", "{subject}.count({dim!r})",
    "{subject}.notnull().mean({dim!r})", "{subject}.to_dataset(name='x').insitu.groupby('time.month').max().x",
    "{subject}.rolling(time=3).max()",
)  # fmt: skip


@st.composite
def _exact(draw: Any) -> Question:
    text = draw(st.sampled_from(EXACT))
    return Question(text.format(subject=draw(_subjects()), dim=draw(st.sampled_from(DIMENSIONS))))


@st.composite
def _variances(draw: Any) -> Question:
    method, ddof = draw(st.sampled_from(("std", "var"))), draw(st.sampled_from((0, 1)))
    return Question(_reduction(draw(_subjects()), method, draw(st.sampled_from(DIMENSIONS)), f", ddof={ddof}"))


@st.composite
def _quantiles(draw: Any, approximate: bool) -> Question:
    subject, dim = draw(_subjects()), draw(st.sampled_from(DIMENSIONS))
    if approximate:
        dim = draw(st.sampled_from((("time", "lat"), None)))  # a digest has 512 numbers for each place
        whole = f"{subject}.to_dataset(name='x')"
        return Question(f"{whole}.insitu.quantile({DIGEST}, {dim!r}, approximate=True).x")
    return Question(draw(st.sampled_from((f"{subject}.median({dim!r})", f"{subject}.quantile([0.1, 0.7], {dim!r})"))))


@st.composite
def _histograms(draw: Any) -> Question:
    # Of float32 a formula has other last bits than xarray's in float64, so that a value may lie in the next bin.
    exact = ("(ds.packed - 273.15)", "(ds.turned + ds.f8)", "ds.f8.where(ds.packed > 270)")
    subject, dim = draw(_subjects(("f8", "turned", "packed"), exact)), draw(st.sampled_from(DIMENSIONS))
    return Question(f"histogram({subject}, {EDGES}, {dim!r})")


GROUPINGS = ("groupby('time.month')", "resample(time='9D')", "groupby_bins('lat', [-71, -10, 20, 66])")
WEIGHTS = ("np.cos(np.deg2rad(ds.lat))", "ds.time.dt.dayofyear.astype('f8')", "(ds.lat * 0 + ds.lon + 0.3)")


@st.composite
def _grouped(draw: Any, accessor: str) -> Question:
    subject = draw(_subjects(moves=MOVES[:2]))
    grouping, method = draw(st.sampled_from(GROUPINGS)), draw(st.sampled_from(("mean", "sum", "std", "var")))
    dim = draw(st.sampled_from(("", "...")))
    return Question(f"{subject}.to_dataset(name='x'){accessor}.{grouping}.{method}({dim}).x")


@st.composite
def _weighted(draw: Any, accessor: str) -> Question:
    subject, weights = draw(_subjects()), draw(st.sampled_from(WEIGHTS))
    if "isel(lat=" in subject:
        weights = f"({weights}).isel(lat=[3, 0, 3, 2])" if "lat" in weights else weights
    method = draw(st.sampled_from(("mean", "sum", "std", "var", "sum_of_weights")))
    dims = (("time", "lat", "lon"), ("lat", "lon"), ("time",), ("time", "lat"))
    if accessor:  # else it is xarray that computes
        dims = tuple(dim for dim in dims if all(name in dim for name in DIMS if f".{name}" in weights))
    dim = draw(st.sampled_from(dims))
    whole = f"{subject}.to_dataset(name='x'){accessor}"
    return Question(f"{whole}.weighted({weights}).{method}({dim!r}).x")


WINDOWS = ("rolling(time={n})", "rolling(time={n}, min_periods=1)", "rolling(lat=3, lon={n})")
BLOCKS = ("coarsen(time={n}, boundary='trim')", "coarsen(lat=2, lon={n}, boundary='pad')")


@st.composite
def _windows(draw: Any) -> Question:
    windows = draw(st.sampled_from(WINDOWS) | st.sampled_from(BLOCKS)).format(n=draw(st.integers(2, 7)))
    method = draw(st.sampled_from(("mean", "sum", "std")))
    after = draw(st.sampled_from(("", "", ".mean('time')", ".std()", "[::2]")))
    return Question(f"{draw(_subjects())}.{windows}.{method}(){after}")


LARGE_QUESTIONS = {
    "large exact": Question("ds.x.max('time')"),
    "large sum": Question("ds.x.mean('time')", Stored("x", "mean", ("time",), ())),
    "large weighted": Question("ds.insitu.weighted(np.cos(np.deg2rad(ds.lat))).mean(('time', 'lat')).x"),
    "large formula": Question("(ds.x * 1.7).sum(('time', 'lat'))"),
}
"""Questions about the large archive, by kind."""

KINDS: dict[str, st.SearchStrategy[Question]] = {
    "exact": _exact(),
    "sum": _plain(("sum", "mean")),
    "variance": _variances(),
    "product": _plain(("prod",), variables=("ratio",), formulas=("(ds.ratio * ds.ratio)", "np.sqrt(ds.ratio)")),
    "masked": _plain(("sum", "mean", "std", "count"), variables=("f8",), formulas=MASKED),
    "sketch": _quantiles(True),
    "quantile": _quantiles(False),
    "histogram": _histograms(),
    "grouped": _grouped(".insitu"),
    "grouped by xarray": _grouped(""),
    "weighted": _weighted(".insitu"),
    "weighted by xarray": _weighted(""),
    "windows": _windows(),
}
"""Questions by the kind of statistic: those of one kind take the same way through the code."""

STORED_METHODS = {
    "exact": ("min", "max", "count", "any", "all", "argmin", "argmax"),
    "sum": ("sum", "mean"),
    "variance": ("std", "var"),
    "product": ("prod",),
    "sketch": ("tdigest",),
    "quantile": ("median", "quantile"),
    "histogram": ("histogram",),
}
"""The statistics of stored variables, by kind."""
OF_INTEGERS = ("any", "all", "argmin", "argmax")
"""Those that are asked of integers: missing values are no answer to them."""
OPTIONS: dict[str, tuple[str, tuple[float, ...]]] = {
    "quantile": ("q", (0.1, 0.6)),
    "tdigest": ("q", (0.1, 0.6)),
    "histogram": ("edges", tuple(EDGES)),
}


@st.composite
def _stored(draw: Any, kind: str) -> Question:
    method = draw(st.sampled_from(STORED_METHODS[kind]))
    variable = draw(
        st.sampled_from(("ratio",) if kind == "product" else ("n",) if method in OF_INTEGERS else VARIABLES)
    )
    dims = (("time", "lat"), None) if kind == "sketch" else (("time",), ("lon",)) if "arg" in method else DIMENSIONS
    dim = draw(st.sampled_from(dims))
    chosen = draw(st.sampled_from(((), (slice(3, None, 2),), (slice(None), slice(1, 4)))))
    keys = ", ".join(f"{one.start}:{one.stop}:{one.step}".replace("None", "") for one in chosen)
    subject, option = f"ds.{variable}[{keys}]" if chosen else f"ds.{variable}", OPTIONS.get(method)
    text = _reduction(subject, method, dim[0] if dim and "arg" in method else dim)
    if method == "tdigest":
        text = f"{subject}.to_dataset(name='x').insitu.quantile({OPTIONS[method][1]}, {dim!r}, approximate=True).x"
    elif method == "quantile":
        text = f"{subject}.quantile({OPTIONS[method][1]}, {dim!r})"
    elif method == "histogram":
        text = f"histogram({subject}, {EDGES}, {dim!r})"
    return Question(text, Stored(variable, method, dim, chosen, option))


def questions(kind: str, *, stored: bool = False) -> st.SearchStrategy[Question]:
    """Return the questions of a kind: all, or those about stored variables only."""
    return _stored(kind) if stored else KINDS[kind]


@dataclass(frozen=True, eq=False)
class Setting:
    """Servers, clusters and archives."""

    folder: Path
    server: str
    other: str
    workers: str
    """URLs of a server, of another one, and of one with two workers."""
    pool: Executor
    clusters: dict[int, Any]
    """Dask clients by number of workers."""

    @functools.cache  # noqa: B019  (one setting lives as long as the session)
    def archive(self, seed: int) -> Archive:
        """Return the archive of a seed, made when it is asked for first."""
        return make_archive(self.folder, seed)


Answers = list[np.ndarray[Any, Any]]
AskThatWay = Callable[[Setting, Archive, Question], Answers]


def _again(setting: Setting, archive: Archive, question: Question) -> Answers:
    ds = archive.open()
    return [question.ask(ds).values for _ in range(3)]


def _after_loading(setting: Setting, archive: Archive, question: Question) -> Answers:
    ds = archive.open()
    assert all(ds[name].values.size for name in ds.data_vars)
    return [question.ask(ds).values]


def _without_cache(setting: Setting, archive: Archive, question: Question) -> Answers:
    ds = archive.open(cache=False)
    return [question.ask(ds).values for _ in range(2)]


def _pickled(setting: Setting, archive: Archive, question: Question) -> Answers:
    ds = archive.open()
    fresh = question.ask(pickle.loads(pickle.dumps(ds))).values
    question.ask(ds)
    return [fresh, question.ask(pickle.loads(pickle.dumps(ds))).values]


def _by_engine(engine: Any, archive: Archive, question: Question) -> Answers:
    with insitu.options(engine=engine):
        return [question.ask(archive.open(cache=cache)).values for cache in (True, False)]


def _by_servers(active: Any, archive: Archive, question: Question) -> Answers:
    ds = archive.open(active=active)
    return [question.ask(ds).values for _ in range(2)]


def _on_two_servers(setting: Setting, archive: Archive, question: Question) -> Answers:
    folder = str(setting.folder)
    return _by_servers({f"{folder}/one": setting.server, f"{folder}/two": setting.other}, archive, question)


def _arguments(question: Question) -> dict[str, Any]:
    requested = question.stored
    assert requested is not None
    how: dict[str, Any] = {"dim": requested.dim, "selection": requested.selection or ...}
    return how if requested.option is None else {**how, requested.option[0]: requested.option[1]}


def _by_archive(setting: Setting, archive: Archive, question: Question) -> Answers:
    assert question.stored is not None
    opened = insitu.Archive.open(list(archive.paths))
    ask = functools.partial(opened.reduce, question.stored.variable, question.stored.method, **_arguments(question))
    return [np.asarray(ask()) for _ in range(2)]


def _by_verb(setting: Setting, archive: Archive, question: Question) -> Answers:
    assert question.stored is not None
    requested, how = question.stored, _arguments(question)
    servers = (None, setting.server)
    return [
        np.asarray(insitu.reduce(archive.saved, requested.variable, requested.method, active=a, **how)) for a in servers
    ]


def _by_command_line(setting: Setting, archive: Archive, question: Question) -> Answers:
    requested = question.stored
    assert requested is not None
    keys = ", ".join(f"{one.start}:{one.stop}:{one.step}".replace("None", "") for one in requested.selection)
    variable = f"{requested.variable}[{keys}]" if keys else requested.variable
    arguments = ["reduce", archive.saved, variable, requested.method, "--as", "json"]
    arguments += [text for dim in requested.dim or () for text in ("--dim", dim)]
    arguments += (
        [] if requested.option is None else [f"--{requested.option[0]}", ",".join(map(str, requested.option[1]))]
    )
    found = []
    for more in ([], ["--active", setting.server]):
        done = CliRunner().invoke(app, [*arguments, *more])
        assert done.exit_code == 0, done.output
        found.append(np.array(json.loads(done.stdout)[requested.method], "f8"))  # null is NaN
    return found


EXAMPLES = 3


@dataclass(frozen=True)
class Way:
    """A way by which insitu answers."""

    ask: AskThatWay
    examples: int = EXAMPLES
    """How many questions of each kind are asked."""
    stored: bool = False
    """Whether it takes questions about stored variables only."""
    here: bool = False
    """Whether it is asked in small portions, too: all of it happens in this process."""
    is_engine: bool = False
    """Whether it differs from the first time only for more than one portion."""
    is_text: bool = False
    """Whether answers are numbers without a type."""


WAYS: dict[str, Way] = {
    "again": Way(_again, 2, here=True),
    "after loading": Way(_after_loading, 2),
    "without a cache": Way(_without_cache, 2),
    "pickled": Way(_pickled, 2),
    "executor": Way(lambda setting, *what: _by_engine(setting.pool, *what), 2, here=True, is_engine=True),
    "Dask, one worker": Way(
        lambda setting, *what: _by_engine(setting.clusters[1], *what), 2, here=True, is_engine=True
    ),
    "Dask, three workers": Way(
        lambda setting, *what: _by_engine(setting.clusters[3], *what), 2, here=True, is_engine=True
    ),
    "one server": Way(lambda setting, *what: _by_servers(setting.server, *what)),
    "two servers": Way(_on_two_servers),
    "two servers, same data": Way(lambda setting, *what: _by_servers([setting.server, setting.other], *what), 2),
    "two workers": Way(lambda setting, *what: _by_servers(setting.workers, *what)),
    "Archive.reduce": Way(_by_archive, stored=True),
    "insitu.reduce": Way(_by_verb, stored=True),
    "command line": Way(_by_command_line, 2, stored=True, is_text=True),
}
LARGE_WAYS = [
    way
    for way in WAYS
    if way not in ("after loading", "without a cache", "pickled", "Dask, one worker", "command line")
]
