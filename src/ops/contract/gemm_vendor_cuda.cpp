// The vendor candidate on CUDA: cuBLASLt.
//
// The library is opened at run time (src/cuda/cublaslt.h), so that Tenor loads where there is none. What a problem asks
// of it is kept as a plan: layouts, and the heuristic's first algorithm among those that add partial sums in a fixed
// order and in the compute type. cuBLASLt counts columns first: c^T = b^T a^T.
#include "src/ops/contract/gemm_cuda_candidates.h"
#include "src/ops/contract/gemm_kernels.h"

#if TENOR_HAS_CUDA && !__has_include(<cublasLt.h>)

namespace tenor::contract {
std::string cublaslt_why_not(const GemmProblem&) { return "this build had no cublasLt.h"; }
void cuda_vendor_run(const GemmProblem&) {}
}  // namespace tenor::contract

#elif TENOR_HAS_CUDA

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "src/core/modes.h"
#include "src/core/text.h"
#include "src/cuda/capture.h"
#include "src/cuda/cublaslt.h"
#include "src/cuda/runtime.h"

namespace tenor::contract {
namespace {

using cuda::CublasLt;

constexpr size_t kMaxPlans = 4096;               // beyond, the cache starts anew
constexpr size_t kWorkspace = size_t{32} << 20;  // the most that an algorithm may ask for

/// Bytes that the pointer is a multiple of, as far as algorithms care.
uint32_t alignment_of(const void* p) {
  return 1u << std::min(std::countr_zero(reinterpret_cast<uintptr_t>(p) | 256), 8);
}

using Key = std::array<int64_t, 24>;
struct KeyHash {
  size_t operator()(const Key& key) const {
    size_t h = 1469598103934665603ull;
    for (int64_t v : key) h = (h ^ static_cast<size_t>(v)) * 1099511628211ull;
    return h;
  }
};

/// Everything that a plan depends on.
Key key_of(const GemmProblem& p) {
  Key key = {p.device.index, p.m, p.n, p.k, batch_of(p), p.bias != nullptr, core::tf32_allowed()};
  size_t at = 7;
  for (const Matrix* x : {&p.a, &p.b, &p.c})
    for (int64_t v : {static_cast<int64_t>(x->dtype), x->row, x->col, batch_stride(*x), int64_t{alignment_of(x->data)}})
      key[at++] = v;
  return key;
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return CUDA_R_64F;
    case DType::kFloat16:
      return CUDA_R_16F;
    case DType::kBFloat16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    core::fail<CudaError>("matmul: {} failed with status {}", what, static_cast<int>(status));
}

template <class Handle>
using Held = std::unique_ptr<std::remove_pointer_t<Handle>, cublasStatus_t (*)(Handle)>;

struct Plan {
  std::string declined;  // why cuBLASLt has nothing for the problem
  cublasLtMatmulAlgo_t algorithm;
  size_t workspace = 0;
  Held<cublasLtMatrixLayout_t> a{nullptr, nullptr}, b{nullptr, nullptr}, c{nullptr, nullptr};
};

Held<cublasLtMatmulDesc_t> operation_of(const CublasLt& lt, const GemmProblem& p) {
  const bool wide = p.compute == DType::kFloat64;
  const cublasComputeType_t compute = wide ? CUBLAS_COMPUTE_64F
                                      : p.a.dtype == DType::kFloat32 && core::tf32_allowed()
                                          ? CUBLAS_COMPUTE_32F_FAST_TF32
                                          : CUBLAS_COMPUTE_32F;
  cublasLtMatmulDesc_t made = nullptr;
  check(lt.MatmulDescCreate(&made, compute, wide ? CUDA_R_64F : CUDA_R_32F), "cublasLtMatmulDescCreate");
  Held<cublasLtMatmulDesc_t> operation(made, lt.MatmulDescDestroy);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    check(lt.MatmulDescSetAttribute(made, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  };
  // cuBLASLt's A is b^T, its B is a^T.
  set(CUBLASLT_MATMUL_DESC_TRANSA, operand_of(p.b, p.k, p.n).transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, operand_of(p.a, p.m, p.k).transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.bias_dtype));
  }
  return operation;
}

Held<cublasLtMatrixLayout_t> layout_of(const CublasLt& lt, const Matrix& x, int64_t rows, int64_t cols, int64_t batch) {
  const Operand operand = operand_of(x, rows, cols);
  cublasLtMatrixLayout_t made = nullptr;
  check(lt.MatrixLayoutCreate(&made, type_of(x.dtype), static_cast<uint64_t>(operand.transposed ? rows : cols),
                              static_cast<uint64_t>(operand.transposed ? cols : rows), operand.lead),
        "cublasLtMatrixLayoutCreate");
  Held<cublasLtMatrixLayout_t> layout(made, lt.MatrixLayoutDestroy);
  const int32_t count = static_cast<int32_t>(batch);
  const int64_t step = batch_stride(x);
  check(lt.MatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
        "cublasLtMatrixLayoutSetAttribute");
  check(lt.MatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step),
        "cublasLtMatrixLayoutSetAttribute");
  return layout;
}

