#!/bin/sh
# Installs what Halley needs to build and run its tests, from Debian's own packages.
#
#   tools/setup.sh          compilers, libraries, GoogleTest
#   tools/setup.sh --numpy  also NumPy, for `make accuracy`
#   tools/setup.sh --chat   also pip, for `make chat`
#   tools/setup.sh --mpi    also Open MPI, for models on several machines
#   tools/setup.sh --dev    also Open MPI, clang, its sanitizer and fuzzer runtimes, clang-format, clang-tidy,
#                           Prometheus' Python client, for a test of /metrics, and Prometheus, whose
#                           promtool tests the alert rules (its package starts a server at port 9090)
#   tools/setup.sh --python  also scikit-build-core, nanobind, pytest, mypy, tqdm, NumPy and pandas,
#                           into .venv/python, for `make wheel` and python_package_test (250 MB, not
#                           from Debian)
#   tools/setup.sh --torch   also PyTorch and transformers with huggingface_hub, into .venv/torch, for
#                           the tests of halley.torch in python_package_test, and pull_test (7 GB, not
#                           from Debian)
#   tools/setup.sh --client-tests  also LangChain, LiteLLM, instructor and lm-eval, and with npm
#                           Continue's command line, each into an environment of its own in
#                           .venv/clients, for clients_test (1.3 GB)
#   tools/setup.sh --matcher-tests  also xgrammar and llguidance, into .venv/matchers, for
#                           matchers_test (100 MB, without PyTorch; not from Debian)
#   tools/setup.sh --serve-tests  also the Python clients of OpenAI and Anthropic, lm-eval and
#                           Schemathesis, into .venv/serve, for the tests of their names (not from
#                           Debian)
#   tools/setup.sh --loader-tests  also transformers, compressed-tensors, GPTQModel and Optimum, with
#                           PyTorch, into .venv/loaders, for loaders_test (6 GB, not from Debian)
#   tools/setup.sh --deploy-tests  also nginx, and Ray Serve and kubernetes-validate into
#                           .venv/deploy, for ray_test, nginx_replicas_test and
#                           kubernetes_schemas_test (600 MB, Ray is not from Debian)
#
# Made for Debian 12, as root or with sudo. Does nothing where all packages are there.
set -eu

packages="g++ cmake ninja-build pkg-config make python3 libhwy-dev libsentencepiece-dev
libutf8proc-dev libpcre2-dev nlohmann-json3-dev libcli11-dev libboost1.81-dev libgtest-dev
libgmock-dev libcurl4-openssl-dev ca-certificates python3-jsonschema python3-yaml"
case "${1:-}" in
  "") ;;
  --python | --torch | --loader-tests) packages="$packages python3-venv python3-dev" ;;
  --numpy) packages="$packages python3-numpy" ;;
  --chat) packages="$packages python3-pip" ;;
  --mpi) packages="$packages libopenmpi-dev openmpi-bin" ;;
  --dev) packages="$packages libopenmpi-dev openmpi-bin python3-numpy python3-prometheus-client prometheus
clang libclang-rt-14-dev clang-format clang-tidy" ;;
  --serve-tests | --client-tests | --matcher-tests) packages="$packages python3-venv" ;;
  --deploy-tests) packages="$packages python3-venv nginx-light openssl" ;;
  *)
    echo "usage: tools/setup.sh [--numpy | --chat | --mpi | --python | --torch | --serve-tests |" \
      "--client-tests | --matcher-tests | --loader-tests | --deploy-tests | --dev]" >&2
    exit 2
    ;;
esac

say() { echo "setup: $*"; }

# One client in an environment of its own: they need different versions of the same packages.
install_client() {
  folder=.venv/clients/$1
  shift
  [ -x "$folder/bin/python" ] || python3 -m venv "$folder"
  "$folder/bin/pip" install --quiet --disable-pip-version-check "$@"
}

# Continue's command line is an npm package; the calls of clients run under a Python in the same folder.
install_continue() {
  folder=.venv/clients/continue
  if command -v npm >/dev/null &&
      npm install --silent --fetch-retries=0 --global --prefix "$folder" @continuedev/cli@1.5.47
  then
    [ -x "$folder/bin/python" ] || python3 -m venv "$folder"
    say "Continue is in $folder"
  else
    say "Continue is left out: there is no npm, or it could not install @continuedev/cli"
  fi
}

