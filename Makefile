# Every command a developer needs. `make` prints this list.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo check pure test lint types imports docs docs-check unit contract contract-next path simulation e2e simulate simulation-ledger test-kube test-secured test-compose test-alerts pin-images properties kube helm oracle differential replay scaling scaling-faults modes fuzz audit requirements sbom versions upgrade missing-secret bench chaos up down status clean

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
# Tests that start no Kafka and no platform: each file on one of so many processes.
WORKERS ?= 2
SPREAD = -n $(WORKERS) --dist loadfile

help: ## This list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

# Where PYTHONDONTWRITEBYTECODE is set, every process would compile all that it imports: seconds of CPU each.
# A lock file older than pyproject.toml may name packages at places that they left (docs/adr/0003: versions are pinned without it).
setup: ## Install uv where missing, and every Python package
	@test uv.lock -nt pyproject.toml || rm -f uv.lock
	@uv="$$(./tools/ensure-uv)" \
	&& ./tools/patiently "installing Python packages into .venv (once)" "$$uv" sync --quiet --compile-bytecode \
	&& ./tools/patiently "compiling our own Python code (what changed)" \
	    "$$uv" run --quiet python -m compileall -q libs/*/src cli/src local/src services/*/src

demo: setup ## The main job, told and verified (MEMBERS=sim|kube, BUS=kafka|memory)
	@$(RUN) spillway demo --members $(MEMBERS) --bus $(BUS)

check: setup lint types imports docs-check pure ## Between two edits, under 2 minutes on 2 cores: what needs no socket, no process, no Kafka
	@echo "make check: all of it passed; make test is what CI checks"

test: setup lint types imports docs-check unit contract path simulation e2e ## Everything that CI checks
	@echo "make test: all of it passed"

lint: setup ## ruff: rules and format
	@$(RUN) ruff check . && $(RUN) ruff format --check .

