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

std::string printable(std::string_view value) {
  constexpr size_t kMost = 1000, kShown = 200;
  if (value.size() <= kMost) return std::string(value);
  size_t end = kShown;
  while (end > 0 && (value[end] & 0xC0) == 0x80) --end;  // not within a character of UTF-8
  return std::string(value.substr(0, end)) + "... (" + std::to_string(value.size()) + " bytes)";
}

std::string printable(const Dims& dims) {
  constexpr size_t kMost = 128, kShown = 16;
  if (dims.size() <= kMost) return to_string(dims);
  std::string s = to_string(Dims(dims.begin(), dims.begin() + kShown));
  s.pop_back();
  return s + ", ... " + std::to_string(dims.size()) + " entries)";
}

}  // namespace core

std::string to_string(Device device) {
  switch (device.type) {
    case DeviceType::kCpu:
      return "cpu";
    case DeviceType::kCuda:
      return "cuda:" + std::to_string(device.index);
    case DeviceType::kMeta:
      return "meta";
  }
  return "unknown";
}

}  // namespace tenor
