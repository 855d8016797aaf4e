# `make` lists the targets. Each makes what it needs by itself and does nothing twice: the stamps
# stand in $(VENV)/.stamp-*.  PYTHON=python3.12 chooses the Python, VENV=dir another place.

VENV ?= .venv
SPARK_VENV = $(VENV)-spark$(PYSPARK:%=-%)
CC ?= cc
CC_WARN = -std=c11 -Wall -Wextra -Werror -O2 -Inative
PY = $(VENV)/bin/python
PIP = $(PY) -m pip --disable-pip-version-check install -q
PYTEST = $(PY) -m pytest
# Spark's tests first, in $(SPARK_VENV), then all others: one summary, one exit status.
SUITES = $(PY) -m tests.suites $(SPARK_VENV)
# A process for each core. One that has nothing left to do takes half of what another has still to do.
IN_PROCESSES = --numprocesses=auto --maxprocesses=4 --dist=worksteal
NATIVE = setup.py $(wildcard native/*/*.c native/*/*.h bindings/*.pyx bindings/*.pxi bindings/*.pxd)
C_FILES = $(wildcard native/*/*.c examples/c/*.c)
C_TESTS = $(wildcard tests/native/*.c)
READY = $(VENV)/.stamp-ready
CONNECT = $(if $(SPARK_CONNECT),$(VENV)/.stamp-extra-spark-connect)

# The first Python that is new enough; empty when there is none.
FOUND = $(or $(PYTHON),$(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done))

# Hundreds of processes import the same modules: each would compile them anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo federation spark spark-there odcs test test-ci test-full test-spark spark-ready spark-packages lint bench bench-spark sanitize sim docs wheel clean

help: ## list the targets
	@echo "make TARGET, where TARGET is one of:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | grep -v '^  help' | expand -t 14

demo: $(READY) $(VENV)/.stamp-extra-plot ## watch three nodes find a botnet in a real trace (under a minute)
	$(VENV)/bin/medusa demo netmon $(ARGS)

federation: $(READY) $(VENV)/.stamp-extra-federation $(VENV)/.stamp-extra-dashboard ## install what keys and the dashboard need
	@echo 'ready: export PATH="$(abspath $(VENV))/bin:$$PATH", then docs/federation.md goes step by step'

spark: ## install what Spark needs, into .venv-spark; it needs Java 17 besides; SPARK_CONNECT=yes for Connect
	@$(MAKE) --no-print-directory VENV=$(SPARK_VENV) spark-there
	@echo 'ready: export PATH="$(abspath $(SPARK_VENV))/bin:$$PATH", then medusa demo spark, or docs/spark.md step by step'

# An environment of its own: the tool pins versions that we don't want to be bound by.
odcs: ## install the linter of data contracts, into .venv-odcs: a test looks for it there
	@$(MAKE) --no-print-directory VENV=$(VENV)-odcs $(VENV)-odcs/.stamp-extra-test-odcs
	@echo 'ready: make test ARGS=tests/query/odcs'

# OUTCOME=file keeps what came out, and BEFORE=file counts it again, in one summary of both.
KEEP = $(if $(OUTCOME),-p tests.outcome --outcome=$(OUTCOME) --outcome-of="make $@") $(BEFORE:%=-p tests.outcome --before=%)

test: $(READY) $(VENV)/.stamp-extra-test ## run a sample of the tests, C and Python; ARGS="-k window" chooses
	$(SUITES) $(IN_PROCESSES) $(KEEP) -- $(ARGS)

test-ci: $(READY) $(VENV)/.stamp-extra-test ## run what make test leaves out: more seeds, more kills
	$(SUITES) $(IN_PROCESSES) --ci $(KEEP) -- $(ARGS)

# The second version of pyspark last, unless something was chosen that isn't for it.
test-full: export SPARK_CONNECT = yes
test-full: $(READY) $(VENV)/.stamp-extra-test ## also run the long tests; goes on where it stopped; ISSUE=2 chooses
	$(SUITES) $(IN_PROCESSES) --full --resume=$(VENV)/full-passed.json $(if $(ISSUE),--issue=$(ISSUE)) -- $(ARGS)
	$(if $(ARGS)$(filter-out 7,$(ISSUE)),,@$(MAKE) --no-print-directory test-spark PYSPARK=4.2)

test-spark: $(READY) $(VENV)/.stamp-extra-test ## run the tests of Spark alone; needs Java 17; PYSPARK=4.2 chooses
	$(SUITES) $(if $(PYSPARK),--resume=$(SPARK_VENV)/full-passed.json) -- tests/spark $(ARGS)

# With VENV=$(SPARK_VENV), as the next one.
spark-there: $(READY) $(VENV)/.stamp-extra-spark $(VENV)/.stamp-extra-federation $(CONNECT)
	@test -n "$$JAVA_HOME" || command -v java >/dev/null || echo "Spark needs Java 17 besides, and there is no java." \
		"Install it (Debian, Ubuntu: apt install openjdk-17-jre-headless; Fedora: dnf install java-17-openjdk-headless), or set JAVA_HOME."

# An environment of its own: pyspark wants an older pandas than the other tests have.
spark-ready: $(READY) spark-packages $(CONNECT)

# What of it can be fetched before the extension is built. Keys: a node on Spark sells by contract.
spark-packages: $(VENV)/.stamp-needs $(VENV)/.stamp-extra-spark $(VENV)/.stamp-extra-federation $(VENV)/.stamp-extra-test-spark

lint: $(READY) $(VENV)/.stamp-extra-lint ## check style, types and C warnings
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	@$(PY) -m tests.house
	@printf '%s\n' $(C_FILES) | xargs -P 4 -I{} $(CC) $(CC_WARN) -c {} -o /dev/null
	@printf '%s\n' $(C_TESTS) | xargs -P 4 -I{} $(CC) $(CC_WARN) -DMD_ALLOC_TEST -c {} -o /dev/null
	@echo "C files without warnings: $(words $(C_FILES) $(C_TESTS))"

bench: $(READY) $(VENV)/.stamp-extra-test $(VENV)/.stamp-extra-bench ## measure, beside peers in the same run; results in bench/results/
	$(PYTEST) bench --benchmark-enable $(ARGS)

bench-spark: ## measure streams and operators in Spark, beside its own; needs Java 17
	@$(MAKE) --no-print-directory VENV=$(SPARK_VENV) spark-ready
	$(SPARK_VENV)/bin/python -m bench.spark $(ARGS)

sanitize: $(READY) $(VENV)/.stamp-extra-test ## run the native tests under ASan and UBSan
	$(PY) tests/native/sanitize.py $(IN_PROCESSES) $(ARGS)

SEEDS ?= 200
sim: $(READY) ## run simulated federations with faults; SEEDS=1000 sets how many
	$(VENV)/bin/medusa sim --seeds $(SEEDS) $(ARGS)

docs: $(READY) $(VENV)/.stamp-extra-docs ## make the HTML pages in build/docs/
	$(PY) docs/make.py build/docs

wheel: $(READY) $(VENV)/.stamp-extra-wheel ## make the sdist and the manylinux wheel in dist/
	@rm -rf build/wheel && mkdir -p build/wheel dist
	$(PY) -m build --no-isolation --outdir build/wheel . > build/wheel/log.txt 2>&1 || { tail -n 40 build/wheel/log.txt; exit 1; }
	PATH="$(abspath $(VENV))/bin:$$PATH" $(PY) -m auditwheel -v repair --wheel-dir dist build/wheel/*.whl \
		> build/wheel/repair.txt 2>&1 || { tail -n 20 build/wheel/repair.txt; exit 1; }
	@cp build/wheel/*.tar.gz dist/ && ls -l dist

clean: ## remove what was built (.venv stays)
	rm -rf build dist *.egg-info medusa/*.so bindings/_native.c .pytest_cache .mypy_cache .ruff_cache .benchmarks .hypothesis
	rm -f $(READY) $(VENV)-spark*/.stamp-ready

# --- what the targets stand on -------------------------------------------------------------------

$(VENV)/.stamp-venv:
	@test -n "$(FOUND)" || { echo "Medusa needs Python 3.11 or later. Install it (Debian, Ubuntu: apt install python3 python3-venv python3-dev;" \
		"Fedora: dnf install python3-devel), or name one: make PYTHON=/path/to/python3.12"; exit 1; }
	@command -v $(FOUND) >/dev/null || { echo "There is no Python named $(FOUND)."; exit 1; }
	@$(FOUND) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Medusa needs Python 3.11 or later; $(FOUND) is older."; exit 1; }
	@$(FOUND) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(FOUND) can't make a virtual environment." \
		"Install its venv package (Debian, Ubuntu: apt install python3-venv)."; exit 1; }
	@$(FOUND) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || { \
		echo "$(FOUND) has no Python.h. Install its development package (Debian, Ubuntu: apt install python3-dev; Fedora: dnf install python3-devel)."; exit 1; }
	@command -v $(CC) >/dev/null || { echo "Medusa needs a C compiler, and there is no '$(CC)'." \
		"Install one (Debian, Ubuntu: apt install gcc libc6-dev; Fedora: dnf install gcc), or name one: make CC=clang"; exit 1; }
	@echo 'int main(void) { return 0; }' | $(CC) -x c -include stdint.h -o /dev/null - || { \
		echo "The C compiler '$(CC)' can't build a program. Install the C library's headers (Debian, Ubuntu: apt install libc6-dev)."; exit 1; }
	@test -x $(PY) || { echo "making $(VENV) with $(FOUND)"; $(FOUND) -m venv $(VENV); }
	@touch $@

# Prints a list of requirements out of pyproject.toml: $(call wants,expression over d).
wants = $(PY) -c 'import tomllib; d = tomllib.load(open("pyproject.toml", "rb")); print(*$(1), sep="\n")'

$(VENV)/.stamp-needs: pyproject.toml $(VENV)/.stamp-venv
	@echo "installing what Medusa stands on (numpy, pyarrow and some small packages; a minute or two)"
	@$(call wants,d["build-system"]["requires"] + d["project"]["dependencies"]) > $(VENV)/wanted.txt
	@$(PIP) -r $(VENV)/wanted.txt
	@touch $@

# The first time pip builds the extension as part of the editable install; later setup.py does it alone.
# compat: a path in site-packages. Spark lists modules to find its sources, and the install that finds them
# by a hook isn't listed.
# BUILT=1: another environment has just built it, and only the install is left.
$(READY): $(NATIVE) $(VENV)/.stamp-needs
	@$(if $(BUILT),,echo "building the extension")
	@if [ $(VENV)/.stamp-on-path -nt pyproject.toml ]; then CC="$(CC)" $(PY) setup.py -q build_ext --inplace; \
	else CC="$(CC)" MEDUSA_BUILT=$(BUILT) $(PIP) --no-build-isolation --no-deps \
		--config-settings editable_mode=compat -e . && touch $(VENV)/.stamp-on-path; fi
	@touch $@

SIZE_spark = pyspark, some 450 MB, into $(VENV): minutes, once

$(VENV)/.stamp-extra-%: pyproject.toml $(VENV)/.stamp-venv
	@echo "installing the packages for '$*'$(if $(SIZE_$*), ($(SIZE_$*)))"
	@$(call wants,d["project"]["optional-dependencies"]["$*"]) > $(VENV)/wanted-$*.txt
	@$(PIP) -r $(VENV)/wanted-$*.txt $(if $(findstring spark,$*),$(PYSPARK:%='pyspark==%.*'))
	@touch $@