types: setup ## mypy --strict
	@$(RUN) mypy libs/*/src cli/src local/src services/*/src docs lab $(patsubst lab/%/,tests/%,$(filter-out lab/bench/,$(wildcard lab/*/)))

imports: setup ## The architecture's import contracts
	@$(RUN) lint-imports --no-cache

docs: setup ## Write what is generated from code: docs/events.md, asyncapi.yaml, metrics.md, deploy/observability, deploy/kafka
	@$(RUN) python docs/make_docs.py

docs-check: setup ## What is generated says what the code says
	@$(RUN) python docs/make_docs.py --check

pure: setup ## Tests of values in, values out: the cores of all services and the library's own (EXAMPLES=10 of each property)
	@EXAMPLES=$(or $(EXAMPLES),10) $(PYTEST) $(SPREAD) -m pure libs services

unit: setup ## Unit and property tests of every package (WORKERS=2 processes, as path and simulation)
	@$(PYTEST) $(SPREAD) libs services cli local tests/audit tests/chaos tests/compose tests/fuzz tests/helm tests/mutants tests/observability tests/oracle tests/replay tests/scaling tests/vectors tests/versions tests/test_conftest.py tests/test_tidy.py tests/test_documents.py

properties: setup ## Every property on 300 examples that nobody tried before (EXAMPLES=300; make test tries the same 30); what fails is tried first the next time
	@$(PYTEST) --hypothesis-profile exploring -m hypothesis libs services cli local tests

contract: setup ## One suite for each adapter and its fake: Kafka, Redis, members
	@$(PYTEST) tests/contract

# By `python -m`: the program `pytest` would run in .venv, which has the version that is pinned.
contract-next: setup ## What we ask of aiokafka, asked of the newest one, pre-releases too, in place of the one that is pinned
	@pinned="$$(sed -n 's/^ *"aiokafka==\(.*\)",$$/\1/p' pyproject.toml)" \
	&& newest="$(UV) run --quiet --frozen --prerelease=allow --with aiokafka[zstd]>$$pinned" \
	&& $$newest python -c 'import aiokafka; print("aiokafka", aiokafka.__version__)' \
	&& $$newest python -m pytest \
	    libs/spillway/tests/test_kafka*.py libs/spillway/tests/test_fetch_sessions.py \
	    $(addprefix tests/contract/test_,bus.py restarts.py retention.py lag.py)

path: setup ## The story in one process, in virtual time
	@$(PYTEST) $(SPREAD) tests/path

simulation: setup ## A sample of seeds: all services in one process in virtual time, with faults
	@$(PYTEST) -n $(WORKERS) --dist worksteal tests/simulation

simulate: setup ## Many seeds (SEEDS=0:10000 JOBS=2 LEDGER=path; goes on where it was), or one with its trace (REPLAY=17)
	@$(RUN) python lab/simulation/simulate.py $(if $(REPLAY),--seed $(REPLAY) --trace,--seeds $(SEEDS) --jobs $(JOBS) $(if $(LEDGER),--ledger $(LEDGER)))

simulation-ledger: setup ## What was run of this and other code (LEDGER=build/simulation.ledger) into the committed ranges
	@$(RUN) python lab/simulation/simulate.py --ranges $(if $(LEDGER),--ledger $(LEDGER))

mutants: setup ## What tests and seeds notice of one line changed at a time; goes on where it was (STAGE=tests|seeds ONLY="P4 M12" SEEDS=100 JOBS=1 AGAIN=1 EXAMPLES=200)
	@nice -n 10 $(RUN) python lab/mutants/mutants.py --stage $(STAGE) --only "$(ONLY)" \
	    $(if $(filter file,$(origin SEEDS)),,--seeds $(SEEDS)) $(if $(filter file,$(origin JOBS)),,--jobs $(JOBS)) $(if $(AGAIN),--again)

e2e: setup ## The platform as processes on real Kafka and Redis, with faults
	@$(PYTEST) tests/e2e

# helm is built here, not in the test that wants it first, whose time is bounded.
test-kube: kube ## What needs real Kubernetes control planes
	@$(RUN) python -m spillway_local.helm_binary
	@SPILLWAY_KUBE=1 $(PYTEST) -m kube tests local services libs

test-secured: setup ## The platform on a Kafka with TLS, users and the rights of deploy/kafka/acls.sh; the script by Kafka's own tool
	@SPILLWAY_SECURED=1 $(PYTEST) tests/contract/test_kafka_rights.py tests/e2e/test_secured_kafka.py

test-compose: kube ## docker compose up on stand-in images, from nothing to the first placement (as root, or with an engine)
	@SPILLWAY_COMPOSE=1 $(PYTEST) tests/compose

pin-images: setup ## Name compose's images by digests: writes compose/.env, with an engine that reaches the registries (CHECK=1: says what lacks one)
	@$(RUN) python -m spillway_local.image_digests $(if $(CHECK),--check)

test-alerts: setup ## Each alert and promise by Prometheus' own promtool, which must be there (Debian: prometheus; a minute)
	@SPILLWAY_ALERTS=1 $(PYTEST) tests/observability/test_promtool.py

kube: setup ## Build the member binary (Go; about 6 minutes once, cached outside the checkout)
	@$(RUN) python -m spillway_local.kube_binary

helm: setup ## Build helm once (Go; minutes, cached outside the checkout), lint the chart, write tests/helm/rendered.yaml
	@$(RUN) python tests/helm/rendering.py

oracle: setup ## Build the differential tests' oracle (Go; seconds after make kube, else minutes; cached outside the checkout)
	@PYTHONPATH=lab/oracle $(RUN) python -m spillway_oracle.binary

differential: oracle ## The planner against the Kubernetes scheduler's own plugins (CASES=20000 SEED=1 JOBS=2)
	@nice -n 5 $(RUN) python lab/oracle/differential.py --cases $(CASES) --seed $(SEED) --jobs $(JOBS)

replay: oracle ## How good decisions are: bursts onto clusters cut from a trace (SEEDS=1:4 BURSTS=1,10,100,1000 JOBS=2 PLANNERS="ours/ours, killed" JOINING=0.1)
	@nice -n 5 $(RUN) python lab/replay/replay.py --bursts $(BURSTS) --jobs $(JOBS) \
	    $(if $(filter file,$(origin SEEDS)),,--seeds $(SEEDS)) $(if $(PLANNERS),--planners "$(PLANNERS)") $(if $(JOINING),--joining $(JOINING))

scaling: setup ## How good scaling is: queues beside KEDA's way (SEEDS=1:4 JOBS=2)
	@nice -n 5 $(RUN) python lab/scaling/scaling.py --jobs $(JOBS) $(if $(filter file,$(origin SEEDS)),,--seeds $(SEEDS))

scaling-faults: setup ## Crashes at each record, wrong and late samples, loops: what is decided otherwise (a minute)
	@nice -n 5 $(RUN) python lab/scaling/proofs.py --jobs $(JOBS)

modes: setup ## What event mode does otherwise than Kubernetes' controller, on the vectors beside the repository
	@PYTHONPATH=lab/vectors $(RUN) python -m spillway_vectors.scaling_modes

fuzz: setup ## Wrong inputs for all that reads what others wrote, and every gRPC method (INPUTS=1000000 SEED=1 JOBS=2 ONLY= REPLAY=)
	@nice -n 5 $(RUN) python lab/fuzz/fuzz.py --inputs $(INPUTS) --seed $(SEED) --jobs $(JOBS) --only "$(ONLY)" $(if $(REPLAY),--replay $(REPLAY))

audit: setup ## Dependencies: hashes, pins, reasons, licences; then known vulnerabilities, where a service of them answers (else exit code 2)
	@$(RUN) python lab/audit/locked.py check && $(RUN) python lab/audit/audit.py

requirements: setup ## Write requirements.txt: what Spillway runs on, with the hash of each file, from what is locked
	@$(RUN) python lab/audit/locked.py requirements

sbom: setup ## Write build/sbom.json: a bill of materials (CycloneDX 1.5) of our parts and all they run on
	@$(RUN) python lab/audit/locked.py sbom

versions: setup ## An older version of this code, run on what this one writes, and back (OLD=cfd3804)
	@$(RUN) python lab/versions/versions.py --old $(OLD)

upgrade: setup ## A platform of an older version, upgraded process by process while work goes on (OLD=b18740c KEPT_NEW=vk-bridge)
	@$(RUN) python lab/versions/upgrade.py --old $(if $(filter file,$(origin OLD)),b18740c,$(OLD)) --kept-new "$(KEPT_NEW)"

missing-secret: kube ## What a neighbour is told while a Secret is missing, on real control planes (OLD=feaf307: by that version; SECONDS_ASKED=150)
	@nice -n 5 $(RUN) python lab/versions/missing_secret.py --seconds $(SECONDS_ASKED) $(if $(filter file,$(origin OLD)),,--old $(OLD))

bench: setup ## Measure; prints a table, writes build/bench.json
	@$(RUN) python lab/bench/bench.py

chaos: setup ## Break one part after another, count what was lost (ROWS="…" ROUNDS=20 SEED=1); build/chaos.json
	@$(RUN) python lab/chaos/chaos.py --rounds $(ROUNDS) --seed $(SEED) $(if $(ROWS),--rows $(ROWS)) \
	    $(if $(ROUND_SEED),--round-seed $(ROUND_SEED)) $(if $(LOCK),--lock $(LOCK))

up: setup ## Start the platform on this machine and leave it running
	@$(RUN) spillway up --members $(MEMBERS)

down: setup ## Stop what `make up` started
	@$(RUN) spillway down

status: setup ## What runs, and how it is
	@$(RUN) spillway status

clean: ## Remove build output and the local run folder
	@rm -rf build run .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
