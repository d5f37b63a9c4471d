from __future__ import annotations

import pytest

from insitu.sources.redaction import percent_encode, redact_text, redact_url, split_userinfo


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host/a.nc", "https://host/a.nc"),
        ("https://u:p@host:81/a.nc", "https://host:81/a.nc"),
        (
            "https://host/a?X-Amz-Algorithm=A&X-Amz-Credential=C&X-Amz-Signature=S&versionId=3",
            "https://host/a?versionId=3",
        ),
        ("https://host/a?x-goog-signature=S&Expires=9", "https://host/a"),
        ("https://x.blob.core.windows.net/c/a?sv=1&se=2&sr=b&sp=r&sig=S", "https://x.blob.core.windows.net/c/a"),
        ("https://host/a?se=2&expires=never", "https://host/a?se=2&expires=never"),
        ("https://host/a?token=T&year=2000", "https://host/a?year=2000"),
        ("https://cdn/a?Expires=1&Signature=S&Key-Pair-Id=K", "https://cdn/a"),
        ("abfs://box@account.dfs.core.windows.net/a", "abfs://box@account.dfs.core.windows.net/a"),
        ("/a/b@c?sig=1", "/a/b@c?sig=1"),
        ("http://u:p@[bad/x?sig=1", "[bad/x"),
        ("s3://bucket/key?x", "s3://bucket/key?x"),
    ],
)
def test_displayed(url, shown):
    assert redact_url(url) == shown


def test_text():
    message = 'failed for url (https://u:pw@h/x?sig=abc&v=1): header "Authorization: Bearer" x, secret=hush'
    assert redact_text(message) == 'failed for url (https://h/x?v=1): header "Authorization: ***" x, secret=***'


def test_userinfo():
    assert split_userinfo("https://me@h/x") == ("https://h/x", ("me", ""))
    assert split_userinfo("https://h/x@y") == ("https://h/x@y", None)


def test_quoted_leaves_what_is_encoded_alone():
    assert percent_encode("https://h/a b/%20é?x=1&y=a b") == "https://h/a%20b/%20%C3%A9?x=1&y=a%20b"
