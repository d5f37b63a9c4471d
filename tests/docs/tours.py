"""What a new user does with each page: what the page takes as given, and commands that it prints incompletely, filled
in. All else is run as it is printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from docs.running import Step

START = """
import json, os, shutil, subprocess
import icechunk, numpy as np, pandas as pd, xarray as xr, zarr, insitu
from docs.page_archives import MONTHS, clear_buckets, put, write, write_months
from docs.running import ask, command, end_servers, explored_variables
clear_buckets(*os.environ.get("BUCKETS", "").split())  # of what other pages have written
"""
STRICT = """
import warnings
warnings.simplefilter("error", UserWarning)  # reading here what a server should reduce is one
"""
EXEMPT = {
    "pip install…": "`make wheel WHEEL=--extras` installs the wheel with every extra",
    "make demo…": "tests/examples/test_demo.py runs the demonstration",
    "make quick…": "the tests do not run themselves",
    "make test…": "the tests do not run themselves",
}
"""Commands of all pages that are not run here, and why. A key that ends in … is the beginning of a command."""
PLACES = {
    r"(http|tcp)://(store|one|two|three|scheduler|collector)(\.example)?(?=:)": r"\1://127.0.0.1",
    r'(?<="key": )"…"': "os.environ['AWS_ACCESS_KEY_ID']",
    r'(?<="secret": )"…"': "os.environ['AWS_SECRET_ACCESS_KEY']",
}
"""What stands in for hosts and keys. Buckets are those of a store, by their names."""
FOLDERS = r"(?<![\w/.:])/(data|gws/project|old|new)(?=[/\s\"'=]|$)"
"""Folders at the root of a machine, which lie in the folder of the test instead."""


@dataclass(frozen=True)
class Tour:
    """How a page is run. Keys name commands and Python blocks, in full or, with … at the end, by their beginning."""

    start: str = ""
    """Python that makes what the page takes as given."""
    filled_in: Mapping[str, str] = field(default_factory=dict)
    """Commands with a placeholder, or that are only named, as they are run."""
    before: Mapping[str, str] = field(default_factory=dict)
    """Python that is run before a step."""
    after: Mapping[str, str] = field(default_factory=dict)
    """Python that is run after a step: checks of what it did."""
    exempt: Mapping[str, str] = field(default_factory=dict)
    """Steps that are not run here, and why."""
    commands_first: bool = False
    """Whether the commands of a page make what its Python blocks open."""
    folder: str = "."
    """Where it is run."""

    def plan(self, printed: Iterable[Step]) -> list[Step]:
        """The steps that are run for the printed ones; an error if the tour names one that the page has no more."""
        unused = {*self.filled_in, *self.before, *self.after, *self.exempt}
        parts = [Step("python", START + self.start)]
        for step in sorted(printed, key=lambda step: step.kind == "python") if self.commands_first else printed:
            keys = {key for key in (*unused, *self.before, *self.after, *self.exempt) if _names(key, step)}
            unused -= keys | {step.text}
            if _is_exempt(step, EXEMPT) or _is_exempt(step, self.exempt):
                continue
            parts += [Step("python", code) for key, code in self.before.items() if key in keys]
            parts.append(Step(step.kind, self.filled_in.get(step.text, step.text), step.shown))
            parts += [Step("python", code) for key, code in self.after.items() if key in keys]
        assert not unused, f"the page has no such command any more: {sorted(unused)}"
        return parts


def _names(key: str, step: Step) -> bool:
    return step.text.startswith(key[:-1]) if key.endswith("…") else step.text.strip() == key


def _is_exempt(step: Step, reasons: Mapping[str, str]) -> bool:
    return any(_names(key, step) for key in reasons)


TOURS = {
    "README.md": Tour(
        STRICT
        + "write_months('s3://bucket/archive/%Y/tas_%Y-%m.nc')\ncommand('insitu serve . s3://bucket --port 8080')",
        filled_in={
            "insitu serve ROOT": "insitu serve . s3://bucket --port 8080",
            "insitu rollback": "insitu rollback archive.insitu",
        },
        before={
            "insitu scan…": "shutil.rmtree('archive.insitu')  # of the Python block",
            "insitu append…": "write('s3://bucket/2027/tas.nc', pd.Timestamp('2027-01-01'))",
        },
        after={
            "insitu explore…": "assert {'tas', 'pr'} <= explored_variables()",
            "insitu check…": "assert insitu.open_dataset('archive.insitu').sizes['time'] == 92 + 31",
            "insitu rollback": "assert insitu.open_dataset('archive.insitu').sizes['time'] == 92",
        },
    ),
    "tutorial.md": Tour(exempt={"insitu scan": "the name of a command of the block above"}),
    "howto/dask.md": Tour(
        "write_months('s3://bucket/archive/%Y/tas_%Y-%m.nc')\n"
        "from dask.distributed import LocalCluster\n"
        "cluster = LocalCluster(n_workers=1, processes=False, protocol='tcp://', scheduler_port=8786, "
        "dashboard_address='127.0.0.1:0')",
    ),
    "howto/copy.md": Tour("write_months('archive/%Y-%m.nc')\nwrite('a.nc', pd.Timestamp('2026-01-01'))"),
    "howto/event_loops.md": Tour("write_months('s3://bucket/archive/%Y-%m.nc')"),
    "howto/explore.md": Tour(
        "write_months('archive/%Y-%m.nc')",
        filled_in={"insitu serve ROOT…": "insitu serve archive"},
        after={
            "insitu explore 'archive/*.nc'": "assert {'tas', 'pr'} <= explored_variables()",
            "insitu serve ROOT…": "assert b'<html' in ask('/').lower()",
        },
    ),
    "howto/formulas.md": Tour(),
    "howto/from_kerchunk.md": Tour(
        "write_months('/data/archive/%Y-%m.nc')\n"
        "insitu.open_mfdataset('/data/archive/*.nc').insitu.save('refs.json')\n"
        "write_months('s3://bucket/archive/%Y-%m.nc')",
        filled_in={
            "insitu convert … --rename OLD=NEW": "insitu convert refs.json moved.json --rename /data=s3://bucket"
        },
        after={
            "insitu convert…": "for name in filter(os.path.exists, ('refs.insitu', 'moved.json')):\n"
            "    assert insitu.open_dataset(name).tas.load().notnull().all()",
        },
    ),
    "howto/from_pyactivestorage.md": Tour(
        filled_in={"insitu serve --keep-dims": "insitu serve . --keep-dims"},
        exempt=dict.fromkeys(
            ("insitu serve", "from activestorage…", "import insitu…"),
            "tests/server/test_active_storage.py runs them with PyActiveStorage",
        ),
    ),
    "howto/from_virtualizarr.md": Tour(
        "write_months('/data/archive/%Y-%m.nc')\n"
        "insitu.open_mfdataset('/data/archive/*.nc').insitu.save('refs.parq')\n"
        "write_months('s3://bucket/archive/%Y-%m.nc')",
        filled_in={
            "insitu convert … --rename OLD=NEW": "insitu convert refs.parq moved.parq --rename /data=s3://bucket"
        },
        after={"insitu convert…": "assert insitu.open_dataset('moved.parq').tas.load().notnull().all()"},
    ),
    "howto/hpc.md": Tour(
        "write_months('/gws/project/archive/tas_%Y-%m.nc')\n"
        "os.makedirs('/gws/project/refs')\n"
        "write_months('/old/%Y-%m.nc')\n"
        "insitu.open_mfdataset('/old/*.nc').insitu.save('old.insitu')\n"
        "os.rename('/old', '/new')",
        filled_in={
            "insitu check REFS": "insitu check /gws/project/refs/archive.insitu",
            "insitu refresh REFS": "insitu refresh /gws/project/refs/archive.insitu",
            "insitu scan … --relative": "insitu scan '/gws/project/archive/*.nc' -o /gws/project/all.insitu --relative",
        },
        after={
            "insitu scan … --relative": "os.rename('/gws/project', '/new/project')\n"
            "insitu.open_dataset('/new/project/all.insitu').tas.load()",
            "insitu convert old.insitu new.insitu --rename /old=/new": "insitu.open_dataset('new.insitu').tas.load()",
        },
    ),
    "howto/icechunk.md": Tour(
        "write_months('s3://bucket/archive/%Y-%m.nc')",
        filled_in={
            "insitu scan … --overwrite": "insitu scan 's3://bucket/archive/*.nc' "
            "-o s3://mine/archive.icechunk --overwrite"
        },
        before={"insitu scan 's3://bucket/archive/*.nc'…": "clear_buckets('mine')  # the page says: or this command"},
        after={
            "storage =…": "repository = icechunk.Repository.open(storage)\n"
            "saved = [version for version in repository.ancestry(branch='main') if version.parent_id]\n"
            "assert len(saved) == 2, saved"
        },
    ),
    "howto/forecasts.md": Tour(
        "from pathlib import Path\n"
        "from forecast_files import Field, write_grib\n"
        "for folder, runs in (('runs', (0, 3, 6)), ('new', (9,))):\n"
        "    for run in runs:\n"
        "        write_grib(Path(f'{folder}/{run}.grib2'), [Field(run, lead, 'TMP') for lead in (0, 3, 6)])",
        after={
            "insitu drop operations.insitu --keep…": "assert len(insitu.open_dataset('operations.insitu').time) == 2",
            "insitu drop operations.insitu runs…": "assert len(insitu.open_dataset('operations.insitu').time) == 1",
        },
    ),
    "howto/keep.md": Tour(
        "for day in pd.date_range('2026-06-29', '2026-07-05'):\n    write(f'archive/{day:%Y-%m-%d}.nc', day, days=1)",
        filled_in={
            "insitu append --errors skip": "insitu append archive.insitu 'archive/2026-07-*.nc' --errors skip",
            "insitu refresh archive.insitu --rename OLD=NEW": "insitu refresh archive.insitu --rename /data=s3://bucket/data",
        },
        after={
            "insitu drop…": "assert insitu.open_dataset('archive.insitu').sizes['time'] == 6",
            "insitu rollback…": "assert insitu.open_dataset('archive.insitu').sizes['time'] == 7",
            "insitu convert…": "for name in os.listdir('archive'):\n"
            "    put(f's3://bucket/data/archive/{name}', open(f'archive/{name}', 'rb').read())\n"
            "insitu.open_dataset('elsewhere.insitu').tas.load()",
            "insitu refresh archive.insitu": "insitu.open_dataset('archive.insitu').tas.load()",
        },
        exempt={"insitu compact": "the name of a command of the block above"},
        folder="data",
    ),
    "howto/many_files.md": Tour(
        "write_months('archive/tas_%Y-%m.nc')\n"
        "for model in 'AB':\n"
        "    for member in '12':\n"
        "        write(f'cmip/tas_Amon_{model}_historical_r{member}i1p1.nc', MONTHS[0],\n"
        "              attributes={'source_id': model}, scalars={'realization': int(member)})",
        after={
            "insitu scan 'cmip/*.nc' --concat-dim 'model…": "assert insitu.open_dataset('cmip.insitu').identical(ds)",
            "insitu scan 'cmip/*.nc' --concat-dim model…": "assert insitu.open_dataset('models.insitu').identical(ds)",
        },
    ),
    "howto/overlaps.md": Tour(
        "for day in pd.date_range('2026-06-01', '2026-06-20', freq='4D'):\n"
        "    write(f'archive/{day:%Y-%m-%d}.nc', day, days=5)\n"
        "write('late/x.nc', pd.Timestamp('2026-06-28'), days=2)\n"
        "write('corrections/x.nc', pd.Timestamp('2026-01-05'), days=3)\n"
        "write('plain/x.nc', pd.Timestamp('2026-01-01'), days=9)\n"
        "insitu.open_mfdataset('plain/*.nc').insitu.save('plain.insitu')",
        filled_in={
            "insitu scan": "insitu scan 'archive/*.nc' --overlap last",
            "insitu drop archive.insitu FILE": "insitu drop archive.insitu late/x.nc",
        },
        after={
            'ds = insitu.open_mfdataset("archive/*.nc", overlap="last")': "assert ds.sizes['time'] == 21",
            "insitu append…": "found = insitu.open_dataset('archive.insitu')\n"
            "assert found.sizes['time'] == 29 and len(found.insitu.missing['time']) == 6",
            "insitu drop archive.insitu FILE": "assert insitu.open_dataset('archive.insitu').sizes['time'] == 21",
        },
    ),
    "howto/images.md": Tour(
        "from pathlib import Path\n"
        "from fixtures.images import write_image\n"
        "for folder in ('scenes', 'tiles'): os.makedirs(folder)\n"
        "for number, day in enumerate(('20200131', '20200210')):\n"
        "    write_image(Path(f'scenes/s2_{day}_a.tif'), number, overviews=(2,))\n"
        "    write_image(Path(f'tiles/{number}.tif'), number, corner=(500000.0 + 350 * number, 10.0))",
        after={
            'ds = insitu.open_mfdataset("scenes/*.tif"…': "assert ds.time.dt.day.values.tolist() == [31, 10]",
            "tree…": "assert dict(coarse.sizes) == {'band': 2, 'y': 20, 'x': 18}",
            "named…": "assert insitu.open_mfdataset('tiles/*.tif').sizes['x'] == 70\n"
            "assert ndvi.dims == ('time', 'y', 'x') and bands.insitu.virtual == ['red', 'nir']",
        },
    ),
    "howto/profiles.md": Tour(
        "from pathlib import Path\n"
        "from fixtures.ragged import write_gathered, write_stations\n"
        "for folder in ('profiles', 'swaths'): os.makedirs(folder)\n"
        "for number in range(1, 4):\n"
        "    for year in (2025, 2026):\n"
        "        n = number + year - 2024\n"
        "        values = {'temp': ('depth', np.arange(n) * 1.5)}\n"
        "        coords = {'depth': np.arange(n) * 10.0 + number, 'lat': float(n)}\n"
        "        xr.Dataset(values, coords).to_netcdf(f'profiles/{year}_{number}.nc')\n"
        "    swath = {'bt': (('line', 'pixel'), np.ones((number, 4)))}\n"
        "    xr.Dataset(swath).to_netcdf(f'swaths/{number}.nc')\n"
        "write_stations(Path('stations.nc'), 'contiguous', names=('Halley', 'Rothera', 'Vostok', 'Davis'))\n"
        "write_gathered(Path('land.nc'))",
        after={
            "insitu append…": "assert insitu.open_dataset('profiles.insitu').sizes == {'profile': 6, 'depth': 5}",
            "ds = insitu.open_dataset…": "assert halley.temp.size == 3",
        },
    ),
    "howto/s3.md": Tour(
        "write_months('s3://bucket/era5/%Y/t2m_%m.nc')",
        before={"insitu append…": "write('s3://bucket/era5/2025/t2m_01.nc', pd.Timestamp('2025-01-01'))"},
        after={"options =…": "assert ds.sizes['time'] == 92 + 31\nds.tas.load()"},
        commands_first=True,
    ),
    "howto/serving.md": Tour(
        STRICT + "write_months('/data/archive/%Y-%m.nc')\n"
        "for place in ('s3://bucket/prefix', 's3://mine'): write(f'{place}/x.nc', MONTHS[0])\n"
        "insitu.open_mfdataset('/data/archive/*.nc').insitu.save('/data/archive/refs.insitu')\n"
        "for year in (1990, 1991): write(f's3://bucket/{year}.nc', pd.Timestamp(f'{year}'))\n"
        "write('/data/1992.nc', pd.Timestamp('1992'))",
        before={
            "ds = insitu.open_mfdataset(…": "command('insitu serve s3://bucket /data --port 8080')",
            "OTEL_EXPORTER…": "from docs.span_collector import SpanCollector\nspans = SpanCollector(4318)",
        },
        after={
            "insitu serve /data/archive…": "assert b'tas' in ask('/zarr/s3://bucket/prefix/x.nc!/zarr.json')",
            "insitu serve s3://mine…": "assert b'tas' in ask('/zarr/s3://mine/x.nc!/zarr.json')",
            "OTEL_EXPORTER…": "end_servers()  # the last spans are sent when it stops\n"
            "assert b'GET health' in spans.received()",
        },
        exempt={"insitu serve": "the name of the command of the page"},
    ),
    "howto/trees.md": Tour(
        "from pathlib import Path\n"
        "from fixtures.tree_products import write_cfradial2, write_odim, write_swath_product\n"
        "for folder in ('swaths', 'volumes', 'odim'): os.makedirs(folder)\n"
        "for number in range(3):\n"
        "    write_swath_product(Path(f'swaths/{number}.nc'), number)\n"
        "    write_cfradial2(Path(f'volumes/{number}.nc'), number)\n"
        "    write_odim(Path(f'odim/vol_20240101T000{5 * number}.h5'.replace('00010', '0010')), number)",
        before={
            "archive =…": "os.makedirs('volumes/next')\n"
            "for number in (3, 4): write_cfradial2(Path(f'volumes/next/{number}.nc'), number)"
        },
        after={
            "insitu scan…": "assert insitu.open_datatree('volumes.insitu')['sweep_1'].sizes['time'] == 12",
            "archive =…": "assert insitu.open_datatree('volumes.insitu')['sweep_1'].sizes['time'] == 16",
        },
        exempt={
            "insitu append": "the name of a command",
            "insitu scan file.nc -o x.insitu": "tests/maintenance/test_append_groups.py lets a store of one file grow",
        },
    ),
    "howto/upgrading.md": Tour(
        "from pathlib import Path\nPath('server.toml').write_text('port = 8080\\n')",
        after={
            "insitu serve --config server.toml --help": "Path('server.toml').write_text('prot = 8080\\n')\n"
            "call = ['insitu', 'serve', '--config', 'server.toml', '--help']\n"
            "refused = subprocess.run(call, capture_output=True, text=True)\n"
            "assert refused.returncode and 'prot' in refused.stderr, refused"
        },
        exempt=dict.fromkeys(
            ("/opt/insitu/bin/pip install…", "for port in 8081 8082…"),
            "tests/server/test_proxy.py replaces one server after the other behind nginx; it has no systemd",
        ),
    ),
    "howto/zarr_clients.md": Tour(
        "write_months('/data/%Y-%m.nc')\n"
        "insitu.open_mfdataset('/data/*.nc').insitu.save('/data/x.insitu')\n"
        "shutil.copytree('/data/x.insitu', 'archive.insitu')",
        after={
            "insitu serve /data": "for view in ('zarr', 'zarr2'):\n"
            "    served = insitu.open_dataset(f'http://127.0.0.1:8080/{view}' '/data/x.insitu!/')\n"
            "    xr.testing.assert_equal(served.compute(), insitu.open_dataset('/data/x.insitu').compute())"
        },
    ),
}
