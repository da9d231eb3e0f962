// Host side of the Hopper GEMM (sm90_gemm.cuh): what it takes, which tile it chooses, and its launch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

namespace tenor::cuda::gemm {

/// A step of an epilogue: y becomes ...
enum class ChainOp : uint8_t {
  kScale,  ///< y * scalar
  kShift,  ///< y + scalar
  kAdd,    ///< y + scalar * other, scalar being 1 or -1
  kMul,    ///< y * other
  kRelu,
  kSigmoid,
  kTanh,
  kSilu,
  kGelu,
  kGeluTanh,
};
struct ChainStep {
  ChainOp op;
  int operand;
  float scalar;
};
/// Element (i, j) at i * row + j * column: of the operands' dtype, or float32.
struct ChainOperand {
  const void* data;
  bool is_float;
  int64_t row, column, batch[2];
};
/// What follows a product's sums in float32 before they are rounded.
struct Chain {
  static constexpr int kSteps = 13, kOperands = 4;
  int steps = 0;
  ChainStep step[kSteps];
  ChainOperand operand[kOperands];
  int staged = -1;  ///< the operand that comes through the ring; sm90_gemm() chooses it
};

/// C[m,n] = A[m,k] * B[n,k]^T + bias, rounded once, for each matrix of a batch. Strides count elements between rows; k
/// is contiguous in A. K = 0 is the caller's.
struct GemmProblem {
  const void* a;
  const void* b;
  void* c;
  int m, n, k;
  int64_t stride_a, stride_b, stride_c;
  bool bfloat16;                                              ///< operands; else float16
  bool b_outer = false;                                       ///< B is [k,n] with n contiguous, stride_b between its k
  bool float_result = false;                                  ///< C is float32, unrounded; else of the operands' dtype
  int64_t column_c = 1;                                       ///< between C's columns
  int batch[2] = {1, 1};                                      ///< two dims of it
  int64_t batch_a[2] = {}, batch_b[2] = {}, batch_c[2] = {};  ///< between matrices; 0 where A or B is shared
  const void* bias = nullptr;  ///< element (i, j) gets bias[i * bias_row + j * bias_column], of which one step is 0
  bool bias_float = false;     ///< float32; else of the operands' dtype
  int64_t bias_row = 0, bias_column = 1;
  /// Device memory of sm90_gemm_workspace bytes, or null; what lies in it matters not.
  void* workspace = nullptr;
};

/// Why the kernel cannot take the problem; empty when it can. TMA asks for 16-byte aligned bases and strides of A and
/// B; C may lie anyhow (where TMA cannot store it, threads do).
std::string sm90_gemm_why_not(const GemmProblem& problem);

/// A tile: columns of a block's 128-row tile, and how many blocks of a cluster lie below and beside one another.
struct TileShape {
  int columns, cluster_m, cluster_n;
};
/// The tiles that there are for a layout of B.
int sm90_gemm_tiles(bool b_outer, const TileShape** tiles);

/// How a problem is computed. No choice changes a bit of the result.
struct GemmPlan {
  int tile = 0;         ///< its index
  bool turned = false;  ///< C^T = B A^T: tiles lie with their rows along C's columns
  bool split = false;   ///< tiles of the last waves are dealt by steps of k; takes a workspace
  bool rows = false;    ///< by the kernel for few rows (sm90_rows.cuh): m, or turned n, at most 64, B not outer
};
/// The least of a model of the time; it splits where it would with a workspace.
GemmPlan sm90_gemm_choice(const GemmProblem& problem);
/// Bytes of workspace that a plan takes; 0 unless it splits.
size_t sm90_gemm_workspace(const GemmProblem& problem, const GemmPlan& plan);

/// The choice among the tiles that have epilogues; neither turned nor the kernel for few rows.
GemmPlan sm90_gemm_epilogue_choice(const GemmProblem& problem);
/// Launches it with an epilogue, which a plan of sm90_gemm_epilogue_choice() has. C is of the operands' dtype.
cudaError_t sm90_gemm(const GemmProblem& problem, Chain chain, const GemmPlan& plan, cudaStream_t stream);

/// Launches it on the stream; without a workspace nothing is split. The bits of an element depend on its two rows (its
/// row and its column) and k alone.
cudaError_t sm90_gemm(const GemmProblem& problem, const GemmPlan& plan, cudaStream_t stream);
inline cudaError_t sm90_gemm(const GemmProblem& problem, cudaStream_t stream) {
  return sm90_gemm(problem, sm90_gemm_choice(problem), stream);
}

}  // namespace tenor::cuda::gemm
