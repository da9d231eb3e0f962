#include "src/cuda/gemm/sm90_gemm.h"
#include "src/cuda/runtime.h"
#include "src/ops/conv/conv_pointwise.h"
#include "tenor/tensor.h"

namespace tenor::conv {

void pointwise_run(const ConvProblem& p, const PointwiseProduct& x) {
  cuda::gemm::GemmProblem g{};
  const auto narrow = [](int64_t n) { return static_cast<int>(n); };
  g.a = read_image(p).data, g.b = p.weight.data, g.c = written_image(p).data;
  g.m = narrow(x.pixels), g.n = narrow(x.written), g.k = narrow(x.read);
  g.stride_a = x.source_row, g.stride_b = x.weight_row, g.stride_c = x.result_row, g.column_c = x.result_column;
  g.bfloat16 = p.dtype == DType::kBFloat16, g.b_outer = x.weight_across;
  g.bias = p.bias, g.bias_column = p.bias_stride;
  const cuda::gemm::GemmPlan plan = cuda::gemm::sm90_gemm_choice(g);
  const auto bytes = static_cast<int64_t>(cuda::gemm::sm90_gemm_workspace(g, plan));
  const Tensor workspace = bytes ? Tensor::empty({bytes}, uint8, p.device) : Tensor();
  g.workspace = bytes ? workspace.raw() : nullptr;
  cuda::check(cuda::gemm::sm90_gemm(g, plan, current_stream(p.device).handle),
              p.direction == Direction::kForward ? "conv_forward" : "conv_data_backward");
}

}  // namespace tenor::conv
