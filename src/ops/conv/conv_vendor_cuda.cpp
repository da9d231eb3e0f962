// The vendor candidate on CUDA: cuDNN's graph of a convolution, and of the addition of a bias.
//
// The library is opened at run time (src/cuda/cudnn.h), so that Tenor loads where there is none. What a problem asks of
// it is kept as a plan: the heuristics' first engine that adds in a fixed order, in the compute type, without
// transforms (FFT, Winograd), which would carry what is not a number into results that do not read it, and whose
// workspace is within a bound. Padding may differ from side to side; one dim is computed as two.
#include "src/ops/conv/conv_candidates.h"
#include "src/ops/conv/conv_cuda.h"

#if !TENOR_HAS_CUDA || !__has_include(<cudnn.h>)

namespace tenor::conv {
std::string cudnn_why_not(const ConvProblem&) { return "this build had no cudnn.h"; }
std::string cudnn_note(const ConvProblem&) { return {}; }
void cuda_vendor_run(const ConvProblem&) {}
}  // namespace tenor::conv

#else

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "src/core/modes.h"
#include "src/core/text.h"
#include "src/cuda/capture.h"
#include "src/cuda/cudnn_graph.h"
#include "src/cuda/runtime.h"
#include "src/ops/conv/conv_launch.h"
#include "tenor/tensor.h"

namespace tenor::conv {
namespace {

using cuda::check_cudnn;
using cuda::CudnnDescriptor;
using Sizes = std::vector<int64_t>;

constexpr size_t kMaxPlans = 1024;  // beyond, the cache starts anew

/// Names of the graph's tensors.
enum Operand : int64_t { kInput = 1, kWeight, kOutput, kBias, kSum };

cudnnDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return CUDNN_DATA_DOUBLE;
    case DType::kFloat16:
      return CUDNN_DATA_HALF;
    case DType::kBFloat16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

/// Bytes that the pointer is a multiple of, as far as engines care.
int64_t alignment_of(const void* p) {
  return int64_t{1} << std::min(std::countr_zero(reinterpret_cast<uintptr_t>(p) | 16), 4);
}

/// A value for each spatial dim that cuDNN is told of: two at least.
template <class F>
Sizes spatial(const ConvProblem& p, F&& of) {
  Sizes out;
  for (int d = kSpatial - std::max(p.dims, 2); d < kSpatial; ++d) out.push_back(of(d));
  return out;
}
Sizes with(Sizes front, const Sizes& back) {
  front.insert(front.end(), back.begin(), back.end());
  return front;
}

/// A tensor's sizes and strides. Strides of dims of size 1 carry no meaning, but cuDNN tells layouts by them: they
/// become those of the dense layout, channels last where `last`.
struct Layout {
  Sizes sizes, strides;
  Layout(Sizes sizes_, Sizes strides_, bool last) : sizes(std::move(sizes_)), strides(std::move(strides_)) {
    const size_t rank = sizes.size();
    std::vector<size_t> order = {0};
    if (!last) order.push_back(1);
    for (size_t i = 2; i < rank; ++i) order.push_back(i);
    if (last) order.push_back(1);
    int64_t dense = 1;
    for (size_t i = rank; i-- > 0;) {
      const size_t d = order[i];
      if (sizes[d] == 1) strides[d] = dense;
      dense = std::max(dense, sizes[d] * strides[d]);
    }
  }
};

bool is_last(const ConvProblem& p) {
  if (p.channels > 1) return p.input.channel == 1;
  return p.out_channels > 1 && p.output.channel == 1;
}

Layout image_layout(const ConvProblem& p, const Image& x, int64_t channels, bool input) {
  return {with({p.batch, channels}, spatial(p, [&](int d) { return input ? p.window[d].input : p.window[d].output; })),
          with({x.batch, x.channel}, spatial(p, [&](int d) { return x.spatial[d]; })), is_last(p)};
}
Layout weight_layout(const ConvProblem& p) {
  return {with({p.out_channels, p.group_channels()}, spatial(p, [&](int d) { return p.window[d].kernel; })),
          with({p.weight.out, p.weight.in}, spatial(p, [&](int d) { return p.weight.spatial[d]; })),
          p.weight.in == 1 && (p.taps() > 1 || is_last(p))};
}

CudnnDescriptor tensor(Operand name, DType dtype, const Layout& layout, int64_t alignment, bool is_virtual = false) {
  CudnnDescriptor x(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  x.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, static_cast<int64_t>(name));
  x.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type_of(dtype));
  x.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
  x.set(CUDNN_ATTR_TENSOR_DIMENSIONS, layout.sizes);
  x.set(CUDNN_ATTR_TENSOR_STRIDES, layout.strides);
  if (is_virtual) x.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  x.finalize();
  return x;
}

/// How the operands' tensors are attributes of a direction's operation.
struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t convolution, input, weight, output, alpha, beta;
};
constexpr Names kNames[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

CudnnDescriptor window_of(const ConvProblem& p) {
  CudnnDescriptor c(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  c.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, type_of(compute_dtype(p.dtype)));
  c.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  c.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, static_cast<int64_t>(std::max(p.dims, 2)));
  c.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, spatial(p, [&](int d) { return p.window[d].dilation; }));
  c.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, spatial(p, [&](int d) { return p.window[d].stride; }));
  c.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, spatial(p, [&](int d) { return p.window[d].before; }));
  c.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, spatial(p, [&](int d) { return p.window[d].before; }));
  c.finalize();
  return c;
}

