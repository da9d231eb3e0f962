// The passes that a kernel with reductions makes over what it reduces: which values each of them needs.
#pragma once

#include <vector>

#include "src/cuda/fusion/walk.h"

namespace tenor::cuda {

class Passes {
 public:
  Passes(const fusion::Program& program, const Walk& walk);

  const fusion::Instruction& code(int i) const { return program_.code[static_cast<size_t>(i)]; }
  int count() const { return static_cast<int>(program_.code.size()); }
  bool is_reduce(int i) const { return code(i).kind == fusion::Instruction::Kind::kReduce; }
  /// Whether it varies along what is reduced.
  bool in_row(int i) const { return walk_.varies_in_row(i); }
  /// Passes that reduce; one more stores.
  int reducing() const { return reducing_; }
  /// The first pass in which a value is known; folded by a reduction in it, the total is known in the next.
  int first(int i) const { return first_[static_cast<size_t>(i)]; }
  /// Whether store s has many places along what is reduced.
  bool stores_row(size_t s) const;
  bool stores_rows() const;
  /// What pass `pass` computes along it: for the reductions that it folds, and for the stores at the end.
  std::vector<bool> needed(int pass) const;
  /// What the value of instruction i takes along it.
  std::vector<bool> needed_for(int i) const;

 private:
  void add_inputs(std::vector<bool>& needed) const;

  const fusion::Program& program_;
  const Walk& walk_;
  int reducing_ = 0;
  std::vector<int> first_;
};

}  // namespace tenor::cuda
