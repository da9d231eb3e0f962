#include "src/ops/attention/attention_keys.h"

#include <cstring>

#include "src/core/visit.h"

namespace tenor::attn {
namespace {

/// One operand of the keys: a plane, the stride between its pages, and the elements of a row.
struct Part {
  const Plane& plane;
  int64_t page, dim;
};

/// Where key j's row starts, in elements; `offset` is the segment's.
int64_t place_of(const Problem& p, const Segment& s, const Part& part, int64_t offset, int64_t kv_head, int64_t j) {
  const int64_t head = offset + kv_head * part.plane.head;
  if (p.pages.size == 0) return head + j * part.plane.row;
  return head + s.table[j / p.pages.size] * part.page + j % p.pages.size * part.plane.row;
}

bool in_one_run(const Problem& p, int64_t j, int64_t n) {
  return p.pages.size == 0 || j / p.pages.size == (j + n - 1) / p.pages.size;
}

Rows run_of(const Problem& p, const Segment& s, const Part& part, int64_t offset, int64_t kv_head, int64_t j) {
  const auto size = static_cast<int64_t>(item_size(part.plane.dtype));
  return {static_cast<const char*>(part.plane.data) + place_of(p, s, part, offset, kv_head, j) * size, part.plane.row,
          part.plane.col};
}

/// Copies the rows of a part to columns [column, column + dim) of buffer's rows of `width`.
void gather(const Problem& p, const Segment& s, const Part& part, int64_t kv_head, int64_t j, int64_t n, void* buffer,
            int64_t column, int64_t width) {
  core::visit_size(part.plane.dtype, [&]<class T>() {
    T* to = static_cast<T*>(buffer) + column;
    for (int64_t i = 0; i < n; ++i, to += width) {
      const T* from = static_cast<const T*>(run_of(p, s, part, 0, kv_head, j + i).from);
      if (part.plane.col == 1) {
        std::memcpy(to, from, static_cast<size_t>(part.dim) * sizeof(T));
      } else {
        for (int64_t c = 0; c < part.dim; ++c) to[c] = from[c * part.plane.col];
      }
    }
  });
}

}  // namespace

int64_t gathered_bytes(const Problem& p, int64_t n) {
  return p.pages.size == 0 ? 0 : n * std::max(p.dim, p.value_dim) * static_cast<int64_t>(item_size(p.k.dtype));
}

Rows key_rows(const Problem& p, const Segment& s, int64_t kv_head, int64_t j, int64_t n, void* buffer) {
  const Part keys{p.k, p.pages.k, p.dim - p.pages.tail_dim}, tail{p.pages.tail, p.pages.tail_page, p.pages.tail_dim};
  if (tail.dim == 0 && in_one_run(p, j, n)) return run_of(p, s, keys, s.k, kv_head, j);
  gather(p, s, keys, kv_head, j, n, buffer, 0, p.dim);
  if (tail.dim > 0) gather(p, s, tail, kv_head, j, n, buffer, keys.dim, p.dim);
  return {buffer, p.dim, 1};
}

Rows value_rows(const Problem& p, const Segment& s, int64_t kv_head, int64_t j, int64_t n, void* buffer) {
  const Part values{p.v, p.pages.v, p.value_dim};
  if (in_one_run(p, j, n)) return run_of(p, s, values, s.v, kv_head, j);
  gather(p, s, values, kv_head, j, n, buffer, 0, p.value_dim);
  return {buffer, p.value_dim, 1};
}

}  // namespace tenor::attn
