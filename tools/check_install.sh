#!/bin/sh
# Checks an installed tree: tools/check_install.sh PREFIX MODEL
# bin/halley must take every library but the C library's from the tree, and generate text.
set -eu
prefix=$(cd "$1" && pwd)
model="$2"

libraries=$(ldd "$prefix/bin/halley")
if echo "$libraries" | grep "not found"; then
  echo "install: these libraries are not found" >&2
  exit 1
fi
strangers=$(echo "$libraries" | grep "=> /" | grep -v "=> $prefix/" |
  grep -v -E '^[[:space:]]*lib(c|m|mvec|pthread|dl|rt)\.so' || true)
if [ -n "$strangers" ]; then
  echo "install: these libraries come from the machine, not from the tree:" >&2
  echo "$strangers" >&2
  exit 1
fi
text=$(env -i "$prefix/bin/halley" generate "$model" --prompt "The Python programming language" \
  --max-tokens 16 --temperature 0 2>/dev/null)
if [ -z "$text" ]; then
  echo "install: the moved program generated no text" >&2
  exit 1
fi
echo "install: the moved program says: $text"
