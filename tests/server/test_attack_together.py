"""All attacks at once, for some seconds, against a server with two workers: others get their answers."""

from __future__ import annotations

import threading
from pathlib import Path

from server.attackers import Attackers, HealthyClients, MemoryWatch, stated_bytes, write_files
from server.serving import serving
from waiting import wait_until

SECONDS = 4.0
"""At least: until each attack was tried, and each healthy client had ten answers."""
OPTIONS = ("--workers", "2", "--memory", "0.5", "--max-chunk", "64", "--cache", "0.125")


def test_all_attacks_at_once(tmp_path: Path) -> None:
    """How fast answers are is measured by `bench/attack.py`."""
    folder = tmp_path / "folder"
    folder.mkdir()
    write_files(folder)
    with (
        serving([folder], tmp_path / "log", *OPTIONS, forked=False) as server,
        MemoryWatch(server.process.pid) as memory,
    ):
        attackers = Attackers(server.url, folder)
        attacking = threading.Thread(target=attackers.run)
        attacking.start()
        try:
            healthy = HealthyClients(server.url, folder)
            healthy.run(SECONDS, least=10)
            # Each attack was tried, and slow connections were ended, whatever the speed of the machine.
            wait_until(lambda: all(attackers.statuses.values()) and attackers.ended)
        finally:
            attackers.stopped.set()
            attacking.join()
        assert healthy.problems == []
        assert attackers.problems == []
        statuses = {status for counted in attackers.statuses.values() for status in counted}
        # Vast archives are shown in the explorer: that costs little.
        assert all(status == 503 or 400 <= status < 500 or status == 200 for status in statuses), attackers.statuses
        assert {name for name, counted in attackers.statuses.items() if counted[200]} <= {"vast declarations"}
        assert set(healthy.refused) <= {429, 503}
        assert memory.largest <= stated_bytes(server.log)
        assert server.get("/health").status == 200
        assert "Traceback" not in server.log.read_text()
