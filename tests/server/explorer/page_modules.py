"""Run modules of the explorer's page by Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from server.explorer.conftest import ROOT

PAGE = ROOT / "src" / "insitu" / "server" / "explorer" / "page"


def run_module(folder: Path, module: str, code: str) -> Any:
    """Return what an expression gives, in which the exports of a module are known by name."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here")
    page = folder / "page"
    if not page.exists():
        (page / "vendor").mkdir(parents=True)
        for path in (*PAGE.glob("*.js"), *PAGE.glob("vendor/*.js")):
            shutil.copyfile(path, page / path.relative_to(PAGE))
        (page / "package.json").write_text('{"type": "module"}')
    script = (
        f'import fs from "node:fs"; import * as module from "./page/{module}"; console.log(JSON.stringify({code}));'
    )
    (folder / "run.mjs").write_text(script, encoding="utf-8")
    done = subprocess.run([node, "run.mjs"], cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
