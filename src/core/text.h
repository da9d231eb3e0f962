// Error texts: {fmt}'s formatting behind one function, so that no other file compiles more than its light core header.
#pragma once

#include <fmt/core.h>

#include <string>

#include "tenor/device.h"
#include "tenor/dims.h"
#include "tenor/dtype.h"

namespace tenor::core {

std::string vtext(fmt::string_view format, fmt::format_args args);

inline const auto& printable(const auto& value) { return value; }
inline std::string printable(const Dims& dims) { return to_string(dims); }
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
