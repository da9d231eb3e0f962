#include "src/core/text.h"

// The one file that compiles {fmt}'s formatting itself, so that the library needs no libfmt at run time.
#define FMT_HEADER_ONLY
#include <fmt/format.h>

namespace tenor {

namespace core {
std::string vtext(fmt::string_view format, fmt::format_args args) {
  fmt::memory_buffer buffer;
  fmt::detail::vformat_to(buffer, format, args);
  return {buffer.data(), buffer.size()};
}
}  // namespace core

std::string to_string(Device device) {
  switch (device.type) {
    case DeviceType::kCpu: return "cpu";
    case DeviceType::kCuda: return "cuda:" + std::to_string(device.index);
    case DeviceType::kMeta: return "meta";
  }
  return "unknown";
}

}  // namespace tenor
