#include "src/fusion/cpu_pick.h"

#include <cstring>

#include "src/cpu/parallel.h"

namespace tenor::fusion {
namespace {

/// A run along the innermost dim.
struct Line {
  int64_t count, table_step, index_step, to_step, place_stride;
};

template <class T>
void pick_elements(const char* table, const int64_t* index, char* to, const Line& line) {
  const T* from = reinterpret_cast<const T*>(table);
  T* out = reinterpret_cast<T*>(to);
  for (int64_t i = 0; i < line.count; ++i)
    out[i * line.to_step] = from[i * line.table_step + index[i * line.index_step] * line.place_stride];
}

void pick_line(const char* table, const int64_t* index, char* to, const Line& line, size_t item) {
  if (line.index_step == 0 && line.table_step == 1 && line.to_step == 1) {
    const auto bytes = static_cast<int64_t>(item);
    std::memcpy(to, table + *index * line.place_stride * bytes, static_cast<size_t>(line.count * bytes));
    return;
  }
  switch (item) {
    case 1:
      return pick_elements<uint8_t>(table, index, to, line);
    case 2:
      return pick_elements<uint16_t>(table, index, to, line);
    case 4:
      return pick_elements<uint32_t>(table, index, to, line);
    default:
      return pick_elements<uint64_t>(table, index, to, line);
  }
}

}  // namespace

void pick(const PickBlock& b) {
  const size_t rank = b.shape.size();
  const size_t inner = rank == 0 ? 0 : rank - 1;
  const Line line = rank == 0 ? Line{1, 0, 0, 0, b.place_stride}
                              : Line{b.shape[inner], b.table_strides[inner], b.index_strides[inner],
                                     b.to_strides[inner], b.place_stride};
  int64_t lines = 1;
  for (size_t d = 0; d < inner; ++d) lines *= b.shape[d];
  const auto item = static_cast<int64_t>(b.item);
  cpu::parallel_for(lines, cpu::grain_of(2 * line.count * item), [&](int64_t first, int64_t last) {
    for (int64_t l = first; l < last; ++l) {
      int64_t rest = l, table = 0, index = 0, to = 0;
      for (size_t d = inner; d-- > 0;) {
        const int64_t at = rest % b.shape[d];
        rest /= b.shape[d];
        table += at * b.table_strides[d], index += at * b.index_strides[d], to += at * b.to_strides[d];
      }
      pick_line(b.table + table * item, b.index + index, b.to + to * item, line, b.item);
    }
  });
}

}  // namespace tenor::fusion
