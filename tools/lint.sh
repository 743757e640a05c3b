#!/bin/sh
# Runs clang-tidy over every source of the project: tools/lint.sh BUILD_FOLDER [JOBS]
# The build folder must be configured; the checks are those of .clang-tidy, each an error.
set -eu
build="$1"
jobs="${2:-$(nproc)}"
find src -name '*.cc' ! -name '*_test.cc' | sort >"$build/lint_files"
echo "lint: $(wc -l <"$build/lint_files") files"
# Its count of warnings that were suppressed in system headers goes to standard error.
xargs -n 1 -P "$jobs" clang-tidy --quiet -p "$build" <"$build/lint_files" 2>"$build/lint_stderr"
echo "lint: no complaint"
