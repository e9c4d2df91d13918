# Every command a developer needs. `make` prints this list.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo check pure test lint types imports docs docs-check unit suites contract contract-next path simulation e2e integration simulate simulation-ledger test-kube test-secured test-compose test-alerts pin-images properties kube helm oracle differential replay scaling scaling-faults modes fuzz audit requirements sbom versions upgrade missing-secret bench chaos up down status clean

MEMBERS ?= sim
BUS ?= kafka
SEEDS ?= 0:1000
JOBS ?= 2
ROUNDS ?= 20
CASES ?= 2000
STAGE ?= all
BURSTS ?= 1,10,100,1000
INPUTS ?= 1000000
SEED ?= 1
OLD ?= cfd3804
KEPT_NEW ?= vk-bridge
SECONDS_ASKED ?= 150
export UV_PYTHON_DOWNLOADS := never
# Where it is set, each process of pytest compiles every test module again: collecting took 35 s in place of 17.
unexport PYTHONDONTWRITEBYTECODE
UV = $$(./tools/ensure-uv)
RUN = $(UV) run --quiet
PYTEST = $(RUN) pytest
# Processes of `unit`, `path`, `simulation` and `suites`, whose tests compute more than they wait.
WORKERS ?= 2
# Processes of `integration`; each starts a Kafka and a platform of its own.
PLATFORMS ?= 3
# All tests of a file run in one process.
SPREAD = -n $(WORKERS) --dist loadfile
# Files begin in the order of the tests: those that leave more clusters in the fleet come last.
IN_ORDER = --no-loadscope-reorder
UNIT = libs services cli local $(addprefix tests/,audit chaos compose fuzz helm mutants observability oracle replay scaling \
    vectors versions test_conftest.py test_tidy.py test_documents.py)

help: ## List these commands
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

# Where PYTHONDONTWRITEBYTECODE is set, every process would compile all that it imports: seconds of CPU each.
# A lock file older than pyproject.toml may name packages at places that they left (docs/adr/0003: versions are pinned without it).
setup: ## Install uv if it is missing, and every Python package
	@test uv.lock -nt pyproject.toml || rm -f uv.lock
	@uv="$$(./tools/ensure-uv)" \
	&& ./tools/patiently "installing Python packages into .venv (once)" "$$uv" sync --quiet --compile-bytecode \
	&& ./tools/patiently "compiling our own Python code (what changed)" \
	    "$$uv" run --quiet python -m compileall -q libs/*/src cli/src local/src services/*/src

demo: setup ## Show and verify Spillway's main job (MEMBERS=sim|kube, BUS=kafka|memory)
	@$(RUN) spillway demo --members $(MEMBERS) --bus $(BUS)

check: setup lint types imports docs-check pure ## Run the quick checks between two edits, under 2 minutes on 2 cores: no socket, no process, no Kafka
	@echo "make check: all of it passed; make test is what CI checks"

test: setup lint types imports docs-check suites integration ## Run all checks of CI
	@echo "make test: all of it passed"

lint: setup ## Check the code's rules and format with ruff
	@$(RUN) ruff check . && $(RUN) ruff format --check .

