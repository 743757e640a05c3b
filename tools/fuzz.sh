#!/bin/sh
# Runs every fuzz target for some seconds on its corpus, as many at a time as there are cores:
#   tools/fuzz.sh BUILD_FOLDER [SECONDS]
# The corpus of x_fuzz is testdata/fuzz/x, which is read and not written; what the fuzzer finds
# and a crashing input go to BUILD_FOLDER/found/x. Ends with 1 where an input crashes a target.
set -eu
build="$1"
seconds="${2:-10}"

# Of one target, which the third argument names.
run_one() {
  target="$1"
  name=$(basename "$target" _fuzz)
  corpus="testdata/fuzz/$name"
  found="$build/found/$name"
  mkdir -p "$found"
  if [ ! -d "$corpus" ]; then
    echo "fuzz: $name has no corpus: expected $corpus" >&2
    exit 1
  fi
  if ! "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -max_len=65536 \
    -artifact_prefix="$found/" -print_final_stats=1 "$found" "$corpus" >"$build/$name.log" 2>&1
  then
    tail -n 60 "$build/$name.log" >&2
    echo "fuzz: $name FAILED; the input is in $found" >&2
    exit 1
  fi
  echo "fuzz: $name, $(find "$corpus" -type f | wc -l) files, $seconds s:" \
    "$(grep -E 'stat::(number_of_executed_units|average_exec_per_sec)' "$build/$name.log" |
      tr '\n' ' ')"
}

if [ $# -eq 3 ]; then
  run_one "$3"
  exit
fi
targets=$(find "$build" -type f -name '*_fuzz' -perm -u+x | sort)
if [ -z "$targets" ]; then
  echo "fuzz: no targets under $build" >&2
  exit 1
fi
printf '%s\n' "$targets" | xargs -P "$(nproc)" -I '{}' "$0" "$build" "$seconds" '{}' || exit 1
echo "fuzz: no target failed"
