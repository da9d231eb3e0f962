// fast=True: what a contraction takes with it. A kernel that is one chain of elementwise steps on a product's result
// becomes the product's epilogue (src/ops/contract/epilogue.h): the sum stays in float32 from step to step and is
// rounded once, where it is stored.
#pragma once

#include <string>
#include <vector>

#include "src/fusion/graph.h"
#include "src/ops/contract/epilogue.h"

namespace tenor::fusion {

struct TakenEpilogue {
  std::string reason = {};  ///< why the product does not take those steps; empty where it does
  contract::Epilogue chain = {};
  std::vector<Tensor> operands = {};  ///< traced, of the product's shape; their storages are the values'
  Tensor out = {};                    ///< likewise: where the chain's result goes

  /// The product's own recipe. Of a step without such a one: null.
  static const contract::ProductRecipe* recipe_of(const core::Step& step);
};

/// `steps`: those of a kernel that reads the result of step `product`, views aside.
TakenEpilogue take_epilogue(const Graph& graph, int product, const std::vector<int>& steps);

/// The one contraction among the steps of a kernel that a plan gave others; -1 where there is none.
int product_of(const Graph& graph, const std::vector<int>& steps);

}  // namespace tenor::fusion
