"""A server next to the data: a reduction is computed there, and one map travels."""

import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
from archive import make

import insitu

ds = insitu.open_mfdataset(make())
ds.insitu.save("archive.insitu")

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
command = [sys.executable, "-c", "import insitu.cli; insitu.cli.main()", "serve", ".", "--port", str(port)]
server = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # elsewhere: `insitu serve /data`
try:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(200):
        try:
            direct.open(f"http://127.0.0.1:{port}/health", timeout=2).close()
            break
        except OSError:
            time.sleep(0.1)
    near = insitu.open_dataset(
        Path("archive.insitu").resolve(), active=f"http://127.0.0.1:{port}", active_required=True
    )
    mean = near.tas.mean("time").load()
    np.testing.assert_allclose(mean, ds.tas.mean("time"))
    print("mean over the year, computed by the server:", mean.shape)

    url = f"http://127.0.0.1:{port}/zarr{Path('archive.insitu').resolve()}!/"
    far = insitu.open_dataset(url)
    np.testing.assert_array_equal(far.tas[100], ds.tas[100])
    print("the same archive as a Zarr store:", url)
finally:
    server.terminate()
    server.wait(30)
