// Error texts: {fmt}'s formatting behind one function, so that no other file compiles more than its light core header.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

#include "tenor/device.h"
#include "tenor/dims.h"
#include "tenor/dtype.h"

namespace tenor::core {

std::string vtext(fmt::string_view format, fmt::format_args args);

inline const auto& printable(const auto& value) { return value; }
/// A caller's text or list may be of any length; the error that shows it is for reading.
std::string printable(std::string_view value);
inline std::string printable(const std::string& value) { return printable(std::string_view(value)); }
inline std::string printable(const char* value) { return printable(std::string_view(value)); }
std::string printable(const Dims& dims);
inline std::string printable(Device device) { return to_string(device); }
inline std::string printable(DType dtype) { return std::string(name(dtype)); }

/// text("{}: got {}", op, shape): {fmt} syntax; Dims, DType and Device print as in Python.
template <class... Args>
std::string text(const char* format, const Args&... args) {
  return [&](const auto&... shown) { return vtext(format, fmt::make_format_args(shown...)); }(printable(args)...);
}

/// Throws E with that text.
template <class E, class... Args>
[[noreturn]] void fail(const char* format, const Args&... args) {
  throw E(text(format, args...));
}

}  // namespace tenor::core
