// The loss and its gradient on CUDA: the recursion (ctc_walk.cuh), then the class pass (ctc_class.cuh).
#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/ops/ctc/ctc_class.cuh"
#include "src/ops/ctc/ctc_lengths_cuda.h"
#include "src/ops/ctc/ctc_walk.cuh"

namespace tenor::ctc {
namespace {

using cuda::Grid;

/// Memory for work, which lives as long as the launches that use it are queued.
template <class E>
E* room(std::vector<Tensor>& kept, int64_t count, Device device) {
  kept.push_back(Tensor::empty({std::max<int64_t>(count, 1) * static_cast<int64_t>(sizeof(E))}, uint8, device));
  return static_cast<E*>(kept.back().raw());
}

ContentOps content_ops_of(const std::string& op) {
  static const ContentOps forward = loss_content_ops("ctc_loss"), backward = loss_content_ops("ctc_loss_backward");
  return op == "ctc_loss" ? forward : backward;
}

/// One call: its workspace, and the arguments of both kernels.
template <class T>
struct Call {
  using C = core::Compute<T>;
  const CudaLoss& p;
  std::vector<Tensor> kept;
  WalkArguments<T> walk{};
  ClassArguments<T> classes{};
  LossArguments<T> losses{};
  int64_t states, most_labels;  ///< most_labels: of one sample that has a path

  explicit Call(const CudaLoss& p) : p(p) {
    const Tensor& x = p.log_probs;
    const Device device = x.device();
    const bool flat = p.targets.ndim() == 1;
    const int64_t T_ = x.shape(0), N = x.shape(1), total = flat ? p.targets.shape(0) : N * p.targets.shape(1);
    states = 2 * total + N;
    most_labels = std::min(p.targets.shape(-1), T_);
    const auto integers = [&](const Tensor& array) {
      kept.push_back(kernel_integers(array));
      return Integers{kept.back().raw(), kept.back().stride(-1), kept.back().dtype() == int64};
    };
    walk = {.log_probs = x.data<T>(),
            .frame_stride = x.stride(0),
            .sample_stride = x.stride(1),
            .class_stride = x.stride(2),
            .frames = T_,
            .samples = N,
            .classes = x.shape(2)};
    walk.targets = integers(p.targets);
    walk.target_row = flat ? 0 : kept.back().stride(0);
    walk.target_step = flat ? kept.back().stride(0) : 0;
    walk.input_lengths = integers(length_array(p.op, p.input_lengths, device));
    walk.target_lengths = integers(length_array(p.op, p.target_lengths, device));
    walk.most_labels = p.targets.shape(-1);
    walk.flat = flat;
    walk.blank = p.blank;
    walk.zero_infinity = p.zero_infinity;
    walk.edges = room<Scaled<C>>(kept, p.gradient.defined() ? 0 : 2 * states, device);
    walk.columns = room<Scaled<C>>(kept, most_labels >= kMostWarps * kWarpSize || flat ? 4 * N * T_ : 0, device);
    walk.losses = room<double>(kept, N, device);
    walk.flag = cuda::content_error(current_stream(device));
    walk.ops = content_ops_of(p.op);
    losses = {walk.losses, walk.flag, walk.target_lengths, N, p.reduction == "mean", nullptr, 0, p.reduction == "none"};
    if (p.loss.defined()) {
      losses.loss = p.loss.data<T>();
      losses.loss_stride = losses.each ? p.loss.stride(0) : 0;
    }
  }

  /// Half a block's warps hold a pair of states a lane; flat targets do not say how many there are, twice the mean is a
  /// guess, and longer ones take rounds.
  int warps() const {
    int64_t labels = most_labels;
    if (walk.flat) labels = std::min(labels, 2 * (walk.most_labels / std::max<int64_t>(walk.samples, 1) + 1));
    return static_cast<int>(std::clamp<int64_t>((labels + kWarpSize) / kWarpSize, 1, kMostWarps));
  }

