"""Certificates for tests, made by OpenSSL."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


def make_certificate(folder: Path, name: str, authority: str | None = None) -> tuple[Path, Path]:
    """Write `name.pem` and `name.key`: signed by an authority that was made before, or by itself."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subject = ["-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-subj", f"/CN={name}"]
    if authority is None:
        _openssl("req", "-x509", *subject, "-days", "1", "-out", str(certificate))
        return certificate, key
    request = folder / f"{name}.csr"
    _openssl("req", *subject, "-out", str(request))
    signer = ["-CA", str(folder / f"{authority}.pem"), "-CAkey", str(folder / f"{authority}.key"), "-CAcreateserial"]
    _openssl("x509", "-req", "-in", str(request), *signer, "-days", "1", "-out", str(certificate))
    return certificate, key


def _openssl(*words: str) -> None:
    try:
        subprocess.run(["openssl", *words], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no openssl to make certificates with")
