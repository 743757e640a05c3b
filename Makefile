# The two commands of the README and shortcuts for developers. CMake does the work.
#
#   make demo     install what is needed, build, generate text with the shipped model
#   make test     install what is needed, build, run the unit tests
#
# SETUP=: leaves out the installation of packages; JOBS=n limits the compilers that run at once.

SETUP ?= tools/setup.sh
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
SECONDS ?= 10
PROMPT ?= The Python programming language
BUILD := build/release

.PHONY: help setup setup-dev configure demo test lint format asan fuzz install clean

help:
	@sed -n 's/^# \{0,1\}//p' Makefile
	@echo "Also: make lint, format, asan, fuzz SECONDS=10, install PREFIX=/usr/local, clean"

setup:
	@$(SETUP)

setup-dev:
	@$(SETUP) --dev

configure: setup
	@cmake --preset release

demo: configure
	cmake --build $(BUILD) --target halley_executable -j $(JOBS)
	@echo "== $(BUILD)/bin/halley generate models/demo-21m --prompt '$(PROMPT)'"
	@$(BUILD)/bin/halley generate models/demo-21m --prompt '$(PROMPT)' --max-tokens 128 \
	  --temperature 0

test: configure
	cmake --build $(BUILD) -j $(JOBS)
	ctest --test-dir $(BUILD) -L unit --output-on-failure --progress -j $(JOBS)

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
	cmake --build $(BUILD) --target halley_executable -j $(JOBS)
	cmake --install $(BUILD) --prefix '$(PREFIX)'

clean:
	rm -rf build
