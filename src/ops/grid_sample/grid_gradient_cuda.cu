// The gradients of grid_sample on a GPU.
#include <algorithm>

#include "src/ops/grid_sample/grid_gradient_cuda.cuh"
#include "src/ops/grid_sample/grid_launch.cuh"
#include "src/ops/grid_sample/grid_sample_cuda.h"
#include "tenor/sort.h"

namespace tenor::cuda {
namespace {

constexpr int64_t kMostEntries = int64_t{1} << 27;  // sorted at once: 3 GiB with the sort's own

unsigned blocks_of(int64_t threads) {
  return static_cast<unsigned>((threads + kGradientThreads - 1) / kGradientThreads);
}

template <class T, int Dims, int K>
void launch_grid_gradient(const GridSampling& s, const GridSampleProblem& p, const Tensor& grad) {
  if (grad.numel() == 0) return;
  const GridGradientProblem q{p, grid_image(grad), grad.dtype() == float32};
  const int64_t places = p.batch * p.samples;
  if (lies_by_channel(s.x) && lies_by_channel(s.y))
    launch(s.op, grid_gradient<T, Dims, K, true>, Grid{dim3(blocks_of(places * 32)), dim3(kGradientThreads)},
           s.x.device(), q);
  else
    launch(s.op, grid_gradient<T, Dims, K, false>, Grid{dim3(blocks_of(places)), dim3(kGradientThreads)}, s.x.device(),
           q);
}

/// The image's gradient of `images` images from n0 on.
template <class T, int Dims, int K, class Key>
void add_images(const GridSampling& s, const GridSampleProblem& p, const Tensor& grad, int64_t n0, int64_t images) {
  using R = core::Compute<T>;
  constexpr int kTaps = Dims == 3 ? K * K * K : K * K;
  const Device device = s.x.device();
  const int64_t pixels = s.x.shape(2) * s.x.shape(3) * s.x.shape(4), entries = images * p.samples * kTaps;
  constexpr DType kKey = sizeof(Key) == 4 ? DType::kInt32 : DType::kInt64,
                  kWeight = sizeof(R) == 4 ? DType::kFloat32 : DType::kFloat64;
  const Tensor keys = Tensor::empty({entries}, kKey, device), weights = Tensor::empty({entries}, kWeight, device),
               starts = Tensor::empty({images * pixels + 1}, int64, device);
  SortResult sorted;
  if (entries > 0) {  // else every pixel's list is empty
    launch(s.op, list_taps<T, Dims, K, Key>, Grid{dim3(blocks_of(images * p.samples)), dim3(kGradientThreads)}, device,
           p, n0, images, pixels, keys.data<Key>(), weights.data<R>());
    sorted = sort(keys);
  }
  const Key* in_order = entries > 0 ? sorted.values.data<Key>() : nullptr;
  const int64_t* order = entries > 0 ? sorted.indices.data<int64_t>() : nullptr;
  launch(s.op, find_starts<Key>, Grid{dim3(blocks_for(entries + 1, kGradientThreads, device)), dim3(kGradientThreads)},
         device, in_order, entries, images * pixels, starts.data<int64_t>());
  const int64_t units = images * pixels * ((p.channels + kGradientChannels - 1) / kGradientChannels);
  const bool by_channel = lies_by_channel(grad) && lies_by_channel(s.y);
  const auto run = [&](auto kernel) {
    launch(s.op, kernel, Grid{dim3(blocks_of(units)), dim3(kGradientThreads)}, device, p, image_of(grad), n0, images,
           pixels, kTaps, starts.data<int64_t>(), order, weights.data<R>());
  };
  if (by_channel)
    run(add_entries<T, true>);
  else
    run(add_entries<T, false>);
}

template <class T, int Dims, int K>
void launch_image_gradient(const GridSampling& s, const GridSampleProblem& p, const Tensor& grad) {
  if (grad.numel() == 0) return;
  constexpr int kTaps = Dims == 3 ? K * K * K : K * K;
  const int64_t pixels = s.x.shape(2) * s.x.shape(3) * s.x.shape(4),
                most = std::max<int64_t>(kMostEntries / std::max<int64_t>(p.samples * kTaps, 1), 1);
  for (int64_t n = 0; n < p.batch; n += most) {
    const int64_t images = std::min(most, p.batch - n);
    if (images * pixels < INT32_MAX)
      add_images<T, Dims, K, int32_t>(s, p, grad, n, images);
    else
      add_images<T, Dims, K, int64_t>(s, p, grad, n, images);
  }
}

}  // namespace

void grid_sample_backward(const GridSampling& s, const Tensor& grad_x, const Tensor& grad_grid) {
  const DeviceGuard guard(s.x.device());
  const GridSampleProblem p = problem_of(s);
  core::visit_float(s.x.dtype(), [&]<class T>() {
    visit_sampling(s, [&]<int Dims, int K>() {
      launch_grid_gradient<T, Dims, K>(s, p, grad_grid);
      launch_image_gradient<T, Dims, K>(s, p, grad_x);
    });
  });
}

}  // namespace tenor::cuda
