// The vendor candidate on CUDA: cuDNN's graph of a convolution, and of the addition of a bias.
//
// The library is opened at run time (src/cuda/cudnn.h), so that Tenor loads where there is none. What a problem asks of
// it is kept as a plan: the heuristics' first engine that will do (conv_cudnn_engines_cuda.cpp), or, with autotuning
// on, the one that was measured to be the fastest of those that will do.
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
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "src/core/modes.h"
#include "src/core/text.h"
#include "src/core/tuning.h"
#include "src/cuda/capture.h"
#include "src/cuda/runtime.h"
#include "src/ops/conv/conv_cudnn.h"
#include "src/ops/conv/conv_launch.h"
#include "tenor/tensor.h"

namespace tenor::conv {
namespace {

using cuda::check_cudnn;
using cuda::CudnnDescriptor;
using PlanPtr = std::shared_ptr<const CudnnPlan>;

constexpr size_t kMaxPlans = 1024;  // beyond, the cache starts anew
constexpr double kForever = std::numeric_limits<double>::infinity();
constexpr size_t kMostMeasured = 16;  // engines of each mode of the heuristics; what they name later is slow

const char* op_of(const ConvProblem& p) {
  constexpr const char* kOps[] = {"conv_forward", "conv_data_backward", "conv_weight_backward"};
  return kOps[static_cast<int>(p.direction)];
}

/// What failed, in the contract's classes.
[[noreturn]] void fail_with(const ConvProblem& p, const cuda::CudnnError& e) {
  if (e.out_of_memory()) core::fail<OutOfMemoryError>("{}: {}", op_of(p), e.what());
  core::fail<CudaError>("{}: {}", op_of(p), e.what());
}

/// cuDNN's handle of a device, made on its first use, with what has to hold while it is used.
struct Session {
  using Key = std::pair<std::vector<int64_t>, std::string>;  ///< the problem, and the engine's name or ""
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  std::map<Key, PlanPtr> plans;
  std::set<PlanPtr> captured;  ///< kept for good: graphs launch kernels of modules that plans own
};
Session& session_of(Device device) {
  static std::mutex mutex;
  static auto* sessions = new std::map<int, std::unique_ptr<Session> >;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Session>& session = (*sessions)[device.index];
  if (!session) session = std::make_unique<Session>();
  return *session;
}

/// The handle of a session whose mutex is held, on its device.
cudnnHandle_t handle_of(Session& session) {
  if (!session.handle) check_cudnn(cuda::cudnn().Create(&session.handle), "cudnnCreate");
  return session.handle;
}

/// The engine of that name, or the first that will do for "".
PlanPtr first_plan(Session& session, const ConvProblem& p, const std::string& engine) {
  const cudnnHandle_t handle = handle_of(session);
  const CudnnDescriptor graph = cudnn_graph(handle, p);
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK}) {
    if (engine.empty() && mode == CUDNN_HEUR_MODE_B) continue;  // takes longer to ask, and is no better at it
    const auto wanted = [&](const std::string& name) { return engine.empty() || name == engine; };
    if (auto plans = cudnn_plans(handle, p, graph, mode, 1, wanted); !plans.empty()) return plans[0];
  }
  return nullptr;
}

Session::Key key_of(const ConvProblem& p, const std::string& engine) {
  Session::Key key{numbers_of(p), engine};
  for (const void* data : {p.input.data, p.weight.data, p.output.data}) key.first.push_back(cudnn_alignment(data));
  key.first.push_back(core::tf32_allowed());
  return key;
}

/// Of a session whose mutex is held, on its device. An engine that does not take the problem any more, as where an
/// operand lies at a lesser alignment than in the problem that was measured, makes room for the usual one.
PlanPtr plan_of(Session& session, const ConvProblem& p, const std::string& engine) {
  Session::Key key = key_of(p, engine);
  if (const auto found = session.plans.find(key); found != session.plans.end()) return found->second;
  const cuda::RelaxedCapture relaxed;
  PlanPtr plan;
  try {
    plan = first_plan(session, p, engine);
    if (!plan && !engine.empty()) plan = plan_of(session, p, {});
    if (!plan)
      plan = std::make_shared<CudnnPlan>(
          CudnnPlan{.declined = core::text("cuDNN has no engine for it that adds in a fixed order, in the compute "
                                           "type, without transforms, within {} "
                                           "MiB of workspace",
                                           kMostWorkspace >> 20)});
  } catch (const cuda::CudnnError& e) {
    if (!e.declines()) fail_with(p, e);  // nothing is kept: the next call may find memory
    plan = std::make_shared<CudnnPlan>(CudnnPlan{.declined = std::string("cuDNN declines: ") + e.what()});
  }
  if (session.plans.size() >= kMaxPlans) session.plans.clear();
  return session.plans[std::move(key)] = plan;
}

PlanPtr plan_of(const ConvProblem& p, const std::string& engine) {
  const cuda::DeviceGuard guard(p.device);
  Session& session = session_of(p.device);
  const std::lock_guard lock(session.mutex);
  return plan_of(session, p, engine);
}

