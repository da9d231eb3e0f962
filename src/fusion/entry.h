// What fused functions of C++ and of Python share: the key of a compilation, and whether one may be used.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/core/device_traits.h"
#include "src/fusion/compiled.h"

namespace tenor::fusion {

/// False while TENOR_FUSE=0 is in the environment.
bool enabled();

/// While it lives, traced shapes stand for the device of these inputs: strategies and epilogues are that device's.
class TracedDevice {
 public:
  explicit TracedDevice(const std::vector<Tensor>& inputs);

 private:
  std::optional<core::TraitsGuard> guard_;
};

/// Shapes, strides, dtypes, devices and alignments, and the modes that a plan depends on.
std::vector<int64_t> layout_key(const std::vector<Tensor>& inputs);

/// Refuses a step that runs on memory: of arrays that the function holds itself, whose next values no trace knows.
/// Called as the step is stated, so nothing is written. @throws UnsupportedError
void refuse_held(const core::Step& step);
/// The same for a result. @throws UnsupportedError
void refuse_held_result(const Tensor& x);
/// The same for reading an element. @throws UnsupportedError
void refuse_held_value(const Tensor& x);

/// Keys that are kept of one function: with more, all are made again.
inline constexpr size_t kMaxEntries = 1024;

/// What is known of a function for one key: how it runs, or why it runs as it is written.
struct Entry {
  std::shared_ptr<const Compiled> compiled = {};
  std::string reason = {};

  /// Empty where these inputs, of the entry's key, can take the compiled form.
  std::string why_not(const std::vector<Tensor>& inputs) const;
  /// Whether the function may be called once more where the compiled form threw: nothing that it reads has been
  /// written, and the error is of this call (on CUDA it may be of an earlier one).
  bool may_run_again(const std::vector<Tensor>& inputs) const;
};

/// Traces and compiles. What the function throws while it is traced becomes the entry's reason, and so does what cannot
/// be compiled (UnsupportedError); a compiler or a device that fails does not. `fast`: as Compiled has it.
/// @throws OutOfMemoryError; CudaError
Entry compile(const std::function<Trace()>& trace, const std::vector<Tensor>& inputs, bool fast);

}  // namespace tenor::fusion
