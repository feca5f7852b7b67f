# `make help` lists what can be done. Python 3.11 or newer; everything is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SAMPLE ?= manifests/samples/reverse-digits.yaml
CLUSTER := $(BIN)/python e2e/cluster

# One compute thread a process: two cores are shared by all of them.
export OMP_NUM_THREADS ?= 1

.PHONY: help demo test check e2e bench cluster-up cluster-down images demo-cluster generate clean

help: ## list the targets
	@grep -hE '^[a-z0-9%-]+:.*## ' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 16

demo: $(VENV)/installed-run ## install, then train the sample here, without a cluster
	$(BIN)/rljob run $(SAMPLE) $(ARGUMENTS)

test: $(VENV)/installed-dev ## unit tests, and those with real local processes
	$(BIN)/python -m pytest

check: $(VENV)/installed-dev ## formatting, lint, types, layers, generated files, extras
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	MYPYPATH=e2e/cluster $(BIN)/mypy e2e/cluster
	MYPYPATH=e2e $(BIN)/mypy $(wildcard e2e/*.py) e2e/operator_process
	MYPYPATH=bench $(BIN)/mypy bench tools
	$(BIN)/lint-imports
	$(BIN)/rljob crd --check
	$(BIN)/rljob reference --check
	$(BIN)/python tools/npu_resolves.py

generate: $(VENV)/installed-dev ## write the CRD and the field reference from the models
	$(BIN)/rljob crd > crds/rljobs.yaml
	$(BIN)/rljob reference > docs/reference.md

cluster-up: $(VENV)/installed-dev ## a Kubernetes cluster: kind with Docker, else a local one (root)
	$(CLUSTER) up

cluster-down: $(VENV)/installed-dev ## remove that cluster
	$(CLUSTER) down

images: $(VENV)/installed-dev ## build both images and load them into the cluster
	$(CLUSTER) images

demo-cluster: cluster-up images ## cluster, images, operator, and the sample job as pods
	tools/demo_cluster.sh "$$($(CLUSTER) kubeconfig)" $(SAMPLE)

e2e: $(VENV)/installed-dev ## the end-to-end tests, on a cluster made for them
	$(CLUSTER) fill-cache
	$(BIN)/python -m pytest e2e --timeout 1200 --durations 12 -p no:cacheprovider

bench: $(VENV)/installed-run ## every benchmark; renders docs/benchmarks.md
	$(BIN)/python bench/render.py docs/benchmarks.md

bench-%: $(VENV)/installed-run ## one benchmark, as bench-time-to-reward
	$(BIN)/python bench/$(subst -,_,$*).py

clean: ## remove the environment and what tools left
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# PIP_FIND_LINKS and PIP_CONSTRAINT may point at a CPU build of torch; pip reads them itself.
$(VENV)/installed-run $(VENV)/installed-dev: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@if [ -z "$$PIP_CONSTRAINT" ] && ! $(BIN)/python -c 'import torch' 2>/dev/null; then \
	  echo "PIP_CONSTRAINT is not set: pip takes PyPI's torch; on Linux x86_64 that is about 2.7 GB to download."; fi
	@echo "installing into $(VENV): a minute or more, without a word"
	$(BIN)/python -m pip install --quiet --editable ".[operator,workers,cpu$(if $(findstring dev,$@),$(COMMA)dev)]"
	@touch $@ $(if $(findstring dev,$@),$(VENV)/installed-run)
COMMA := ,
