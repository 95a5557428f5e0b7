// SPDX-License-Identifier: MIT
// One case as calls of the C ABI: its device memory, its descriptors, the call, and the comparison.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "driver_case.hpp"
#include "prototypes.h"

namespace driver {

void check(hipError_t status, const char *what);
void check(hipblasStatus_t status, const char *what);

// Device memory that starts as bytes of 0xa5, so that what was never written can be told.
class Memory {
 public:
  explicit Memory(size_t bytes = 0);
  ~Memory();
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;
  void *get() const { return pointer_; }
  size_t bytes() const { return bytes_; }
  void reset();  // to 0xa5
  std::vector<unsigned char> fetch() const;

 private:
  void *pointer_ = nullptr;
  size_t bytes_ = 0;
};

class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream &) = delete;
  Stream &operator=(const Stream &) = delete;
  hipStream_t get() const { return stream_; }

 private:
  hipStream_t stream_ = nullptr;
};

class Handle {
 public:
  Handle();
  ~Handle();
  Handle(const Handle &) = delete;
  Handle &operator=(const Handle &) = delete;
  hipblasLtHandle_t get() const { return handle_; }

 private:
  hipblasLtHandle_t handle_ = nullptr;
};

class Product {
 public:
  explicit Product(const Case &c);
  Product(const Product &) = delete;
  Product &operator=(const Product &) = delete;

  // The algorithms that the library offers, with the workspace that each asks for.
  std::vector<hipblasLtMatmulHeuristicResult_t> algorithms(hipblasLtHandle_t handle, size_t max_workspace_bytes);

  // Makes descriptors and scalars, calls, and destroys or overwrites all of them before it returns.
  void launch(hipblasLtHandle_t handle, const hipblasLtMatmulHeuristicResult_t &algorithm, void *workspace,
              hipStream_t stream);

  void reset_results();
  // All that the call may write: D, aux, bias gradient and largest magnitude.
  std::vector<unsigned char> fetch_results() const;
  // Empty when every element is within its bound and nothing else was written; else what is wrong first.
  std::string compare() const;

 private:
  struct Descriptors;
  std::string compare_part(const char *what, const Memory &memory, const Matrix &shape, const Wanted &wanted) const;

  Case case_;
  Memory a_, b_, c_, d_, aux_, bias_, scale_a_, scale_b_, scale_d_, amax_;
};

}  // namespace driver