void set_scale(CudnnDescriptor& operation, const ConvProblem& p, cudnnBackendAttributeName_t name, float value) {
  const double wide = value;
  if (p.dtype == DType::kFloat64) return operation.set(name, CUDNN_TYPE_DOUBLE, 1, &wide);
  operation.set(name, CUDNN_TYPE_FLOAT, 1, &value);
}

/// y = x + bias, rounded once.
CudnnDescriptor addition(const ConvProblem& p, const CudnnDescriptor& x, const CudnnDescriptor& y) {
  const int64_t channels = written_channels(p);
  const Sizes ones = spatial(p, [](int) { return int64_t{1}; });
  const CudnnDescriptor bias = tensor(kBias, p.dtype, {with({1, channels}, ones), with({channels, 1}, ones), true},
                                      static_cast<int64_t>(item_size(p.dtype)));
  CudnnDescriptor add(CUDNN_BACKEND_POINTWISE_DESCRIPTOR), operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
  add.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  add.set(CUDNN_ATTR_POINTWISE_MATH_PREC, type_of(compute_dtype(p.dtype)));
  add.finalize();
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, add);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, bias);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  operation.finalize();
  return operation;
}

/// The graph, with what it holds.
CudnnDescriptor graph_of(cudnnHandle_t handle, const ConvProblem& p) {
  const Layout layouts[] = {image_layout(p, p.input, p.channels, true), weight_layout(p),
                            image_layout(p, p.output, p.out_channels, false)};
  const void* const data[] = {p.input.data, p.weight.data, p.output.data};
  const int written = p.direction == Direction::kForward ? 2 : p.direction == Direction::kDataBackward ? 0 : 1;
  CudnnDescriptor operands[3], sum;
  for (int i = 0; i < 3; ++i)
    operands[i] = tensor(static_cast<Operand>(kInput + i), p.dtype, layouts[i], alignment_of(data[i]));
  if (p.bias) sum = tensor(kSum, compute_dtype(p.dtype), layouts[written], 16, true);
  const auto operand = [&](int i) -> const CudnnDescriptor& { return p.bias && i == written ? sum : operands[i]; };
  const Names& names = kNames[static_cast<int>(p.direction)];
  CudnnDescriptor product(names.operation);
  product.set(names.convolution, window_of(p));
  product.set(names.input, operand(0));
  product.set(names.weight, operand(1));
  product.set(names.output, operand(2));
  set_scale(product, p, names.alpha, 1);
  set_scale(product, p, names.beta, 0);
  product.finalize();
  std::vector<CudnnDescriptor> operations = {product};
  if (p.bias) operations.push_back(addition(p, sum, operands[written]));
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const CudnnDescriptor& operation : operations) raw.push_back(operation.get());
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(raw.size()), raw.data());
  graph.finalize();
  return graph;
}

/// Engines that state no transform though they are off by 1e-4 on small integers.
bool is_inexact(const ConvProblem& p, int64_t engine) {
  return p.direction == Direction::kWeightBackward && p.dtype == DType::kFloat32 && engine == 17;  // cuDNN 9.19
}

