// Recipes of calls that are traced.
#pragma once

#include "src/core/step.h"

namespace tenor::core {

/// recipe(again) where somebody listens, else none: what `again` captures is copied for nobody otherwise.
template <class F>
std::shared_ptr<const Recipe> traced_recipe(const F& again) {
  return current_tracer ? recipe(again) : nullptr;
}

}  // namespace tenor::core
