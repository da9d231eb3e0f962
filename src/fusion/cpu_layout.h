// A fused kernel on the CPU, taken apart: passes of the tile engine over parts of the iteration space, and reductions
// between them. Where rows are reduced, all passes run over one block of rows after the other, so that what passes
// between them stays in a core's cache.
#pragma once

#include <memory>
#include <vector>

#include "src/cpu/move.h"
#include "src/cpu/tile.h"
#include "src/fusion/program.h"

namespace tenor::fusion {

/// Where values lie while a kernel runs.
struct Home {
  enum class Kind : uint8_t {
    kNone,      ///< in registers of one pass only
    kArgument,  ///< an argument
    kShared,    ///< scratch of the whole run
    kBlock,     ///< scratch of a block of rows
    kElement,   ///< one element that the kernel holds
  };
  Kind kind = Kind::kNone;
  int argument = -1;
  int64_t offset = 0;  ///< elements; of scratch bytes
  Dims strides = {};   ///< elements, one an axis
};

/// An operand of a pass.
struct Port {
  int value;  ///< the instruction
  Home home;
};

/// The results of a function of 16 bits, for every pattern.
using Table = std::shared_ptr<const std::vector<uint16_t>>;

/// Elementwise steps over some axes.
struct Pass {
  std::vector<size_t> axes;  ///< in the order of loops
  std::vector<Port> inputs, outputs;
  cpu::TileProgram tiles;          ///< all but the pointers and, in blocks, the sizes
  std::vector<Table> tables = {};  ///< which its steps look into
};

/// A reduction of a value that lies somewhere.
struct Fold {
  const Instruction* made;
  int value;                 ///< what it reads
  bool squares;              ///< its squares meet
  std::vector<size_t> kept;  ///< axes that its result varies along
  Home from, to;
};

/// Elements of a table that an index names, put side by side.
struct Pick {
  const Instruction* made;
  std::vector<size_t> axes;  ///< along which they vary, in the order of loops
  size_t index;              ///< which of the layout's
  Home to;
};

/// What runs, in this order.
struct Stage {
  enum class Kind : uint8_t { kPass, kFold, kPick };
  Kind kind = Kind::kPass;
  Pass pass = {};
  Fold fold = {};
  Pick pick = {};
};

struct CpuLayout {
  std::vector<const Instruction*> indices;  ///< a gather of each index: checked before anything runs
  std::vector<Stage> shared, blocked;       ///< once; for each block of rows
  std::vector<size_t> order;                ///< axes, the slowest in memory first
  Dims box;                                 ///< sizes of a block: of reduced axes all
  int64_t blocks = 1;
  int64_t shared_bytes = 0, block_bytes = 0;
  int64_t block_cost = 0;  ///< about the bytes of traffic that a block is worth
};

/// The program must outlive the layout.
CpuLayout lay_out(const Program& program);

}  // namespace tenor::fusion
