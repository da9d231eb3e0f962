#include "src/core/check.h"
#include "src/ops/paged/paged_plan.h"

namespace tenor::paged {
namespace {

using core::fail;
constexpr const char* kOp = "paged.HostPlan";

int64_t used_pages(int64_t length, int64_t page_size) { return length / page_size + (length % page_size != 0); }

void check_table(const std::vector<int64_t>& table, size_t s, int64_t length, int64_t page_size, int64_t pages) {
  if (length < 0) fail<ValueError>("{}: lengths[{}] is {}, expected 0 or more", kOp, s, length);
  if (length > kMostKeys) fail<ValueError>("{}: lengths[{}] is {}, expected at most {}", kOp, s, length, kMostKeys);
  const auto used = static_cast<size_t>(used_pages(length, page_size));
  if (table.size() < used)
    fail<ValueError>("{}: tables[{}] has {} pages, but lengths[{}] = {} needs {}", kOp, s, table.size(), s, length,
                     used);
  for (size_t i = 0; i < used; ++i)  // what lies behind may hold anything
    if (table[i] < 0 || table[i] >= pages)
      fail<IndexError>("{}: tables[{}][{}] is page {}, expected 0 to {}", kOp, s, i, table[i], pages - 1);
}

void check_row(size_t i, int64_t sequence, int64_t position, int64_t sequences) {
  if (sequence < -1 || sequence >= sequences)
    fail<IndexError>("{}: sequence_ids[{}] is {}, expected 0 to {}, or -1 for a padding row", kOp, i, sequence,
                     sequences - 1);
  if (sequence < 0) return;
  if (position < 0) fail<IndexError>("{}: positions[{}] is {}, expected 0 or more", kOp, i, position);
  if (position > kMostKeys)
    fail<IndexError>("{}: positions[{}] is {}, expected at most {}", kOp, i, position, kMostKeys);
}

}  // namespace

HostPlan::HostPlan(int64_t page_size, int64_t pages, std::vector<std::vector<int64_t>> tables,
                   std::vector<int64_t> lengths, std::vector<int64_t> sequence_ids, std::vector<int64_t> positions)
    : page_size_(page_size),
      pages_(pages),
      tables_(std::make_shared<const std::vector<std::vector<int64_t>>>(std::move(tables))),
      lengths_(std::move(lengths)),
      sequence_ids_(std::move(sequence_ids)),
      positions_(std::move(positions)) {
  if (page_size_ < 1 || page_size_ > kMostKeys)
    fail<ValueError>("{}: page_size is {}, expected 1 to {}", kOp, page_size_, kMostKeys);
  if (pages_ < 0 || pages_ > kMostKeys) fail<ValueError>("{}: pages is {}, expected 0 to {}", kOp, pages_, kMostKeys);
  if (tables_->size() != lengths_.size())
    fail<ValueError>("{}: tables holds {} sequences, but lengths {}", kOp, tables_->size(), lengths_.size());
  if (sequence_ids_.size() != positions_.size())
    fail<ValueError>("{}: sequence_ids has {} rows, but positions {}", kOp, sequence_ids_.size(), positions_.size());
  for (size_t s = 0; s < tables_->size(); ++s) check_table((*tables_)[s], s, lengths_[s], page_size_, pages_);
  for (size_t i = 0; i < positions_.size(); ++i) check_row(i, sequence_ids_[i], positions_[i], sequences());
}

int64_t HostPlan::pages_per_sequence() const {
  int64_t most = 0;
  for (int64_t length : lengths_) most = std::max(most, used_pages(length, page_size_));
  return most;
}

std::vector<int32_t> words_of(const HostPlan& host, const Capacity& size) {
  std::vector<int32_t> words(static_cast<size_t>(size.sequences * (size.pages_per_sequence + 1) + 2 * size.queries), 0);
  int32_t* at = words.data();
  for (int64_t s = 0; s < host.sequences(); ++s, at += size.pages_per_sequence) {
    const int64_t used = used_pages(host.lengths()[s], host.page_size());
    for (int64_t i = 0; i < used; ++i) at[i] = static_cast<int32_t>(host.tables()[s][i]);
  }
  at = words.data() + size.sequences * size.pages_per_sequence;
  for (int64_t s = 0; s < host.sequences(); ++s) at[s] = static_cast<int32_t>(host.lengths()[s]);
  at += size.sequences;
  std::fill(at, at + size.queries, -1);
  for (int64_t i = 0; i < host.queries(); ++i) {
    const int64_t s = host.sequence_ids()[i];
    at[i] = static_cast<int32_t>(s);
    at[size.queries + i] = s < 0 ? 0 : static_cast<int32_t>(host.positions()[i]);
  }
  return words;
}

}  // namespace tenor::paged
