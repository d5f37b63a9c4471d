"""A renewed certificate is used from the next connection on; what cannot be used changes nothing."""

from __future__ import annotations

import logging
import shutil
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from insitu.errors import InsituError
from insitu.server.certificate_files import CertificateFiles, reloading_context
from listener import Listener
from server.certificates_made import make_certificate
from waiting import LONG


class Handshakes(Listener):
    """A listener that shakes hands with whoever connects, and says goodbye."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context
        super().__init__()

    def serve(self, line: socket.socket) -> None:
        with suppress(OSError), self.context.wrap_socket(line, server_side=True) as safe:
            safe.sendall(b"hello")

    def certificate(self, name: str | None = "localhost", mine: tuple[Path, Path] | None = None) -> str:
        """The certificate that a client sees, if it is let in."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if mine is not None:
            context.load_cert_chain(*mine)
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=LONG)
        with plain, context.wrap_socket(plain, server_hostname=name) as line:
            assert line.recv(5) == b"hello"
            found = line.getpeercert(binary_form=True)
        assert found is not None
        return ssl.DER_cert_to_PEM_cert(found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("one", "two"):
        make_certificate(tmp_path, name)
    _use(tmp_path, "one")
    return tmp_path


def _use(folder: Path, name: str, *kinds: str) -> None:
    for kind in kinds or ("pem", "key"):
        shutil.copy(folder / f"{name}.{kind}", folder / f"new.{kind}")
        (folder / f"new.{kind}").replace(folder / f"server.{kind}")


def test_a_renewed_certificate(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = CertificateFiles(str(folder / "server.pem"), str(folder / "server.key"))
    with caplog.at_level(logging.INFO, "insitu.serve"):
        shaking = Handshakes(reloading_context(files))
        old, new = ((folder / f"{name}.pem").read_text() for name in ("one", "two"))
        assert shaking.certificate() == old
        _use(folder, "two", "pem")  # its key is still the old one
        assert [shaking.certificate(), shaking.certificate()] == [old, old]
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert str(folder / "server.key") in caplog.text
        _use(folder, "two", "key")
        assert shaking.certificate() == new
        assert shaking.certificate(None) == new  # a client that names no host
        for broken in (b"", b"nonsense"):
            (folder / "server.pem").write_bytes(broken)
            assert shaking.certificate() == new
        (folder / "server.pem").unlink()
        assert shaking.certificate() == new
        _use(folder, "one")
        assert shaking.certificate() == old
    shaking.listener.close()
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO", *["ERROR"] * 3, "INFO"]


def test_another_authority_of_clients(folder: Path) -> None:
    mine = {}
    for authority in ("one", "two"):
        mine[authority] = make_certificate(folder, f"client of {authority}", authority)
    shutil.copy(folder / "one.pem", folder / "authority.pem")
    pair = str(folder / "server.pem"), str(folder / "server.key")
    shaking = Handshakes(reloading_context(CertificateFiles(*pair, str(folder / "authority.pem"))))

    def let_in() -> list[bool]:
        found = []
        for who in (mine["one"], mine["two"], None):
            try:
                found.append(bool(shaking.certificate(mine=who)))
            except (OSError, AssertionError):  # refused, or hung up on
                found.append(False)
        return found

    assert let_in() == [True, False, False]
    shutil.copy(folder / "two.pem", folder / "authority.pem")
    assert let_in() == [False, True, False]
    shaking.listener.close()


@pytest.mark.parametrize("wrong", ["missing", "mismatch", "encrypted"])
def test_files_that_cannot_be_used(folder: Path, wrong: str) -> None:
    key = folder / ("two.key" if wrong == "mismatch" else "none.key")
    if wrong == "encrypted":
        import subprocess

        words = ["openssl", "rsa", "-aes128", "-passout", "pass:word", "-in", folder / "one.key", "-out", key]
        subprocess.run(words, check=True, capture_output=True)
    with pytest.raises(InsituError, match="cannot use the TLS files") as caught:
        CertificateFiles(str(folder / "one.pem"), str(key)).context()
    assert str(key) in str(caught.value)
    assert ("encrypted" in caught.value.message) is (wrong == "encrypted")
