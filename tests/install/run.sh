#!/usr/bin/env bash
# Tenor as its users get it: find_package and pkg-config on an installed tree, add_subdirectory, and pip in a fresh
# environment. `run.sh BUILD` takes the library from that build tree.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${1:-$root/build/release}
[[ $build = /* ]] || build=$PWD/$build
work=$root/build/install-test
rm -rf "$work"
mkdir -p "$work/wheel"
launcher=$(command -v ccache || true)
passed=0 failed=0

check() {
  local name=$1
  shift
  if "$@" >"$work/$name.log" 2>&1; then
    passed=$((passed + 1))
    echo "ok      $name"
  else
    failed=$((failed + 1))
    echo "FAILED  $name"
    tail -n 20 "$work/$name.log"
  fi
}

install_tree() {
  cmake --install "$build" --prefix "$work/prefix" && [ ! -e "$work/prefix/tenor" ]  # the Python module is pip's to install
}
with_find_package() {
  cmake -S "$here/consumer" -B "$work/find" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix" &&
    cmake --build "$work/find" && "$work/find/consumer"
}
with_pkg_config() {
  export PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name tenor.pc)")
  g++ -std=c++20 "$here/consumer/main.cpp" $(pkg-config --cflags --libs tenor) -o "$work/by_pkg_config" && "$work/by_pkg_config"
}
# The same sources, compiler and flags as in the build tree: ccache makes it a matter of seconds.
with_add_subdirectory() {
  local compiler
  compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
  cmake -S "$here/consumer" -B "$work/sub" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTENOR_SOURCE="$root" \
    -DCMAKE_CXX_COMPILER="$compiler" \
    ${launcher:+-DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" -DCMAKE_CUDA_COMPILER_LAUNCHER="$launcher"} &&
    ! grep -q 'core_test' "$work/sub/build.ninja" && cmake --build "$work/sub" && "$work/sub/consumer"
}
with_pip() {
  "$root/.venv/bin/python" -m pip wheel --no-deps --no-build-isolation -w "$work/wheel" \
    -C build-dir="$build" -C build.targets=all -C cmake.define.TENOR_TESTS=ON -C cmake.define.TENOR_INSTALL=ON "$root" &&
    "$root/.venv/bin/python" -m venv "$work/venv" &&
    "$work/venv/bin/python" -m pip install --quiet "$work"/wheel/tenor-*.whl &&
    cd "$work" && "$work/venv/bin/python" "$here/use_package.py"
}

# Where there is no CUDA toolkit nothing may be compiled that needs one, tests included.
without_cuda() {
  cmake -S "$root" -B "$work/cpu" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTENOR_CUDA=OFF -DTENOR_TESTS=ON &&
    ! grep -E 'src/cuda/|_cuda(_test)?\.cpp' "$work/cpu/build.ninja"
}

check without_cuda without_cuda
check install install_tree
check find_package with_find_package
check pkg_config with_pkg_config
check add_subdirectory with_add_subdirectory
check pip with_pip
echo "install tests: $passed passed, $failed failed"
[ "$failed" = 0 ]