# Clients that are no Debian packages; the versions are those that the tests were written with.
install_clients() {
  if [ "$1" = --client-tests ]; then
    install_client openai openai==3.54.0
    install_client langchain langchain-openai==1.7.3
    install_client litellm litellm==1.106.2 mcp
    install_client instructor instructor==1.17.0
    install_client lm_eval 'lm_eval[api]==0.4.13' transformers==5.23.0 tenacity
    install_continue
    say "OpenAI's client, LangChain, LiteLLM, instructor and lm-eval are in .venv/clients"
  fi
  if [ "$1" = --matcher-tests ]; then
    [ -x .venv/matchers/bin/python ] || python3 -m venv .venv/matchers
    .venv/matchers/bin/pip install --quiet --disable-pip-version-check llguidance==1.9.1 \
      'jsonschema[format-nongpl]==4.26.0' pydantic==2.14.4 email-validator numpy apache-tvm-ffi \
      typing-extensions
    # What else it asks for, PyTorch above all, its matcher does not need.
    .venv/matchers/bin/pip install --quiet --disable-pip-version-check --no-deps xgrammar==0.2.8
    say "xgrammar, llguidance and Pydantic are in .venv/matchers"
  fi
  if [ "$1" = --deploy-tests ]; then
    [ -x .venv/deploy/bin/python ] || python3 -m venv .venv/deploy
    .venv/deploy/bin/pip install --quiet --disable-pip-version-check 'ray[serve]==2.60.0' \
      kubernetes-validate==1.37.0
    say "Ray Serve and kubernetes-validate are in .venv/deploy"
  fi
  if [ "$1" = --python ]; then
    [ -x .venv/python/bin/python ] || python3 -m venv .venv/python
    .venv/python/bin/pip install --quiet --disable-pip-version-check scikit-build-core==1.1.2 \
      nanobind==3.1.0 pytest==9.2.0 mypy==2.4.1 tqdm==4.70.1 types-tqdm \
      numpy==2.4.6 pandas==3.1.1
    say "what the Python package is built and tested with is in .venv/python"
  fi
  if [ "$1" = --torch ]; then
    [ -x .venv/torch/bin/python ] || python3 -m venv .venv/torch
    .venv/torch/bin/pip install --quiet --disable-pip-version-check torch==2.9.1 \
      transformers==4.57.6 numpy pytest==9.2.0
    say "PyTorch and transformers are in .venv/torch"
  fi
  if [ "$1" = --loader-tests ]; then
    [ -x .venv/loaders/bin/python ] || python3 -m venv .venv/loaders
    # compressed-tensors 0.18 to 0.20 cannot load zero points of packed weights.
    .venv/loaders/bin/pip install --quiet --disable-pip-version-check torch==2.15.0 \
      transformers==5.23.0 compressed-tensors==0.17.1 gptqmodel==7.7.0 optimum==2.3.0
    say "transformers, compressed-tensors and GPTQModel are in .venv/loaders"
  fi
  [ "$1" = --serve-tests ] || return 0
  [ -x .venv/serve/bin/python ] || python3 -m venv .venv/serve
  .venv/serve/bin/pip install --quiet --disable-pip-version-check openai==3.54.0 \
    anthropic==2.14.0 'lm_eval[api]==0.4.13' transformers==5.23.0 schemathesis==4.32.5
  say "the clients of OpenAI and Anthropic, lm-eval and Schemathesis are in .venv/serve"
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  say "this is no Debian: install the counterparts of these packages yourself and build with" >&2
  say "'make SETUP=: test' (SETUP=: leaves this step out): $packages" >&2
  exit 1
fi

missing=""
for package in $packages; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing="$missing $package"
done
if [ -z "$missing" ]; then
  say "all packages are installed"
  install_clients "${1:-}"
  exit 0
fi

as_root=""
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    say "these packages are missing:$missing" >&2
    say "there is no sudo: run tools/setup.sh as root once" >&2
    exit 1
  fi
  as_root="sudo"
fi

# Three tries: mirrors fail at times, and nothing is lost by asking again.
try() {
  for pause in 5 20 0; do
    if $as_root env DEBIAN_FRONTEND=noninteractive "$@"; then
      return 0
    fi
    [ "$pause" -eq 0 ] || { say "failed, trying again in $pause s" && sleep "$pause"; }
  done
  say "failed three times: $*" >&2
  return 1
}

say "installing$missing"
try apt-get -q -o Acquire::Retries=3 update
# shellcheck disable=SC2086  # one word a package
try apt-get -q -y -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 install --no-install-recommends $missing
install_clients "${1:-}"
say "done"
