// What a program must keep, whoever runs it.
#pragma once

#include <string>

#include "src/fusion/program.h"

namespace tenor::fusion {

/// Whether two instructions of one program give the same value.
bool same_value(const Instruction& a, const Instruction& b);

/// Why running the program point by point could go wrong: an array that is written while it is still read elsewhere,
/// results that do not fill the space. Empty where it is safe.
std::string why_not_safe(const Program& program);

}  // namespace tenor::fusion
