// SPDX-License-Identifier: MIT
// How the kernels for a few rows fetch a large matrix from memory, which sets their pace.
#pragma once

#include <cstdint>

#include "kernels.hpp"
#include "simd.hpp"

namespace rocpy_host::gemm {
namespace {

// Far ahead means into the second cache: what went to the innermost one would be gone again.
ROCPY_INLINE void fetch_far(const void *at) { __builtin_prefetch(at, 0, 2); }

// Columns before the first that begin a line of the cache, as the same ones do in all rows; 0 where there are none
// such. Blocks that are whole lines are each read once, while others share a line with their neighbours: between those
// its set of the innermost cache takes in the lines of all rows, if they are a page apart.
template <class T, class E>
int64_t columns_before_line(const WideCall<T> &call) {
  constexpr int64_t size = sizeof(E), line = 64;
  const int64_t beyond = static_cast<int64_t>(reinterpret_cast<uintptr_t>(call.b) % line);
  if (call.b_stride * size % line != 0 || beyond % size != 0 || beyond == 0) return 0;
  const int64_t columns = (line - beyond) / size;
  return columns < call.n ? columns : call.n;
}

// Fetches the lines of the next call in the order in which they lie in memory while those of this one are used,
// whatever the order of that: memory delivers what follows one another at up to twice the rate of what is a row apart,
// and the hardware knows nothing of the next call. Beyond the end of a row are the columns of another task.
template <class E>
class LinesAhead {
 public:
  template <class T>
  explicit LinesAhead(const WideCall<T> &call)
      : at_(reinterpret_cast<const char *>(static_cast<const E *>(call.b) + call.k * call.b_stride)),
        end_(at_ + call.n * size),
        apart_(call.b_stride * size),
        length_(call.n * size) {}
  // The lines of dots after the first so many.
  template <class T>
  LinesAhead(const DotCall<T> &call, int64_t lines)
      : at_(reinterpret_cast<const char *>(static_cast<const E *>(call.b) + lines * call.b_stride)),
        end_(at_ + call.k * size),
        apart_(call.b_stride * size),
        length_(call.k * size) {}

  // While so many elements are used: as many of the next call.
  template <int elements>
  ROCPY_INLINE void fetch() {
    ROCPY_UNROLL
    for (int64_t byte = 0; byte < elements * size; byte += 64) fetch_far(at_ + byte);
    at_ += elements * size;
    if (at_ < end_) return;
    end_ += apart_;
    at_ = end_ - length_;
  }
  // While so many columns of lines side by side are used.
  template <int columns>
  ROCPY_INLINE void fetch_side_by_side(const E *, int64_t) {
    fetch<columns * lines_side_by_side>();
  }

 private:
  static constexpr int64_t size = sizeof(E);
  const char *at_, *end_;
  int64_t apart_, length_;
};

// Fetches all lines of a call some columns ahead, at their ends the next call's from their beginning on. Between lines
// that are read side by side this is faster for several rows with many registers, measured on EPYCs of the fourth
// generation.
template <class E>
class ColumnsAhead {
 public:
  template <class T>
  explicit ColumnsAhead(const WideCall<T> &call)
      : length_(call.n * size),
        next_(call.k * call.b_stride * size - length_ + (length_ < far ? length_ : far)),
        stride_(call.b_stride) {}

  template <int columns>
  ROCPY_INLINE void fetch_side_by_side(const E *b, int64_t j) const {
    if (j * size % 64 != 0) return;
    if (length_ - j * size <= far) return fetch_at<columns>(b + j, next_);
    // A constant, which is part of the addresses that are read.
    fetch_at<columns>(b + j, far);
  }

 private:
  template <int columns>
  ROCPY_INLINE void fetch_at(const E *b, int64_t ahead) const {
    ROCPY_UNROLL
    for (int x = 0; x < lines_side_by_side; x++) {
      ROCPY_UNROLL
      for (int64_t byte = 0; byte < columns * size; byte += 64) {
        fetch_far(reinterpret_cast<const char *>(b + x * stride_) + ahead + byte);
      }
    }
  }

  static constexpr int64_t size = sizeof(E), far = 2048;
  int64_t length_, next_, stride_;
};

// How far ahead of its use a line of dots is fetched, in bytes.
template <class E>
constexpr int64_t dot_ahead = sizeof(E) > 1 ? 4096 : 2048;

// Fetches some bytes ahead in each line of dots, at its end in a line of the next ones. But for one row the hardware
// follows eight lines by itself as far as a page of memory goes; of shorter ones the next ones are fetched in order. Of
// 16 bits that takes longer, as it does for several rows.
template <class T, class E, int rows, int columns>
class DotsAhead {
 public:
  explicit DotsAhead(const DotCall<T> &call)
      : lines_(call, columns), length_(call.k * size), next_((columns * call.b_stride - call.k) * size + far) {}

  // While so many elements of all the lines are used.
  template <int elements>
  ROCPY_INLINE void fetch() {
    if constexpr (in_order) {
      if (length_ < page) lines_.template fetch<elements * columns>();
    }
  }
  // While elements of one of the lines are used, from its x-th on.
  ROCPY_INLINE void fetch_in(const E *line, int64_t x) const {
    if constexpr (!in_order) {
      fetch_far(reinterpret_cast<const char *>(line + x) + (length_ - x * size > far ? far : next_));
    }
  }

 private:
  static constexpr int64_t size = sizeof(E), far = dot_ahead<E>, page = 4096;
  static constexpr bool in_order = rows == 1 && size != 2;
  LinesAhead<E> lines_;
  int64_t length_, next_;
};

}  // namespace
}  // namespace rocpy_host::gemm
