#!/bin/sh
# Runs clang-tidy over every source of the project: tools/lint.sh BUILD_FOLDER [JOBS]
# The build folder must be configured; the checks are those of .clang-tidy, each an error.
set -eu
build="$1"
jobs="${2:-$(nproc)}"
find src -name '*.cc' ! -name '*_test.cc' | sort >"$build/lint_files"
echo "lint: $(wc -l <"$build/lint_files") files"
xargs -n 1 -P "$jobs" clang-tidy --quiet -p "$build" <"$build/lint_files"
echo "lint: no complaint"
