# Targets that need the virtual environment .venv create it first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

RUNTIME := $(VENV)/runtime.stamp
DEV := $(VENV)/dev.stamp
ARCHIVE := $(VENV)/spark.jsa

.DEFAULT_GOAL := help
# Unset, because test processes that may not write byte code would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test check rest tools test-versions fuzz soak life interleavings pictures bench docs lint format requirements dist sbom release-check clean ready chromium pgbouncer node-packages

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: $(DEV) ## create .venv with everything that tests and checks need

demo: $(RUNTIME) ## run the whole system on this machine; options go in ARGS="..."
	@$(BIN)/python manage.py demo $(ARGS)

# Processes with servers of their own. Tests that share a Spark session, web server or browser run in one of them.
PYTEST := $(BIN)/python -m pytest
PARALLEL := --dist loadgroup --no-loadscope-reorder
BUDGET ?=
WRITE_BUDGET := $(if $(filter write,$(BUDGET)),--write-budget)

test: ready ## test the core in minutes; ARGS="tests/state_backends -k replay" runs some tests in one process
ifeq ($(strip $(ARGS)),)
	$(PYTEST) $(PARALLEL) -n 2 -p no:schemathesis --tier quick $(WRITE_BUDGET)
else
	$(PYTEST) $(ARGS)
endif

check: test rest ## run all tests

# Three, because these tests often wait for the processes that they start. Two are faster on a busy machine.
PROCESSES ?= 3

rest: tools ## run the tests that make test leaves out: Spark, Kafka, servers, browsers, crashes; PROCESSES=2
	$(PYTEST) $(PARALLEL) -n $(PROCESSES) --tier rest --reversed $(WRITE_BUDGET)

# An archive of Spark's classes, because Java loads them from it in half the time.
$(ARCHIVE): $(DEV)
	@$(BIN)/python -m tests.java_options > $(VENV)/spark.jsa.log 2>&1 || echo "no file of Spark's classes; see $(VENV)/spark.jsa.log"

test-versions: $(DEV) ## run tests of streams on each version of Spark; ARGS="4.1.4 --all"
	@$(BIN)/python -m tests.spark_versions $(ARGS)

fuzz: $(DEV) ## send random requests to the API for ten minutes; FUZZ_SECONDS=60 FUZZ_SEED=7
	FUZZ_SECONDS=$(or $(FUZZ_SECONDS),600) $(BIN)/python -m pytest -o faulthandler_timeout=0 tests/webapp/api/test_contract.py $(ARGS)

soak: $(DEV) ## inject faults into real processes, and check every answer; ARGS="--minutes 30 --seed 7"
	@$(BIN)/python -m tests.soak $(ARGS)

life: $(DEV) ## run random sequences of operations, and compare with a model; ARGS="--minutes 60 --seeds 10"
	@$(BIN)/python -m tests.life $(ARGS)

interleavings: $(DEV) ## interleave drivers, tasks and readers in an order chosen by a seed; ARGS="--histories 200"
	@$(BIN)/python -m tests.interleavings $(ARGS)

pictures: ready ## compare screenshots of every page with the accepted ones; ACCEPT=1 replaces those that differ
	$(BIN)/python -m pytest -q -o faulthandler_timeout=0 tests/webapp/pictures/every_picture.py $(if $(ACCEPT),--accept) $(ARGS)

bench: $(DEV) ## run the benchmarks, or those in ARGS="lookup ingest --rounds 5", and write docs/benchmarks.md
	$(BIN)/python -m benchmarks --write docs/benchmarks.json $(ARGS)
	$(BIN)/python -m benchmarks.report
	$(BIN)/python -m benchmarks.capacity

# Hides the notice about MkDocs 2.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs

docs: $(DEV) ## build the documentation as a site in site/; ARGS="serve" shows it while you write
	$(MKDOCS) $(or $(ARGS),build --strict)

