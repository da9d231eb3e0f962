// The gated delta rule on CUDA: problems for kernels, and which kernel takes them.
#include "src/cuda/content_kind.h"
#include "src/ops/gated_delta/gated_delta_launch.h"

namespace tenor::delta {
namespace {

/// Blocks: `a_row` for each sequence, of which the last is what lies behind all of them.
__global__ void zero_kernel(const __grid_constant__ DeviceSequences s, Rows out, int item, int64_t heads, int64_t width,
                            unsigned a_row) {
  const int64_t n = blockIdx.x / a_row, part = blockIdx.x % a_row;
  const bool past = n == s.count;
  if (past && part == 0 && s.starts.data) cuda::check_offsets(s.starts, s.count + 1, s.steps, s.flag);
  int64_t batch = 0, begin = 0, end = 0;
  if (past) {
    begin = DeviceSequence::inside(cuda::offset_at(s.starts, s.count), 0, s.steps), end = s.steps;
  } else {
    if (place_of(s, n) >= 0) return;
    const DeviceSequence one(s, n);
    batch = one.batch, begin = one.begin, end = one.begin + one.length;
  }
  const int64_t all = (end - begin) * heads * width;
  for (int64_t i = part * blockDim.x + threadIdx.x; i < all; i += int64_t{a_row} * blockDim.x) {
    const int64_t step = begin + i / width % (end - begin), head = i / width / (end - begin);
    char* to = static_cast<char*>(out.data) +
               (batch * out.batch + head * out.head + step * out.step + i % width * out.dim) * item;
    for (int b = 0; b < item; ++b) to[b] = 0;
  }
}

}  // namespace

Rows rows_of(const Tensor& x) {
  return {x.numel() ? x.raw() : nullptr, x.stride(0), x.stride(1), x.stride(2), x.ndim() == 4 ? x.stride(3) : 0};
}

Tensor aligned_rows(const Tensor& x) {
  if (has_aligned_rows(x)) return x;
  return x.is_contiguous() ? x.clone() : x.contiguous();  // dense, but at an odd address
}

DeviceSequences device_sequences(const char* op, const Tensor& x, int64_t sequences, int64_t steps,
                                 const Tensor& cu_seqlens, const Tensor& state_indices, const Tensor& has_initial,
                                 int64_t places, bool first) {
  DeviceSequences s{};
  s.count = sequences, s.steps = steps, s.has_first = first;
  if (!cu_seqlens.defined() && !state_indices.defined() && !has_initial.defined()) return s;
  s.flag = cuda::content_error(current_stream(x.device()));
  if (cu_seqlens.defined())
    s.starts = {cu_seqlens.raw(), cu_seqlens.stride(0), cu_seqlens.dtype() == int64,
                cuda::named_content_op(op, "cu_seqlens", cuda::ContentKind::kValue)};
  if (state_indices.defined() && sequences > 0)
    s.slots = index::entries_of({op, "state_indices"}, state_indices, places, true),
    s.slots_stride = state_indices.stride(0);
  if (has_initial.defined() && sequences > 0)
    s.kept = static_cast<const uint8_t*>(has_initial.raw()), s.kept_stride = has_initial.stride(0);
  return s;
}

DeviceProblem device_problem(const Problem& problem) {
  DeviceProblem p{};
  p.query = rows_of(problem.query), p.key = rows_of(problem.key), p.value = rows_of(problem.value);
  p.beta = rows_of(problem.beta), p.decay = rows_of(problem.decay), p.output = rows_of(problem.output);
  const auto states = [](const Tensor& x) {
    return x.defined() && x.numel() ? States{x.raw(), x.stride(0), x.stride(1), x.stride(2), x.stride(3)} : States{};
  };
  p.first = states(problem.first), p.last = states(problem.last);
  p.sequences = device_sequences(problem.op, problem.output, problem.sequences, problem.steps, problem.cu_seqlens,
                                 problem.state_indices, problem.has_initial,
                                 problem.last.ndim() ? problem.last.shape(0) : 0, problem.first.defined());
  p.heads = problem.heads, p.group = problem.heads ? problem.group() : 1, p.value_heads = problem.value_heads;
  p.key_dim = problem.key_dim, p.value_dim = problem.value_dim;
  p.chunk = std::max<int64_t>(1, std::min(problem.chunk, problem.steps));
  p.scale = problem.scale, p.normalize = problem.normalize, p.by_channel = problem.by_channel();
  p.beta_float = problem.beta.dtype() == float32;
  return p;
}

void zero_unclaimed_cuda(const char* op, const DeviceSequences& s, const Tensor& out, int64_t heads) {
  if (!s.starts.data && !s.slots.data) return;
  const int64_t rows = s.count + (s.starts.data ? 1 : 0), width = out.ndim() == 4 ? out.shape(3) : 1;
  if (rows == 0) return;
  const auto a_row = static_cast<unsigned>(std::clamp<int64_t>(out.numel() / rows / 1024, 1, 512));
  cuda::launch(op, zero_kernel, {dim3(blocks_of(op, a_row, 1, rows)), dim3(256)}, out.device(), s, rows_of(out),
               static_cast<int>(item_size(out.dtype())), heads, width, a_row);
}

void run_recurrent_cuda(const Problem& problem) {
  const cuda::DeviceGuard guard(problem.output.device());
  const DeviceProblem p = device_problem(problem);
  if (launch_recurrent(problem, p)) return;
  zero_unclaimed_cuda(problem.op, p.sequences, problem.output, problem.value_heads);
  launch_general_recurrent(problem, p);
}

void run_general_cuda(const Problem& problem) {
  const cuda::DeviceGuard guard(problem.output.device());
  const DeviceProblem p = device_problem(problem);
  zero_unclaimed_cuda(problem.op, p.sequences, problem.output, problem.value_heads);
  launch_general_chunk(problem, p);
}

void run_tensorcore_cuda(const Problem& problem) {
  const cuda::DeviceGuard guard(problem.output.device());
  const DeviceProblem p = device_problem(problem);
  problem.query.dtype() == bfloat16 ? launch_tensorcore(problem, p) : launch_tf32(problem, p);
}

}  // namespace tenor::delta
