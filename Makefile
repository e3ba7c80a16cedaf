# Two commands are all it takes: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
LOCKED := $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps
.DEFAULT_GOAL := help
.PHONY: help demo test quick lint types golden layouts mutants docs docs-serve soak bench install lock sbom clean

help:
	@echo "make demo    train a Vision Transformer on handwritten digits and write a report"
	@echo "make test    lint, types and the whole test suite"
	@echo "make quick ROOM=weights  lint of one room, and as many of its tests as a minute allows; without ROOM: of the rooms with changes"
	@echo "make lint    only the lint; make types: only the types"
	@echo "make golden BEFORE=COMMIT  train by that commit and by the working tree: the same weights, to the bit? (five minutes)"
	@echo "make layouts read and write every Vision Transformer of timm, transformers and vit-pytorch: right, or refused (twenty minutes)"
	@echo "make mutants BEFORE=COMMIT  put faults into the lines that differ from COMMIT, and print those that no test notices (two minutes;"
	@echo "             ONLY=text of a path, COUNT=number, SECONDS=time, SEED=number; without BEFORE: into all sources)"
	@echo "make docs    build the documents as a site, into build/site; make docs-serve: show them while they change"
	@echo "make soak    kill, damage and starve runs by the hundred, then a server, then open 50,000 spoilt files (three hours)"
	@echo "make bench   measure Vitrail beside its peers, into a page of docs/benchmarks (twenty-five minutes; make bench QUICK=1: seven)"
	@echo "make lock    find the hashes of all that constraints.txt pins, into requirements/ (two minutes)"
	@echo "make sbom    list all that is installed, as CycloneDX, into build/sbom.json; make sbom OF=serve: what a server needs"
	@echo "make clean   remove the virtual environment and caches"

demo: .venv/.core
	@$(BIN)/vitrail demo

test: lint types
	@OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder

quick: ROOM ?= $(shell git status --porcelain -- src/vitrail tests | sed -nE 's,^...(src/vitrail|tests)/([^/]+)/.*,\2,p' | sort -u)
quick: PATHS = $(wildcard $(foreach room,$(ROOM),src/vitrail/$(room) tests/$(room)))
quick: .venv/.dev
	@test -n "$(PATHS)" || { echo "No room has changes. Try: make quick ROOM=weights"; exit 2; }
	@$(BIN)/ruff check $(PATHS)
	@$(BIN)/ruff format --check $(PATHS)
	@OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --maxprocesses 8 --no-loadscope-reorder --dist loadfile --seconds 35 \
		$(filter tests/%,$(PATHS)) $(wildcard tests/test_architecture.py)

lint: .venv/.dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: .venv/.dev
	@$(BIN)/mypy

golden: .venv/.dev
	@$(BIN)/python tests/golden.py $(BEFORE) $(if $(ONLY),--only '$(ONLY)')

layouts: .venv/.dev
	@PYTHONPATH=tests:tests/weights OMP_NUM_THREADS=1 $(BIN)/python -m sweep $(if $(ONLY),--only '$(ONLY)') $(if $(JSON),--json $(JSON))

mutants: .venv/.dev
	@OMP_NUM_THREADS=1 $(BIN)/python tests/mutants.py $(if $(BEFORE),--before $(BEFORE)) $(if $(ONLY),--only $(ONLY)) \
		$(if $(COUNT),--count $(COUNT)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED))

docs: .venv/.dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

docs-serve: .venv/.dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

soak: .venv/.dev
	@$(BIN)/python -m pytest -m soak
	@$(BIN)/python benchmarks/soak/soak_runs.py
	@$(BIN)/python benchmarks/soak/soak_server.py
	@$(BIN)/python benchmarks/soak/soak_attacks.py
	@$(BIN)/python benchmarks/soak/soak_files.py

bench: .venv/.dev
	@$(BIN)/python benchmarks/everything.py $(if $(QUICK),--quick)

install: .venv/.core

lock:
	@$(PYTHON) -m venv build/uv
	@build/uv/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/uv.txt
	@PATH="build/uv/bin:$$PATH" $(PYTHON) requirements/lock.py

sbom: .venv/.dev
	@mkdir -p build
	@$(BIN)/python requirements/sbom.py $(or $(OF),dev) > build/sbom.json
	@echo build/sbom.json

.venv/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Vitrail needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv .venv
	@touch $@

.venv/.core: .venv/.python pyproject.toml requirements/core.txt requirements/cpu.txt requirements/cuda.txt
	@echo "Installing into .venv (once)…"
	@$(LOCKED) -r requirements/cpu.txt 2>/dev/null || true
	@$(LOCKED) -r requirements/core.txt
	@! grep -qE '^Requires-Dist: (nvidia|cuda)' .venv/lib/python*/site-packages/torch-*.dist-info/METADATA || \
		$(LOCKED) -r requirements/cuda.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.venv/.dev: .venv/.core requirements/dev.txt tests/peers.txt
	@echo "Installing what the tests need (once)…"
	@$(LOCKED) -r requirements/dev.txt
	@$(LOCKED) -r tests/peers.txt
	@for version in 1.0.2 0.16.13 0.6.8 0.5.1; do \
		$(LOCKED) --target .venv/vit-pytorch/$$version -r tests/vit-pytorch/$$version.txt || exit 1; done
	@touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
