// The "integer" candidate: integers and bool, exact modulo 2^bits, any strides.
#include "src/ops/contract/gemm_integer.h"

#include <algorithm>

#include "src/cpu/parallel.h"
#include "src/ops/contract/gemm_kernels.h"
#include "tenor/device.h"

namespace tenor::contract {

std::string integer_why_not(const GemmProblem& p) {
  if (is_float(p.compute)) return "floats have faster kernels";
  if (p.a.dtype != p.compute || p.b.dtype != p.compute || p.c.dtype != p.compute)
    return "operands and result must have one dtype";
  return {};
}

void integer_run(const GemmProblem& problem) {
  const GemmProblem p = problem.n < problem.m ? transposed(problem) : problem;  // columns fill vectors
  constexpr int64_t kColumns = 64;                     // of a task: whole strips of every vector width
  constexpr int64_t kMostRows = 512, kLeastRows = 48;  // that share the packed columns
  const int64_t across = (p.n + kColumns - 1) / kColumns, matrices = product(p.batch);
  const int64_t wanted = 4 * num_threads() / std::max<int64_t>(1, across * matrices);  // parts of the rows, to go round
  const int64_t rows = std::clamp(p.m / std::max<int64_t>(1, wanted) + 1, kLeastRows, kMostRows);
  const int64_t down = (p.m + rows - 1) / rows;
  const int64_t cost = std::min(rows, p.m) * std::min(kColumns, p.n) * p.k / 4;
  cpu::parallel_for(matrices * across * down, cpu::grain_of(cost), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = i % down * rows, column = i / down % across * kColumns, matrix = i / down / across;
      for_each_matrix(p, matrix, matrix + 1, [&](const char* a, const char* b, char* c) {
        IntegerTask task{p.a,
                         p.b,
                         p.c,
                         p.bias,
                         p.bias_row,
                         p.bias_col,
                         p.k,
                         row,
                         std::min(row + rows, p.m),
                         column,
                         std::min(column + kColumns, p.n)};
        task.a.data = const_cast<char*>(a), task.b.data = const_cast<char*>(b), task.c.data = c;
        cpu::multiply_integers(task, p.compute);
      });
    }
  });
}

}  // namespace tenor::contract