/// Whether an engine keeps the contract: order, precision, and what is not a number in its place.
bool keeps_contract(const ConvProblem& p, const CudnnDescriptor& engine) {
  if (is_inexact(p, engine.value(CUDNN_ATTR_ENGINE_GLOBAL_INDEX))) return false;
  const auto notes = engine.values<cudnnBackendNumericalNote_t>(
      CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  for (const cudnnBackendNumericalNote_t note : notes) switch (note) {
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:  // of float32: TF32
        if (p.dtype == DType::kFloat32 && !core::tf32_allowed()) return false;
        break;
      case CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP:
        break;
      default:
        return false;
    }
  return true;
}

struct Plan {
  std::string declined;  // why cuDNN has nothing for the problem
  CudnnDescriptor plan;
  int64_t workspace = 0, engine = 0;
};

/// Takes the first engine of a mode of the heuristics that will do.
bool take_engine(Plan& plan, cudnnHandle_t handle, const ConvProblem& p, const CudnnDescriptor& graph,
                 cudnnBackendHeurMode_t mode) {
  CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  heuristics.finalize();
  for (const CudnnDescriptor& config :
       heuristics.descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR))
    try {
      CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
      cudnnBackendDescriptor_t raw = engine.get();
      int64_t count = 0;
      check_cudnn(cuda::cudnn().BackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
                  "cudnnBackendGetAttribute");
      if (!keeps_contract(p, engine)) continue;
      CudnnDescriptor execution(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      execution.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
      execution.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
      execution.finalize();
      const int64_t workspace = execution.value(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
      if (workspace > kMostWorkspace) continue;
      plan.plan = execution, plan.workspace = workspace;
      plan.engine = engine.value(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
      return true;
    } catch (const cuda::CudnnError& e) {
      if (!e.declines()) throw;  // the heuristics name engines that turn out not to take the problem
    }
  return false;
}

/// What failed, in the contract's classes.
[[noreturn]] void fail_with(const ConvProblem& p, const cuda::CudnnError& e) {
  constexpr const char* kOps[] = {"conv_forward", "conv_data_backward", "conv_weight_backward"};
  const char* op = kOps[static_cast<int>(p.direction)];
  if (e.out_of_memory()) core::fail<OutOfMemoryError>("{}: {}", op, e.what());
  core::fail<CudaError>("{}: {}", op, e.what());
}

/// cuDNN's handle of a device, made on its first use, with what has to hold while it is used.
struct Session {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  std::map<std::vector<int64_t>, std::shared_ptr<const Plan> > plans;
  std::set<std::shared_ptr<const Plan> > captured;  ///< kept for good: graphs launch kernels of modules that plans own
};
Session& session_of(Device device) {
  static std::mutex mutex;
  static auto* sessions = new std::map<int, std::unique_ptr<Session> >;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Session>& session = (*sessions)[device.index];
  if (!session) session = std::make_unique<Session>();
  return *session;
}

/// Of a session whose mutex is held, on its device.
std::shared_ptr<const Plan> plan_of(Session& session, const ConvProblem& p) {
  std::vector<int64_t> key = numbers_of(p);
  for (const void* data : {p.input.data, p.weight.data, p.output.data}) key.push_back(alignment_of(data));
  key.push_back(core::tf32_allowed());
  if (const auto found = session.plans.find(key); found != session.plans.end()) return found->second;
  const cuda::RelaxedCapture relaxed;
  auto plan = std::make_shared<Plan>();
  try {
    if (!session.handle) check_cudnn(cuda::cudnn().Create(&session.handle), "cudnnCreate");
    const CudnnDescriptor graph = graph_of(session.handle, p);
    if (!take_engine(*plan, session.handle, p, graph, CUDNN_HEUR_MODE_A) &&
        !take_engine(*plan, session.handle, p, graph, CUDNN_HEUR_MODE_FALLBACK))
      plan->declined = core::text(
          "cuDNN has no engine for it that adds in a fixed order, in the compute type, without transforms, within {} "
          "MiB "
          "of workspace",
          kMostWorkspace >> 20);
  } catch (const cuda::CudnnError& e) {
    if (!e.declines()) fail_with(p, e);  // nothing is kept: the next call may find memory
    plan->declined = std::string("cuDNN declines: ") + e.what();
  }
  if (session.plans.size() >= kMaxPlans) session.plans.clear();
  return session.plans[std::move(key)] = plan;
}

std::shared_ptr<const Plan> plan_of(const ConvProblem& p) {
  const cuda::DeviceGuard guard(p.device);
  Session& session = session_of(p.device);
  const std::lock_guard lock(session.mutex);
  return plan_of(session, p);
}

}  // namespace

std::string cudnn_why_not(const ConvProblem& p) {
  if (!cuda::cudnn().missing.empty()) return cuda::cudnn().missing;
  return sums_nothing(p) ? std::string() : plan_of(p)->declined;
}

std::string cudnn_note(const ConvProblem& p) {
  const auto plan = plan_of(p);
  const size_t version = cuda::cudnn().GetVersion();
  return core::text("cuDNN {}.{}.{} engine {}, {} bytes of workspace", version / 10000, version / 100 % 100,
                    version % 100, plan->engine, plan->workspace);
}

void cuda_vendor_run(const ConvProblem& p) {
  const cuda::DeviceGuard guard(p.device);
  const auto plan = plan_of(p);
  // Before the session's mutex is held: an allocator of the caller's may wait for locks of its own.
  const Tensor workspace = plan->workspace ? Tensor::empty({plan->workspace}, uint8, p.device) : Tensor();
  const cudaStream_t stream = current_stream(p.device).handle;
  Session& session = session_of(p.device);
  {
    const std::lock_guard lock(session.mutex);
    if (cuda::capture_of(stream) != 0) session.captured.insert(plan);
    try {
      std::vector<int64_t> names = {kInput, kWeight, kOutput};
      std::vector<void*> data = {p.input.data, p.weight.data, p.output.data};
      if (p.bias) names.push_back(kBias), data.push_back(const_cast<char*>(p.bias));
      void* const space = plan->workspace ? workspace.raw() : nullptr;
      const auto count = static_cast<int64_t>(names.size());
      CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
      pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, names.data());
      pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, data.data());
      pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &space);
      pack.finalize();
      check_cudnn(cuda::cudnn().SetStream(session.handle, stream), "cudnnSetStream");
      check_cudnn(cuda::cudnn().BackendExecute(session.handle, plan->plan.get(), pack.get()), "cudnnBackendExecute");
    } catch (const cuda::CudnnError& e) {
      fail_with(p, e);
    }
  }
  cuda_mend(p, true);
}

}  // namespace tenor::conv

#endif
