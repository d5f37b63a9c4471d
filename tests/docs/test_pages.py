"""The documentation does what it says: its pages run, its links lead somewhere, its names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import insitu
from docs.running import blocks, free_port, run_blocks, run_page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", ["tutorial.md", "howto/formulas.md"])
def test_a_page_runs(page: str, tmp_path: Path) -> None:
    pytest.importorskip("netCDF4")
    pytest.importorskip("starlette")
    pytest.importorskip("dask")
    assert len(blocks(DOCS / page)) > 10
    run_page(DOCS / page, tmp_path)


FOLDERS = {
    "s3://bucket/": "bucket/",
    "s3://mine/": "mine/",
    "s3://a/": "a/",
    "/gws/project/": "project/",
    "/data/": "data/",
}
"""What stands in for the places of pages: folders beside the program."""
SERVERS = re.compile(r"(http|tcp)://(store|one|two|three|scheduler)(\.example)?(?=:)")
START_OF_PAGES = """
import os, subprocess, icechunk, numpy as np, pandas as pd, xarray as xr, zarr, insitu

def write(path, day, names=("tas", "pr"), days=31):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    dims, shape = ("time", "lat", "lon"), (days, 12, 8)
    values = np.random.default_rng(day.dayofyear).random(shape).astype("f4") * 30 + 260
    labels = {"time": pd.date_range(day, periods=days), "lat": np.linspace(40, 51, 12), "lon": np.arange(8.0)}
    variables = {name: (dims, values, {"units": "K"}) for name in names}
    encoding = {name: {"chunksizes": (1, 6, 8), "zlib": True} for name in names}
    xr.Dataset(variables, labels).to_netcdf(path, engine="h5netcdf", encoding=encoding)

months = pd.date_range("2020-05-01", periods=3, freq="MS")
"""
YEAR = """
for day in months:
    write(f"bucket/archive/{day:%Y}/tas_{day:%Y-%m}.nc", day, days=day.days_in_month)
"""
PAGES_OF_USERS = {
    "README.md, Python": YEAR + "command('insitu serve . --port 8080 &', [])",
    "README.md, commands": YEAR + "write('bucket/2027/tas.nc', pd.Timestamp('2027-01-01'))\n"
    "command('insitu serve . --port 8080 &', [])",
    "howto/serving.md, Python": "import warnings\n"
    "warnings.simplefilter('error', UserWarning)  # falling back to reading here is one\n"
    "for day in months: write(f'data/archive/{day:%Y-%m}.nc', day, days=day.days_in_month)\n"
    "insitu.open_mfdataset('data/archive/*.nc').insitu.save('data/archive/refs.insitu')\n"
    "for name in ('a/1990', 'a/1991', 'data/1992'): write(f'{name}.nc', pd.Timestamp(name.partition('/')[2]))\n"
    "command('insitu serve . --port 8080 &', [])",
    "howto/many_files.md": "for day in months: write(f'archive/tas_{day:%Y-%m}.nc', day, days=day.days_in_month)\n"
    "for model in 'AB':\n"
    "    for member in '12': write(f'cmip/tas_Amon_{model}_historical_r{member}i1p1.nc', months[0])",
    "howto/keep.md": "for day in pd.date_range('2026-06-29', '2026-07-05'):\n"
    "    write(f'archive/{day:%Y-%m-%d}.nc', day, days=1)",
    "howto/dask.md": YEAR + "from dask.distributed import LocalCluster\n"
    "cluster = LocalCluster(n_workers=1, processes=False, protocol='tcp://', scheduler_port=8786, "
    "dashboard_address=None)",
    "howto/hpc.md": "for day in months: write(f'project/archive/tas_{day:%Y-%m}.nc', day, days=day.days_in_month)\n"
    "os.makedirs('project/refs')",
    "howto/icechunk.md": "for day in months: write(f'bucket/archive/{day:%Y-%m}.nc', day, days=day.days_in_month)",
    "howto/s3.md, commands first": "for day in months:\n"
    "    write(f'bucket/era5/{day:%Y}/t2m_{day:%m}.nc', day, days=day.days_in_month)",
    "howto/zarr_clients.md": YEAR + "insitu.open_mfdataset('bucket/archive/**/*.nc').insitu.save('archive.insitu')",
}
"""What each page takes as given."""


@pytest.mark.parametrize("name", PAGES_OF_USERS)
def test_a_page_of_a_user_runs(name: str, tmp_path: Path) -> None:
    """Every command as it is printed; only the places are others."""
    for needed in ("h5netcdf", "starlette", "distributed", "icechunk", "matplotlib"):
        pytest.importorskip(needed)
    page, _, kind = name.partition(", ")
    texts = blocks(ROOT / page if page == "README.md" else DOCS / page)
    if kind == "commands first":  # which make what the others open
        texts.sort(key=lambda text: text[0] == "python")
    elif kind:
        texts = [text for text in texts if text[0] == ("python" if kind == "Python" else "console")]
    # Of other pages: how to set up, and a bucket of Icechunk itself (which tests/remote has).
    texts = [text for text in texts if not re.search(r"pip install|make demo|icechunk\.s3_storage", text[1])]
    assert texts
    with free_port() as port:
        places = {shown: f"{tmp_path}/{folder}" for shown, folder in FOLDERS.items()} | {"8786": str(port)}
    texts = [(language, SERVERS.sub(r"\1://127.0.0.1", text)) for language, text in texts]
    start = [("python", START_OF_PAGES + PAGES_OF_USERS[name])]
    run_blocks([*start, *texts], tmp_path, places)


def test_every_page_is_run_or_named() -> None:
    """A page with commands for users is run here, or it is known who runs it."""
    elsewhere = {
        "tutorial.md", "howto/formulas.md",  # above
        "howto/explore.md",  # tests/explorer
        "howto/from_pyactivestorage.md",  # tests/server/test_active_storage.py
        "howto/upgrading.md",  # tests/server/test_proxy.py
    }  # fmt: skip
    mine = {name.partition(",")[0] for name in PAGES_OF_USERS}
    pages = [DOCS / "tutorial.md", *(DOCS / "howto").glob("*.md")]
    assert {str(page.relative_to(DOCS)) for page in pages if blocks(page)} <= elsewhere | mine


@pytest.mark.parametrize(
    "page", [page for page in (DOCS / "gallery").glob("*.md") if page.stem != "index"], ids=lambda page: page.stem
)
def test_a_notebook_runs(page: Path, tmp_path: Path) -> None:
    for needed in ("matplotlib", "netCDF4", "starlette", "dask", *(["kerchunk"] if page.stem == "kerchunk" else [])):
        pytest.importorskip(needed)
    cells = [text for _, text in blocks(page)]
    assert len(cells) == page.read_text(encoding="utf-8").count("```{code-cell}") > 5
    assert any("xr.testing.assert_" in text for text in cells)  # its results are compared with xarray's
    assert any("plt." in text for text in cells)
    run_page(page, tmp_path)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_names_exist(page: Path) -> None:
    """Every `insitu.name(` that a page shows is a public name."""
    text = page.read_text(encoding="utf-8")
    for name in set(re.findall(r"(?<!\.)\binsitu\.([a-z_]+)\(", text)):
        assert hasattr(insitu, name), f"{page.name}: insitu.{name}"
