// The list of operators, filled at load time by the families: what `tenor ops`, `strategies()` and the docs are made of.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/step.h"

namespace tenor::core {

/// What an operator says of itself.
struct OpInfo {
  const char* name;
  const char* family;
  OpClass op_class;
  const char* formula;                        ///< one line, shapes included
  std::vector<std::string> strategies = {};   ///< named ones, best first; empty where there is only one
};

/// Registers at load time: `const OpRegistration kOps({{"softmax", "norm", OpClass::kReduction, "..."}});`
class OpRegistration {
 public:
  OpRegistration(std::initializer_list<OpInfo> infos);
};

/// Every operator, by name.
std::vector<OpInfo> operators();
/// Adds one (for families whose operators are rows of a table).
void register_operator(const OpInfo& info);

}  // namespace tenor::core
