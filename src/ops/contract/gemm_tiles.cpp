// The "tiles" candidate: cuts a bfloat16 problem into blocks of c for the AMX kernels.
#include "src/ops/contract/gemm_tiles.h"

#include <algorithm>

#include "src/cpu/parallel.h"
#include "src/cpu/thread_buffer.h"
#include "src/ops/contract/gemm_kernels.h"

namespace tenor::contract {
namespace {

using namespace tiles;

constexpr int64_t kSlice = 512;                       // of k: the sums visit memory once a slice
constexpr int64_t kUnpackedRight = 32;                // columns up to which the left operand is read where it lies
constexpr int64_t kMostLeft = 256, kMostRight = 512;  // a block of c
constexpr int64_t kMostShared = int64_t(1) << 28;     // bytes of right operand packed beforehand

/// The problem by role: the left operand's rows and the right operand's columns.
struct Plan {
  GemmProblem p;                    // with a as the left operand
  int64_t block_left, block_right;  // a block's size
  int64_t down, across;             // blocks
  bool shared;                      // the right operand is packed once, before the blocks start
  bool direct;                      // the left operand meets too few columns to be worth packing
};

/// How long packing takes, in reads of a contiguous row: rows of k are copied, pairs are woven, and either form turned
/// into the other is a transpose more.
double packing_cost(const Matrix& x, bool rows_are_k, bool left) {
  const bool k_unit = rows_are_k ? x.col == 1 : x.row == 1;
  const bool other_unit = rows_are_k ? x.row == 1 : x.col == 1;
  if (!k_unit && !other_unit) return 30;
  return left == k_unit ? 1 : left ? 4 : 3;
}

/// Gives the roles: what is cheap to pack as rows goes left.
GemmProblem with_roles(const GemmProblem& p) {
  const double a = static_cast<double>(p.m), b = static_cast<double>(p.n);
  const double straight = a * packing_cost(p.a, true, true) + b * packing_cost(p.b, false, false);
  const double turned = b * packing_cost(p.b, false, true) + a * packing_cost(p.a, true, false);
  if (straight <= turned) return p;
  GemmProblem q = p;
  q.m = p.n, q.n = p.m;
  const auto transposed = [](const Matrix& x) { return Matrix{x.data, x.dtype, x.col, x.row, x.batch}; };
  q.a = transposed(p.b), q.b = transposed(p.a), q.c = transposed(p.c);
  std::swap(q.bias_row, q.bias_col);
  return q;
}

Plan plan_of(const GemmProblem& problem) {
  Plan plan{with_roles(problem), 0, 0, 0, 0, false, false};
  const GemmProblem& p = plan.p;
  int64_t left = std::min(kMostLeft, tiles_of(p.m, 32) * 32), right = std::min(kMostRight, tiles_of(p.n, 32) * 32);
  const int64_t matrices = product(p.batch), wanted = 3 * num_threads();
  const bool worth_sharing = static_cast<double>(matrices) * p.m * p.n * p.k > 1e6;
  while (worth_sharing && matrices * tiles_of(p.m, left) * tiles_of(p.n, right) < wanted && (left > 32 || right > 32)) {
    if (right >= left)
      right = tiles_of(right / 2, 32) * 32;
    else
      left = tiles_of(left / 2, 32) * 32;
  }
  plan.block_left = left, plan.block_right = right;
  plan.down = tiles_of(p.m, left), plan.across = tiles_of(p.n, right);
  const double bytes = 2.0 * static_cast<double>(matrices) * static_cast<double>(p.k) * static_cast<double>(p.n);
  plan.shared = plan.down > 1 && bytes <= kMostShared;
  plan.direct = p.a.col == 1 && p.n <= kUnpackedRight;
  return plan;
}

int64_t k_tiles(const GemmProblem& p) { return tiles_of(p.k, kDepth); }
int64_t packed_right(const GemmProblem& p) { return tiles_of(p.n, kSide) * k_tiles(p) * kElements; }

/// The whole right operand of every matrix, tile by tile.
Tensor pack_shared(const GemmProblem& p) {
  const int64_t columns = tiles_of(p.n, kSide), pitch = k_tiles(p) * kElements;
  const Tensor packed = Tensor::empty({product(p.batch) * packed_right(p)}, bfloat16);
  cpu::parallel_for(product(p.batch) * columns, cpu::grain_of(pitch * 2), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      for_each_matrix(p, i / columns, i / columns + 1, [&](const char*, const char* b, char*) {
        const int64_t at = i % columns * kSide;
        pack_right({reinterpret_cast<const BFloat16*>(b), p.b.col, p.b.row}, at, std::min(kSide, p.n - at), 0, p.k,
                   packed.data<BFloat16>() + i * pitch, pitch);
      });
  });
  return packed;
}

/// A thread's buffers.
class Workspace {
 public:
  explicit Workspace(const Plan& plan) : memory_(bytes_of(plan)) {
    left = reinterpret_cast<BFloat16*>(memory_.data()), right = left + plan.block_left * depth_of(plan);
    sums = reinterpret_cast<float*>(right + rights_of(plan));
  }
  BFloat16 *left, *right;
  float* sums;

