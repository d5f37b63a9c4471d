# Everything from a fresh clone, with nothing but python3 and make.
# Another interpreter: PYTHON=python3.13 make test   (its environment lies beside the default one)

PYTHON ?= python3
# A pyenv shim exists for versions that are installed but not selected: then look where pyenv keeps them.
INTERPRETER := $(shell $(PYTHON) -c 'import sys; print(sys.executable)' 2>/dev/null || \
	ls -1 "$$(pyenv root 2>/dev/null)"/versions/*/bin/$(notdir $(PYTHON)) 2>/dev/null | tail -n 1)
VENV ?= .venv$(if $(filter python3,$(PYTHON)),,-$(notdir $(PYTHON)))
# Windows has another name for it; there `make` runs in the Bash of Git.
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
JOBS ?= 2
BENCH_PYTHON ?= python3.13
# Tests start some hundred Python processes: compiled modules halve their start, even where the environment forbids writing them.
export PYTHONDONTWRITEBYTECODE :=
# Pins of every package, one file for each Python version; a version without a file gets the newest releases.
CONSTRAINTS ?= $(wildcard constraints/python$(shell "$(INTERPRETER)" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null).txt)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(addprefix --constraint ,$(CONSTRAINTS))
# Work stealing gives each worker whole modules at first, so that their fixtures are made once.
PYTEST := $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal

.PHONY: setup asan demo servers quick test test-latest test-free-threaded test-remote update-constraints test-files check format bench docs fuzz random-programs clean clients hdf4 page pictures wheel

setup: $(VENV)/ready

$(VENV)/ready: pyproject.toml setup.py constraints/native-sources.txt $(CONSTRAINTS) $(shell find src -name '*.c')
	@test -n "$(INTERPRETER)" || { echo "no interpreter named $(PYTHON): set PYTHON=…"; exit 2; }
	"$(INTERPRETER)" -m venv "$(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	-$(BIN)/python scripts/native_sources.py
	find src \( -name '*.abi3.so' -o -name '*.pyd' \) -delete  # a build that fails must not leave the old one
	$(PIP) --editable '.[test,check,demo]'
	@touch "$@"

demo: setup
	$(BIN)/python examples/demo/run.py

# The inner loop: a minute and a half on two cores, no server programs, no corpus, no network. tests/quick.txt lists the files.
quick: setup
	$(PYTEST) --quick -m "not (slow or servers or corpus or peers or browser)" @tests/quick.txt

# Everything. The log ends with the slowest tests, with what was missing on this machine, and with pytest's count.
test: setup servers clients hdf4
	$(PYTEST) --durations=30 --durations-min=1

# The same with the newest releases of everything instead of the pinned ones, in an environment of its own.
test-latest:
	rm -f .venv-latest/ready
	$(MAKE) test VENV=.venv-latest CONSTRAINTS= PIP='$(subst $(VENV),.venv-latest,$(BIN))/python -m pip install --quiet --disable-pip-version-check --upgrade --upgrade-strategy eager'

# Reading and reducing without the GIL: FREE_THREADED_PYTHON=/usr/local/bin/python3.14t make test-free-threaded
# Packages with a wheel for it, and google-crc32c, which computes in Python there. cftime has not said that it needs no GIL.
FREE_THREADED_PYTHON ?= python3.14t
FREE := .venv-free-threaded/bin/python
test-free-threaded:
	test -x $(FREE) || "$(FREE_THREADED_PYTHON)" -m venv .venv-free-threaded
	$(FREE) -m pip install --quiet --disable-pip-version-check --prefer-binary setuptools numpy pandas xarray pyarrow numcodecs obstore \
		google-crc32c rich typer urllib3 cftime cbor2 starlette uvicorn prometheus_client h5py h5netcdf netcdf4 hdf5plugin imagecodecs \
		zarr dask distributed scipy fsspec pyproj tifffile numpy_groupies httpx hypothesis pytest pytest-timeout pytest-xdist
	python3 scripts/native_sources.py || true
	INSITU_REQUIRE_EXTENSIONS=1 $(FREE) setup.py -q build_ext --inplace --build-temp build/free-threaded
	PYTHON_GIL=0 PYTHONPATH=src:tests $(FREE) -m pytest -q -W "ignore:numpy.ndarray size changed" -W "ignore:As the c extension" \
		-W ignore::DeprecationWarning tests/reading tests/reducing tests/test_gil.py tests/test_extensions.py

# New pins for this Python version, from a fresh environment with the newest releases (PYTHON=python3.13 make update-constraints for another one).
update-constraints:
	rm -rf .venv-latest
	$(MAKE) setup VENV=.venv-latest CONSTRAINTS=
	$(subst $(VENV),.venv-latest,$(BIN))/python scripts/constraints.py write

# Write tests/files again with the writers of this environment (tests/files/README.md).
test-files: setup clients hdf4
	$(BIN)/python scripts/test_files

# pyhdf, where PyPI has no wheel for this machine: built against the HDF4 library of Debian; without it the HDF4 tests are skipped.
hdf4: setup
	-$(BIN)/python scripts/hdf4.py install

# Real servers for the tests (SeaweedFS, azurite, nginx, Apache, rclone), into .servers; what cannot be had is named, its tests are skipped.
servers: setup
	$(BIN)/python scripts/servers.py install

test-remote: setup servers clients
	$(PYTEST) tests/remote tests/server

# Clients that others wrote (zarrita.js into .clients, Debian's GDAL and ncdump, PyActiveStorage into .servers, a headless Chromium); what cannot be had is named, its tests are skipped.
clients: setup
	-$(BIN)/python scripts/clients.py install
	-$(BIN)/python scripts/active_storage.py install
	-$(BIN)/python scripts/browser.py install

# The plotting libraries of the explorer's page, bundled from the versions that scripts/plotting pins. They are committed: only a change of them needs npm.
page: setup
	$(BIN)/python scripts/page.py build

# Pictures of the explorer for README and docs, from the demonstration's archive and from real files where they are.
pictures: setup clients
	$(BIN)/python scripts/page_pictures.py

check: setup
	$(BIN)/ruff format --check src tests bench scripts examples setup.py
	$(BIN)/ruff check src tests bench scripts examples setup.py
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/wrap_documents.py --check
	$(BIN)/python scripts/page.py types

format: setup
	$(BIN)/ruff format src tests bench scripts examples setup.py
	$(BIN)/ruff check --fix src tests bench scripts examples setup.py

# The peers that the benchmarks run beside need their own environment. All of them write docs/benchmarks.md; BENCH="scan_local --quick" runs one.
bench:
	$(MAKE) setup hdf4 PYTHON=$(BENCH_PYTHON)
	.venv-$(BENCH_PYTHON)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@.venv-$(BENCH_PYTHON)/bin/python -m pip install --quiet --disable-pip-version-check 'hidefix>=0.12' >/dev/null 2>&1 || \
		echo 'hidefix is left out: it has no wheel here, and its Rust sources could not be built'
	-.venv-$(BENCH_PYTHON)/bin/python scripts/browser.py install
	.venv-$(BENCH_PYTHON)/bin/python bench/$(if $(BENCH),$(firstword $(BENCH)).py $(wordlist 2,9,$(BENCH)),page.py)

# Change bytes of HDF5 files and see that the scanner reads right or says no: MINUTES=10 make fuzz
fuzz: setup
	$(BIN)/python tests/fuzz/fuzz_hdf5.py --beside-h5py --minutes $(or $(MINUTES),1)

# The same, and the tests of formats and of the C extensions, with extensions that notice every access beyond their memory: MINUTES=10 make asan
asan: setup
	INSITU_SANITIZE=1 $(BIN)/python setup.py -q build --build-base build/asan --build-lib build/asan/lib
	$(SANITIZED) $(BIN)/python tests/fuzz/fuzz_hdf5.py --unbounded --minutes $(or $(MINUTES),1)
	$(SANITIZED) $(BIN)/python -m pytest -q -p no:cacheprovider tests/formats/hdf5 tests/codecs tests/sources tests/test_gil.py -m "not (servers or corpus or peers or browser)"

# PYTHONMALLOC: what lies in Python's own pools is nobody's.
SANITIZED = PYTHONPATH=$(CURDIR)/build/asan/lib PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:suppressions=$(CURDIR)/tests/fuzz/asan_suppressions.txt \
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)"

# Random programs of xarray and NumPy on random archives, compared with the same on values in memory: MINUTES=60 make random-programs
random-programs: setup
	PYTHONPATH=tests $(BIN)/python -m random_programs --minutes $(or $(MINUTES),1)

# The source archive and the wheel, into dist, and the wheel tested as a stranger gets it. WHEEL=--extras installs each extra alone, too.
wheel:
	@test -n "$(INTERPRETER)" || { echo "no interpreter named $(PYTHON): set PYTHON=…"; exit 2; }
	"$(INTERPRETER)" scripts/wheel.py --jobs $(JOBS) $(WHEEL)

docs: setup
	$(PIP) --editable '.[docs]'
	$(BIN)/sphinx-build -W -q -b html docs docs/_build
	@echo "docs/_build/index.html"

clean:
	rm -rf .venv* .clients .servers build dist native_sources LICENSE.* demo-output docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache src/*.egg-info
