// Errors: every failure is an exception derived from tenor::Error, thrown before anything is written.
// The text names the operator, the argument, what was expected and what came:
// "attention: key has 3 heads, which does not divide query's 8".
#pragma once

#include <stdexcept>
#include <string>

namespace tenor {

/// Base of every exception that Tenor throws.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Sizes that do not fit together, or a view that the strides do not allow.
class ShapeError : public Error {
 public:
  using Error::Error;
};

/// A dtype that the operator does not take, or two that do not combine.
class DTypeError : public Error {
 public:
  using Error::Error;
};

/// Arguments on different devices, or on one that this build does not serve.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// An option value, step, count, k or scalar out of its range; a repeated dim; an out= that cannot be written.
class ValueError : public Error {
 public:
  using Error::Error;
};

/// A dim or an index out of range.
class IndexError : public Error {
 public:
  using Error::Error;
};

/// A valid request that the named strategy, this build or this device does not serve.
class UnsupportedError : public Error {
 public:
  using Error::Error;
};

/// No memory for a result or a workspace.
class OutOfMemoryError : public Error {
 public:
  using Error::Error;
};

/// The CUDA driver or runtime refused a call.
class CudaError : public Error {
 public:
  using Error::Error;
};

}  // namespace tenor
