"""Build the source archive and the wheel, and test the wheel as a stranger would get it: `make wheel`.

1. `python -m build` in an environment of its own: the source archive, and the wheel from it.
2. What they contain: everything that is used, nothing else, one version.
3. An environment with the wheel and its declared dependencies: `scripts/smoke.py --minimal`.
4. An environment with the wheel, all extras and the test dependencies: the tests of `make quick`.
5. With `--extras`: an environment for each extra, installed alone.

All environments lie in a temporary folder outside of the checkout, and take the pinned versions of
`constraints/`.
"""

from __future__ import annotations

import argparse
import email
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import native_sources  # noqa: E402  (a script beside this one)

NEEDED = (
    "insitu/py.typed",
    "insitu/server/openapi.json",
    "insitu/server/explorer/page/index.html",
    "insitu/server/explorer/page/vendor/plotting.js",
    "insitu/server/explorer/page/vendor/LICENSES.txt",
)
EXTENSIONS = ("insitu/codecs/_kernels", "insitu/formats/hdf5/structures/_metadata", "insitu/sources/_scatter")
LICENCES = ("LICENSE", "LICENSE.libdeflate", "LICENSE.zstd")
QUICK = "not (slow or servers or corpus or peers or browser)"
"""The markers that `make quick` leaves out; a test compares it with the Makefile."""
NOT_FOR_USERS = {"bench", "check", "demo", "docs", "test"}


class Environment:
    """A virtual environment in a folder.

    Parameters
    ----------
    folder
        Where it is made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        run(sys.executable, "-m", "venv", str(folder))
        self.python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        self.install("--upgrade", "pip", pinned=False)

    def install(self, *what: str, pinned: bool = True) -> None:
        """Install with pip, the pinned versions if this Python has a file of them."""
        pins = ROOT / "constraints" / f"python{sys.version_info.major}.{sys.version_info.minor}.txt"
        options = ["--constraint", str(pins)] if pinned and pins.exists() else []
        self.run("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *options, *what)

    def run(self, *arguments: str, cwd: Path | None = None) -> None:
        """Run Python, by default outside of the checkout."""
        run(str(self.python), *arguments, cwd=cwd or self.folder)


def run(*command: str, cwd: Path = ROOT, quiet: bool = False, **environment: str) -> None:
    """Run a program without this environment's Python settings; a failure ends the script.

    What a quiet one prints is shown only if it fails.
    """
    output = subprocess.PIPE if quiet else None
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        command, cwd=cwd, env={**inherited, **environment}, stdout=output, stderr=subprocess.STDOUT if quiet else None
    )
    if done.returncode:
        sys.stdout.buffer.write(done.stdout or b"")
        raise SystemExit(f"failed ({done.returncode}): {' '.join(command)}")


def build(folder: Path, target: Path) -> tuple[Path, Path]:
    """Build both archives into the target; return the source archive and the wheel, which is made of it."""
    if native_sources.install():
        raise SystemExit("the sources of Zstandard and libdeflate cannot be had: see constraints/native-sources.txt")
    environment = Environment(folder)
    environment.install("build")
    target.mkdir(exist_ok=True)
    for old in target.glob("insitu-*"):
        old.unlink()
    command = [str(environment.python), "-m", "build", "--outdir", str(target), str(ROOT)]
    run(*command, cwd=folder, quiet=True, INSITU_REQUIRE_EXTENSIONS="1")
    (source,), (wheel,) = target.glob("insitu-*.tar.gz"), target.glob("insitu-*.whl")
    return source, wheel


def check_source(path: Path) -> None:
    """Whether a wheel can be built from the source archive, offline."""
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"setup.py", "pyproject.toml", "README.md", *LICENCES}
    wanted |= {"src/insitu/_extension_module.h", "src/insitu/codecs/_decompressors.h"}
    wanted |= {f"src/insitu/formats/hdf5/structures/_objects.{end}" for end in ("c", "h")}
    wanted |= {f"src/{name}.c" for name in EXTENSIONS} | {"src/insitu/codecs/exports.map"}
    wanted |= {f"native_sources/{name}" for name in ("zstd/zstd.h", "libdeflate/libdeflate.h", native_sources.STAMP)}
    expect(wanted <= names, f"{path.name} lacks {', '.join(sorted(wanted - names))}")
    left = [name for name in names if name.endswith((".so", ".pyd")) or name.startswith((".venv", "dist/", "build/"))]
    expect(not left, f"{path.name} contains {', '.join(left)}")


def check_wheel(path: Path, version: str) -> None:
    """Whether the wheel contains what is used at run time and nothing else, for every Python from 3.11 on."""
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        declared = email.message_from_bytes(archive.read(metadata))
    base = metadata.removesuffix("METADATA")
    expect(declared["Version"] == version, f"{path.name} declares the version {declared['Version']}, not {version}")
    expect(path.name.startswith(f"insitu-{version}-cp311-abi3-"), f"{path.name} is no wheel of the stable ABI of 3.11")
    wanted = {*NEEDED, *(f"{base}licenses/{name}" for name in LICENCES)}
    expect(wanted <= names, f"{path.name} lacks {', '.join(sorted(wanted - names))}")
    compiled = {name for name in names if name.endswith((".so", ".pyd"))}
    suffix = "pyd" if os.name == "nt" else "abi3.so"
    expected = {f"{name}.{suffix}" for name in EXTENSIONS}
    expect(compiled == expected, f"{path.name} has the extensions {sorted(compiled)}, not {sorted(expected)}")
    modules = {
        f"insitu/{file.relative_to(ROOT / 'src/insitu').as_posix()}" for file in (ROOT / "src/insitu").rglob("*.py")
    }
    expect(modules <= names, f"{path.name} lacks {', '.join(sorted(modules - names)[:9])}")
    strange = [
        name for name in names if not name.startswith(("insitu/", base)) or name.endswith((".c", ".h", ".S", ".map"))
    ]
    expect(not strange, f"{path.name} contains {', '.join(sorted(strange)[:9])}")


def project_version() -> str:
    """Return the version, from the one place where it stands."""
    text = (ROOT / "src/insitu/__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    expect(found is not None, "src/insitu/__init__.py has no __version__")
    return found[1] if found else ""


def user_extras() -> list[str]:
    """Return the names of the extras that users install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return sorted(project["optional-dependencies"].keys() - NOT_FOR_USERS)


