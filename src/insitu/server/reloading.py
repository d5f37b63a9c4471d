"""New settings for a server that is running: SIGHUP has them read again, without an end of connections or requests.

The process that was started reads its options again (`insitu.cli.serve`). With several workers it writes the settings
to a file that only its user can read, in the folder of the workers, and passes the signal on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from insitu.errors import InsituError
from insitu.server.settings import ENVIRONMENT_VARIABLE, Settings
from insitu.server.worker import Worker
from insitu.server.worker_folder import worker_folder

__all__ = ["SettingsReloader", "follow_reloads", "reload_folder"]

serve_log = logging.getLogger("insitu.serve")
FOLDER_VARIABLE = "INSITU_SERVE_RELOADED"
"""Names the folder of the file of settings that workers read at SIGHUP."""
FOLDER_PREFIX = "insitu-settings-"
FILE = "settings.json"
_reloader: SettingsReloader | None = None
"""Of the process that was started, if it serves itself."""


def reload_folder(workers: int) -> AbstractContextManager[str | None]:
    """Make the folder by which several workers that start within the `with` block get new settings; None for one."""
    return worker_folder(FOLDER_PREFIX, FOLDER_VARIABLE, workers)


class SettingsReloader:
    """Reads the settings of a server again.

    Parameters
    ----------
    read
        Returns them; raises an error of insitu if they are wrong.
    folder
        Folder for the file by which worker processes get them; None: this process serves itself.
    """

    def __init__(self, read: Callable[[], Settings], folder: str | None) -> None:
        global _reloader
        self._read = read
        self._path = None if folder is None else Path(folder) / FILE
        if self._path is None:
            _reloader = self

    def read(self) -> Settings | None:
        """Return the settings as they are now, for this process and for workers that start later; None if they are
        wrong, which the log says then.
        """
        try:
            found = self._read()
        except InsituError as problem:
            serve_log.error("the options are wrong, the old ones stay in use: %s", problem)
            return None
        os.environ[ENVIRONMENT_VARIABLE] = found.to_json()
        if self._path is not None:
            new = self._path.with_suffix(".new")
            new.unlink(missing_ok=True)
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(found.to_json())
            new.replace(self._path)
        return found


def follow_reloads(worker: Worker) -> None:
    """Have a worker use new settings at SIGHUP; called on its event loop."""
    if not hasattr(signal, "SIGHUP"):
        return

    def reload() -> None:
        if _reloader is not None:
            found = _reloader.read()
        else:
            found = Settings.from_json((Path(os.environ[FOLDER_VARIABLE]) / FILE).read_text(encoding="utf-8"))
        if found is not None:
            worker.reload(found)
            serve_log.info("the options were read again: tokens, roots, storage options and limits are the new ones")

    if _reloader is not None or FOLDER_VARIABLE in os.environ:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
