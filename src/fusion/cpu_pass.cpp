#include "src/fusion/cpu_pass.h"

#include <mutex>

namespace tenor::fusion {
namespace {

const cpu::Converter* converter(DType from, DType to) {
  static std::mutex mutex;
  static std::map<std::pair<DType, DType>, cpu::Converter> all;
  const std::lock_guard lock(mutex);
  return &all.try_emplace({from, to}, from, to).first->second;
}

void convert_step(const void* const* in, void* out, size_t n, const void* params) {
  (*static_cast<const cpu::Converter*>(params))(in[0], out, n);
}

}  // namespace

/// The register that holds the value as `dtype`.
int PassBuilder::get(int value, DType dtype) {
  const auto key = std::pair(value, dtype);
  if (const auto found = registers_.find(key); found != registers_.end()) return found->second;
  const auto own = computed_.find(value);
  if (own == computed_.end() && homes_[static_cast<size_t>(value)].kind == Home::Kind::kNone) {
    compute(value, true);  // of this pass, or a cheap one that is made again
    return get(value, dtype);
  }
  if (own == computed_.end()) return registers_[key] = input(value, dtype);
  return registers_[key] = convert(own->second, steps_[static_cast<size_t>(own->second)].dtype, dtype);
}

/// Takes the value from a table, where it has one.
bool PassBuilder::look_up(int value) {
  const int root = tables_ ? finder_.root_of(value, [&](int v) { return computed_.count(v) > 0; }) : -1;
  if (root < 0) return false;
  const DType dtype = p_.code[static_cast<size_t>(value)].dtype;
  const uint16_t* table = pass_.tables.emplace_back(make_table(p_, value, root))->data();
  const int in = get(root, p_.code[static_cast<size_t>(root)].dtype);
  computed_[value] = add({fusion::look_up, table, {in}, 1, dtype, dtype});
  registers_[{value, dtype}] = computed_[value];
  return true;
}

void PassBuilder::compute(int value, bool read_again) {
  if (look_up(value)) return;
  const Instruction& made = p_.code[static_cast<size_t>(value)];
  if (made.kind == Instruction::Kind::kConvert) {
    const DType from = p_.code[static_cast<size_t>(made.inputs[0])].dtype;
    const int in = get(made.inputs[0], from);
    computed_[value] = convert(in, from, made.dtype);
    registers_[{value, made.dtype}] = computed_[value];
    return;
  }
  cpu::TileStep step{made.map.fn,
                     made.map.has_params ? made.map.params.data() : nullptr,
                     {},
                     0,
                     made.map.computed,
                     read_again ? made.dtype : made.map.computed};
  for (size_t i = 0; i < made.inputs.size(); ++i) step.inputs[step.arity++] = get(made.inputs[i], made.map.compute[i]);
  computed_[value] = add(step);
  registers_[{value, made.map.computed}] = computed_[value];
}

void PassBuilder::store(int value, const Home& to) {
  const auto own = computed_.find(value);
  const DType dtype = p_.code[static_cast<size_t>(value)].dtype;
  const int from = own != computed_.end() ? own->second : get(value, dtype);
  const DType held = own != computed_.end() ? steps_[static_cast<size_t>(from)].dtype : dtype;
  outputs_.push_back({from, held});
  pass_.outputs.push_back({value, to});
}

/// Registers are numbered inputs first: known once all inputs are.
Pass PassBuilder::finish() {
  const int inputs = static_cast<int>(inputs_.size());
  const auto number = [&](int r) { return r < kInput ? inputs + r : r - kInput; };
  cpu::TileProgram& tiles = pass_.tiles;
  for (cpu::TileStep step : steps_) {
    for (int i = 0; i < step.arity; ++i) step.inputs[i] = number(step.inputs[i]);
    tiles.steps.push_back(step);
  }
  for (const auto& [port, dtype] : inputs_) {
    pass_.inputs.push_back(port);
    tiles.inputs.push_back(operand(port, dtype));
  }
  for (size_t o = 0; o < outputs_.size(); ++o) {
    tiles.outputs.push_back(operand(pass_.outputs[o], outputs_[o].second));
    tiles.stored.push_back(number(outputs_[o].first));
  }
  tiles.cost = cost_;
  return std::move(pass_);
}

cpu::TileOperand PassBuilder::operand(const Port& port, DType compute) const {
  cpu::TileOperand made{nullptr, {}, p_.code[static_cast<size_t>(port.value)].dtype, compute};
  for (size_t a : pass_.axes) made.strides.push_back(port.home.strides[a]);
  return made;
}

int PassBuilder::input(int value, DType dtype) {
  inputs_.push_back({{value, homes_[static_cast<size_t>(value)]}, dtype});
  return kInput + static_cast<int>(inputs_.size()) - 1;
}

int PassBuilder::convert(int from, DType has, DType dtype) {
  if (has == dtype) return from;
  cost_ += 1;
  return add({convert_step, converter(has, dtype), {from}, 1, dtype, dtype}, 0);
}

int PassBuilder::add(const cpu::TileStep& step, int64_t cost) {
  cost_ += cost;
  steps_.push_back(step);
  return static_cast<int>(steps_.size()) - 1;
}

}  // namespace tenor::fusion