def check_minimal(folder: Path, wheel: Path) -> None:
    """Install the wheel alone and check it."""
    environment = Environment(folder)
    environment.install(str(wheel))
    environment.run("-m", "pip", "check")
    environment.run(str(ROOT / "scripts/smoke.py"), "--minimal")


def check_quick(folder: Path, wheel: Path, jobs: int) -> None:
    """Install the wheel with everything and run the quick tests against it."""
    environment = Environment(folder)
    environment.install(f"{wheel}[all,test]")
    environment.run("-m", "pip", "check")
    # From the folder and by the command of the tests below: what is imported here is imported there.
    environment.run(str(ROOT / "scripts/smoke.py"), cwd=ROOT)
    options = ["-q", "-n", str(jobs), "--dist", "worksteal", "-p", "no:cacheprovider", "--quick", "-m", QUICK]
    environment.run("-m", "pytest", *options, "@tests/quick.txt", cwd=ROOT)


def check_extra(folder: Path, wheel: Path, extra: str) -> None:
    """Install the wheel with one extra: it resolves, fits together, and insitu works beside it."""
    environment = Environment(folder)
    environment.install(f"{wheel}[{extra}]")
    environment.run("-m", "pip", "check")
    environment.run(str(ROOT / "scripts/smoke.py"))


def expect(holds: bool, otherwise: str) -> None:
    """End the script with a reason unless something holds."""
    if not holds:
        raise SystemExit(otherwise)


@contextmanager
def step(name: str) -> Iterator[None]:
    """Print what begins, and how long it took."""
    print(f"== {name}", flush=True)
    begin = time.perf_counter()
    yield
    print(f"== {name}: {time.perf_counter() - begin:.0f} s", flush=True)


def main() -> None:
    """Run the steps."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--extras", action="store_true", help="install each extra alone, too")
    parser.add_argument("--no-tests", action="store_true", help="leave out the quick tests")
    parser.add_argument("--jobs", type=int, default=2, help="processes of the quick tests")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="insitu-wheel-") as temporary:
        folder = Path(temporary)
        with step("build"):
            source, wheel = build(folder / "build", ROOT / "dist")
        with step("contents"):
            check_source(source)
            check_wheel(wheel, project_version())
        with step("minimal installation"):
            check_minimal(folder / "minimal", wheel)
        for extra in user_extras() if wanted.extras else ():
            with step(f"insitu[{extra}] alone"):
                check_extra(folder / extra, wheel, extra)
        if not wanted.no_tests:
            with step("quick tests against the wheel, with all extras"):
                check_quick(folder / "everything", wheel, wanted.jobs)
    print(f"{source.relative_to(ROOT)} {source.stat().st_size / 1e6:.1f} MB")
    print(f"{wheel.relative_to(ROOT)} {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
