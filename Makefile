# Everything from a fresh clone, with nothing but python3 and make.
# Another interpreter: PYTHON=python3.13 make test   (its environment lies beside the default one)

PYTHON ?= python3
# A pyenv shim exists for versions that are installed but not selected: then look where pyenv keeps them.
INTERPRETER := $(shell $(PYTHON) -c 'import sys; print(sys.executable)' 2>/dev/null || \
	ls -1 "$$(pyenv root 2>/dev/null)"/versions/*/bin/$(notdir $(PYTHON)) 2>/dev/null | tail -n 1)
VENV ?= .venv$(if $(filter python3,$(PYTHON)),,-$(notdir $(PYTHON)))
BIN := $(VENV)/bin
JOBS ?= 2
BENCH_PYTHON ?= python3.13

.PHONY: setup demo servers test test-remote check format bench docs fuzz clean clients

setup: $(VENV)/ready

$(VENV)/ready: pyproject.toml setup.py
	@test -n "$(INTERPRETER)" || { echo "no interpreter named $(PYTHON): set PYTHON=…"; exit 2; }
	"$(INTERPRETER)" -m venv "$(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,check,demo]'
	@touch "$@"

demo: setup
	$(BIN)/insitu demo

# The codecs apart: once netCDF's own HDF5 filters are loaded in a process, h5py cannot write blosc chunks there any more.
test: setup servers clients
	$(BIN)/python -m pytest -q -n $(JOBS) tests/codecs
	$(BIN)/python -m pytest -q -n $(JOBS) --ignore=tests/codecs

# Real servers for the tests (SeaweedFS, azurite, nginx, Apache, rclone), into .servers; what cannot be had is named, its tests are skipped.
servers: setup
	$(BIN)/python scripts/servers.py install

test-remote: setup servers clients
	$(BIN)/python -m pytest -q -n $(JOBS) tests/remote tests/service

# Clients that others wrote (zarrita.js into .clients, Debian's GDAL, PyActiveStorage into .servers); what cannot be had is named, its tests are skipped.
clients: setup
	-$(BIN)/python scripts/clients.py install
	-$(BIN)/python scripts/active_storage.py install

check: setup
	$(BIN)/ruff format --check src tests bench scripts examples setup.py
	$(BIN)/ruff check src tests bench scripts examples setup.py
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format src tests bench scripts examples setup.py
	$(BIN)/ruff check --fix src tests bench scripts examples setup.py

# The peers that the benchmarks run beside need their own environment. All of them write docs/benchmarks.md; BENCH="scan_local --quick" runs one.
bench:
	$(MAKE) setup PYTHON=$(BENCH_PYTHON)
	.venv-$(BENCH_PYTHON)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	.venv-$(BENCH_PYTHON)/bin/python bench/$(if $(BENCH),$(firstword $(BENCH)).py $(wordlist 2,9,$(BENCH)),page.py)

# Change bytes of HDF5 files and see that the scanner reads right or says no: MINUTES=10 make fuzz
fuzz: setup
	$(BIN)/python tests/fuzz/fuzz_hdf5.py --beside-h5py --minutes $(or $(MINUTES),1)

docs: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	$(BIN)/sphinx-build -W -q -b html docs docs/_build
	@echo "docs/_build/index.html"

clean:
	rm -rf .venv* .clients .servers build demo-output docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache src/*.egg-info