/// What tuning measures, the usual engine first.
std::vector<PlanPtr> rival_plans(const ConvProblem& p) {
  std::vector<PlanPtr> rivals = {plan_of(p, {})};
  if (!rivals[0]->declined.empty()) return {};
  const cuda::DeviceGuard guard(p.device);
  Session& session = session_of(p.device);
  const std::lock_guard lock(session.mutex);
  const cuda::RelaxedCapture relaxed;
  try {
    const CudnnDescriptor graph = cudnn_graph(session.handle, p);
    std::set<std::string> names = {rivals[0]->name};
    for (const cudnnBackendHeurMode_t mode :
         {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B})  // fallbacks take 1000 times as long
      for (PlanPtr& plan : cudnn_plans(session.handle, p, graph, mode, kMostMeasured,
                                       [&](const std::string& name) { return names.insert(name).second; }))
        rivals.push_back(std::move(plan));
  } catch (const cuda::CudnnError& e) {
    if (!e.declines()) fail_with(p, e);
  }
  return rivals;
}

/// Runs a plan on the problem's device, which is current.
/// @throws cuda::CudnnError
void execute(const ConvProblem& p, const PlanPtr& plan, void* space) {
  const cudaStream_t stream = current_stream(p.device).handle;
  Session& session = session_of(p.device);
  const std::lock_guard lock(session.mutex);
  if (cuda::capture_of(stream) != 0) session.captured.insert(plan);
  std::vector<int64_t> names = {kInput, kWeight, kOutput};
  std::vector<void*> data = {p.input.data, p.weight.data, p.output.data};
  if (p.bias) names.push_back(kBias), data.push_back(const_cast<char*>(p.bias));
  const auto count = static_cast<int64_t>(names.size());
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, names.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, data.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &space);
  pack.finalize();
  check_cudnn(cuda::cudnn().SetStream(session.handle, stream), "cudnnSetStream");
  check_cudnn(cuda::cudnn().BackendExecute(session.handle, plan->plan.get(), pack.get()), "cudnnBackendExecute");
}

/// @throws cuda::CudnnError
void run_plan(const ConvProblem& p, const PlanPtr& plan) {
  const cuda::DeviceGuard guard(p.device);
  // Before the session's mutex is held: an allocator of the caller's may wait for locks of its own.
  const Tensor workspace = plan->workspace ? Tensor::empty({plan->workspace}, uint8, p.device) : Tensor();
  execute(p, plan, plan->workspace ? workspace.raw() : nullptr);
  cuda_mend(p, true);
}

const std::string& version_text() {
  static const size_t version = cuda::cudnn().GetVersion();
  static const std::string text = core::text("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  return text;
}

/// What a plan takes, or infinity for an engine that declines only now.
double time_of(const ConvProblem& p, const PlanPtr& plan, double give_up) try {
  return core::time_call([&] { run_plan(p, plan); }, give_up, p.device);
} catch (const cuda::CudnnError& e) {
  if (!e.declines()) fail_with(p, e);
  return kForever;
}

/// Times the engines and keeps what they took. The fastest is put first, so that it is the one remembered: with a usual
/// one preferred here, and again where this candidate stands beside others, up to 6 % would be given away.
void measure_engines(const ConvProblem& p, const std::string& key) {
  const std::vector<PlanPtr> rivals = rival_plans(p);
  std::vector<std::pair<std::string, double> > times;
  for (const PlanPtr& plan : rivals) times.emplace_back(plan->name, kForever);
  double best = kForever;
  for (int round = 0; round < 3; ++round)  // in turn, so that a slow moment of the machine meets them all
    for (size_t i = 0; i < rivals.size(); ++i) {
      double& time = times[i].second;
      if (round > 0 && time > 1.2 * best) continue;  // it will not win any more
      time = std::min(time, time_of(p, rivals[i], 2 * best));
      best = std::min(best, time);
    }
  Session& session = session_of(p.device);
  for (size_t i = 0; i < rivals.size(); ++i)
    if (times[i].second == best) {  // the others make room
      const std::lock_guard lock(session.mutex);
      session.plans[key_of(p, rivals[i]->name)] = rivals[i];
      break;
    }
  std::erase_if(times, [](const auto& t) { return t.second == kForever; });
  std::stable_sort(times.begin(), times.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  core::remember_tuning(op_of(p), key, std::move(times), p.device);
}

/// With autotuning on, the engine measured to be the fastest; "" where none is known, and `may_run` is false or the
/// device's current stream is captured.
std::string tuned_engine(const ConvProblem& p, bool may_run) {
  if (!autotuning() || p.groups > 1) return {};  // some engines put zeros where other groups' channels are
  const std::string key = version_text() + "'s engine: " + words_of(p);
  core::TuningLog::add(op_of(p), key);
  auto winner = core::tuned_winner(op_of(p), key, p.device);
  if (!winner && may_run && core::may_measure(p.device)) {
    const core::MeasuringLock lock;
    winner = core::tuned_winner(op_of(p), key, p.device);  // another thread may have measured it
    if (!winner) measure_engines(p, key);
    winner = core::tuned_winner(op_of(p), key, p.device);
  }
  return winner.value_or("");
}

}  // namespace

std::string cudnn_why_not(const ConvProblem& p) {
  if (!cuda::cudnn().missing.empty()) return cuda::cudnn().missing;
  return sums_nothing(p) ? std::string() : plan_of(p, {})->declined;
}

std::string cudnn_note(const ConvProblem& p) {
  const auto plan = plan_of(p, tuned_engine(p, false));
  return core::text("{} engine {}, {} bytes of workspace", version_text(), plan->name.substr(0, plan->name.find(' ')),
                    plan->workspace);
}

void cuda_vendor_run(const ConvProblem& p) {
  try {
    run_plan(p, plan_of(p, tuned_engine(p, true)));
  } catch (const cuda::CudnnError& e) {
    fail_with(p, e);
  }
}

}  // namespace tenor::conv

#endif
