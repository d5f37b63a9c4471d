"""Does a damaged message ever end the process, or keep it?

Modules: formats/grib/codecs/subprocess_decoder.py
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import insitu
from damaged_bytes import count_refused, read_all, written_to
from insitu.codecs.libraries import isolation
from insitu.errors import CodecError, FormatError, InsituWarning, SourceError, UnsupportedError
from insitu.formats import scan_format
from insitu.formats.grib.codecs import subprocess_decoder
from insitu.formats.grib.codecs.subprocess_decoder import decode_in_subprocess
from insitu.sources import MemorySource
from waiting import LONG

from .conftest import find_section

eccodes = pytest.importorskip("eccodes")

SAMPLES = ["regular_ll_pl_grib2", "regular_gg_pl_grib2", "reduced_gg_pl_32_grib2"]
PACKINGS = [
    "", "grid_complex", "grid_complex_spatial_differencing", "grid_ccsds", "grid_jpeg", "grid_png", "grid_ieee",
]  # fmt: skip
MUTANTS, TOGETHER = 100, 50
GRIB_FILES = Path(__file__).parents[2] / "files" / "grib"
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def written(sample: str, packing: str, bits: int = 12) -> bytes | None:
    """A message; None if this ecCodes does not write it."""
    handle = eccodes.codes_grib_new_from_samples(sample)
    try:
        if packing:
            if packing != "grid_ieee":
                eccodes.codes_set(handle, "bitsPerValue", bits)
            eccodes.codes_set(handle, "packingType", packing)
        size = eccodes.codes_get_size(handle, "values")
        eccodes.codes_set_values(handle, np.cumsum(np.random.default_rng(1).normal(0, 1, size)) + 2000)
        return bytes(eccodes.codes_get_message(handle))
    except eccodes.CodesInternalError:
        return None
    finally:
        eccodes.codes_release(handle)


def mutant(message: bytes, random: Any) -> bytes:
    """A few bytes other than they were, most of them in the headers."""
    found = bytearray(message)
    headers = min(len(found), 400)
    for _ in range(int(random.integers(1, 5))):
        kind = random.random()
        if kind < 0.6:
            found[random.integers(8, headers)] ^= 1 << int(random.integers(8))
        elif kind < 0.8:
            found[random.integers(8, headers)] = int(random.choice([0, 1, 127, 128, 255]))
        else:
            found[random.integers(len(found))] = int(random.integers(256))
    return bytes(found)


def survived(path: Path, messages: list[bytes]) -> int:
    """What a process came to that looked at them: 0 if nothing happened."""
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.alarm(120)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            count_refused(messages, written_to(path, partial(read_all, format="grib")))
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


@forks
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_mutants(tmp_path: Path) -> None:
    cases = [(sample, packing) for sample in SAMPLES for packing in PACKINGS]
    cases += [("reduced_gg_pl_32_grib1", ""), ("sh_pl_grib2", "")]
    seeds = [found for sample, packing in cases if (found := written(sample, packing))]
    for seed in range(MUTANTS // TOGETHER):
        random = np.random.default_rng(seed)
        messages = [mutant(seeds[random.integers(len(seeds))], random) for _ in range(TOGETHER)]
        assert survived(tmp_path / "mutant.grib", messages) == 0, f"seed {seed}"


def harmed(sample: str, packing: str, number: int, *changes: tuple[int, bytes]) -> bytes:
    message = written(sample, packing)
    if message is None:
        pytest.skip("this ecCodes does not write it")
    found = bytearray(message)
    for place, value in changes:
        at = find_section(message, number) + place
        found[at : at + len(value)] = value
    return bytes(found)


@pytest.mark.parametrize(
    ("sample", "packing", "number", "changes"),
    [
        ("regular_ll_pl_grib2", "grid_png", 5, [(19, b"\x20")]),  # bits that the image has not
        ("regular_ll_pl_grib2", "grid_png", 7, [(24, b"\x02\x00")]),  # its depth
        ("regular_ll_pl_grib2", "grid_jpeg", 7, [(50, bytes(40))]),
        ("regular_ll_pl_grib2", "grid_ccsds", 5, [(19, b"\x03")]),
        ("regular_ll_pl_grib2", "grid_ccsds", 5, [(22, b"\x00\xff\xff")]),
        ("regular_ll_pl_grib2", "grid_ieee", 5, [(11, b"\x09")]),
        ("regular_gg_pl_grib2", "", 3, [(30, b"\0\x10\0\0")]),  # points of a row
        ("reduced_gg_pl_32_grib2", "", 3, [(72, bytes(128))]),  # no points in any row
        ("reduced_gg_pl_32_grib2", "", 3, [(46, b"\x85\0\0\0"), (55, b"\x85\0\0\0")]),  # latitudes
    ],
)
@forks
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_what_ended_processes(
    tmp_path: Path, sample: str, packing: str, number: int, changes: list[tuple[int, bytes]]
) -> None:
    message = harmed(sample, packing, number, *changes)
    assert survived(tmp_path / "a.grib", [message]) == 0


def spectral() -> tuple[bytes, Any]:
    """A message that only ecCodes can decode, and its values."""
    message = written("sh_pl_grib2", "")
    assert message is not None
    handle = eccodes.codes_new_from_message(message)
    values = eccodes.codes_get_values(handle)
    eccodes.codes_release(handle)
    return message, values


def test_the_other_process_answers_all_threads() -> None:
    message, values = spectral()
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(decode_in_subprocess(message, "values", values.size)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for one in found:
        np.testing.assert_array_equal(one, values)


def test_an_error_says_what_ecCodes_says() -> None:
    with pytest.raises(CodecError, match="holds"):
        decode_in_subprocess(spectral()[0], "values", 3)
    with pytest.raises(CodecError, match="cannot decode"):
        decode_in_subprocess(b"GRIB" + bytes(60), "values", 3)


def test_it_is_started_again_when_it_dies() -> None:
    message, values = spectral()
    decode_in_subprocess(message, "values", values.size)
    assert subprocess_decoder._worker is not None
    subprocess_decoder._worker.process.kill()
    np.testing.assert_array_equal(decode_in_subprocess(message, "values", values.size), values)


@pytest.mark.parametrize("edition", [1, 2])
def test_a_scan_starts_it_for_messages_that_need_it(tmp_path: Path, edition: int) -> None:
    """It starts while the scan goes on; the first read finds it, and all later ones."""
    path = GRIB_FILES / "eccodes_edition1.grib"
    if edition == 2:
        path = tmp_path / "spectral.grib2"
        path.write_bytes(spectral()[0])
    subprocess_decoder._end_worker()
    for name in ("xarray_example.grib", "eccodes_edition2.grib2"):
        insitu.scan(GRIB_FILES / name)
    assert subprocess_decoder._worker is None  # these are decoded here
    scanned = insitu.scan(path, errors="skip")
    started = subprocess_decoder._worker
    assert started is not None
    if edition == 1:
        for array in scanned.arrays:
            insitu.read(scanned, array)
    decode_in_subprocess(*spectral()[:1], "values", spectral()[1].size)
    assert subprocess_decoder._worker is started


def test_a_child_that_ends_before_its_first_message_is_started_again() -> None:
    message, values = spectral()
    subprocess_decoder._end_worker()
    subprocess_decoder.start_early()
    started = subprocess_decoder._worker
    assert started is not None
    started.process.kill()
    np.testing.assert_array_equal(decode_in_subprocess(message, "values", values.size), values)
    assert subprocess_decoder._worker is not started


def test_an_early_start_that_fails_is_no_error(failing: list[int]) -> None:
    message, values = spectral()
    failing[0] = 1
    subprocess_decoder.start_early()
    assert subprocess_decoder._worker is None
    np.testing.assert_array_equal(decode_in_subprocess(message, "values", values.size), values)


def test_a_message_that_it_does_not_survive(monkeypatch: pytest.MonkeyPatch) -> None:
    message, values = spectral()
    subprocess_decoder._end_worker()
    program = "import os; os.write(1, b'R'); os.read(0, 1); os.abort()"
    monkeypatch.setattr(subprocess_decoder, "_PROGRAM", program)
    with pytest.raises(CodecError, match="ecCodes crashed"):
        decode_in_subprocess(message, "values", values.size)
    assert subprocess_decoder._worker is None


def test_a_message_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    message, values = spectral()
    subprocess_decoder._end_worker()
    monkeypatch.setattr(subprocess_decoder, "_PROGRAM", "import os, time; os.write(1, b'R'); time.sleep(100)")
    monkeypatch.setattr(subprocess_decoder, "SECONDS", -4)
    with pytest.raises(CodecError, match="ecCodes crashed"):
        decode_in_subprocess(message, "values", values.size)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Starts of the child fail as often as the one number says; it counts down."""
    left = [0]
    start = subprocess.Popen

    def popen(*arguments: Any, **how: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise BlockingIOError("no more processes")
        return start(*arguments, **how)

    subprocess_decoder._end_worker()
    monkeypatch.setattr(subprocess_decoder, "START_PAUSES", (0.0, 0.0))
    monkeypatch.setattr(subprocess_decoder, "_not_before", 0.0)
    monkeypatch.setattr(subprocess_decoder.subprocess, "Popen", popen)
    return left


def test_a_start_that_fails_is_tried_again(failing: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    message, values = spectral()
    monkeypatch.setattr(isolation, "allows_in_process", False)
    failing[0] = 2
    np.testing.assert_array_equal(decode_in_subprocess(message, "values", values.size), values)
    assert subprocess_decoder._worker is not None


def test_a_later_message_finds_a_child_again(failing: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    message, values = spectral()
    failing[0] = 3
    np.testing.assert_array_equal(
        decode_in_subprocess(message, "values", values.size), values
    )  # by this process, a user's own
    assert subprocess_decoder._worker is None
    monkeypatch.setattr(subprocess_decoder, "_not_before", 0.0)
    np.testing.assert_array_equal(decode_in_subprocess(message, "values", values.size), values)
    assert subprocess_decoder._worker is not None


def test_a_server_never_decodes_in_its_own_process(failing: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    message, values = spectral()
    monkeypatch.setattr(subprocess_decoder, "decode_values", lambda *arguments: pytest.fail("decoded in this process"))
    monkeypatch.setattr(isolation, "allows_in_process", False)
    failing[0] = 3
    for _ in range(2):
        with pytest.raises(SourceError, match="cannot be started"):
            decode_in_subprocess(message, "values", values.size)
    assert failing == [0]  # the second one did not try: it is too early
    monkeypatch.setattr(subprocess_decoder, "_not_before", 0.0)
    np.testing.assert_array_equal(decode_in_subprocess(message, "values", values.size), values)


def test_where_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    message, values = spectral()
    subprocess_decoder._end_worker()
    monkeypatch.setattr(subprocess_decoder, "START_PAUSES", ())
    monkeypatch.setattr(subprocess_decoder, "_not_before", 0.0)
    monkeypatch.setattr(sys, "executable", os.devnull)
    np.testing.assert_array_equal(decode_in_subprocess(message, "values", values.size), values)
    assert subprocess_decoder._worker is None


def test_one_child_serves_the_process() -> None:
    message, values = spectral()
    decode_in_subprocess(message, "values", values.size)
    first = subprocess_decoder._worker
    assert first is not None
    threads = [threading.Thread(target=decode_in_subprocess, args=(message, "values", values.size)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert subprocess_decoder._worker is first


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_child_inherits_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {
        "AWS_SECRET_ACCESS_KEY": "hush", "INSITU_SERVE": '{"tokens": ["hush"]}', "INSITU_TOKENS": "hush",
        "https_proxy": "http://me:hush@proxy",
        "NETRC": "/home/me/hush", "GOOGLE_BEARER_TOKEN": "hush", "SOME_NAME_THAT_NOBODY_KNOWS": "hush",
    }  # fmt: skip
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    message, values = spectral()
    subprocess_decoder._end_worker()
    with open(tmp_path / "secret", "w") as file:
        os.set_inheritable(file.fileno(), True)
        np.testing.assert_array_equal(decode_in_subprocess(message, "values", values.size), values)
        assert subprocess_decoder._worker is not None
        child = Path(f"/proc/{subprocess_decoder._worker.process.pid}")
        links = [os.readlink(entry) for entry in (child / "fd").iterdir()]
    environment = (child / "environ").read_bytes()
    assert b"hush" not in environment
    assert b"PATH=" in environment
    assert not any("secret" in link for link in links)
    assert not any(link.startswith("socket:") for link in links)
    subprocess_decoder._end_worker()


def test_a_server_is_told_never_to_decode_itself(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    from insitu.server import Settings
    from insitu.server.app import create_app

    app: Any = create_app(Settings(roots=(str(tmp_path),)))

    async def run() -> bool:
        routed = app
        while not hasattr(routed, "router"):  # behind its middleware
            routed = routed.app
        async with routed.router.lifespan_context(routed):
            return isolation.allows_in_process

    assert isolation.allows_in_process
    assert not asyncio.run(run())
    assert isolation.allows_in_process


@forks
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_has_one_of_its_own() -> None:
    message, values = spectral()
    decode_in_subprocess(message, "values", values.size)
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.alarm(60)
            code = 0 if np.array_equal(decode_in_subprocess(message, "values", values.size), values) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(decode_in_subprocess(message, "values", values.size), values)


@forks
def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    message, values = spectral()
    (tmp_path / "a.grib").write_bytes(message)
    program = (
        "import os, signal, pathlib; from insitu.formats.grib.codecs import subprocess_decoder as decoder\n"
        f"data = pathlib.Path({str(tmp_path / 'a.grib')!r}).read_bytes()\n"
        f"decoder.{decode_in_subprocess.__name__}(data, 'values', {values.size})\n"
        "print(decoder._worker.process.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=LONG, check=False)
    other = int(done.stdout)
    gone = threading.Event()
    for _ in range(100):
        try:
            state = Path(f"/proc/{other}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            state = "gone"
        if state in ("gone", "Z"):
            break
        gone.wait(0.1)
    assert state in ("gone", "Z")


@pytest.mark.parametrize("length", [0, 4, 40, 0x800000])
@pytest.mark.parametrize("first", [True, False])
def test_a_message_of_no_length_does_not_keep_the_scan(length: int, first: bool) -> None:
    """GRIB 1, behind the end of another message: it would be found again and again."""
    handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib1")
    good = bytes(eccodes.codes_get_message(handle))
    eccodes.codes_release(handle)
    bad = good[:4] + length.to_bytes(3, "big") + good[7:]
    with pytest.raises(FormatError, match="its headers"):
        scan_format(MemorySource((b"" if first else good) + bad + good))
    with pytest.warns(InsituWarning, match="its headers"):
        tree = scan_format(MemorySource((b"" if first else good) + bad + good), errors="warn")
    assert len(tree.problems) == 1
    assert "latitude" in tree.arrays


def test_a_grid_of_one_row_without_an_increment_does_not_end_the_process(tmp_path: Path) -> None:
    """An assertion of ecCodes fails: it must not be asked in this process."""
    handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
    eccodes.codes_set(handle, "Nj", 1)
    eccodes.codes_set(handle, "jDirectionIncrementGiven", 0)
    eccodes.codes_set_missing(handle, "jDirectionIncrement")
    eccodes.codes_set(handle, "numberOfDataPoints", eccodes.codes_get(handle, "Ni"))
    eccodes.codes_set_values(handle, np.arange(eccodes.codes_get(handle, "Ni"), dtype=float))
    (tmp_path / "a.grib").write_bytes(eccodes.codes_get_message(handle))
    eccodes.codes_release(handle)
    program = (
        "import sys, insitu; tree = insitu.scan(sys.argv[1], decode=False); "
        "print(insitu.read(tree, 't', decode=False).sum(), sorted(tree.problems))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "a.grib")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split(" ", 1)[1].strip() in ("[]", "['latitude', 'longitude']")


def section_of(message: bytes, number: int, place: int, value: int) -> bytes:
    at = find_section(message, number) + place
    return message[:at] + value.to_bytes(2, "big") + message[at + 2 :]


def test_an_unknown_grid_is_not_damage(tmp_path: Path) -> None:
    good = written("regular_ll_pl_grib2", "")
    assert good is not None
    path = tmp_path / "a.grib2"
    path.write_bytes(section_of(good, 3, 12, 777))
    for open_file in (insitu.scan, insitu.open_dataset):
        with pytest.raises(UnsupportedError, match="template 777 of GRIB 2"):
            open_file(path)
    path.write_bytes(section_of(good, 3, 12, 777) + good)
    with pytest.warns(InsituWarning, match="template 777 of GRIB 2"):
        tree = insitu.scan(path, errors="warn")
    assert "t" in tree.arrays


def test_an_unknown_grid_of_the_first_edition_is_not_damage() -> None:
    good = written("regular_ll_pl_grib1", "")
    assert good is not None
    grid = 8 + int.from_bytes(good[8:11], "big")
    with pytest.raises(UnsupportedError, match="template 77 of GRIB 1"):
        insitu.scan(MemorySource(good[: grid + 5] + b"\x4d" + good[grid + 6 :]))


def test_an_unknown_packing_is_not_damage(tmp_path: Path) -> None:
    good = written("regular_ll_pl_grib2", "")
    assert good is not None
    (tmp_path / "a.grib2").write_bytes(section_of(good, 5, 9, 777))
    dataset = insitu.open_dataset(tmp_path / "a.grib2")
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="does not know the packing"):
            dataset.t.load()
