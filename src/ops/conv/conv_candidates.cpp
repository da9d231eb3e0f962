#include "src/ops/conv/conv_candidates.h"

#include <algorithm>
#include <climits>

#include "src/core/backend.h"
#include "src/core/modes.h"
#include "src/core/sizes.h"
#include "src/ops/conv/conv_cuda.h"

namespace tenor::conv {
namespace {

constexpr ConvCandidate kDirect{"direct", core::always<ConvProblem>, direct_run};
constexpr ConvCandidate kGemm{"implicit_gemm", gemm_why_not, gemm_run};
constexpr ConvCandidate kVendor{"vendor", vendor_why_not, vendor_run};

// "direct" takes every problem on the CPU; the orders say which way is the fastest.
constexpr ConvCandidate kVendorGemm[] = {kVendor, kGemm, kDirect};
constexpr ConvCandidate kVendorDirect[] = {kVendor, kDirect, kGemm};
constexpr ConvCandidate kDirectFirst[] = {kDirect, kVendor, kGemm};
constexpr ConvCandidate kGemmFirst[] = {kGemm, kVendor, kDirect};

/// Whether windows lie side by side: a data direction is one product, whose columns are the places of a window.
bool tiles_image(const ConvProblem& p) {
  for (const core::WindowDim& w : p.window)
    if (w.before != 0 || w.kernel != w.stride || w.input != w.output * w.stride || (w.kernel > 1 && w.dilation > 1))
      return false;
  return true;
}

/// Of float32 images with planes, which oneDNN turns over and back: the order, or none where that is worth it. What the
/// products along pixels read in place are rows of many pixels; of narrower ones they gather copies.
std::span<const ConvCandidate> plane_candidates(const ConvProblem& p) {
  constexpr int64_t kManyPixels = 256, kLongRow = 160, kBlock = 16;  // oneDNN's block of channels on AVX-512
  bool strided = false, padded = false;
  for (const core::WindowDim& w : p.window)
    strided = strided || w.stride > 1, padded = padded || w.before > 0 || w.after > 0;
  if (p.direction == Direction::kDataBackward && tiles_image(p)) return kGemmFirst;
  if (strided && p.direction == Direction::kDataBackward) return {};
  if (!strided && !padded && p.taps() == 1)
    return p.output_pixels() >= kManyPixels ? kGemmFirst : std::span<const ConvCandidate>();
  const int64_t written = written_channels(p);
  if (std::min(p.channels, p.out_channels) < kBlock)
    return strided && written >= 4 * kBlock ? std::span<const ConvCandidate>() : kDirectFirst;
  if (strided) return written % kBlock != 0 && written < 2 * kBlock ? kDirectFirst : std::span<const ConvCandidate>();
  return p.window[kSpatial - 1].output >= kLongRow ? kGemmFirst : std::span<const ConvCandidate>();
}

/// Whether own kernels are quicker than oneDNN's, which of float32 are slow for filter gradients of wide windows, and
/// for images with planes, which it copies twice: own ones read those in place, but of short rows waste most of a
/// vector.
bool depthwise_by_rows(const ConvProblem& p, bool weight) {
  constexpr int64_t kLongRow = 96, kLargePlane = 20000;
  const auto wide = [](const core::WindowDim& w) { return w.kernel > 3; };
  if (weight) return p.dtype != DType::kFloat32 || std::any_of(p.window, p.window + kSpatial, wide);
  const auto strided = [](const core::WindowDim& w) { return w.stride > 1; };
  const bool any_stride = std::any_of(p.window, p.window + kSpatial, strided);
  if (p.channels_last() || strided(p.window[kSpatial - 1])) return false;
  if (any_stride && (p.dtype != DType::kFloat32 || p.direction != Direction::kForward)) return false;
  if (p.dtype != DType::kFloat32 || p.window[kSpatial - 1].output >= kLongRow) return true;
  return !any_stride && p.output_pixels() >= kLargePlane;
}

/// By what was measured (README.md): oneDNN turns images with planes over, and its gradients of depthwise filters and
/// of images with few channels are slow; register tiles are half empty where a group has few channels.
std::span<const ConvCandidate> cpu_candidates(const ConvProblem& p) {
  const bool weight = p.direction == Direction::kWeightBackward;
  if (p.depthwise() && depthwise_by_rows(p, weight)) return kDirectFirst;
  const bool planes = p.input.spatial[kSpatial - 1] == 1 && p.output.spatial[kSpatial - 1] == 1 && !p.channels_last();
  if (planes && !weight && p.groups == 1 && p.dtype == DType::kFloat32)
    if (const auto order = plane_candidates(p); !order.empty()) return order;
  if (p.direction == Direction::kDataBackward && p.group_channels() <= 4 && !p.depthwise()) return kDirectFirst;
  const bool narrow = std::min(p.group_channels(), p.group_outputs()) < 16;
  if (narrow && !weight) return kVendorDirect;
  return kVendorGemm;
}

// A build without CUDA states what they take, for `explain`.
#if TENOR_HAS_CUDA
#define TENOR_IN_CUDA(run) run
#else
#define TENOR_IN_CUDA(run) nullptr
#endif
constexpr ConvCandidate kCudaGemm{"implicit_gemm", cuda_implicit_gemm_why_not, TENOR_IN_CUDA(cuda_implicit_gemm_run)};
constexpr ConvCandidate kCudaVendor{"vendor", cuda_vendor_why_not, TENOR_IN_CUDA(cuda_vendor_run)};
constexpr ConvCandidate kCudaCandidates[] = {
    kCudaGemm,
    kCudaVendor,
    {"direct", cuda_direct_why_not, TENOR_IN_CUDA(cuda_direct_run), core::kNeverTuned},
};
// Of groups with few channels a tile of the product uses a small part.
constexpr ConvCandidate kCudaNarrow[] = {
    {"direct", cuda_direct_why_not, TENOR_IN_CUDA(cuda_direct_run)},
    kCudaVendor,
    kCudaGemm,
};
constexpr ConvCandidate kCudaVendorFirst[] = {
    kCudaVendor,
    kCudaGemm,
    {"direct", cuda_direct_why_not, TENOR_IN_CUDA(cuda_direct_run), core::kNeverTuned},
};
#undef TENOR_IN_CUDA

constexpr int64_t kNarrowGroup = 8, kWideGroup = 64;  // channels

bool has_planes(const ConvProblem& p) { return !p.channels_last(); }
bool strided(const ConvProblem& p) {
  return std::any_of(p.window, p.window + kSpatial, [](const core::WindowDim& w) { return w.stride > 1; });
}

/// Whether forward tiles of 128 pixels by up to 256 channels leave more than a fifth of their waves idle on 132
/// multiprocessors.
bool wastes_waves(const ConvProblem& p) {
  constexpr int64_t kProcessors = 132;
  const int64_t tiles =
      core::div_up(p.batch * p.output_pixels(), int64_t{128}) * core::div_up(p.out_channels, int64_t{256});
  return tiles > kProcessors && 5 * tiles < 4 * core::div_up(tiles, kProcessors) * kProcessors;
}

/// Of a weight gradient of 16-bit floats: few or narrow tiles, whose lines are too short to wait for, and windows of
/// one element.
bool weight_suits_vendor(const ConvProblem& p) {
  constexpr int64_t kFewPixels = 8192, kManyChannels = 256;
  const int64_t most = std::max(p.channels, p.out_channels), least = std::min(p.channels, p.out_channels);
  if (p.taps() == 1) return !strided(p);
  return (p.batch * p.output_pixels() <= kFewPixels && least >= kManyChannels) || (most <= kWideGroup && least >= 32);
}

/// Where cuDNN is faster on Hopper than tiles of 128 by 64 and more (README.md has the numbers): of 16-bit floats
/// groups with fewer channels than a step of a product sums, images of three dims with as few, image gradients with
/// channels innermost but for the largest, windows of one element, and forward products whose tiles are narrow or fit
/// the device badly; of float32 few channels as planes.
bool suits_vendor(const ConvProblem& p) {
  constexpr int64_t kNarrow = 128;
  if (p.groups > 1) return std::min(p.group_channels(), p.group_outputs()) < kWideGroup;
  const int64_t most = std::max(p.channels, p.out_channels), least = std::min(p.channels, p.out_channels);
  const bool forward = p.direction == Direction::kForward;
  if (p.dtype == DType::kFloat32)
    return forward && has_planes(p) && p.dims == 2 && !strided(p) && most <= kWideGroup && least >= 32 && p.taps() > 1;
  if (p.dtype != DType::kBFloat16 && p.dtype != DType::kFloat16) return false;
  if (p.dims == 3 && most <= kWideGroup) return true;
  if (least < 32) return false;  // stems, whose kernels are own ones
  if (p.direction == Direction::kWeightBackward) return weight_suits_vendor(p);
  if (has_planes(p)) return false;
  if (p.taps() == 1) return true;
  if (forward) return least < kNarrow || (!strided(p) && wastes_waves(p));
  return p.dims != 2 || p.batch * p.output_pixels() * least < int64_t{1} << 25;
}

bool on_cuda(const ConvProblem& p) { return core::runs_on(p.device) == DeviceType::kCuda; }

void append_image(std::string& key, const char* name, const Image& x) {
  key += core::text(" {}={},{}", name, x.batch, x.channel);
  for (const int64_t stride : x.spatial) key += core::text(",{}", stride);
}

}  // namespace

std::span<const ConvCandidate> conv_candidates(const ConvProblem& p) {
  if (on_cuda(p) && p.groups > 1 && std::max(p.group_channels(), p.group_outputs()) <= kNarrowGroup) return kCudaNarrow;
  if (on_cuda(p) && suits_vendor(p)) return kCudaVendorFirst;
  if (on_cuda(p)) return kCudaCandidates;
  return cpu_candidates(p);
}

std::string words_of(const ConvProblem& p) {
  static constexpr const char* kNames[] = {"forward", "data_backward", "weight_backward"};
  std::string key = core::text("{} {} N{} C{} O{} G{}", kNames[static_cast<int>(p.direction)], name(p.dtype), p.batch,
                               p.channels, p.out_channels, p.groups);
  for (const core::WindowDim& w : p.window)
    key += core::text(" {}k{}s{}d{}p{},{}", w.input, w.kernel, w.stride, w.dilation, w.before, w.after);
  append_image(key, "input", p.input);
  append_image(key, "output", p.output);
  key += core::text(" weight={},{}", p.weight.out, p.weight.in);
  for (const int64_t stride : p.weight.spatial) key += core::text(",{}", stride);
  if (p.bias) key += " bias";
  if (!on_cuda(p)) return key;
  if (p.dtype == DType::kFloat32 && core::tf32_allowed()) key += " tf32";
  const auto starts = reinterpret_cast<uintptr_t>(p.input.data) | reinterpret_cast<uintptr_t>(p.output.data) |
                      reinterpret_cast<uintptr_t>(p.weight.data);
  return starts % 16 == 0 ? key : key + " unaligned";
}

std::vector<std::string> conv_strategies() { return {"direct", "implicit_gemm", "vendor"}; }

const ConvCandidate& chosen(const char* op, const ConvProblem& p, std::string_view strategy, bool may_run) {
  return core::choose_tuned<ConvProblem>(op, conv_candidates(p), p, p.device, strategy, may_run,
                                         [&] { return words_of(p); });
}

std::vector<core::Copy> copies_of(const ConvCandidate& taken, const ConvProblem& p) {
  if (on_cuda(p))
    return taken.why_not == cuda_implicit_gemm_why_not ? cuda_implicit_gemm_copies(p) : std::vector<core::Copy>{};
  return taken.run == vendor_run ? vendor_copies(p) : std::vector<core::Copy>{};
}

std::string note_of([[maybe_unused]] const ConvCandidate& taken, [[maybe_unused]] const ConvProblem& p) {
#if TENOR_HAS_CUDA
  if (!on_cuda(p) || p.device.type != DeviceType::kCuda) return {};
  if (taken.run == cuda_vendor_run) return cudnn_note(p);
  if (taken.run == cuda_implicit_gemm_run)
    if (const int64_t bytes = cuda_implicit_gemm_workspace(p); bytes > 0)
      return core::text("{} bytes of workspace", bytes);
#endif
  return {};
}

std::vector<int64_t> numbers_of(const ConvProblem& p) {
  std::vector<int64_t> key = {static_cast<int64_t>(p.direction),
                              static_cast<int64_t>(p.dtype),
                              p.batch,
                              p.channels,
                              p.out_channels,
                              p.groups,
                              p.dims,
                              p.bias != nullptr,
                              p.input.batch,
                              p.input.channel,
                              p.output.batch,
                              p.output.channel,
                              p.weight.out,
                              p.weight.in};
  for (int d = 0; d < kSpatial; ++d) {
    const core::WindowDim& w = p.window[d];
    for (const int64_t v : {w.input, w.kernel, w.stride, w.dilation, w.before, w.after, w.output, p.input.spatial[d],
                            p.output.spatial[d], p.weight.spatial[d]})
      key.push_back(v);
  }
  return key;
}

std::string explain_choice(const ConvCandidate& taken, const ConvProblem& p) {
  return std::string(taken.name) + "\n" + core::declined(conv_candidates(p), p);
}

std::string vendors_why_not(const ConvProblem& p) {
  if (p.bias && p.bias_stride != 1 && written_channels(p) > 1) return "the bias has gaps";
  for (const core::WindowDim& w : p.window)
    if (core::window_outputs(w) != w.output) return "output_padding of the stride or more leaves outputs unread";
  for (const core::WindowDim& w : p.window)
    if (std::max({w.input, w.output, w.span(), w.before, w.after, w.stride, w.dilation}) > INT32_MAX)
      return "a size is beyond 32 bits";
  return {};
}

}  // namespace tenor::conv
