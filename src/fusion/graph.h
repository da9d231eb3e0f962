// The dataflow of recorded steps: which contents of which storage a step reads and makes.
#pragma once

#include <map>
#include <vector>

#include "src/core/step.h"
#include "src/fusion/axes.h"

namespace tenor::fusion {

/// What a step is to a fusing compiler.
enum class Kind : uint8_t {
  kView,    ///< nothing runs
  kLoop,    ///< elementwise, and copies that only reorder
  kReduce,  ///< a reduction that states its dims
  kGather,  ///< a read at places that data names
  kJoin,    ///< arrays laid side by side
  kOther,   ///< all else: contractions, scans, sorts, row operators, writes at places that data names
};

/// The contents of a storage from one write to the next.
struct Value {
  int producer = -1;              ///< the step that wrote it; -1: it came from outside
  int previous = -1;              ///< the value that an in-place step wrote over
  Tensor made = {};               ///< as its step made it, or the first that was seen of it
  std::vector<int> readers = {};  ///< steps but views, in order
  bool is_output = false;
  bool stays = false;  ///< an in-place step writes over a part of it, so the rest is needed in memory
};

/// An input or output of a step.
struct Place {
  int value;
  Tensor tensor;  ///< the layout in which it is seen
  Axes axes = {};
};

struct Node {
  const core::Step* step;
  Kind kind;
  std::vector<Place> inputs, outputs;
  std::set<int> after = {};  ///< steps that must run before: their results are read, or what they read is written over
  bool in_place = false;
};

class Graph {
 public:
  /// `outputs`: what the traced function returned; `inputs`: what it was given, so that what is first seen of one may
  /// be a write to it. The steps must outlive the graph.
  Graph(const std::vector<core::Step>& steps, const std::vector<Tensor>& outputs,
        const std::vector<Tensor>& inputs = {});

  std::vector<Node> nodes;
  std::vector<Value> values;
  AxisTable axes;

 private:
  int value_of(const Tensor& x);
  Place seen(const Tensor& x);
  void add_input(Node& node, const Tensor& x, int index);
  void add_output(Node& node, const Tensor& x, int index);
  Axes axes_of(int value, const Tensor& x);
  Axes axes_made(const Node& node, const Tensor& out);
  Axes fresh_axes(const Tensor& x);

  std::map<const Storage*, int> current_;
  std::map<std::pair<int, std::vector<int64_t>>, Axes> known_;  // by value and layout
};

/// Whether two tensors of one storage show the same elements in the same order.
bool same_layout(const Tensor& a, const Tensor& b);

}  // namespace tenor::fusion
