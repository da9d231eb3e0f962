// Errors that are raised while a function is traced on shapes, and would not be raised with data. A trace asks
// afterwards whether there were any, since the function may have caught one and gone another way.
#pragma once

#include <string>

#include "src/core/text.h"

namespace tenor::core {

struct Untraceable {
  int64_t count = 0;
  std::string last = {};  ///< its text
};
/// Of this thread.
inline Untraceable& untraceable() {
  thread_local Untraceable all;
  return all;
}

/// Throws E with that text, and counts it.
template <class E, class... Args>
[[noreturn]] void fail_untraceable(const char* format, const Args&... args) {
  untraceable().last = text(format, args...);
  ++untraceable().count;
  throw E(untraceable().last);
}

}  // namespace tenor::core
