// What kind of error a kernel's finding becomes when the host reads the flag. An index out of range, unless said here.
#pragma once

#include <cstdint>

namespace tenor::cuda {

enum class ContentKind : uint8_t { kIndex, kValue, kShape };

/// As content_op() of runtime.h, for a finding of another kind. `text` follows "operator: argument" and has {0} where
/// the value and {1} where the position stands.
int content_op(const char* op, const char* argument, ContentKind kind,
               const char* text = " holds {0} at position {1}, which is out of range");

/// The same id at every call, for names that are literals: an operator's that is one of several.
int named_content_op(const char* op, const char* argument, ContentKind kind = ContentKind::kIndex);

}  // namespace tenor::cuda
