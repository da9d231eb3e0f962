#!/usr/bin/env bash
# Everything that a machine with an NVIDIA GPU can say of this tree, and the record of it:
#
#   tools/gpu.sh                                      configure, build, test, check, memcheck, racecheck, bench
#   tools/gpu.sh --build=build/release test memcheck  an existing build tree; these steps alone
#   tools/gpu.sh --package=DIR check bench            a package (DIR/tenor) built elsewhere
#
#   --python=PY       the interpreter of the module (default: the build tree's)
#   --out=DIR         logs, package and record (default: gpu-record)
#   --targets=F       rows with bars and goals that the benchmark is held against (default: none)
#   --jobs=N          processes side by side (default: all cores, 16 at most)
#   --draws=N         random calls of check (default: 10000)
#   --budget=S        seconds for the benchmark (default: 100)
#   --bundle=FILE     nothing is run: FILE (.tar.xz) takes the built tests, the package and this script to a machine without compilers
#                     (there: tools/gpu.sh --build=build --package=package test check ...)
#
# The exit status is 1 when a step failed; every step is run. Each sanitizer runs every operator on small shapes: the tests that
# capture it in a graph (*CudaCapture*), and memcheck a thousand random calls besides.
set -uo pipefail
cd "$(dirname "$0")/.."

build=build/cuda-release python="" out=gpu-record targets="" draws=10000 budget=100 package="" bundle="" steps=()
jobs=$(nproc)
[ "$jobs" -le 16 ] || jobs=16
for word in "$@"; do
  case $word in
    --build=*|--python=*|--out=*|--targets=*|--jobs=*|--draws=*|--budget=*|--package=*|--bundle=*)
      name=${word%%=*}
      printf -v "${name#--}" '%s' "${word#*=}" ;;
    configure|build|test|check|memcheck|racecheck|bench) steps+=("$word") ;;
    -h|--help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "gpu.sh: what is $word for? --help lists steps and options" >&2; exit 2 ;;
  esac
done
[ ${#steps[@]} -gt 0 ] || steps=(configure build test check memcheck racecheck bench)
failed=()

python_of_build() { sed -n 's/^_\{0,1\}Python_EXECUTABLE:[A-Z]*=//p' "$build/CMakeCache.txt" | head -1; }
[ -n "$python" ] || python=$( { [ -f "$build/CMakeCache.txt" ] && python_of_build; } || true)
[ -n "$python" ] || python=$( [ -x .venv/bin/python ] && echo "$PWD/.venv/bin/python" || command -v python3)

step() {  # step NAME COMMAND...: runs it, keeps what it prints, tells its last line
  local name=$1 start=$SECONDS
  shift
  printf '== %s\n' "$name"
  if "$@" >"$out/$name.log" 2>&1; then
    printf '   ok (%d s): %s\n' $((SECONDS - start)) "$(tail -1 "$out/$name.log")"
  else
    failed+=("$name")
    tail -15 "$out/$name.log" | sed 's/^/   /'
    printf '   FAILED (%d s), %s\n' $((SECONDS - start)) "$out/$name.log"
  fi
}

configure() { cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTENOR_CUDA=ON -DTENOR_TESTS=ON -DTENOR_PYTHON=ON -DPython_EXECUTABLE="$python"; }
compile() { cmake --build "$build"; }

make_package() {  # the package beside its module, without installing it anywhere
  [ -z "$package" ] || return 0
  package=$out/package
  mkdir -p "$package" && rm -rf "$package/tenor" && cp -r python/tenor "$package/" && cp "$build"/python/_tenor*.so "$package/tenor/"
}
tenor() { make_package && TENOR_SOURCE=$PWD PYTHONPATH=$package "$python" -m tenor "$@"; }

programs() { find "$build/tests" -maxdepth 1 -name '*_test' -type f | sort; }
# The CUDA tests of every program in pieces side by side, each under a tool ("" for none).
cuda_tests() {  # cuda_tests FILTER PIECES TOOL...
  local filter=$1 pieces=$2
  shift 2
  for program in $(programs); do
    "$program" --gtest_list_tests --gtest_filter="$filter" 2>/dev/null | grep -q '^  ' || continue
    for ((piece = 0; piece < pieces; ++piece)); do echo "$piece $program"; done
  done | FILTER=$filter PIECES=$pieces TOOL="$*" LOGS=$out xargs -P "$jobs" -L 1 bash -c '
    log=$LOGS/piece-$(basename "$1")-$0-${TOOL//[^a-z]/}.log
    if GTEST_TOTAL_SHARDS=$PIECES GTEST_SHARD_INDEX=$0 $TOOL "$1" --gtest_filter="$FILTER" --gtest_brief=1 >"$log" 2>&1; then
      grep -hE "tests ran|PASSED|SKIPPED" "$log" | tail -2 | tr "\n" " "; echo "$(basename "$1") $0"; rm -f "$log"
    else
      echo "FAILED $(basename "$1"), piece $0: $log"; grep -E "FAILED|=========|Failure|error" "$log" | head -20; exit 1
    fi'
}
memcheck() {
  local -x TENOR_CUDA_CACHE_BYTES=0  # blocks that are kept would hide accesses after their end
  cuda_tests '*CudaCapture*' 2 compute-sanitizer --tool memcheck --require-cuda-init no --error-exitcode 9 || return 1
  make_package || return 1
  TENOR_SOURCE=$PWD PYTHONPATH=$package compute-sanitizer --tool memcheck --require-cuda-init no --error-exitcode 9 "$python" -m tenor check --device=cuda --draws=1000
}
racecheck() { cuda_tests '*CudaCapture*' 4 compute-sanitizer --tool racecheck --require-cuda-init no --error-exitcode 9; }
check() { tenor check --device=cuda --draws="$draws" --jobs="$jobs"; }
bench() {
  local words=(--device=cuda --vs=torch,compile --budget="$budget" --record="$out/record.jsonl")
  [ -f "$targets" ] && words+=(--targets="$targets")
  rm -f "$out/record.jsonl"
  tenor bench "${words[@]}"
  local status=$?
  [ $status -le 1 ] && [ -s "$out/record.jsonl" ]  # a missed bar is told, and no failure of the machine
}

make_bundle() {
  local stage
  stage=$(mktemp -d)
  out=$stage make_package || return 1
  strip "$stage"/package/tenor/_tenor*.so
  mkdir -p "$stage/build/tests" "$stage/tools" && cp tools/gpu.sh "$stage/tools/"
  for program in $(programs); do strip -o "$stage/build/tests/$(basename "$program")" "$program"; done
  cp --parents src/ops/*/*_bench.py "$stage/" && tar -cJf "$bundle" -C "$stage" . && rm -rf "$stage" && ls -l "$bundle"
}

if [ -n "$bundle" ]; then
  make_bundle
  exit
fi
if ! { command -v nvidia-smi && nvidia-smi -L; } >/dev/null 2>&1; then
  echo "gpu.sh: no NVIDIA GPU here (nvidia-smi -L); --bundle=FILE packs what another machine needs" >&2
  exit 2
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)
nvidia-smi -L >"$out/device.txt"

for name in "${steps[@]}"; do
  case $name in
    build) step build compile ;;
    test) step test cuda_tests '*Cuda*:*Gemm*' 4 ;;
    *) step "$name" "$name" ;;
  esac
done
echo
git log -1 --format='%h %ad' --date=short >"$out/commit.txt" 2>/dev/null
if [ ${#failed[@]} -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}"
  exit 1
fi
echo "all steps passed; the record is in $out (copy record.jsonl to bench/results/<gpu>-<date>.jsonl, then python docs/performance.py)"
