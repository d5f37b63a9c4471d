"""Every option of `insitu serve` by flag, by environment and by TOML file, and which of them comes first.

The cases come from the command's own signature, so a new option is covered as well.

Modules: cli/explore.py, cli/serve.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from insitu.cli import app, load_verb
from insitu.cli.option_sources import unknown_variables
from insitu.cli.serve import serve
from insitu.errors import InsituError

ROOT = Path(__file__).resolve().parents[2]
COMMAND = load_verb("serve")
PARAMETERS = {parameter.name: parameter for parameter in COMMAND.params if parameter.name != "help"}
IN_FILES = [name for name in PARAMETERS if name != "config"]


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without options."""
    import os

    for name in list(os.environ):
        if name.startswith(("INSITU_SERVE", "INSITU_TOKENS")):
            monkeypatch.delenv(name)


def parsed(*arguments: str) -> dict[str, Any]:
    """What the command would run with."""
    with COMMAND.make_context("serve", list(arguments)) as context:
        found: dict[str, Any] = context.params
        return found


DEFAULTS = parsed()


def samples(name: str) -> list[Any]:
    """Three values of an option that are not its default; two for a switch."""
    default = DEFAULTS[name]
    if isinstance(default, bool):
        return [not default, default]
    if isinstance(default, int):
        return [default + 1, default + 2, default + 3]
    if name == "memory":  # its default depends on others
        return [2.5, 3.5, 4.5]
    if isinstance(default, float):
        return [default + 0.5, default + 1.5, default + 2.5]
    if name == "quotas":
        return [{"default": {"requests": number}} for number in (1, 2, 3)]
    words = ["one", "two", "three"]
    return [[word] for word in words] if _is_list(name) else words


def _is_list(name: str) -> bool:
    parameter = PARAMETERS[name]
    return bool(getattr(parameter, "multiple", False)) or getattr(parameter, "nargs", 1) == -1


def flags(name: str, value: Any) -> list[str]:
    if name == "roots":
        return list(value)
    spelled = PARAMETERS[name].opts[0]
    if isinstance(value, bool):
        return [spelled if value else PARAMETERS[name].secondary_opts[0]]
    return [word for item in (value if isinstance(value, list) else [value]) for word in (spelled, text_of(item))]


def text_of(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)


def toml(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"[{name}.{key}]\nrequests = {limits['requests']}" for key, limits in value.items())
    return f"{name} = {json.dumps(value)}"