  void run() {
    const Device device = p.log_probs.device();
    const auto samples = static_cast<unsigned>(walk.samples);
    Grid grid{samples, static_cast<unsigned>(2 * kWarpSize * warps())};
    if (p.gradient.defined() && walk.frames > 0 && samples > 0) return gradient(grid, device);
    if (samples > 0) cuda::launch(p.op, walk_kernel<T, false>, grid, device, walk, classes);
    if (losses.loss) cuda::launch(p.op, loss_kernel<T>, {1, kClassThreads, 0, 1, true}, device, losses);
  }

  void gradient(Grid grid, Device device) {
    for (auto& rows : walk.rows) rows = room<Scaled<C>>(kept, states * walk.frames, device);
    walk.order = room<int64_t>(kept, (states - walk.samples) / 2, device);
    walk.sorted = room<int64_t>(kept, (states - walk.samples) / 2, device);
    walk.found = room<Found>(kept, walk.samples, device);
    set_classes();
    // Beside the samples' blocks as many as the device has room for, a warp a row, write exp(log_probs).
    const int64_t rows = walk.frames * walk.samples, warps = grid.threads.x / kWarpSize;
    const int64_t others = cuda::multiprocessors(device) * std::max<int64_t>(8 / warps, 1);
    grid.blocks.x += static_cast<unsigned>(std::min((rows + warps - 1) / warps, others));
    cuda::launch(p.op, walk_kernel<T, true>, grid, device, walk, classes);
    constexpr size_t kMostShared = 96 << 10;  // which every device has
    constexpr int64_t kPerBlock = 32;         // frames
    const auto pieces = std::min<int64_t>((walk.frames + kPerBlock - 1) / kPerBlock, 65535);
    grid = {dim3(static_cast<unsigned>(walk.samples), static_cast<unsigned>(pieces)), kClassThreads, 0, 1, true};
    const size_t staged = MendedRows<T, true>::bytes(most_labels);
    if (staged > kMostShared)
      return cuda::launch(p.op, mend_kernel<T, false>, grid, device, classes, losses, kPerBlock, most_labels);
    grid.shared = staged;
    cuda::launch(p.op, mend_kernel<T, true>, grid, device, classes, losses, kPerBlock, most_labels);
  }

  void set_classes() {
    const Tensor &x = p.log_probs, &g = p.gradient;
    const auto aligned = [](const Tensor& y) {
      const auto at = [&](int d) { return y.shape(d) == 1 || cuda::is_aligned(y.raw(), y.stride(d), sizeof(T)); };
      return (y.shape(2) == 1 || y.stride(2) == 1) && cuda::is_aligned(y.raw(), 0, sizeof(T)) && at(0) && at(1);
    };
    classes = {.log_probs = walk.log_probs,
               .gradient = g.data<T>(),
               .frame_stride = x.stride(0),
               .sample_stride = x.stride(1),
               .class_stride = x.stride(2),
               .to_frame_stride = g.stride(0),
               .to_sample_stride = g.stride(1),
               .to_class_stride = g.stride(2),
               .frames = walk.frames,
               .samples = walk.samples,
               .classes = walk.classes,
               .blank = walk.blank};
    classes.rows[0] = walk.rows[0], classes.rows[1] = walk.rows[1];
    classes.order = walk.order, classes.sorted = walk.sorted, classes.found = walk.found;
    if (p.upstream.defined()) {
      classes.upstream = p.upstream.raw();
      classes.upstream_wide = p.upstream.dtype() != x.dtype();
      classes.upstream_stride = losses.each ? p.upstream.stride(0) : 0;
    }
    classes.mean = losses.mean;
    classes.input_lengths = walk.input_lengths, classes.target_lengths = walk.target_lengths;
    classes.vectors = walk.classes % cuda::kVector<T> == 0 && aligned(x) && aligned(g);
  }
};

}  // namespace

void loss_cuda(const CudaLoss& problem) {
  const Device device = problem.log_probs.device();
  const cuda::DeviceGuard guard(device);
  core::visit_float(problem.log_probs.dtype(), [&]<class T>() { Call<T>(problem).run(); });
}

}  // namespace tenor::ctc
