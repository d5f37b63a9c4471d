"""Supervisor of several worker processes: Uvicorn's, which stops listening at once when it ends, and reloads in place.

Uvicorn's own keeps its listening socket open until the last worker has ended: clients would connect and get no
answer. And on SIGHUP it replaces the workers, which have to close idle connections.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable

from uvicorn.config import Config
from uvicorn.supervisors import Multiprocess

__all__ = ["Supervisor"]


class Supervisor(Multiprocess):
    """Starts worker processes, replaces those that die, and passes signals on.

    Parameters
    ----------
    config, sockets
        Of Uvicorn.
    reload
        Reads the settings again and leaves them where workers find them; False if there are none.
    """

    def __init__(self, config: Config, sockets: list[socket.socket], reload: Callable[[], bool]) -> None:
        super().__init__(config, sockets)
        self._reload = reload

    def init_processes(self) -> None:
        """Start the workers."""
        super().init_processes()
        self._close_their_ends()

    def keep_subprocess_alive(self) -> None:
        """Replace workers that have died, or hang."""
        super().keep_subprocess_alive()
        self._close_their_ends()

    def _close_their_ends(self) -> None:
        """Close the workers' ends of the pipes in this process: so one that dies while it is asked for a sign of life
        is noticed at once, and not when the time for its answer is over.
        """
        for process in self.processes:
            process.child_conn.close()

    def terminate_all(self) -> None:
        """Stop listening and tell the workers to end."""
        for listening in self.sockets:
            listening.close()
        super().terminate_all()

    def handle_hup(self) -> None:
        """Have the workers use new settings. One that is starting dies of the signal, and its successor has them."""
        if self._reload():
            for process in self.processes:
                if process.pid is not None and process.process.is_alive():
                    os.kill(process.pid, signal.SIGHUP)