def variable(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else text_of(value).lower()


def same(found: Any, value: Any) -> bool:
    plain = list(found) if isinstance(found, (list, tuple)) else str(found) if isinstance(found, Path) else found
    return bool(plain == value)


def test_there_are_options() -> None:
    assert {"roots", "host", "token", "keep_dims", "grace", "log_format", "tls_cert", "config"} <= PARAMETERS.keys()


@pytest.mark.parametrize("name", PARAMETERS)
def test_by_flag_and_by_environment(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    values = samples(name)
    if name == "config":
        values = [str(tmp_path / word) for word in values]
        for path in values:
            Path(path).write_text("port = 1234")
    assert same(parsed(*flags(name, values[0]))[name], values[0])
    monkeypatch.setenv(f"INSITU_SERVE_{name.upper()}", variable(values[0]))
    assert same(parsed()[name], values[0])
    assert same(parsed(*flags(name, values[1]))[name], values[1])
    assert unknown_variables("INSITU_SERVE", serve) == []
    if name == "config":
        assert parsed()["port"] == 1234


@pytest.mark.parametrize("name", IN_FILES)
def test_by_file(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    values = samples(name)
    path = tmp_path / "server.toml"
    path.write_text(toml(name, values[0]))
    given = ("--config", str(path))
    assert same(parsed(*given)[name], values[0])
    assert {key: value for key, value in parsed(*given).items() if key not in (name, "config")} == {
        key: value for key, value in DEFAULTS.items() if key not in (name, "config")
    }
    monkeypatch.setenv(f"INSITU_SERVE_{name.upper()}", variable(values[1]))
    assert same(parsed(*given)[name], values[1])
    assert same(parsed(*given, *flags(name, values[-1]))[name], values[-1])


def test_tokens_by_their_older_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSITU_TOKENS", "one two")
    assert list(parsed()["token"]) == ["one", "two"]
    assert unknown_variables("INSITU_SERVE", serve) == []


@pytest.mark.parametrize("name", IN_FILES)
def test_a_wrong_type(name: str, tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    wrong = [1] if _is_list(name) else True if not isinstance(DEFAULTS[name], bool) else 1
    path.write_text(f"{name} = {json.dumps(wrong)}")
    with pytest.raises(InsituError, match="must be") as caught:
        parsed("--config", str(path))
    assert name in caught.value.message
    assert str(path) in caught.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prot = 80", ["'prot'", "perhaps 'port' is meant", "Known keys: roots, host, port"]),
        ("max-request = 80", ["'max-request'", "perhaps 'max_request' is meant"]),
        ("config = 'other.toml'", ["'config'"]),
        ("help = true", ["'help'"]),
        ("[serve]\nport = 80", ["'serve'", "Known keys"]),
        ("workers = 0", ["workers is wrong"]),
        ("port = '80'", ["port must be an integer, not a text"]),
        ("roots = '/data'", ["roots must be a list of texts"]),
        ("quotas = 5", ["quotas must be a table"]),
        ("[quotas]\nrequests = 5", ["quotas is wrong", "a table of requests, bytes, processor_seconds"]),
        ("[quotas.default]\nbits = 5", ["quotas is wrong", "'bits'"]),
        ("[quotas.hush]\nbytes = -1", ["quotas is wrong", "bytes in the quota of a token must be a number"]),
        ("port = 1\nport 2", ["is not a TOML file", "line 2"]),
        ("# \xff", ["is not a TOML file"]),
        (None, ["cannot read the file of options", "No such file"]),
    ],
)
def test_files_that_are_wrong(text: str | None, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    if text is not None:
        path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InsituError) as caught:
        parsed("--config", str(path))
    for word in (*words, str(path)):
        assert word in str(caught.value)


def test_wrong_values_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSITU_SERVE_PROT", "80")
    assert unknown_variables("INSITU_SERVE", serve) == ["INSITU_SERVE_PROT"]
    monkeypatch.setenv("INSITU_SERVE_PORT", "tcp://10.0.0.1:80")
    with pytest.raises(typer.BadParameter):
        parsed()


def test_the_table_in_the_documentation() -> None:
    """Flag, variable, key and default of every option."""
    page = (ROOT / "docs" / "howto" / "serving.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if "`INSITU_SERVE_" in line
    ]
    found = {re.sub("`", "", row[1]): row for row in rows if len(row) == 4}
    for name, parameter in PARAMETERS.items():
        flag = "ROOT…" if name == "roots" else parameter.opts[0]
        default = DEFAULTS[name]
        shown = "" if default in (None, [], ()) else str(default)
        if isinstance(default, bool):
            shown = shown.lower()
        key = "" if name == "config" else f"`{name}`"
        row = found.pop(f"INSITU_SERVE_{name.upper()}")
        assert [row[0].split(",")[0], row[2], row[3].strip("`")] == [f"`{flag}`", key, shown], name
    assert not found


def test_the_example_in_the_documentation(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "howto" / "serving.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    path = tmp_path / "server.toml"
    path.write_text(text)
    assert parsed("--config", str(path))["token_file"] == Path("/etc/insitu/tokens")


@pytest.fixture
def not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server runs; one that would is an error of the test."""

    def run(*settings: object, **more: object) -> None:
        raise AssertionError("it would have started")

    monkeypatch.setattr("insitu.server.run", run)
    monkeypatch.setattr("logging.config.dictConfig", lambda settings: None)


def start(*arguments: str) -> None:
    app(list(arguments), standalone_mode=False)


RESTRICTING = [
    "INSITU_TOKENS",
    *(f"INSITU_SERVE_{name}" for name in ("TOKEN", "TOKEN_FILE", "CONFIG", "TLS_CLIENT_CA")),
]


@pytest.mark.usefixtures("not_started")
@pytest.mark.parametrize("name", RESTRICTING)
def test_an_empty_variable_does_not_leave_the_server_open(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for value in ("", "  ") if name.endswith(("TOKEN", "TOKENS")) else ("",):
        monkeypatch.setenv(name, value)
        with pytest.raises(InsituError, match=f"{name} is empty"):
            start("serve", str(tmp_path))


@pytest.mark.usefixtures("not_started")
@pytest.mark.parametrize("token", ["", "a ", "None:None", "None", ":", "null"])
def test_tokens_that_are_no_secrets(token: str, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"# to come\n\n{token}")
    ways = [["serve", str(tmp_path), "--token", "good", "--token", token], ["explore", str(tmp_path), "--token", token]]
    if token != "a ":  # lines of a file are stripped
        ways.append(["serve", str(tmp_path), "--token-file", str(tmp_path / "tokens")])
    for way in ways:
        with pytest.raises(InsituError, match="token"):
            start(*way)


@pytest.mark.usefixtures("not_started")
def test_no_tokens_in_the_places_for_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "serve.toml").write_text("token = []")
    with pytest.raises(InsituError, match="list of tokens is empty"):
        start("serve", str(tmp_path), "--config", str(tmp_path / "serve.toml"))
    monkeypatch.setenv("INSITU_TOKEN", "")
    with pytest.raises(InsituError, match="INSITU_TOKEN is empty"):
        start("explore", str(tmp_path))


def test_a_file_is_checked_beside_help(tmp_path: Path) -> None:
    """As the page about upgrades says."""
    path = tmp_path / "server.toml"
    path.write_text("port = 1")
    with pytest.raises(typer.Exit):
        parsed("--config", str(path), "--help")
    path.write_text("prot = 1")
    with pytest.raises(InsituError, match="prot"):
        parsed("--config", str(path), "--help")
