#include "src/cuda/fusion/executor.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "src/core/text.h"
#include "src/cuda/fill.h"
#include "src/cuda/fusion/generate.h"
#include "src/cuda/runtime.h"
#include "src/cuda/runtime_kernel.h"
#include "tenor/error.h"

namespace tenor::cuda {
namespace {

// As prelude/runtime.cuh has it.
static_assert(offsetof(ContentError, op) == 4 && offsetof(ContentError, position) == 8 &&
              offsetof(ContentError, value) == 16 && sizeof(ContentError) == 24);

constexpr int kMostParameterBytes = 4000;  // what every driver takes
/// Local memory that a formula may want by itself: the slow path of sin and its like.
constexpr int kLocalBytes = 128;

/// Long programs take few elements a thread: what counts there is arithmetic, and the time to compile.
int widest(const fusion::Program& program) {
  return program.code.size() <= 64 ? 8 : program.code.size() <= 128 ? 4 : 2;
}

class FusedExecutable final : public fusion::Executable {
 public:
  FusedExecutable(const fusion::Program& program, FusedKernel kernel, std::shared_ptr<const RuntimeKernel> compiled,
                  Device device)
      : name_("fused " + program.name), kernel_(std::move(kernel)), compiled_(std::move(compiled)), device_(device) {
    for (const WalkArray& a : kernel_.arrays) bytes_.push_back(a.offset * static_cast<int64_t>(item_size(a.dtype)));
  }

  void run(const std::vector<void*>& arguments, int& /*failed*/) const override {
    alignas(16) char parameters[kMostParameterBytes];
    std::memcpy(parameters, kernel_.parameters.data(), kernel_.parameters.size());
    for (size_t a = 0; a < kernel_.arrays.size(); ++a) {
      const char* data =
          static_cast<const char*>(arguments[static_cast<size_t>(kernel_.arrays[a].argument)]) + bytes_[a];
      std::memcpy(parameters + a * sizeof(void*), &data, sizeof(void*));
    }
    if (!kernel_.flags.empty()) {
      const ContentError* flag = content_error(current_stream(device_));
      for (size_t at : kernel_.flags) std::memcpy(parameters + at, &flag, sizeof(flag));
    }
    Tensor scratch;
    if (kernel_.scratch > 0) {
      const auto bytes = static_cast<int64_t>(kernel_.scratch), zeros = static_cast<int64_t>(kernel_.counters);
      scratch = Tensor::empty({bytes}, uint8, device_);
      const uint8_t zero = 0;
      fill(scratch.with_layout({zeros}, {1}, 0), &zero);
      const void* address = scratch.raw();
      std::memcpy(parameters + kernel_.scratch_at, &address, sizeof(address));
    }
    compiled_->launch(name_.c_str(), kernel_.blocks, kernel_.threads, device_, parameters);
  }

 private:
  std::string name_;
  FusedKernel kernel_;
  std::shared_ptr<const RuntimeKernel> compiled_;
  Device device_;
  std::vector<int64_t> bytes_;  // from an argument's pointer to each array
};

}  // namespace

std::string cuda_declines(const fusion::Program& program) {
  if (const std::string why = why_not_fused(program); !why.empty()) return why;
  return parameter_bytes(program) > kMostParameterBytes ? "it has more arrays and scalars than a kernel is told of"
                                                        : "";
}

std::shared_ptr<const fusion::Executable> compile_fused(const fusion::Program& program, Device device) {
  if (const std::string why = cuda_declines(program); !why.empty()) core::fail<UnsupportedError>("fuse: {}", why);
  FusedOptions options{.most_width = widest(program)};
  FusedKernel kernel = generate_kernel(program, options);
  auto compiled = runtime_kernel(kernel.text, "fused", prelude(), device);
  while (compiled->facts().local_bytes > kLocalBytes && options.most_width > 1) {
    if (!std::exchange(options.hold, false)) options.most_width /= 2;
    FusedKernel smaller = generate_kernel(program, options);
    if (smaller.text == kernel.text) continue;
    auto again = runtime_kernel(smaller.text, "fused", prelude(), device);
    if (again->facts().local_bytes >= compiled->facts().local_bytes) continue;
    kernel = std::move(smaller);
    compiled = std::move(again);
  }
  return std::make_shared<FusedExecutable>(program, std::move(kernel), std::move(compiled), device);
}

}  // namespace tenor::cuda
