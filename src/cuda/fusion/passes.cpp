#include "src/cuda/fusion/passes.h"

#include <algorithm>

namespace tenor::cuda {

Passes::Passes(const fusion::Program& program, const Walk& walk) : program_(program), walk_(walk) {
  first_.assign(program.code.size(), 0);
  for (int i = 0; i < count(); ++i) {
    int& own = first_[static_cast<size_t>(i)];
    for (int input : code(i).inputs) own = std::max(own, first(input) + (is_reduce(input) ? 1 : 0));
    reducing_ = std::max(reducing_, own + (is_reduce(i) ? 1 : 0));
  }
}

bool Passes::stores_row(size_t s) const {
  const Dims& stride = walk_.arrays[static_cast<size_t>(walk_.loads) + s].stride;
  return std::find_if(stride.begin() + walk_.kept, stride.end(), [](int64_t n) { return n != 0; }) != stride.end();
}

bool Passes::stores_rows() const {
  for (size_t s = 0; s < program_.stores.size(); ++s)
    if (stores_row(s)) return true;
  return false;
}

void Passes::add_inputs(std::vector<bool>& needed) const {
  for (int i = count(); i-- > 0;) {
    const auto at = static_cast<size_t>(i);
    needed[at] = needed[at] && in_row(i);
    if (!needed[at] || is_reduce(i)) continue;
    for (int input : code(i).inputs) needed[static_cast<size_t>(input)] = true;
  }
}

std::vector<bool> Passes::needed(int pass) const {
  std::vector<bool> all(program_.code.size(), false);
  for (int i = 0; i < count(); ++i)
    if (is_reduce(i) && first(i) == pass) all[static_cast<size_t>(code(i).inputs[0])] = true;
  for (size_t s = 0; s < program_.stores.size() && pass == reducing_; ++s)
    if (stores_row(s)) all[static_cast<size_t>(program_.stores[s].value)] = true;
  add_inputs(all);
  return all;
}

std::vector<bool> Passes::needed_for(int i) const {
  std::vector<bool> all(program_.code.size(), false);
  all[static_cast<size_t>(i)] = true;
  add_inputs(all);
  return all;
}

}  // namespace tenor::cuda
