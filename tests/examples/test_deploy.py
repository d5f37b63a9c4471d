"""The files for containers agree with each other and with `insitu serve`, and what they start works.

No container runtime is needed, and none is tested: the server runs in this interpreter's environment
instead of an image, by the same options, variables and files, with addresses and paths of this machine.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from insitu.cli import load_verb
from insitu.server.metrics import COUNTERS, GAUGES, Metrics
from ports import free_port
from server.places import put_object, servers
from server.serving import started
from waiting import LONG

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "examples" / "deploy"
PREFIX = "INSITU_SERVE_"
COMMAND = load_verb("serve")


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Containerfile, with their words."""
    text = re.sub(r"\\\n\s*", " ", (DEPLOY / "Containerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def image_environment() -> dict[str, str]:
    words = [word for name, rest in instructions() if name == "ENV" for word in rest.split()]
    return dict(word.split("=", 1) for word in words)


def compose() -> Any:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def cluster() -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())}


def pod() -> Any:
    return cluster()["Deployment"]["spec"]["template"]["spec"]


def options(text: str, tmp_path: Path) -> dict[str, Any]:
    """The options that a TOML file gives; an error if one does not exist."""
    path = tmp_path / "server.toml"
    path.write_text(text)
    with COMMAND.make_context("serve", ["--config", str(path)]) as context:
        found: dict[str, Any] = context.params
        return found


def test_the_image() -> None:
    steps = instructions()
    assert [name for name, _ in steps].count("FROM") == 2
    user = next(rest for name, rest in steps if name == "USER")
    assert user == str(pod()["securityContext"]["runAsUser"]) != "0"
    assert any(f"--uid {user} " in rest for name, rest in steps if name == "RUN")
    (extras,) = re.findall(r"\.whl\)\[([a-z,]+)\]", " ".join(rest for _, rest in steps))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    script, verb = json.loads(next(rest for name, rest in steps if name == "ENTRYPOINT"))
    assert Path(script).name in project["scripts"]
    assert verb == "serve"
    for path in re.findall(r"python (scripts/\S+)", " ".join(rest for _, rest in steps)):
        assert (ROOT / path).exists()
    ignored = (DEPLOY / "Containerfile.dockerignore").read_text().split()
    assert not {"src", "scripts", "constraints", "README.md", "LICENSE", "pyproject.toml", "setup.py"} & set(ignored)


def test_the_files_that_compose_names() -> None:
    found = compose()
    context = DEPLOY / found["services"]["insitu"]["build"]["context"]
    assert (context / found["services"]["insitu"]["build"]["dockerfile"]).resolve() == DEPLOY / "Containerfile"
    for kind in ("configs", "secrets"):
        for name, about in found[kind].items():
            assert (DEPLOY / about["file"]).exists(), name
        for service in found["services"].values():
            for used in service.get(kind, ()):
                assert (used if isinstance(used, str) else used["source"]) in found[kind]
    assert yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]


def test_options_exist(tmp_path: Path) -> None:
    names = {f"{PREFIX}{parameter.name.upper()}" for parameter in COMMAND.params}
    services = compose()["services"]
    assert image_environment().keys() <= names
    assert services["insitu"]["environment"].keys() <= names
    options((DEPLOY / "server.toml").read_text(), tmp_path)
    found = options(cluster()["ConfigMap"]["data"]["server.toml"], tmp_path)
    (container,) = pod()["containers"]
    mounted = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert container["args"] == ["--config", "/etc/insitu/server.toml"]
    assert mounted["/etc/insitu/server.toml"]["subPath"] in cluster()["ConfigMap"]["data"]
    assert all(root in mounted for root in found["roots"])
    assert str(found["token_file"].parent) in mounted
    assert {mount["name"] for mount in mounted.values()} == {volume["name"] for volume in pod()["volumes"]}
    memory = int(container["resources"]["limits"]["memory"].removesuffix("Gi"))
    assert memory >= found["memory"] + found["cache"] + found["workers"]


def test_ports_and_times_agree(tmp_path: Path) -> None:
    steps, services = instructions(), compose()["services"]
    port = image_environment()[f"{PREFIX}PORT"]
    assert next(rest for name, rest in steps if name == "EXPOSE") == port
    assert f":{port}/health" in next(rest for name, rest in steps if name == "HEALTHCHECK")
    assert services["insitu"]["ports"] == [f"{port}:{port}"]
    (scraped,) = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]
    assert scraped["static_configs"][0]["targets"] == [f"insitu:{port}"]
    (container,) = pod()["containers"]
    found = options(cluster()["ConfigMap"]["data"]["server.toml"], tmp_path)
    assert str(found["port"]) == port
    assert container["ports"] == [{"name": "http", "containerPort": int(port)}]
    assert cluster()["Service"]["spec"]["ports"][0]["targetPort"] == "http"
    assert cluster()["Service"]["spec"]["selector"] == cluster()["Deployment"]["spec"]["selector"]["matchLabels"]
    waited = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod()["terminationGracePeriodSeconds"] >= waited + found["grace"] + 10
    stopped = int(services["insitu"]["stop_grace_period"].removesuffix("s"))
    assert stopped >= options((DEPLOY / "server.toml").read_text(), tmp_path)["grace"] + 10
    endpoint = re.search(r"-s3\.port=(\d+)", services["s3"]["command"])
    assert endpoint is not None
    assert f"http://s3:{endpoint[1]}" in (DEPLOY / "storage_options.json").read_text()


