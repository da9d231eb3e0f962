// What reads at places that one index array names, and joins, tell fusion.
#pragma once

#include <functional>
#include <memory>

#include "src/core/step.h"

namespace tenor::index {

/// Which elements come out: those of the table whose coordinate in `dim` is an entry of the index.
struct GatherForm {
  const char* op;        ///< a literal, as the next: for errors of the index's entries
  const char* argument;  ///< the index's name
  size_t table, index;   ///< which inputs they are
  int dim;               ///< of the table, from 0
  bool along;  ///< the index has the table's dims, and an entry an element; else its dims stand in place of dim
};

class GatherRecipe final : public core::Recipe {
 public:
  using Run = std::function<void(const std::vector<Tensor>&, const std::vector<Tensor>&)>;
  GatherRecipe(const GatherForm& form, Run run) : form(form), run_(std::move(run)) {}
  void run(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) const override {
    run_(inputs, outputs);
  }

  const GatherForm form;

 private:
  Run run_;
};

/// cat and stack: the inputs, laid side by side along `dim` of the result.
class JoinRecipe final : public core::Recipe {
 public:
  JoinRecipe(int dim, bool stacks, GatherRecipe::Run run) : dim(dim), stacks(stacks), run_(std::move(run)) {}
  void run(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) const override {
    run_(inputs, outputs);
  }

  const int dim;
  const bool stacks;  ///< the inputs do not have dim

 private:
  GatherRecipe::Run run_;
};

inline std::shared_ptr<const core::Recipe> gather_recipe(const GatherForm& form, GatherRecipe::Run run) {
  return std::make_shared<GatherRecipe>(form, std::move(run));
}

}  // namespace tenor::index
