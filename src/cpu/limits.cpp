// Measures what device_limits() states of the CPU.
#include "src/cpu/limits.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "src/core/output.h"
#include "src/cpu/amx.h"
#include "src/cpu/dots.h"
#include "src/cpu/move.h"
#include "src/cpu/parallel.h"
#include "tenor/tensor.h"

namespace tenor::cpu {
namespace {

constexpr int64_t kLine = 16;  // floats of a cache line

/// The best rate of several runs on that many threads; run(slot, threads) returns the work that it did.
template <class Run>
double best_rate(int runs, int64_t threads, Run run) {
  double best = 0;
  for (int i = 0; i < runs; ++i) {
    std::vector<double> work(static_cast<size_t>(threads));
    const auto start = std::chrono::steady_clock::now();
    parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t slot = begin; slot < end; ++slot) work[static_cast<size_t>(slot)] = run(slot, threads);
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    double done = 0;
    for (double w : work) done += w;
    best = std::max(best, done / seconds);
  }
  return best;
}

/// The best rate of many short runs, on a busy machine some of which are left alone. Every other one goes to this
/// thread by itself, for all threads together are no slower than one. Each has a number of its own: the memory that one
/// goes through would be in a cache for the next.
template <class Run>
double best_rate_of_any(int64_t runs, Run run) {
  double best = 0;
  for (int64_t i = 0; i < 2 * runs; ++i)
    best = std::max(best, best_rate(1, i % 2 ? 1 : num_threads(),
                                    [&](int64_t slot, int64_t threads) { return run(i, slot, threads); }));
  return best;
}

/// A piece at a time, each larger than the caches' share of it and short enough to be left alone on a busy machine.
double measure_copy() {
  constexpr int64_t kBytes = int64_t{256} << 20, kPiece = int64_t{32} << 20;
  const Tensor from = Tensor::empty({kBytes}, uint8), to = Tensor::empty({kBytes}, uint8);
  std::memset(from.raw(), 1, kBytes), std::memset(to.raw(), 1, kBytes);
  return best_rate_of_any(32, [&](int64_t run, int64_t slot, int64_t threads) {
    const int64_t start = run * kPiece % kBytes;
    const int64_t begin = start + kPiece * slot / threads, end = start + kPiece * (slot + 1) / threads;
    std::memcpy(to.data<char>() + begin, from.data<char>() + begin, static_cast<size_t>(end - begin));
    return 2.0 * static_cast<double>(end - begin);
  });
}

/// The best rate of the library's own copies: past the caches where they are large, which leaves those to what is read.
double measure_own_copy(const Tensor& from, const Tensor& to, int64_t runs) {
  const double moved = 2.0 * static_cast<double>(from.numel()) * static_cast<double>(item_size(from.dtype()));
  double best = 0;
  for (int64_t run = 0; run < runs; ++run) {
    const auto start = std::chrono::steady_clock::now();
    core::copy_into(from, to);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, moved / seconds);
  }
  return best;
}

/// A square of floats copied to its transpose, both of them `size` bytes; its sides are no power of two, which caches
/// would have no room for.
double measure_turning(int64_t size) {
  const auto lines = static_cast<int64_t>(std::sqrt(static_cast<double>(size) / 8)) / kLine | 1;
  const int64_t n = lines * kLine;
  const Tensor from = Tensor::empty({n, n}, float32), to = Tensor::empty({n, n}, float32);
  std::memset(from.raw(), 0, static_cast<size_t>(4 * n * n)), std::memset(to.raw(), 0, static_cast<size_t>(4 * n * n));
  const Tensor across = from.with_layout({n, n}, {1, n}, 0);
  const auto runs = std::clamp<int64_t>((int64_t{1} << 28) / size, 4, 100);
  const double as_operators_do = measure_own_copy(across, to, runs);
  const double by_lines = best_rate_of_any(runs, [&](int64_t, int64_t slot, int64_t threads) {
    const int64_t first = lines * slot / threads, last = lines * (slot + 1) / threads;
    for (int64_t c = first * kLine; c < last * kLine; c += kLine)
      transpose_plane(sizeof(float), from.data<float>() + c, n, to.data<float>() + c * n, n, kLine, n);
    return static_cast<double>(8 * n * kLine * (last - first));
  });
  return std::max(as_operators_do, by_lines);
}