def test_the_dashboard_that_compose_loads() -> None:
    """Grafana finds it, its source of numbers, and every name in it among the server's metrics."""
    service, files = compose()["services"]["grafana"], compose()["configs"]
    mounted = {one["target"]: DEPLOY / files[one["source"]]["file"] for one in service["configs"]}
    folders = {"datasources": None, "dashboards": None}
    for kind in folders:
        (path,) = [path for target, path in mounted.items() if f"/provisioning/{kind}/" in target]
        folders[kind] = yaml.safe_load(path.read_text())
    (source,), (provider,) = folders["datasources"]["datasources"], folders["dashboards"]["providers"]
    assert source["url"].removeprefix("http://") == "prometheus:9090"
    assert "9090:9090" in compose()["services"]["prometheus"]["ports"]
    home = service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert str(Path(home).parent) == provider["options"]["path"]
    dashboard = json.loads(mounted[home].read_text())
    metrics = Metrics()
    metrics.record_response("reduce", 200, 0.1, 1)
    known = {
        sample.name for family in text_string_to_metric_families(metrics.text().decode()) for sample in family.samples
    }
    shown = set()
    for panel in dashboard["panels"]:
        assert panel["datasource"]["uid"] == source["uid"]
        for target in panel["targets"]:
            names = set(re.findall(r"\binsitu_\w+", target["expr"]))
            assert names, panel["title"]
            assert target["expr"].count("(") == target["expr"].count(")")
            shown |= names
    assert shown <= known
    assert {*COUNTERS, *GAUGES} <= shown
    (job,) = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]
    assert dashboard["templating"]["list"][0]["current"]["value"] == job["job_name"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)


def test_what_compose_starts(tmp_path: Path) -> None:
    """The server, by the variables of the image and of compose; the store; a scrape; the health check; the probes."""
    h5py = pytest.importorskip("h5py")
    if (why := servers.reason("seaweedfs")) is not None:
        pytest.skip(why)
    (tmp_path / "store").mkdir()
    (tmp_path / "deployed").mkdir()
    port, service = free_port(), compose()["services"]["insitu"]
    with servers.start("seaweedfs", tmp_path / "store") as store:
        places = _copy_mounted_files(service, tmp_path / "deployed", store.url)
        environment = {
            **image_environment(),
            **{name: places[value] for name, value in service["environment"].items()},
            f"{PREFIX}PORT": str(port),
            f"{PREFIX}HOST": "127.0.0.1",
        }
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_dataset("t", data=np.arange(10.0), chunks=(5,))
        put_object(store.url, "archive", "a.h5", (tmp_path / "a.h5").read_bytes())
        with started([], f"http://127.0.0.1:{port}", tmp_path / "log", environment) as server:
            (scraped,) = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]
            about = scraped["authorization"]
            token = Path(places[about["credentials_file"]]).read_text().strip()
            headers = {"Authorization": f"{about['type']} {token}"}
            job = {"url": "s3://archive/a.h5", "variable": "t", "methods": ["sum"]}
            assert server.post("/reduce", {"jobs": [job]}).status == 401
            answer = server.post("/reduce", {"jobs": [job]}, headers)
            assert answer.status == 200, answer.body
            assert np.frombuffer(answer.items[0]["values"]["sum"]["data"], "<f8")[0] == 45
            assert b"insitu_requests_total" in server.get(scraped["metrics_path"], headers).body
            for name in ("startupProbe", "livenessProbe", "readinessProbe"):
                assert server.get(pod()["containers"][0][name]["httpGet"]["path"]).status == 200
            check = next(rest for name, rest in instructions() if name == "HEALTHCHECK").partition("CMD ")[2]
            _, *words = ast.literal_eval(check)
            words = [word.replace(":8080/", f":{port}/") for word in words]
            environment = {**os.environ, "no_proxy": "*"}
            assert subprocess.run([sys.executable, *words], timeout=LONG, check=False, env=environment).returncode == 0
            server.process.terminate()
            server.process.wait(LONG)
            assert subprocess.run(
                [sys.executable, *words], timeout=LONG, check=False, env=environment, stderr=subprocess.DEVNULL
            ).returncode
    entries = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert any(entry.get("archive") == "s3://archive/a.h5" for entry in entries)


def _copy_mounted_files(service: Any, folder: Path, endpoint: str) -> dict[str, str]:
    """Copy what the container sees, with the address and keys of this store; give the path of each by its own."""
    found = compose()
    mounts = {one["target"]: found["configs"][one["source"]]["file"] for one in service["configs"]}
    mounts |= {f"/run/secrets/{name}": found["secrets"][name]["file"] for name in service["secrets"]}
    for target, source in mounts.items():
        shutil.copy(DEPLOY / source, folder / Path(source).name)
        mounts[target] = str(folder / Path(source).name)
    path = folder / "storage_options.json"
    text = path.read_text().replace("http://s3:8333", endpoint)
    path.write_text(text.replace("example-key", servers.KEY).replace("example-secret", servers.SECRET))
    return mounts
