#include "src/ops/ctc/ctc_checks.h"

#include "src/core/numeric.h"
#include "src/core/visit.h"

namespace tenor::ctc {

using core::fail;

void check_log_probs(const char* op, const Tensor& log_probs, int64_t blank) {
  core::check_float(op, {"log_probs", log_probs});
  core::check_ndim(op, {"log_probs", log_probs}, 3);
  const int64_t classes = log_probs.shape(2);
  if (blank < 0 || blank >= classes)
    fail<ValueError>("{}: blank must be one of log_probs' {} classes, 0 to {}, got {}", op, classes, classes - 1,
                     blank);
}

void check_lengths(const char* op, const char* name, const CtcLengths& lengths, const Tensor& log_probs) {
  const int64_t samples = log_probs.shape(1);
  if (lengths.numbers) {
    const auto count = static_cast<int64_t>(lengths.numbers->size());
    if (count != samples)
      fail<ShapeError>("{}: {} must hold {} lengths, one a sample of log_probs, got {}", op, name, samples, count);
    return;
  }
  core::check_index_dtype(op, {name, lengths.array});
  core::check_shape(op, {name, lengths.array}, {samples});
  core::check_same_device(op, {{"log_probs", log_probs}, {name, lengths.array}});
}

bool on_host(const CtcLengths& lengths) { return lengths.numbers || lengths.array.device() == kCpu; }

int64_t integer_at(const Tensor& x, int64_t i) {
  return core::visit_integer(x.dtype(), [&]<class T>() {
    const T value = x.data<T>()[i * x.stride(0)];
    if constexpr (std::is_same_v<T, uint64_t>)
      if (value > uint64_t{INT64_MAX}) return INT64_MAX;
    return static_cast<int64_t>(value);
  });
}

std::vector<int64_t> read_lengths(const char* op, const char* name, const CtcLengths& lengths, int64_t most) {
  std::vector<int64_t> values;
  if (lengths.numbers)
    values = *lengths.numbers;
  else
    for (int64_t i = 0; i < lengths.array.shape(0); ++i) values.push_back(integer_at(lengths.array, i));
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i] < 0 || values[i] > most)
      fail<ValueError>("{}: {} must be 0 to {}, got {} at {}", op, name, most, values[i], i);
  return values;
}

}  // namespace tenor::ctc
