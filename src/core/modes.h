// Per-thread modes that operators consult.
#pragma once

#include "tenor/modes.h"

namespace tenor::core {

/// Whether batch_invariant() is in force on this thread.
bool batch_invariant();
/// Whether plain TF32 may be used on this thread.
bool tf32_allowed();

}  // namespace tenor::core
