"""Who is let in by which header, what is passed on to the storage, and how a client learns that.

Modules: server/explorer/api_routes.py, server/explorer/opened_archives.py
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest

from insitu.server import Settings, create_app
from insitu.server.authentication import Credentials, TokenError, identify
from server.in_process import Request, ask_app

TOKENS = ("hush", "key:secret")


def basic(text: str) -> dict[str, str]:
    return {"authorization": f"Basic {b64encode(text.encode()).decode()}"}


@pytest.mark.parametrize(
    ("headers", "passed_on"),
    [
        ({"authorization": "Bearer hush"}, Credentials()),
        ({"x-insitu-token": "hush"}, Credentials()),
        ({"x-insitu-token": "hush", **basic("who:what")}, Credentials("who", "what")),
        (basic("anybody:hush"), Credentials()),  # the token is the server's business alone
        ({"x-insitu-token": "hush", **basic("anybody:hush")}, Credentials()),
        (basic("key:secret"), Credentials("key", "secret")),
    ],
)
def test_let_in(headers: dict[str, str], passed_on: Credentials) -> None:
    assert identify(headers, TOKENS)[1] == passed_on


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer key"},
        {"x-insitu-token": ""},
        basic("hush:other"),
        basic("key:other"),
        basic("other:secret"),
        basic("hush:"),
        basic("hush"),
        {"authorization": "Basic hush"},
    ],
)
def test_kept_out(headers: dict[str, str]) -> None:
    for tokens in (TOKENS, ("None:None",)):
        with pytest.raises(TokenError):
            identify(headers, tokens)


def test_without_tokens_everything_is_passed_on() -> None:
    assert identify(basic("key:secret"), None)[1] == Credentials("key", "secret")
    assert identify({}, None)[1] == Credentials()


def test_the_refusal_says_how_to_authenticate(tmp_path: Path) -> None:
    """The example was taken for a secret and replaced by asterisks."""
    app = create_app(Settings(roots=(str(tmp_path),), tokens=("hush",)))
    for answer in ask_app(app, Request("POST", "/reduce"), Request("POST", "/v2/sum"), Request("GET", "/metrics")):
        assert answer.status == 401
        assert "Authorization as Bearer TOKEN" in answer.message
        assert "X-Insitu-Token" in answer.message
        assert "***" not in answer.message
