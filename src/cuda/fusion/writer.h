// What the writers of kernels share: names, types and the text of one step.
#pragma once

#include <functional>
#include <sstream>
#include <string>

#include "src/cuda/fusion/generate.h"

namespace tenor::cuda {

/// The C++ type that holds an element.
std::string type_of(DType dtype);

/// The arguments, one after the other, as text.
template <class... Args>
std::string joined(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

/// Writes the steps of one program.
class Writer {
 public:
  Writer(const fusion::Program& program, const Walk& walk);

  /// The value of an instruction that is no load and no reduction. `name` gives the text of a register, `width` how
  /// many elements the value's pack holds.
  std::string step(int instruction, const std::function<std::string(int)>& name, const std::string& width) const;
  /// The elements of gather `instruction`: `table` and `entries` are the texts of where its first element and its
  /// first entry lie, `named` that of the entries' pack.
  std::string gather(int instruction, const std::string& table, const std::string& entries, const std::string& named,
                     const std::string& width) const;
  /// Where the kernel's parameter has the flags that gathers raise: bytes.
  std::vector<size_t> flags() const;
  /// Another scalar, 0 until the launch: its number.
  int reserve_scalar();
  /// Where the kernel's parameter has a scalar: bytes.
  size_t place_of_scalar(int slot) const;
  /// A step's scalar.
  std::string scalar(int instruction) const;

  /// The type of the kernel's parameter, and its bytes but for the pointers.
  std::string parameters_type() const;
  struct Counts {
    int64_t count = 0, tail = 0, length = 0, each = 0;
    int width = 1;  ///< elements of a unit: by which the size of `dim` is divided
    int dim = -1;   ///< -1: the innermost
  };
  std::vector<char> parameters(const Counts& counts) const;

  /// "int" or "int64_t".
  std::string index() const { return walk_.is_wide() ? "int64_t" : "int"; }
  /// A pointer to array `a`'s first element.
  std::string pointer(int a) const;
  /// at = sum of the coordinates `c<d>` of dims [from, to) times the strides of array `a`, as text; "0" where there are
  /// none.
  std::string offset(int a, int from, int to) const;
  /// Lines that split `at` over dims [from, to) into coordinates `c<d>`.
  std::string coordinates(const std::string& at, int from, int to) const;

 private:
  std::string input(int instruction, size_t i, const std::string& value) const;
  std::string formula(int instruction) const;

  const fusion::Program& program_;
  const Walk& walk_;
  std::vector<uint64_t> scalars_;
  std::vector<int> slot_;  // of each instruction's first scalar
};

}  // namespace tenor::cuda
