# What a person does with a checkout. `make` alone lists it; everything installs what it needs first.
.DEFAULT_GOAL := help
.NOTPARALLEL:
SHELL := /bin/sh
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PYTHONDONTWRITEBYTECODE := # compiling itself anew costs every daemon of a test two seconds
ARGS ?=
# Tests of real nodes wait for half of their time: one process more than there are cores has work for each core. What
# they all import is compiled once and not by each of them.
PROCESSES ?= $(shell expr $$(nproc) + 1)
SEEDS ?= 20
FLEETS ?= 10
CATALOGS ?= 300
MOVES ?= 5
DEPLOYS ?= 3
EDGES ?= 5
NETWORKS ?= 20
BENCH ?= start start_many create commands boot profile_start engine scale pull pull_large

.PHONY: help
help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name does; do printf '  make %-12s %s\n' "$$name" "$$does"; done

.PHONY: setup test-setup judges-setup bench-setup
setup: ## install what a node needs: Debian packages, .venv, Hawker
	@scripts/setup.sh run
test-setup: ## that, and what the tests and checks need
	@scripts/setup.sh test
judges-setup: ## that, and what judges the edge in long tests: sslyze, Chromium, iperf3
	@scripts/setup.sh judges
bench-setup: ## what the tests need, and what the benchmarks compare with
	@scripts/setup.sh bench

.PHONY: demo
demo: setup ## run one machine from order to destroy, printing each step
	@python scripts/demo.py $(ARGS)

PYTEST := python -m compileall -q -j 0 src && python -m pytest --numprocesses=$(PROCESSES) --no-loadscope-reorder --durations=25 --durations-min=5
NOT_TIDY := --ignore=tests/tidy --ignore=tests/test_tidy.py
FULL := --hypothesis-profile=full
JUDGED := $(addprefix tests/edge/test_,acme.py browser.py http2_connection.py nghttp2.py sslyze.py websockets.py) tests/host/mesh

.PHONY: release
release: setup ## make build/release: wheel, source archive, pinned requirements, bill of materials, checksums
	@python scripts/release.py $(ARGS)

.PHONY: test test-all test-chaos test-judges test-sim test-vmm
test: test-setup ## run every test but those marked `long`, and what `make check` runs (ARGS="-k store" for a part)
	@$(PYTEST) -m "not long" $(if $(findstring tidy,$(ARGS)),,$(NOT_TIDY)) $(ARGS)
test-all: judges-setup ## run the whole test suite, the long tests too, with many more random examples
	@$(PYTEST) $(FULL) $(ARGS)
test-chaos: test-setup ## of that, the deaths of daemons at every step, the soaks and the trial of a fleet
	@$(PYTEST) $(FULL) tests/chaos tests/crash tests/chaos/test_commands.py $(ARGS)
test-judges: judges-setup ## of that, what others' documents, clients, fuzzers, scanners and a browser say of a node
	@$(PYTEST) $(FULL) tests/conformance tests/clients $(JUDGED) $(ARGS)
test-sim: test-setup ## of that, the simulators and what they prove
	@$(PYTEST) $(FULL) tests/sim tests/proof $(ARGS)
test-vmm: test-setup ## of that, machines with kernels of their own and the drivers' contract
	@$(PYTEST) $(FULL) tests/contract tests/runtime tests/vmm tests/escape tests/e2e/test_microvm.py tests/crash/test_kill_guests.py $(ARGS)

.PHONY: check check-format check-lint check-types check-tidy check-docs check-sim
check: test-setup check-format check-lint check-types check-tidy check-docs check-sim ## run what CI runs beside the tests
check-format:
	@ruff format --check .
check-lint:
	@ruff check .
check-types:
	@mypy
check-tidy:
	@python -m pytest tests/tidy tests/test_tidy.py
check-docs:
	@python scripts/docs.py --check
check-sim: ## play simulated workers, fleets, catalogs, moves, deploys, edges and networks (SEEDS=1000 FLEETS=100 CATALOGS=10000 MOVES=100 DEPLOYS=100 EDGES=100 NETWORKS=100 for more)
	@hawker sim --seeds $(SEEDS)
	@hawker sim fleet --seeds $(FLEETS)
	@hawker sim catalog --seeds $(CATALOGS)
	@hawker sim moves --seeds $(MOVES)
	@hawker sim deploys --seeds $(DEPLOYS)
	@hawker sim edge --seeds $(EDGES)
	@hawker sim networks --seeds $(NETWORKS)

.PHONY: conformance
conformance: test-setup ## judge a node by the official document and write docs/generated/conformance.md
	@JUDGE=page python -m pytest tests/conformance $(ARGS)

.PHONY: docs
docs: setup ## write docs/generated/ from the code
	@python scripts/docs.py

.PHONY: format
format: test-setup ## rewrite the sources in the one format
	@ruff format . && ruff check --fix .

.PHONY: bench
bench: bench-setup ## run the benchmarks of docs/benchmarks.md (BENCH="engine scale" for some)
	@set -e; for name in $(BENCH); do echo "# bench/$$name.py"; PYTHONPATH=. python bench/$$name.py $(ARGS); done

.PHONY: lock
lock: ## lock the versions and hashes of what is installed
	@scripts/lock.sh

.PHONY: clean
clean: ## remove what was built and what tools remember; .venv stays
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .test-cache src/hawker/_guest .venv/.done-*
	@find src tests bench scripts -name __pycache__ -type d -prune -exec rm -rf {} +