/// Rates of going through `size` bytes again and again, 16 MiB at a time, the threads' start and end included, as an
/// operator pays them.
MemoryRate measure_memory(int64_t size) {
  const Tensor data = Tensor::empty({size}, uint8);
  std::memset(data.raw(), 1, static_cast<size_t>(size));
  const int64_t piece = std::min(size, int64_t{16} << 20), pieces = size / piece;
  const auto runs = std::clamp<int64_t>((int64_t{1} << 29) / piece, 3 * pieces, 200);
  const auto rate = [&](auto&& pass) {
    return best_rate_of_any(runs, [&](int64_t run, int64_t slot, int64_t threads) {
      const int64_t bytes = piece / threads / 128 * 128;
      pass(data.data<char>() + piece * (run % pieces) + bytes * slot, bytes);
      return static_cast<double>(bytes);
    });
  };
  const auto read = [](const char* from, int64_t bytes) {
    volatile uint64_t used = read_words(reinterpret_cast<const uint64_t*>(from), bytes / 8);
    (void)used;
  };
  const auto copy = [](char* from, int64_t bytes) {
    std::memcpy(from + bytes / 2, from, static_cast<size_t>(bytes / 2));
  };
  const auto copy_by_vectors = [](char* from, int64_t bytes) {
    copy_words(reinterpret_cast<const uint64_t*>(from), reinterpret_cast<uint64_t*>(from + bytes / 2), bytes / 16);
  };
  const auto half = [&](int64_t i) { return data.with_layout({size / 2}, {1}, i * (size / 2)); };
  const double whole = measure_own_copy(half(0), half(1), std::clamp<int64_t>((int64_t{1} << 29) / size, 8, 200));
  return {static_cast<double>(size), rate(read), std::max({rate(copy), rate(copy_by_vectors), whole}),
          measure_turning(size)};
}

/// FLOPs a second of `run(rounds)` on all threads.
template <class Run>
double measure_flops(int64_t rounds, Run run) {
  return best_rate_of_any(24, [&](int64_t, int64_t, int64_t) { return static_cast<double>(run(rounds)); });
}

/// One thread's rate for each of them, at most one a processor: what they share does not slow a buffer in a processor's
/// own cache, and a thread by itself is left alone sooner.
void measure_functions(DeviceLimits& limits) {
  const auto processors = std::max(1u, std::thread::hardware_concurrency());
  const auto rate = [&](Arithmetic what) {
    const double one =
        best_rate(64, 1, [&](int64_t, int64_t) { return static_cast<double>(run_arithmetic(what, 1 << 6)); });
    return one * std::min<double>(num_threads(), processors);
  };
  limits.float32 = {rate(Arithmetic::kExponentials32), rate(Arithmetic::kDivisions32)};
  limits.float64 = {rate(Arithmetic::kExponentials64), rate(Arithmetic::kDivisions64)};
  limits.float16 = {rate(Arithmetic::kWidenFloat16), rate(Arithmetic::kRoundFloat16)};
  limits.bfloat16 = {rate(Arithmetic::kWidenBFloat16), rate(Arithmetic::kRoundBFloat16)};
}

}  // namespace

DeviceLimits measure_limits() {
  DeviceLimits limits;
  limits.copy_bytes = measure_copy();
  for (size_t i = 0; i < limits.memory.size(); ++i) limits.memory[i] = measure_memory(int64_t{1} << (20 + 2 * i));
  for (size_t i = limits.memory.size() - 1; i-- > 0;) {  // less data is never slower; what measured so was disturbed
    MemoryRate &less = limits.memory[i], &more = limits.memory[i + 1];
    less.read_bytes = std::max(less.read_bytes, more.read_bytes);
    less.copy_bytes = std::max(less.copy_bytes, more.copy_bytes);
    less.turned_bytes = std::max(less.turned_bytes, more.turned_bytes);
  }
  limits.float32_flops = measure_flops(1 << 15, multiply_adds);
  limits.float64_flops = limits.float64_products = measure_flops(1 << 15, multiply_adds64);
  limits.bfloat16_flops = has_amx()             ? measure_flops(1 << 15, amx_products)
                          : has_bfloat16_dots() ? measure_flops(1 << 15, bfloat16_dots)
                                                : limits.float32_flops;
  measure_functions(limits);
  return limits;
}

}  // namespace tenor::cpu