lint: $(DEV) ## check style, types, imports, the Dockerfile, migrations and the links of the documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint docker/Dockerfile tidegauge/project/Dockerfile.txt
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(MKDOCS) build --strict --site-dir $(VENV)/site

format: $(DEV) ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Pins do not change unless ARGS is "--upgrade" or "--upgrade-package NAME".
COMPILE := $(BIN)/uv pip compile --quiet --universal --annotation-style line --custom-compile-command "make requirements"

requirements: $(DEV) ## pin the dependencies in pyproject.toml; options go in ARGS="..."
	$(COMPILE) $(ARGS) --all-extras --output-file requirements.txt pyproject.toml
	$(COMPILE) $(ARGS) --output-file requirements-dev.txt --group dev --constraint requirements.txt

dist: $(DEV) ## build the wheel and the sdist in dist/; the same commit gives the same files
	$(BIN)/uv build --quiet --clear --no-create-gitignore --out-dir dist

# Its tool is not in .venv, because only releases need it.
sbom: $(DEV) ## list the pinned dependencies in CycloneDX format in artifacts/sbom.cdx.json
	@mkdir -p artifacts
	$(BIN)/uv tool run --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py requirements --pyproject pyproject.toml \
		--output-reproducible --output-file artifacts/sbom.cdx.json requirements.txt

release-check: ## check that TAG=v1.2.3 can be released: versions, changelog, address of the project
	@TAG="$(TAG)" $(PYTHON) -m tools.release_check

clean: ## remove .venv and caches, but not the data in .tidegauge
	rm -rf $(VENV) site dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache staticfiles
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Depends on pip and not on the folder, because a failed attempt leaves one without pip (Debian without python3-venv).
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Tidegauge needs Python 3.11 or later, but $(PYTHON) is older: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) || \
		{ echo "$(PYTHON) cannot create a virtual environment: apt-get install python3-venv, or use another PYTHON"; exit 1; }

# Without dependencies, because the files of `make requirements` are complete and pin the same versions. Modules are
# compiled when they are first imported, which few of them are, and pyspark's 450 MB are not compressed on the way.
PIP := pip install --quiet --disable-pip-version-check --no-deps --no-compile \
	--config-settings=--build-option=--compression=stored

# The command is a script and not an installation, because executors and test projects must not find this checkout.
$(RUNTIME): requirements.txt | $(BIN)/pip
	$(BIN)/python -m $(PIP) -r requirements.txt
	@printf '#!%s\nimport sys\n\nsys.path.insert(0, "%s")\nfrom tidegauge.cli import main\n\nmain()\n' \
		"$(abspath $(BIN))/python" "$(CURDIR)" > $(BIN)/tidegauge
	@chmod +x $(BIN)/tidegauge
	@touch $@

$(DEV): requirements-dev.txt $(RUNTIME)
	$(BIN)/python -m $(PIP) -r requirements-dev.txt
	@touch $@

# Tools that do not need each other are installed in parallel.
ready:
	@$(MAKE) --no-print-directory -j 2 $(DEV) chromium

tools: ready
	@$(MAKE) --no-print-directory -j 3 $(ARCHIVE) pgbouncer node-packages

# Without Chromium the browser tests are skipped. The headless shell is preferred, because it takes less CPU.
chromium:
	@command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium-headless-shell >/dev/null; } || \
		echo "no chromium on this machine: the browser tests will be skipped"

# Without PgBouncer the tests of poolers are skipped.
pgbouncer:
	@command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends pgbouncer >/dev/null; } || \
		echo "no pgbouncer on this machine: the tests of poolers will be skipped"

# Without these packages the tests of the TypeScript client and of accessibility are skipped.
node-packages: $(DEV)
	@cd tests/webapp/typescript && { [ node_modules/.package-lock.json -nt package-lock.json ] || \
		PATH="$(abspath $(BIN)):$$PATH" npm ci --fetch-timeout=30000 --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null; } || \
		echo "npm cannot install its packages: the tests of the TypeScript client and of accessibility will be skipped"
