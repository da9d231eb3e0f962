// The errors that Tenor has raised in Python, by thread: a trace looks whether the function caught one.
#pragma once

#include <cstdint>
#include <string>

namespace tenor::python {

struct Raised {
  int64_t count = 0;
  std::string last;  ///< its text
};
inline Raised& raised() {
  thread_local Raised all;
  return all;
}

}  // namespace tenor::python
