# `make demo` and `make test` need python3 (3.11 or newer), git and make; everything else goes into .venv.
# Nothing is compiled: every dependency comes as a wheel.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILD := build
KAFKA_VERSION := 4.4.0
KAFKA_JARS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/heronpy/kafka-$(KAFKA_VERSION)
HADOOP_VERSION := 3.4.1
HDFS_JARS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/heronpy/hdfs-$(HADOOP_VERSION)
LIBHDFS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/heronpy/libhdfs
YARN_JARS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/heronpy/yarn-$(HADOOP_VERSION)
HELM_VERSION := 3.18.4
HELM := $(or $(HERON_TEST_HELM),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/heronpy/helm-$(HELM_VERSION)/helm)
DEBIAN := bookworm
IMAGE_BASE := $(or $(HERON_TEST_IMAGE_BASE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/heronpy/debian-$(DEBIAN))
KUBERNETES_VERSION := 1.35.4
KUBERNETES := $(or $(HERON_TEST_KUBERNETES),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/heronpy/kubernetes-$(KUBERNETES_VERSION)/hyper)
# Four at a time, because many of them wait; by file (tests/conftest.py), so that each Spark and each
# topology is started once; in the order that stands there, so that what is left for the end is short. The suite starts
# some two thousand processes of the engine: compiled beforehand, also where PYTHONDONTWRITEBYTECODE is set, they take a
# fifth less CPU to start. The tests, which every worker imports, pytest compiles itself (each worker a share of them,
# tests/conftest.py), and keeps that for the next run.
WORKERS ?= 4
PYTEST := export PYTHONDONTWRITEBYTECODE=; $(BIN)/python -m compileall -q -j 0 heronpy scheduler tracker && \
	$(BIN)/python -m pytest -n $(WORKERS) --no-loadscope-reorder
PATHS := heronpy scheduler tracker tests
PROTOS := $(wildcard proto/heronpy/proto/*.proto)
PIP := PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet
APT := DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends
AS_ROOT := $(shell if [ "$$(id -u)" != 0 ] && command -v sudo >/dev/null && sudo -n true 2>/dev/null; then echo "sudo -n"; fi)
CAN_ROOT := $(shell if [ "$$(id -u)" = 0 ] || [ -n "$(AS_ROOT)" ]; then echo yes; fi)

.PHONY: help demo demo-state demo-pipeline test test-clusters test-long check nightly chaos chaos-hosts chaos-pipeline chaos-state chaos-servers chaos-deaths simulate fuzz lint proto proto-check \
	bench bench-state bench-nexmark bench-spark bench-history bench-late bench-hosts bench-tracker \
	format clean distclean install install-dev install-pipeline servers hosts-tools kafka-server s3-server k8s-server helm-client image-tools slurm-server yarn-server hdfs-server cluster-servers java constraints

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed ## count words on a local topology, and verify the counts (KEEP=1 leaves it running)
	@$(BIN)/python -m heronpy.examples.demo --build $(BUILD)/demo $(if $(KEEP),--keep)

demo-state: $(VENV)/.installed ## count words effectively once, with kill -9 in the middle, and verify the counts
	@$(BIN)/python -m heronpy.examples.demo_state --build $(BUILD)/demo-state

demo-pipeline: $(VENV)/.installed-pipeline java ## count live and in batch from one definition, with a kill -9 in the middle: make demo-pipeline URL='s3://…' LIVE='redis://…'
	@$(BIN)/python -m heronpy.examples.demo_pipeline --build $(BUILD)/demo-pipeline $(if $(URL),--url '$(URL)') $(if $(LIVE),--live '$(LIVE)')

test: $(VENV)/.installed-dev servers lint proto-check ## everything that CI runs: linters, types, contracts, all tests
	$(PYTEST) $(ARGS)

test-clusters: $(VENV)/.installed-dev servers hosts-tools ## clusters' real servers, and topologies over several hosts: at most two hours
	$(PYTEST) $(wildcard tests/hosts tests/clusters) $(ARGS)

test-long: $(VENV)/.installed-dev servers ## the same tests, with those that take long
	export HERON_LONG=1; $(PYTEST) $(ARGS)

check: $(VENV)/.installed-dev lint proto-check ## the quick part of it: linters, types, contracts, unit tests
	$(PYTEST) tests/unit $(ARGS)

nightly: ## what takes hours, with other random choices every time: the long tests, faults, fuzzing
	HERON_NIGHTLY=1 HERON_LONG=1 $(MAKE) test
	HERON_CHAOS_SEED=$${HERON_CHAOS_SEED:-$$RANDOM} $(MAKE) chaos chaos-state chaos-servers chaos-pipeline chaos-deaths chaos-hosts
	$(MAKE) simulate SEEDS=5000 FIRST=$$RANDOM
	$(MAKE) simulate SEEDS=2000 FIRST=$$RANDOM ARGS=--checkpoints
	$(MAKE) simulate SEEDS=2000 FIRST=$$RANDOM ARGS=--at-least-once
	$(MAKE) fuzz

chaos: $(VENV)/.installed-dev servers ## faults of every kind while numbers flow: make chaos FAULTS=300, HERON_CHAOS_SEED=n to repeat one
	HERON_CHAOS_FAULTS=$(or $(FAULTS),300) $(BIN)/python -m pytest tests/chaos/test_fault_campaign.py -s $(ARGS)

chaos-state: $(VENV)/.installed-dev servers ## the same and more while state, windows, timers and sinks are exact: make chaos-state FAULTS=1000
	HERON_STATE_FAULTS=$(or $(FAULTS),300) $(BIN)/python -m pytest tests/chaos/test_state_campaign.py -s $(ARGS)

chaos-servers: $(VENV)/.installed-dev servers ## the same from Kafka to Kafka, PostgreSQL and Redis, which die and fall silent, too: make chaos-servers FAULTS=100
	HERON_SERVERS_FAULTS=$(or $(FAULTS),100) $(BIN)/python -m pytest tests/chaos/test_servers_campaign.py -s $(ARGS)

chaos-hosts: $(VENV)/.installed-dev servers hosts-tools ## hosts vanish and links fail while words are counted, and keys, effectively once: make chaos-hosts FAULTS=100
	HERON_HOSTS_FAULTS=$(or $(FAULTS),100) $(BIN)/python -m pytest tests/hosts/test_hosts_campaign.py tests/hosts/test_hosts_state.py -s $(ARGS)

chaos-pipeline: $(VENV)/.installed-dev java ## files, memory and processes fail while batch runs compute views: make chaos-pipeline FAULTS=300
	HERON_PIPELINE_FAULTS=$(or $(FAULTS),300) $(BIN)/python -m pytest tests/chaos/test_pipeline_campaign.py -s $(ARGS)
	HERON_LONG=1 HERON_STORE_CASES=$(or $(FAULTS),300) $(BIN)/python -m pytest tests/chaos/test_store_model.py -s $(ARGS)

chaos-deaths: $(VENV)/.installed-dev ## kills and stops close together, for a while: make chaos-deaths CHAOS_SECONDS=600
	HERON_CHAOS_SECONDS=$(or $(CHAOS_SECONDS),300) $(BIN)/python -m pytest tests/chaos -s -k "deaths" $(ARGS)

fuzz: $(VENV)/.installed-dev ## coverage-guided fuzzing of every parser of bytes: make fuzz FUZZ_RUNS=1000000 ARGS="tuples launch"
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(PIP) 'atheris>=3.0'
	@$(BIN)/python tests/fuzz/run.py --runs $(or $(FUZZ_RUNS),1000000) $(ARGS)

simulate: $(VENV)/.installed-dev ## run simulated clusters under faults, each from a seed: make simulate SEEDS=1000 FIRST=0
	@$(BIN)/python -m heronpy.testing.simulation --seeds $(or $(SEEDS),200) --first $(or $(FIRST),0) $(ARGS)

bench: $(VENV)/.installed ## measure this machine: make bench ARGS="--reliability at-least-once"
	@$(BIN)/heron bench $(ARGS)

bench-state: $(VENV)/.installed ## state and checkpoints next to their targets: make bench-state ARGS="--rounds 0", or ROW=recovery (latency, slow, rescale, memory, sessions, others, sinks)
	@GLIBC_TUNABLES=glibc.malloc.hugetlb=1 $(BIN)/python -m heronpy.bench.$(if $(ROW),rows $(ROW),state) $(ARGS)

bench-nexmark: $(VENV)/.installed ## Nexmark's queries, their answers compared with plain Python: make bench-nexmark ARGS="q5 --kill-every 4"
	@$(BIN)/python -m heronpy.bench.nexmark --build $(BUILD)/bench-nexmark $(ARGS)

bench-spark: $(VENV)/.installed-pipeline java ## a batch run against PySpark written by hand, in stock sessions, five rounds: make bench-spark ARGS="--mb 1000"
	@$(BIN)/python -c 'import pandas' 2>/dev/null || $(PIP) 'pandas>=2.2,<3'  # PySpark's mapInArrow asks for it
	@$(BIN)/python -m heronpy.bench.spark --build $(BUILD)/bench-spark $(ARGS)

bench-history: $(VENV)/.installed-pipeline java ## a batch run and a query after 1,000 to 100,000 batches: make bench-history ARGS="--rounds 3"
	@$(BIN)/python -m heronpy.bench.history $(ARGS)

bench-late: $(VENV)/.installed-pipeline java ## a batch run after a late file, in histories of 1,000 and 10,000 batches: make bench-late ARGS="--sizes 1000"
	@$(BIN)/python -m heronpy.bench.late_files $(ARGS)

bench-hosts: $(VENV)/.installed-dev servers hosts-tools ## word count and RTAC on 1, 2 and 4 hosts next to one: make bench-hosts ARGS="--rounds 3 --hosts 4"
	@$(BIN)/python tests/hosts/bench_hosts.py $(ARGS)

bench-tracker: $(VENV)/.installed-dev servers ## what the Tracker and the web UI take for a topology of 1,000 instances
	@$(BIN)/python tests/bench/large_tracker.py

lint: $(VENV)/.installed-dev ## ruff and mypy
	$(BIN)/ruff check $(PATHS)
	$(BIN)/ruff format --check $(PATHS)
	$(BIN)/mypy

format: $(VENV)/.installed-dev ## format the code, and mend what ruff can mend
	$(BIN)/ruff check --fix $(PATHS)
	$(BIN)/ruff format $(PATHS)

# Service stubs are kept only for files that declare a service; the others would be empty.
define generate
	mkdir -p $(1)
	$(BIN)/python -m grpc_tools.protoc -I proto --python_out=$(1) --pyi_out=$(1) --grpc_python_out=$(1) $(PROTOS)
	for f in $(PROTOS); do grep -q '^service ' $$f || rm $(1)/heronpy/proto/$$(basename $$f .proto)_pb2_grpc.py; done
endef

proto: $(VENV)/.installed-dev ## generate heronpy/proto from proto/
	$(call generate,.)

proto-check: $(VENV)/.installed-dev ## fail if heronpy/proto is not what proto/ generates
	@rm -rf $(BUILD)/proto
	@$(call generate,$(BUILD)/proto)
	@diff -ru --exclude=__init__.py --exclude=__pycache__ $(BUILD)/proto/heronpy/proto heronpy/proto \
		|| { echo "heronpy/proto differs from proto/: run 'make proto'" >&2; exit 1; }

install: $(VENV)/.installed ## install into .venv what users get
install-pipeline: $(VENV)/.installed-pipeline ## the same, with Spark
install-dev: $(VENV)/.installed-dev ## install into .venv what developers need, too

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "installing into $(VENV) (once)"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "installing the developers' tools into $(VENV) (once)"
	@$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-pipeline

$(VENV)/.installed-pipeline: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "installing into $(VENV), with Spark (once; some 300 MB to download)"
	@$(PIP) --editable '.[redis,s3,spark]'
	@touch $@ $(VENV)/.installed

# pip is the last thing that venv makes, so that an interrupted venv is made again.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3" >&2; exit 1; }
	@if ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
		if [ -n "$(CAN_ROOT)" ] && command -v apt-get >/dev/null; then \
			echo "installing python3-venv"; $(AS_ROOT) apt-get update -qq; $(AS_ROOT) env $(APT) python3-venv; \
		else \
			echo "python3-venv is missing: apt-get install python3-venv" >&2; exit 1; \
		fi; \
	fi
	@$(PYTHON) -m venv $(VENV)

# Called with packages; installs them if this user may.
define apt_install
	if [ -n "$(CAN_ROOT)" ] && command -v apt-get >/dev/null; then \
		echo "installing $(1) (once)"; \
		$(AS_ROOT) apt-get update -qq && $(AS_ROOT) env $(APT) $(1) >/dev/null; \
	else \
		echo "only root can install $(1)" >&2; false; \
	fi
endef

# The tests talk to real servers. Without them those tests are skipped, and say so.
servers: kafka-server
	@missing=; \
	{ [ -e /usr/share/java/zookeeper.jar ] && command -v java >/dev/null; } || missing="$$missing zookeeper"; \
	command -v redis-server >/dev/null || missing="$$missing redis-server"; \
	command -v etcd >/dev/null || missing="$$missing etcd-server"; \
	command -v chromium >/dev/null || missing="$$missing chromium fonts-dejavu-core"; \
	command -v prometheus >/dev/null || missing="$$missing prometheus"; \
	command -v ss >/dev/null || missing="$$missing iproute2"; \
	[ -z "$$missing" ] || { $(call apt_install,$$missing); } \
		|| echo "not installed:$$missing; the tests that need them will be skipped" >&2

# What makes test hosts: root, namespaces, and these.
hosts-tools:
	@command -v nft >/dev/null && command -v ip >/dev/null || { $(call apt_install,nftables iproute2); } \
		|| echo "not installed: nftables or iproute2; the tests that need several hosts will be skipped" >&2

slurm-server: ## install Debian's Slurm, its accounting and munge, for the tests of that scheduler (root)
	@command -v slurmctld >/dev/null && command -v slurmd >/dev/null && command -v munged >/dev/null \
		&& command -v slurmdbd >/dev/null && command -v mariadbd >/dev/null \
		|| { $(call apt_install,slurm-wlm slurmdbd slurm-wlm-mysql-plugin mariadb-server-core mariadb-client-core); } \
		|| echo "not installed: slurm-wlm, slurmdbd; the tests on Slurm will be skipped" >&2

# Each can be had alone; without it, its tests are skipped with the reason.
cluster-servers: $(VENV)/.installed-dev servers hosts-tools slurm-server yarn-server hdfs-server k8s-server helm-client image-tools s3-server ## all servers of test-clusters, once on a new machine (root, Go and Maven; takes minutes)
	@$(BIN)/python -c 'import kubernetes_validate' 2>/dev/null || $(PIP) kubernetes-validate  # objects against Kubernetes' own schemas

# Debian has no Kafka: its jars come by Maven, once for all checkouts.
kafka-server:
	@[ -n "$${HERON_TEST_KAFKA_JARS:-}" ] || [ -d "$(KAFKA_JARS)" ] || { \
		echo "downloading Kafka (once; 45 MB)"; \
		mkdir -p "$(dir $(KAFKA_JARS))"; new=$$(mktemp -d "$(dir $(KAFKA_JARS)).new-XXXXXX"); trap 'rm -rf "$$new"' EXIT; \
		{ command -v mvn >/dev/null || { $(call apt_install,maven); }; } && \
		timeout 300 mvn -q -B -f tests/servers/kafka.xml -Dkafka.version=$(KAFKA_VERSION) \
			dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$$new/jars" && \
		{ mv -T "$$new/jars" "$(KAFKA_JARS)" 2>/dev/null || [ -d "$(KAFKA_JARS)" ]; }; } \
		|| echo "not installed: Kafka; the tests that need it will be skipped" >&2

# Not among `servers`: building it takes minutes of CPU. Once built, the tests of this checkout use it.
export HERON_TEST_VERSITYGW := $(or $(HERON_TEST_VERSITYGW),$(wildcard $(abspath $(BUILD)/bin/versitygw)))
s3-server: ## build versitygw, the S3 server of the tests, into build/bin (once; needs Go)
	@[ -x $(BUILD)/bin/versitygw ] || GOBIN=$(abspath $(BUILD)/bin) go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
	@echo "export HERON_TEST_VERSITYGW=$(abspath $(BUILD)/bin/versitygw)"

# Not among `servers` either: it takes minutes of CPU. etcd, which it needs, is Debian's etcd-server.
k8s-server: ## build the Kubernetes control plane of the tests (once for all checkouts; needs Go; takes minutes)
	@[ -x "$(KUBERNETES)" ] || tests/servers/kubernetes.sh $(KUBERNETES_VERSION) "$(KUBERNETES)"
	@command -v etcd >/dev/null || { $(call apt_install,etcd-server); } \
		|| echo "not installed: etcd-server; the tests on Kubernetes will be skipped" >&2

helm-client: ## build helm, for the tests of the chart (once for all checkouts; needs Go; takes minutes)
	@[ -x "$(HELM)" ] || GOBIN="$(dir $(HELM))" go install helm.sh/helm/v3/cmd/helm@v$(HELM_VERSION)

# The base of the image in the tests: a Debian with nothing but Python.
image-tools: ## install buildah, podman and runc, and make the base of the tests' image (root; once for all checkouts; 100 MB)
	@command -v buildah >/dev/null && command -v podman >/dev/null && command -v runc >/dev/null && \
		command -v debootstrap >/dev/null || { $(call apt_install,buildah podman runc catatonit debootstrap); }
	@[ -d "$(IMAGE_BASE)" ] || { \
		mkdir -p "$(dir $(IMAGE_BASE))"; new=$$(mktemp -d "$(dir $(IMAGE_BASE)).new-XXXXXX"); \
		trap '$(AS_ROOT) rm -rf "$$new"' EXIT; \
		$(AS_ROOT) debootstrap --variant=minbase --include=python3,python3-venv $(DEBIAN) "$$new/root" >"$$new/log" \
			|| { tail -n 5 "$$new/log" >&2; exit 1; }; \
		$(AS_ROOT) rm -rf "$$new"/root/var/cache/apt/archives/*.deb "$$new"/root/var/lib/apt/lists/*; \
		mv -T "$$new/root" "$(IMAGE_BASE)"; }

# Not among `servers` either: only the tests of one scheduler need it.
yarn-server: ## download the YARN of the tests (once for all checkouts; needs Maven; 80 MB)
	@[ -d "$(YARN_JARS)" ] || { \
		mkdir -p "$(dir $(YARN_JARS))"; new=$$(mktemp -d "$(dir $(YARN_JARS)).new-XXXXXX"); trap 'rm -rf "$$new"' EXIT; \
		{ command -v mvn >/dev/null || { $(call apt_install,maven); }; } && \
		timeout 600 mvn -q -B -f tests/servers/yarn.xml -Dhadoop.version=$(HADOOP_VERSION) \
			dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$$new/jars" && \
		{ mv -T "$$new/jars" "$(YARN_JARS)" 2>/dev/null || [ -d "$(YARN_JARS)" ]; }; }

hdfs-server: ## download the HDFS of the tests (as above; 60 MB), and build libhdfs.so (needs cargo, cc and a JDK, or ARROW_LIBHDFS_DIR)
	@[ -d "$(HDFS_JARS)" ] || { \
		mkdir -p "$(dir $(HDFS_JARS))"; new=$$(mktemp -d "$(dir $(HDFS_JARS)).new-XXXXXX"); trap 'rm -rf "$$new"' EXIT; \
		{ command -v mvn >/dev/null || { $(call apt_install,maven); }; } && \
		timeout 600 mvn -q -B -f tests/servers/hdfs.xml -Dhadoop.version=$(HADOOP_VERSION) \
			dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$$new/jars" && \
		{ mv -T "$$new/jars" "$(HDFS_JARS)" 2>/dev/null || [ -d "$(HDFS_JARS)" ]; }; }
	@[ -n "$${ARROW_LIBHDFS_DIR:-}" ] || [ -e "$(LIBHDFS)/libhdfs.so" ] || tests/servers/libhdfs.sh "$(LIBHDFS)" \
		|| echo "not built: libhdfs.so; the tests on HDFS will be skipped" >&2

# Spark needs Java 17 or newer. What is missing says the program itself, too.
java:
	@command -v java >/dev/null || [ -n "$${JAVA_HOME:-}" ] || { $(call apt_install,openjdk-17-jre-headless); }

constraints: ## renew constraints.txt: the newest versions that pyproject.toml allows
	@set -e; fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	$(PYTHON) -m venv "$$fresh"; "$$fresh/bin/pip" install --quiet --editable '.[dev]' hatchling; \
	{ grep '^#' constraints.txt; "$$fresh/bin/pip" freeze --exclude-editable | sort -f; } >"$$fresh/new"; \
	cp "$$fresh/new" constraints.txt

clean: ## remove what was built and cached
	rm -rf $(BUILD) dist artifacts .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find $(PATHS) -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## the same, and .venv
	rm -rf $(VENV)
