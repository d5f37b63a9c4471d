"""Storage options: which belong to which URL, and what is refused.

Modules: sources/cached_source.py
"""

from __future__ import annotations

import pytest

from insitu.errors import SourceError
from insitu.sources.storage_options import (
    azure_settings,
    detach_secrets,
    gcs_settings,
    http_settings,
    options_for,
    s3_settings,
)


def test_the_longest_prefix_decides():
    options = {
        "https://a/": {"headers": {"X": "1"}},
        "https://a/deep/": {"headers": {"X": "2"}},
        "s3://b": {"key": "k"},
        "/data/": {"token": "t"},
    }
    assert options_for("https://a/x.nc", options) == {"headers": {"X": "1"}}
    assert options_for("https://a/deep/x.nc", options) == {"headers": {"X": "2"}}
    assert options_for("s3://b/x", options) == {"key": "k"}
    assert options_for("s3://bb/x", options) == {}
    assert options_for("https://elsewhere/x", options) == {}
    assert options_for("x", None) == {}


def test_plain_options_hold_everywhere_and_give_way():
    options = {"region": "r", "anon": True, "s3://b/": {"anon": False, "key": "k"}, "default_fill_cache": False}
    assert options_for("s3://b/x", options) == {"region": "r", "anon": False, "key": "k"}
    assert options_for("s3://c/x", options) == {"region": "r", "anon": True}


def test_s3():
    config, client = s3_settings(
        {
            "key": "k",
            "secret": "s",
            "token": "t",
            "anon": False,
            "requester_pays": True,
            "headers": {"A": 1},
            "client_kwargs": {"endpoint_url": "http://minio:9000", "region_name": "eu"},
            "virtual_hosted_style_request": True,
        }
    )
    assert config == {
        "access_key_id": "k",
        "secret_access_key": "s",
        "session_token": "t",
        "request_payer": True,
        "endpoint": "http://minio:9000",
        "region": "eu",
        "virtual_hosted_style_request": True,
    }
    assert client["allow_http"] is True
    assert client["default_headers"] == {"A": "1"}
    assert "allow_http" not in s3_settings({"anon": True})[1]


def test_gcs_tokens(tmp_path):
    file = tmp_path / "key.json"
    file.write_text("{}")
    assert gcs_settings({"token": "anon"})[0] == {"skip_signature": True}
    assert gcs_settings({"token": str(file)})[0] == {"service_account": str(file)}
    assert gcs_settings({"token": {"type": "x"}})[0] == {"service_account_key": '{"type": "x"}'}
    assert gcs_settings({"token": "ya29"})[0] == {"bearer_token": "ya29"}
    assert gcs_settings({"token": "google_default", "key": "k"})[0] == {}
    assert gcs_settings({"endpoint_url": "http://fake"})[0] == {"base_url": "http://fake"}


def test_azure():
    config, _ = azure_settings({"account_name": "a", "key": "k", "sas_token": "s", "region": "r"})
    assert config == {"account_name": "a", "account_key": "k", "sas_key": "s"}


def test_http_takes_headers_only():
    url, headers = http_settings(
        "https://h/x?a=1", {"headers": {"A": 1}, "client_kwargs": {"headers": {"B": 2}}, "key": "k", "token": "t"}
    )
    assert url == "https://h/x?a=1"
    assert headers == {"A": "1", "B": "2"}
    with pytest.raises(SourceError, match=r"'nonsense'.*Known options"):
        http_settings("https://h/x", {"nonsense": 1})


def test_secrets_move_to_the_options():
    url, options = detach_secrets("https://me:pw@h/x.nc?X-Amz-Signature=abc&v=1", {"headers": {"A": "1"}})
    assert url == "https://h/x.nc?v=1"
    assert options["headers"] == {"A": "1"}
    address, headers = http_settings(url, options_for(url, options))
    assert address == "https://h/x.nc?X-Amz-Signature=abc&v=1"
    assert headers == {"A": "1", "Authorization": "Basic bWU6cHc="}
    # and go nowhere else
    assert options_for("https://h/other.nc", options) == {"headers": {"A": "1"}}
    for plain in ("https://h/x.nc?v=1", "/a/b?c@d", "s3://b/k"):
        assert detach_secrets(plain) == (plain, {})


def test_a_signed_url_is_read_through_its_options(web, data):
    from insitu.sources import open_source

    url, options = detach_secrets(web.url("signed") + "?X-Amz-Signature=abc")
    assert "abc" not in url
    assert open_source(url, options).read(0, 4) == data[:4]
