// Products with an epilogue on the CPU: block by block. The sums of a block of c go to a scratch that stays in the
// caches, whichever candidate computes them, and one pass of the tile engine takes them from there to memory.
//
// Blocks are wide and few: a candidate that packs its operands does so for every block again, b once for each block of
// rows and a once for each of columns.
#include <algorithm>

#include "src/cpu/tile.h"
#include "src/ops/contract/epilogue.h"
#include "src/ops/elementwise/elementwise_ops.h"

namespace tenor::contract {
namespace {

constexpr int64_t kColumns = 1024;                       // of a block
constexpr int64_t kLeastElements = int64_t{1} << 20;     // of all threads' caches
constexpr int64_t kElementsOfThread = int64_t{1} << 18;  // 1 MiB of sums: half of a core's cache, or so

int64_t elements_of_block() { return std::max(kLeastElements, kElementsOfThread * num_threads()); }

char* moved(char* data, DType dtype, int64_t elements) {
  return data + elements * static_cast<int64_t>(item_size(dtype));
}

/// Rows [row, row + rows) and columns [col, col + cols) of matrices [first, first + count) of the last batch dim.
struct Block {
  int64_t first, count, row, rows, col, cols;
};

int64_t batch_step(const Matrix& x) { return x.batch.empty() ? 0 : x.batch.back(); }
Matrix part_of(Matrix x, const Block& b, int64_t row, int64_t col) {
  x.data = moved(x.data, x.dtype, b.first * batch_step(x) + row * x.row + col * x.col);
  return x;
}

/// The product of a block alone, into `sums`.
GemmProblem product_of(const GemmProblem& p, const Block& b, float* sums) {
  GemmProblem out = p;
  out.m = b.rows, out.n = b.cols;
  out.a = part_of(p.a, b, b.row, 0), out.b = part_of(p.b, b, 0, b.col);
  out.c = {reinterpret_cast<char*>(sums), DType::kFloat32, b.cols, 1, {}, p.c.argument};
  if (!p.batch.empty()) out.batch = {b.count}, out.c.batch = {b.rows * b.cols};
  if (p.bias)
    out.bias = static_cast<const char*>(p.bias) +
               (b.row * p.bias_row + b.col * p.bias_col) * static_cast<int64_t>(item_size(p.bias_dtype));
  out.operands.clear();
  return out;
}

/// The chain over a block, as the tile engine runs it.
void finish_block(const GemmProblem& p, const Epilogue& epilogue, const Block& b, float* sums) {
  cpu::TileProgram program;
  program.shape = {b.count, b.rows, b.cols};
  program.inputs.push_back({sums, {b.rows * b.cols, b.cols, 1}, DType::kFloat32, DType::kFloat32});
  const auto memory = [&](const Matrix& x) {
    const Matrix part = part_of(x, b, b.row, b.col);
    return cpu::TileOperand{part.data, {batch_step(x), x.row, x.col}, x.dtype, DType::kFloat32};
  };
  for (const Matrix& x : p.operands) program.inputs.push_back(memory(x));
  std::vector<float> scalars;
  scalars.reserve(epilogue.steps.size());  // their addresses are taken
  std::vector<int> other;
  for (const EpilogueStep& step : epilogue.steps) {
    other.push_back(1 + step.operand);
    if (step.alone || step.operand >= 0) continue;
    scalars.push_back(step.scalar);
    other.back() = static_cast<int>(program.inputs.size());
    program.inputs.push_back({&scalars.back(), {0, 0, 0}, DType::kFloat32, DType::kFloat32});
  }
  int y = 0;
  for (size_t s = 0; s < epilogue.steps.size(); ++s) {
    const EpilogueStep& step = epilogue.steps[s];
    const elementwise::OpRow& row = elementwise::row(step.op);
    cpu::TileStep made{row.find(step.op, DType::kFloat32),
                       nullptr,
                       {y, other[s]},
                       step.alone ? 1 : 2,
                       DType::kFloat32,
                       DType::kFloat32};
    if (step.reversed) std::swap(made.inputs[0], made.inputs[1]);
    program.steps.push_back(made);
    program.cost += row.cost;
    y = static_cast<int>(program.inputs.size() + s);
  }
  program.outputs.push_back(memory(p.c));
  program.stored = {y};
  cpu::run_tiles(program);
}

/// A problem of at most one batch dim.
void run_part(const GemmProblem& p, const Epilogue& epilogue) {
  const int64_t most = elements_of_block(), matrices = p.batch.empty() ? 1 : p.batch[0];
  const bool whole = p.m * p.n <= most;  // several matrices a block
  const int64_t cols = whole ? p.n : std::min(p.n, kColumns), rows = whole ? p.m : std::max<int64_t>(most / cols, 1);
  const int64_t count = whole ? std::clamp<int64_t>(most / (p.m * p.n), 1, matrices) : 1;
  const Tensor scratch = Tensor::empty({count * std::min(rows, p.m) * cols}, float32);
  float* sums = scratch.data<float>();
  for (int64_t first = 0; first < matrices; first += count)
    for (int64_t col = 0; col < p.n; col += cols)
      for (int64_t row = 0; row < p.m; row += rows) {
        const Block block{first, std::min(count, matrices - first), row, std::min(rows, p.m - row),
                          col,   std::min(cols, p.n - col)};
        run_gemm(product_of(p, block, sums));
        finish_block(p, epilogue, block, sums);
      }
}

}  // namespace

void run_with_epilogue_cpu(const GemmProblem& p, const Epilogue& epilogue) {
  for_each_part(p, 1, [&](const GemmProblem& part) { run_part(part, epilogue); });
}

}  // namespace tenor::contract