/// What an algorithm may do: any in one piece, or split over k with the parts added in order, in the compute type.
Held<cublasLtMatmulPreference_t> preference_of(const CublasLt& lt, const GemmProblem& p) {
  cublasLtMatmulPreference_t made = nullptr;
  check(lt.MatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
  Held<cublasLtMatmulPreference_t> preference(made, lt.MatmulPreferenceDestroy);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(lt.MatmulPreferenceSetAttribute(made, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspace});
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.b.data));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.a.data));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.c.data));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.c.data));
  return preference;
}

std::shared_ptr<const Plan> make_plan(const CublasLt& lt, cublasLtHandle_t handle, const GemmProblem& p) {
  auto plan = std::make_shared<Plan>();
  const int64_t batch = batch_of(p);
  plan->a = layout_of(lt, p.b, p.k, p.n, batch), plan->b = layout_of(lt, p.a, p.m, p.k, batch),
  plan->c = layout_of(lt, p.c, p.m, p.n, batch);
  const auto operation = operation_of(lt, p);
  cublasLtMatmulHeuristicResult_t choice{};
  int found = 0;
  const cublasStatus_t status =
      lt.MatmulAlgoGetHeuristic(handle, operation.get(), plan->a.get(), plan->b.get(), plan->c.get(), plan->c.get(),
                                preference_of(lt, p).get(), 1, &choice, &found);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0 || choice.state != CUBLAS_STATUS_SUCCESS) {
    plan->declined = core::text("cuBLASLt has no algorithm for it (status {})", static_cast<int>(status));
  }
  plan->algorithm = choice.algo, plan->workspace = choice.workspaceSize;
  return plan;
}

/// cuBLASLt's handle of a device, made on its first use.
cublasLtHandle_t handle_of(const CublasLt& lt, Device device) {
  static std::mutex mutex;
  static auto* handles = new std::map<int, cublasLtHandle_t>;
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = (*handles)[device.index];
  if (!handle) {
    const cuda::RelaxedCapture relaxed;
    check(lt.Create(&handle), "cublasLtCreate");
  }
  return handle;
}

std::shared_ptr<const Plan> plan_of(const CublasLt& lt, const GemmProblem& p) {
  static std::mutex mutex;
  static auto* plans = new std::unordered_map<Key, std::shared_ptr<const Plan>, KeyHash>;
  const Key key = key_of(p);
  {
    const std::lock_guard lock(mutex);
    if (const auto found = plans->find(key); found != plans->end()) return found->second;
  }
  const cuda::DeviceGuard guard(p.device);
  const auto plan = make_plan(lt, handle_of(lt, p.device), p);
  const std::lock_guard lock(mutex);
  if (plans->size() >= kMaxPlans) plans->clear();
  return plans->emplace(key, plan).first->second;
}

/// The problem's first part: all of them have its shape.
GemmProblem first_part(GemmProblem p) {
  while (p.batch.size() > 1) {
    const size_t d = static_cast<size_t>(std::min_element(p.batch.begin(), p.batch.end()) - p.batch.begin());
    p.batch.erase(d);
    for (Matrix* x : {&p.a, &p.b, &p.c}) x->batch.erase(d);
  }
  return p;
}

void run_part(const CublasLt& lt, const GemmProblem& p) {
  const auto plan = plan_of(lt, p);
  if (!plan->declined.empty()) return cuda_simple_run(p);  // a part less aligned than the first
  const Tensor workspace =
      plan->workspace ? Tensor::empty({static_cast<int64_t>(plan->workspace)}, uint8, p.device) : Tensor();
  const auto operation = operation_of(lt, p);
  const double one = 1, zero = 0;
  const float one_f = 1, zero_f = 0;
  const bool wide = p.compute == DType::kFloat64;
  const cudaStream_t stream = current_stream(p.device).handle;
  check(lt.Matmul(handle_of(lt, p.device), operation.get(), wide ? static_cast<const void*>(&one) : &one_f, p.b.data,
                  plan->a.get(), p.a.data, plan->b.get(), wide ? static_cast<const void*>(&zero) : &zero_f, p.c.data,
                  plan->c.get(), p.c.data, plan->c.get(), &plan->algorithm, plan->workspace ? workspace.raw() : nullptr,
                  plan->workspace, stream),
        "cublasLtMatmul");
}

}  // namespace

std::string cublaslt_why_not(const GemmProblem& p) {
  const CublasLt& lt = cuda::cublaslt();
  if (!lt.missing.empty()) return lt.missing;
  return plan_of(lt, first_part(p))->declined;
}

void cuda_vendor_run(const GemmProblem& p) {
  const cuda::DeviceGuard guard(p.device);
  for_each_part(p, 1, [](const GemmProblem& part) { run_part(cuda::cublaslt(), part); });
}

}  // namespace tenor::contract

#endif
