// What the contract hands to the strategies: a checked problem as plain sizes, pointers and strides.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "src/core/device_traits.h"
#include "tenor/attention.h"

namespace tenor::attn {

/// One operand: element (head, row, column) of a segment lies at data + offset + head * head_stride + ... elements. The
/// segments of a batch lie `batch` apart; those of packed sequences follow one another along the rows.
struct Plane {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t head = 0, row = 0, col = 0, batch = 0;  // strides
};

/// One sequence (a batch entry): its sizes and where it starts in each operand, in elements.
struct Segment {
  int64_t queries, keys;
  int64_t q, k, v, mask, bias, out, lse;
  int64_t shift = 0;               // added to the diagonal
  int64_t first = 0;               // keys before it are hidden
  const int32_t* table = nullptr;  // of keys in pages
};

/// Keys in the pages of a cache: key j of a segment is row j % size of page table[j / size].
struct Pages {
  int64_t size = 0;      // keys of a page; 0: keys lie in one piece
  int64_t k = 0, v = 0;  // strides between pages
  Plane tail = {};       // whose rows continue those of the keys (the position part of latent attention)
  int64_t tail_page = 0, tail_dim = 0;
};

struct Problem {
  Pages pages = {};
  Plane q, k, v, mask, bias, out, lse;  // rows of mask and bias are queries, columns keys; lse has no columns
  Tensor sinks;
  int64_t heads, kv_heads, dim, value_dim;
  double scale, softcap;  // softcap 0: none
  Causal::Kind causal;
  int64_t left, right;            // -1: unlimited
  std::vector<Segment> segments;  // of packed sequences on CUDA none: only kernels read cu_seqlens
  Device device;
  Tensor cu_seqlens_q, cu_seqlens_k;  // packed sequences
  int64_t batch, queries, keys;       // of all: the batch and its sequences' lengths, or 1 and the packed rows

  int64_t group() const { return heads / kv_heads; }
};

/// Keys [begin, end) that the diagonal and the window let query i see; empty as begin == end. Of a Problem and its
/// Segment, or of what kernels hold of them.
struct KeyRange {
  int64_t begin, end;
};
template <class AnyProblem, class AnySegment>
constexpr KeyRange visible_keys(const AnyProblem& p, const AnySegment& s, int64_t i) {
  const int64_t at = p.causal == Causal::kTopLeft ? i : i + s.keys - s.queries;
  int64_t begin = 0, end = s.keys;
  if (p.causal != Causal::kOff) end = std::min(end, at + 1);
  if (p.left >= 0) begin = std::max(begin, at - p.left);
  if (p.right >= 0) end = std::min(end, at + p.right + 1);
  begin = std::min(begin, s.keys);
  return {begin, std::max(begin, end)};
}

/// Why "fallback" does not take a problem; empty where it does.
inline std::string fallback_why_not(const Problem& problem) {
  const bool hidden = core::runs_on(problem.device) == DeviceType::kCuda && problem.cu_seqlens_q.defined();
  return hidden ? "only kernels know the lengths of packed sequences on CUDA, and its products need them" : "";
}
/// "fallback": the operators of the library one after another, on the problem's device.
void run_fallback(const Problem& problem);

/// What the flash strategies of the CPU multiply with: its vectors, or its matrix unit.
enum class CpuUnit { kVectors, kMatrix };
/// Whether the matrix unit takes operands of that dtype and head size (AMX: bfloat16, dim a multiple of 32).
bool cpu_matrix_unit_takes(DType dtype, int64_t dim);
inline constexpr const char* kNoMatrixUnit =
    "on the CPU needs AMX, bfloat16 and a head size that is a multiple of 32; flash_unit takes every problem";
/// "flash_unit" and "flash_tensorcore" on the CPU: blocks of query rows whose scores stay in the caches.
void run_flash_cpu(const Problem& problem, CpuUnit unit);

}  // namespace tenor::attn
