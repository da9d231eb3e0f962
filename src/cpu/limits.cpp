// Measures what device_limits() states of the CPU.
#include "src/cpu/limits.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "src/cpu/amx.h"
#include "src/cpu/parallel.h"
#include "tenor/tensor.h"

namespace tenor::cpu {
namespace {

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

/// A piece at a time, each larger than the caches' share of it and short enough to be left alone on a busy machine.
double measure_copy() {
  constexpr int64_t kBytes = int64_t{256} << 20, kPiece = int64_t{32} << 20;
  const Tensor from = Tensor::empty({kBytes}, uint8), to = Tensor::empty({kBytes}, uint8);
  std::memset(from.raw(), 1, kBytes), std::memset(to.raw(), 1, kBytes);
  double best = 0;
  for (int64_t run = 0; run < 48; ++run)
    best = std::max(best, best_rate(1, num_threads(), [&](int64_t slot, int64_t threads) {
                      const int64_t start = run * kPiece % kBytes;
                      const int64_t begin = start + kPiece * slot / threads,
                                    end = start + kPiece * (slot + 1) / threads;
                      std::memcpy(to.data<char>() + begin, from.data<char>() + begin, static_cast<size_t>(end - begin));
                      return 2.0 * static_cast<double>(end - begin);
                    }));
  return best;
}

/// Rates of going through `size` bytes again and again, 16 MiB at a time, the threads' start and end included, as an
/// operator pays them. Short pieces and many: on a busy machine some are left alone. Every other one goes to this
/// thread by itself, for all threads together are no slower than one. The best of several attempts counts.
MemoryRate measure_memory(int64_t size) {
  const Tensor data = Tensor::empty({size}, uint8);
  std::memset(data.raw(), 1, static_cast<size_t>(size));
  const int64_t piece = std::min(size, int64_t{16} << 20), pieces = size / piece;
  const auto runs = std::clamp<int64_t>((int64_t{1} << 29) / piece, 3 * pieces, 200);
  const auto rate = [&](auto&& pass) {
    double best = 0;
    for (int64_t run = 0; run < 2 * runs; ++run)
      best = std::max(best, best_rate(1, run % 2 ? 1 : num_threads(), [&](int64_t slot, int64_t threads) {
                        const int64_t bytes = piece / threads / 128 * 128;
                        pass(data.data<char>() + piece * (run / 2 % pieces) + bytes * slot, bytes);
                        return static_cast<double>(bytes);
                      }));
    return best;
  };
  const auto read = [](const char* from, int64_t bytes) {
    volatile uint64_t used = read_words(reinterpret_cast<const uint64_t*>(from), bytes / 8);
    (void)used;
  };
  const auto copy = [](char* from, int64_t bytes) {
    std::memcpy(from + bytes / 2, from, static_cast<size_t>(bytes / 2));
  };
  return {static_cast<double>(size), rate(read), rate(copy)};
}

}  // namespace

DeviceLimits measure_limits() {
  DeviceLimits limits;
  limits.copy_bytes = measure_copy();
  for (size_t i = 0; i < limits.memory.size(); ++i) limits.memory[i] = measure_memory(int64_t{1} << (20 + 2 * i));
  for (size_t i = limits.memory.size() - 1; i-- > 0;) {  // less data is never slower; what measured so was disturbed
    MemoryRate &less = limits.memory[i], &more = limits.memory[i + 1];
    less.read_bytes = std::max(less.read_bytes, more.read_bytes),
    less.copy_bytes = std::max(less.copy_bytes, more.copy_bytes);
  }
  limits.float32_flops =
      best_rate(12, num_threads(), [](int64_t, int64_t) { return static_cast<double>(multiply_adds(1 << 20)); });
  limits.bfloat16_flops = limits.float32_flops;
  if (has_amx())
    limits.bfloat16_flops =
        best_rate(12, num_threads(), [](int64_t, int64_t) { return static_cast<double>(amx_products(1 << 18)); });
  return limits;
}

}  // namespace tenor::cpu