types: setup ## Check the types with mypy --strict
	@$(RUN) mypy libs/*/src cli/src local/src services/*/src docs lab $(patsubst lab/%/,tests/%,$(filter-out lab/bench/,$(wildcard lab/*/)))

imports: setup ## Check the import contracts of the architecture
	@$(RUN) lint-imports --no-cache

docs: setup ## Generate files from the code: README.md (its table), docs/events.md, asyncapi.yaml, metrics.md, modules.md, deploy/observability, deploy/kafka, deploy/rbac
	@$(RUN) python docs/make_docs.py

docs-check: setup ## Check that the generated files match the code
	@$(RUN) python docs/make_docs.py --check

pure: setup ## Run the tests of pure code: the cores of all services and the pure parts of the library (EXAMPLES=10 of each property)
	@EXAMPLES=$(or $(EXAMPLES),10) $(PYTEST) $(SPREAD) -m pure libs services

unit: setup ## Run the unit and property tests of every package (WORKERS=2 processes, as for path and simulation)
	@$(PYTEST) $(SPREAD) $(UNIT)

# The longest first, so that no process is left alone with it at the end.
suites: setup ## Run simulation, path and unit as one session, as make test does
	@$(PYTEST) $(SPREAD) $(IN_ORDER) tests/simulation tests/path $(UNIT)

properties: setup ## Test every property on 300 new examples (EXAMPLES=300; make test uses the same 30 each time); failing examples run first the next time
	@$(PYTEST) --hypothesis-profile exploring -m hypothesis libs services cli local tests

contract: setup ## Run one test suite against each adapter and its fake: Kafka, Redis, members
	@$(PYTEST) tests/contract

# By `python -m`: the program `pytest` would run in .venv, which has the version that is pinned.
contract-next: setup ## Run our tests of aiokafka with its newest version (pre-releases too) in place of the pinned version
	@pinned="$$(sed -n 's/^ *"aiokafka==\(.*\)",$$/\1/p' pyproject.toml)" \
	&& newest="$(UV) run --quiet --frozen --prerelease=allow --with aiokafka[zstd]>$$pinned" \
	&& $$newest python -c 'import aiokafka; print("aiokafka", aiokafka.__version__)' \
	&& $$newest python -m pytest \
	    libs/spillway/tests/test_kafka*.py libs/spillway/tests/test_fetch_sessions.py \
	    $(addprefix tests/contract/test_,bus.py restarts.py retention.py lag.py)

path: setup ## Test whole scenarios in one process, in virtual time
	@$(PYTEST) $(SPREAD) tests/path

simulation: setup ## Simulate a sample of seeds: all services in one process in virtual time, with faults
	@$(PYTEST) -n $(WORKERS) --dist worksteal tests/simulation

simulate: setup ## Simulate many seeds (SEEDS=0:10000 JOBS=2 LEDGER=path; KEPT=all: also those that failed once; a stopped run continues), or one seed with its trace (REPLAY=17)
	@$(RUN) python lab/simulation/simulate.py $(if $(REPLAY),--seed $(REPLAY) --trace,--seeds $(SEEDS) --jobs $(JOBS) $(if $(KEPT),--kept $(KEPT)) $(if $(LEDGER),--ledger $(LEDGER)))

simulation-ledger: setup ## Add the simulated seeds of a ledger (LEDGER=build/simulation.ledger) to the committed ranges
	@$(RUN) python lab/simulation/simulate.py --ranges $(if $(LEDGER),--ledger $(LEDGER))

mutants: setup ## Change one line at a time and see which tests and seeds notice it; a stopped run continues (STAGE=tests|seeds ONLY="P4 M12" SEEDS=100 JOBS=1 AGAIN=1 EXAMPLES=200)
	@nice -n 10 $(RUN) python lab/mutants/mutants.py --stage $(STAGE) --only "$(ONLY)" \
	    $(if $(filter file,$(origin SEEDS)),,--seeds $(SEEDS)) $(if $(filter file,$(origin JOBS)),,--jobs $(JOBS)) $(if $(AGAIN),--again)

e2e: setup ## Test the platform as processes on real Kafka and Redis, with faults
	@$(PYTEST) tests/e2e

# These tests wait more than they compute, so more processes run than there are cores.
integration: setup ## Run contract and e2e side by side (PLATFORMS=3 processes)
	@$(PYTEST) -n $(PLATFORMS) --dist loadfile $(IN_ORDER) tests/contract tests/e2e

# helm is built here, not in the test that wants it first, whose time is bounded.
test-kube: kube ## Run the tests that need real Kubernetes control planes
	@$(RUN) python -m spillway_local.helm_binary
	@SPILLWAY_KUBE=1 $(PYTEST) -m kube tests local services libs

test-secured: setup ## Test the platform on a Kafka with TLS, users and the rights of deploy/kafka/acls.sh, and that script with Kafka's own tool
	@SPILLWAY_SECURED=1 $(PYTEST) tests/contract/test_kafka_rights.py tests/e2e/test_secured_kafka.py

test-compose: kube ## Test docker compose up on stand-in images up to the first placement (needs root or a Docker engine)
	@SPILLWAY_COMPOSE=1 $(PYTEST) tests/compose

pin-images: setup ## Name compose's images by digests: writes compose/.env, with a Docker engine that reaches the registries (CHECK=1: list the images without a digest)
	@$(RUN) python -m spillway_local.image_digests $(if $(CHECK),--check)

test-alerts: setup ## Test each alert and objective with Prometheus' promtool, which must be installed (Debian: prometheus; a minute)
	@SPILLWAY_ALERTS=1 $(PYTEST) tests/observability/test_promtool.py

kube: setup ## Build the member binary (Go; about 6 minutes once, cached outside the checkout)
	@$(RUN) python -m spillway_local.kube_binary

helm: setup ## Build helm once (Go; minutes, cached outside the checkout), lint the chart, write tests/helm/rendered.yaml
	@$(RUN) python tests/helm/rendering.py

oracle: setup ## Build the differential tests' oracle (Go; seconds after make kube, else minutes; cached outside the checkout)
	@PYTHONPATH=lab/oracle $(RUN) python -m spillway_oracle.binary

differential: oracle ## Compare the planner with the Kubernetes scheduler's own plugins (CASES=20000 SEED=1 JOBS=2)
	@nice -n 5 $(RUN) python lab/oracle/differential.py --cases $(CASES) --seed $(SEED) --jobs $(JOBS)

replay: oracle ## Measure the quality of decisions: bursts of workloads on clusters cut from a trace (SEEDS=1:4 BURSTS=1,10,100,1000 JOBS=2 PLANNERS="ours/ours, killed" JOINING=0.1)
	@nice -n 5 $(RUN) python lab/replay/replay.py --bursts $(BURSTS) --jobs $(JOBS) \
	    $(if $(filter file,$(origin SEEDS)),,--seeds $(SEEDS)) $(if $(PLANNERS),--planners "$(PLANNERS)") $(if $(JOINING),--joining $(JOINING))

scaling: setup ## Measure the quality of scaling: queues, compared with KEDA (SEEDS=1:4 JOBS=2)
	@nice -n 5 $(RUN) python lab/scaling/scaling.py --jobs $(JOBS) $(if $(filter file,$(origin SEEDS)),,--seeds $(SEEDS))

scaling-faults: setup ## Test scaling decisions with crashes at each record, wrong and late samples, and loops (a minute)
	@nice -n 5 $(RUN) python lab/scaling/proofs.py --jobs $(JOBS)

modes: setup ## Compare event mode with Kubernetes' controller, on the vectors beside the repository
	@PYTHONPATH=lab/vectors $(RUN) python -m spillway_vectors.scaling_modes

fuzz: setup ## Send wrong inputs to every reader of outside data and every gRPC method (INPUTS=1000000 SEED=1 JOBS=2 ONLY= REPLAY=)
	@nice -n 5 $(RUN) python lab/fuzz/fuzz.py --inputs $(INPUTS) --seed $(SEED) --jobs $(JOBS) --only "$(ONLY)" $(if $(REPLAY),--replay $(REPLAY))

audit: setup ## Check dependencies: hashes, pins, reasons, licences, then known vulnerabilities (exit code 2 if no vulnerability service answers)
	@$(RUN) python lab/audit/locked.py check && $(RUN) python lab/audit/audit.py

requirements: setup ## Write requirements.txt: the locked packages that Spillway needs, with the hash of each file
	@$(RUN) python lab/audit/locked.py requirements

sbom: setup ## Write build/sbom.json: a bill of materials (CycloneDX 1.5) of our parts and their dependencies
	@$(RUN) python lab/audit/locked.py sbom

versions: setup ## Run an older version of this code on the records of this version, and the reverse (OLD=cfd3804)
	@$(RUN) python lab/versions/versions.py --old $(OLD)

upgrade: setup ## Upgrade a running platform of an older version process by process (OLD=b18740c KEPT_NEW=vk-bridge)
	@$(RUN) python lab/versions/upgrade.py --old $(if $(filter file,$(origin OLD)),b18740c,$(OLD)) --kept-new "$(KEPT_NEW)"

missing-secret: kube ## Measure how a missing Secret affects another workload's placements, on real control planes (OLD=feaf307: by that version; SECONDS_ASKED=150)
	@nice -n 5 $(RUN) python lab/versions/missing_secret.py --seconds $(SECONDS_ASKED) $(if $(filter file,$(origin OLD)),,--old $(OLD))

bench: setup ## Run the benchmarks; prints a table, writes build/bench.json
	@$(RUN) python lab/bench/bench.py

chaos: setup ## Break one part after another and count the losses (ROWS="…" ROUNDS=20 SEED=1); build/chaos.json
	@$(RUN) python lab/chaos/chaos.py --rounds $(ROUNDS) --seed $(SEED) $(if $(ROWS),--rows $(ROWS)) \
	    $(if $(ROUND_SEED),--round-seed $(ROUND_SEED)) $(if $(LOCK),--lock $(LOCK))

up: setup ## Start the platform on this machine and leave it running
	@$(RUN) spillway up --members $(MEMBERS)

down: setup ## Stop what `make up` started
	@$(RUN) spillway down

status: setup ## Show the running services and their state
	@$(RUN) spillway status

clean: ## Remove build output and the local run folder
	@rm -rf build run .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