 private:
  static int64_t depth_of(const Plan& plan) { return std::min(kSlice, k_tiles(plan.p) * kDepth); }
  static int64_t rights_of(const Plan& plan) { return plan.shared ? 0 : plan.block_right * depth_of(plan); }
  static int64_t bytes_of(const Plan& plan) {
    return (plan.block_left * depth_of(plan) + rights_of(plan)) * static_cast<int64_t>(sizeof(BFloat16)) +
           plan.block_left * plan.block_right * static_cast<int64_t>(sizeof(float));
  }
  cpu::ThreadBuffer memory_;
};

/// One block of c. `packed`: the matrix's right operand, or nullptr.
void run_block(const Plan& plan, int64_t row, int64_t col, const char* a, const char* b, char* c,
               const BFloat16* packed, const Workspace& w) {
  const GemmProblem& p = plan.p;
  const int64_t rows = std::min(plan.block_left, p.m - row), cols = std::min(plan.block_right, p.n - col);
  for (int64_t k = 0; k < p.k; k += kSlice) {
    const int64_t depth = std::min(kSlice, p.k - k), deep = tiles_of(depth, kDepth), pitch = deep * kElements;
    const Source source{reinterpret_cast<const BFloat16*>(a), p.a.row, p.a.col};
    Panel left{w.left, pitch, tiles_of(rows, kSide)};
    if (plan.direct && rows % kSide == 0 && depth % kDepth == 0) {
      left = {source.data + row * source.step + k, kSide * source.step, left.tiles, source.step, kDepth};
    } else {
      pack_left(source, row, rows, k, depth, w.left, pitch);
    }
    Panel right{w.right, pitch, tiles_of(cols, kSide)};
    if (packed) {
      right.pitch = k_tiles(p) * kElements;
      right.data = packed + col / kSide * right.pitch + k / kDepth * kElements;
    } else {
      pack_right({reinterpret_cast<const BFloat16*>(b), p.b.col, p.b.row}, col, cols, k, depth, w.right, pitch);
    }
    multiply(left, right, deep, w.sums, k == 0);
  }
  const float* bias = p.bias ? static_cast<const float*>(p.bias) + row * p.bias_row + col * p.bias_col : nullptr;
  const int64_t at = (row * p.c.row + col * p.c.col) * static_cast<int64_t>(item_size(p.c.dtype));
  store(w.sums, rows, cols, {c + at, p.c.dtype, p.c.row, p.c.col, bias, p.bias_row, p.bias_col});
}

}  // namespace

std::string tiles_why_not(const GemmProblem& p) {
  if (p.a.dtype != DType::kBFloat16 || p.b.dtype != DType::kBFloat16) return "takes bfloat16 only";
  if (p.c.dtype != DType::kBFloat16 && p.c.dtype != DType::kFloat32) return "writes bfloat16 or float32";
  if (p.compute != DType::kFloat32) return "accumulates in float32 only";
  if (!available()) return "this CPU or system has no AMX";
  // Packing a matrix by rows for a handful of columns takes longer than adding its rows up; for one row, memory alone
  // counts.
  const bool few =
      !p.batch_invariant && (p.m == 1 || p.n == 1 || (p.m <= 4 && p.b.row != 1) || (p.n <= 4 && p.a.col != 1));
  return few && rows_why_not(p).empty() ? "few rows against a matrix that is read once" : "";
}

void tiles_run(const GemmProblem& problem) {
  const Plan plan = plan_of(problem);
  const Tensor packed = plan.shared ? pack_shared(plan.p) : Tensor();
  const int64_t blocks = plan.down * plan.across;
  const int64_t work = plan.block_left * plan.block_right * plan.p.k;
  constexpr int64_t kThreadsWorth = 1 << 18;  // multiply-adds, with what is packed for them
  cpu::parallel_for(product(plan.p.batch) * blocks, std::max<int64_t>(1, kThreadsWorth / std::max<int64_t>(work, 1)),
                    [&](int64_t first, int64_t last) {
                      const Workspace workspace(plan);
                      for (int64_t i = first; i < last; ++i)
                        for_each_matrix(plan.p, i / blocks, i / blocks + 1, [&](const char* a, const char* b, char* c) {
                          const BFloat16* right =
                              plan.shared ? packed.data<BFloat16>() + i / blocks * packed_right(plan.p) : nullptr;
                          run_block(plan, i % blocks % plan.down * plan.block_left,
                                    i % blocks / plan.down * plan.block_right, a, b, c, right, workspace);
                        });
                    });
}

}  // namespace tenor::contract
