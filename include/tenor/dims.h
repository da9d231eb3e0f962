// Dims: a short list of 64-bit sizes, strides, dims or counts; eight of them live without an allocation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

namespace tenor {

/// A small vector of int64, used for shapes, strides (in elements) and lists of dims.
class Dims {
 public:
  static constexpr size_t kInline = 8;

  Dims() = default;
  Dims(std::initializer_list<int64_t> values) : Dims(values.begin(), values.end()) {}
  Dims(const std::vector<int64_t>& values) : Dims(values.begin(), values.end()) {}
  explicit Dims(size_t count, int64_t value) {
    resize(count);
    std::fill(begin(), end(), value);
  }
  template <std::input_iterator It>
  Dims(It first, It last) {
    for (; first != last; ++first) push_back(static_cast<int64_t>(*first));
  }
  Dims(const Dims& other) { assign(other.begin(), other.size_); }
  Dims(Dims&& other) noexcept { steal(other); }
  Dims& operator=(const Dims& other) {
    if (this != &other) assign(other.begin(), other.size_);
    return *this;
  }
  Dims& operator=(Dims&& other) noexcept {
    if (this != &other) steal(other);
    return *this;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t* begin() { return heap_ ? heap_.get() : inline_; }
  int64_t* end() { return begin() + size_; }
  const int64_t* begin() const { return heap_ ? heap_.get() : inline_; }
  const int64_t* end() const { return begin() + size_; }
  int64_t* data() { return begin(); }
  const int64_t* data() const { return begin(); }
  int64_t& operator[](size_t i) { return begin()[i]; }
  int64_t operator[](size_t i) const { return begin()[i]; }
  int64_t& back() { return begin()[size_ - 1]; }
  int64_t back() const { return begin()[size_ - 1]; }

  void push_back(int64_t value) {
    if (size_ == capacity_) grow(capacity_ * 2);
    begin()[size_++] = value;
  }
  void pop_back() { --size_; }
  void resize(size_t count, int64_t value = 0) {
    if (count > capacity_) grow(count);
    for (size_t i = size_; i < count; ++i) begin()[i] = value;
    size_ = count;
  }
  void insert(size_t at, int64_t value) {
    push_back(value);
    std::rotate(begin() + at, end() - 1, end());
  }
  void erase(size_t at) {
    std::copy(begin() + at + 1, end(), begin() + at);
    --size_;
  }
  void clear() { size_ = 0; }

  friend bool operator==(const Dims& a, const Dims& b) {
    return a.size_ == b.size_ && std::equal(a.begin(), a.end(), b.begin());
  }

 private:
  void assign(const int64_t* from, size_t count) {
    if (count > capacity_) grow(count);
    std::copy(from, from + count, begin());
    size_ = count;
  }
  void steal(Dims& other) {
    heap_ = std::move(other.heap_);
    size_ = other.size_;
    capacity_ = heap_ ? other.capacity_ : kInline;
    if (!heap_) std::copy(other.inline_, other.inline_ + size_, inline_);
    other.size_ = 0;
    other.capacity_ = kInline;
  }
  void grow(size_t capacity);

  size_t size_ = 0;
  size_t capacity_ = kInline;
  int64_t inline_[kInline];
  std::unique_ptr<int64_t[]> heap_;
};

/// The product of the sizes; 1 for no dims.
inline int64_t product(const Dims& sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return n;
}

/// "(2, 3)", as Python writes a tuple of it.
std::string to_string(const Dims& dims);

}  // namespace tenor
