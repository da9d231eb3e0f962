// The tile program of a pass, put together instruction by instruction.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "src/fusion/cpu_layout.h"
#include "src/fusion/cpu_table.h"

namespace tenor::fusion {

class PassBuilder {
 public:
  /// `homes`: where each value lies, by instruction; values without one are computed in the passes that read them.
  /// `tables`: whether results may be looked up in tables.
  PassBuilder(const Program& program, const std::vector<Home>& homes, const std::vector<size_t>& axes,
              bool tables = true)
      : p_(program), homes_(homes), finder_(program, homes), tables_(tables) {
    pass_.axes = axes;
  }

  /// Computes the value here; `read_again`: steps of this pass read it, and must see it rounded.
  void compute(int value, bool read_again);
  void store(int value, const Home& to);
  Pass finish();

 private:
  static constexpr int kInput = 1 << 20;  // what marks inputs until they are counted

  int get(int value, DType dtype);
  bool look_up(int value);
  int input(int value, DType dtype);
  int convert(int from, DType has, DType dtype);
  int add(const cpu::TileStep& step, int64_t cost = 4);
  cpu::TileOperand operand(const Port& port, DType compute) const;

  const Program& p_;
  const std::vector<Home>& homes_;
  TableFinder finder_;
  bool tables_;
  Pass pass_;
  std::map<std::pair<int, DType>, int> registers_;  // by value and dtype
  std::map<int, int> computed_;                     // values of this pass
  std::vector<cpu::TileStep> steps_;
  std::vector<std::pair<Port, DType>> inputs_;
  std::vector<std::pair<int, DType>> outputs_;
  int64_t cost_ = 0;
};

}  // namespace tenor::fusion
