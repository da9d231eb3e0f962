// What may follow a product before it is rounded: a chain of elementwise steps on its float32 sums.
//
// y = sum over k of a * b (+ bias), in float32; then each step makes y = op(y), op(y, other) or op(other, y) in
// float32; at the end one rounding to c's dtype. On the CPU a block of sums is computed by the candidate that takes the
// product, and the chain runs over it while it is in the cache; on CUDA the Hopper GEMM runs the chain on its
// registers.
#pragma once

#include <string>
#include <vector>

#include "src/ops/contract/gemm.h"
#include "src/ops/elementwise/elementwise_op.h"

namespace tenor::contract {

struct EpilogueStep {
  elementwise::Op op;
  bool alone = true;  ///< of y alone
  int operand = -1;   ///< the other: of GemmProblem::operands; -1: `scalar`
  float scalar = 0;
  bool reversed = false;  ///< op(other, y)
};

struct Epilogue {
  std::vector<EpilogueStep> steps;
};

/// The recipe of a product: it also runs with what follows. Inputs are the step's; operands and out have the result's
/// shape, operands with a stride of 0 where one repeats.
class ProductRecipe : public core::Recipe {
 public:
  /// Of traced tensors: epilogue_why_not().
  virtual std::string why_no_epilogue(const std::vector<Tensor>& inputs, const Epilogue& epilogue,
                                      const std::vector<Tensor>& operands, const Tensor& out) const = 0;
  virtual std::string explain_epilogue(const std::vector<Tensor>& inputs, const Epilogue& epilogue,
                                       const std::vector<Tensor>& operands, const Tensor& out) const = 0;
  virtual void run_with(const std::vector<Tensor>& inputs, const Epilogue& epilogue,
                        const std::vector<Tensor>& operands, const Tensor& out) const = 0;
};

/// Whether an epilogue has this operator, with one input or with two.
bool is_epilogue_op(elementwise::Op op, bool alone);

/// Why a product of 32-bit sums on p's device takes no such epilogue; empty where it does. p.operands are those of the
/// epilogue, and p.c is what is stored. A traced problem will do.
std::string epilogue_why_not(const GemmProblem& p, const Epilogue& epilogue);
/// Who runs it, for Step::strategy.
std::string explain_epilogue(const GemmProblem& p, const Epilogue& epilogue);

/// Runs a product with its epilogue. @throws UnsupportedError where epilogue_why_not() has a reason
void run_with_epilogue(const GemmProblem& p, const Epilogue& epilogue);

/// Of the Hopper GEMM: steps, and arrays beside the bias.
inline constexpr size_t kEpilogueSteps = 6, kEpilogueOperands = 3;
/// Tiles below which it takes none, as measured (src/fusion/README.md). For tests, which are small.
int64_t& least_epilogue_tiles();

/// epilogue_cpu.cpp: block by block.
void run_with_epilogue_cpu(const GemmProblem& p, const Epilogue& epilogue);
/// gemm_tiles_cuda.cpp: by the Hopper GEMM.
void run_with_epilogue_cuda(const GemmProblem& p, const Epilogue& epilogue);

}  // namespace tenor::contract
