// SPDX-License-Identifier: MIT
// One case as calls of the C ABI: see driver_product.hpp.
#include "driver_product.hpp"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace driver {

void check(hipError_t status, const char *what) {
  if (status != hipSuccess) throw std::runtime_error(std::string(what) + ": hipError_t " + std::to_string(status));
}

void check(hipblasStatus_t status, const char *what) {
  if (status != HIPBLAS_STATUS_SUCCESS) {
    throw std::runtime_error(std::string(what) + ": hipblasStatus_t " + std::to_string(status));
  }
}

Memory::Memory(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  check(hipMalloc(&pointer_, bytes), "hipMalloc");
  reset();
}
Memory::~Memory() {
  if (pointer_) hipFree(pointer_);
}
void Memory::reset() {
  if (bytes_) check(hipMemset(pointer_, 0xa5, bytes_), "hipMemset");
}
std::vector<unsigned char> Memory::fetch() const {
  std::vector<unsigned char> out(bytes_);
  if (bytes_) check(hipMemcpy(out.data(), pointer_, bytes_, hipMemcpyDeviceToHost), "hipMemcpy");
  return out;
}

Stream::Stream() { check(hipStreamCreateWithFlags(&stream_, hipStreamNonBlocking), "hipStreamCreateWithFlags"); }
Stream::~Stream() { hipStreamDestroy(stream_); }

Handle::Handle() { check(hipblasLtCreate(&handle_), "hipblasLtCreate"); }
Handle::~Handle() { hipblasLtDestroy(handle_); }

namespace {

void upload(const Memory &memory, const Bytes &bytes) {
  if (bytes.count) check(hipMemcpy(memory.get(), bytes.data, bytes.count, hipMemcpyHostToDevice), "hipMemcpy");
}

bool has_aux(const Case &c) { return c.stores_aux || c.loads_aux; }
bool has_bias(const Case &c) { return c.adds_bias || c.writes_bias; }

size_t bytes_of(const Matrix &matrix, int64_t batch) { return size_t(matrix.elements(batch)) * size_of(matrix.type); }

// alpha or beta as the library reads it.
union Factor {
  float single[2];
  double wide[2];
  int32_t whole;
};

Factor factor_of(hipDataType type, const double *value) {
  Factor out;
  if (type == HIP_R_32I) {
    out.whole = int32_t(value[0]);
    return out;
  }
  bool is_wide = type == HIP_R_64F || type == HIP_C_64F;
  for (int i = 0; i < 2; ++i) {
    if (is_wide) {
      out.wide[i] = value[i];
    } else {
      out.single[i] = float(value[i]);
    }
  }
  return out;
}

}  // namespace

struct Product::Descriptors {
  hipblasLtMatmulDesc_t desc = nullptr;
  hipblasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, d = nullptr;

  explicit Descriptors(const Product &product) {
    const Case &k = product.case_;
    check(hipblasLtMatmulDescCreate(&desc, k.compute, k.factor_type), "hipblasLtMatmulDescCreate");
    set(HIPBLASLT_MATMUL_DESC_TRANSA, int32_t(k.op_a));
    set(HIPBLASLT_MATMUL_DESC_TRANSB, int32_t(k.op_b));
    set(HIPBLASLT_MATMUL_DESC_EPILOGUE, k.epilogue);
    if (has_bias(k)) {
      set(HIPBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias_.get());
      set(HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t(k.bias.type));
      set(HIPBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, int32_t(k.bias.batch_stride));
    }
    if (has_aux(k)) {
      set(HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, product.aux_.get());
      set(HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, k.aux.ld);
      set(HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, k.aux.ld * k.aux.columns);
      set(HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, int32_t(k.aux.type));
    }
    if (k.scale_a.count) {
      set(HIPBLASLT_MATMUL_DESC_A_SCALE_POINTER, product.scale_a_.get());
      set(HIPBLASLT_MATMUL_DESC_B_SCALE_POINTER, product.scale_b_.get());
      set(HIPBLASLT_MATMUL_DESC_A_SCALE_MODE, k.scale_mode);
      set(HIPBLASLT_MATMUL_DESC_B_SCALE_MODE, k.scale_mode);
    }
    if (k.scale_d.count) set(HIPBLASLT_MATMUL_DESC_D_SCALE_POINTER, product.scale_d_.get());
    if (k.amax) set(HIPBLASLT_MATMUL_DESC_AMAX_D_POINTER, product.amax_.get());
    set(HIPBLASLT_MATMUL_DESC_EPILOGUE_ACT_ARG0_EXT, k.low);
    set(HIPBLASLT_MATMUL_DESC_EPILOGUE_ACT_ARG1_EXT, k.high);
    make(&a, k.a, k.batch);
    make(&b, k.b, k.batch);
    make(&c, k.c, k.batch);
    make(&d, k.d, k.batch);
  }
  ~Descriptors() {
    hipblasLtMatmulDescDestroy(desc);
    for (hipblasLtMatrixLayout_t layout : {a, b, c, d}) hipblasLtMatrixLayoutDestroy(layout);
  }

  template <class T>
  void set(hipblasLtMatmulDescAttributes_t attribute, T value) {
    check(hipblasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof(value)), "hipblasLtMatmulDescSetAttribute");
  }

  static void make(hipblasLtMatrixLayout_t *layout, const Matrix &shape, int64_t batch) {
    check(hipblasLtMatrixLayoutCreate(layout, shape.type, uint64_t(shape.rows), uint64_t(shape.columns), shape.ld),
          "hipblasLtMatrixLayoutCreate");
    auto attribute = [&](hipblasLtMatrixLayoutAttribute_t id, const void *value, size_t bytes) {
      check(hipblasLtMatrixLayoutSetAttribute(*layout, id, value, bytes), "hipblasLtMatrixLayoutSetAttribute");
    };
    int32_t count = int32_t(batch), order = shape.by_rows ? HIPBLASLT_ORDER_ROW : HIPBLASLT_ORDER_COL;
    attribute(HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count));
    attribute(HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &shape.batch_stride, sizeof(shape.batch_stride));
    attribute(HIPBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof(order));
  }
};

Product::Product(const Case &c)
    : case_(c),
      a_(c.a.bytes.count),
      b_(c.b.bytes.count),
      c_(c.c.bytes.count),
      d_(bytes_of(c.d, c.batch)),
      aux_(c.aux.bytes.count),
      bias_(c.writes_bias ? bytes_of(c.bias, c.batch) : c.bias.bytes.count),
      scale_a_(c.scale_a.count),
      scale_b_(c.scale_b.count),
      scale_d_(c.scale_d.count),
      amax_(c.amax ? sizeof(float) : 0) {
  upload(a_, c.a.bytes);
  upload(b_, c.b.bytes);
  upload(scale_a_, c.scale_a);
  upload(scale_b_, c.scale_b);
  upload(scale_d_, c.scale_d);
  if (c.adds_bias) upload(bias_, c.bias.bytes);
  if (c.loads_aux) upload(aux_, c.aux.bytes);
  // With beta = 0, C is NaN throughout where its type has NaN, which must not come through.
  if (c.beta[0] != 0) {
    upload(c_, c.c.bytes);
  } else {
    check(hipMemset(c_.get(), 0xff, c_.bytes()), "hipMemset");
  }
  reset_results();
}

void Product::reset_results() {
  d_.reset();
  amax_.reset();
  if (case_.in_place) upload(d_, {case_.c.bytes.data, d_.bytes()});
  if (case_.stores_aux) aux_.reset();
  if (case_.writes_bias) bias_.reset();
}

std::vector<hipblasLtMatmulHeuristicResult_t> Product::algorithms(hipblasLtHandle_t handle,
                                                                  size_t max_workspace_bytes) {
  Descriptors descriptors(*this);
  hipblasLtMatmulPreference_t preference;
  check(hipblasLtMatmulPreferenceCreate(&preference), "hipblasLtMatmulPreferenceCreate");
  uint64_t limit = max_workspace_bytes;
  check(hipblasLtMatmulPreferenceSetAttribute(preference, HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit,
                                              sizeof(limit)),
        "hipblasLtMatmulPreferenceSetAttribute");
  std::vector<hipblasLtMatmulHeuristicResult_t> results(32);
  int returned = 0;
  hipblasStatus_t status =
      hipblasLtMatmulAlgoGetHeuristic(handle, descriptors.desc, descriptors.a, descriptors.b, descriptors.c,
                                      descriptors.d, preference, int(results.size()), results.data(), &returned);
  hipblasLtMatmulPreferenceDestroy(preference);
  check(status, "hipblasLtMatmulAlgoGetHeuristic");
  results.resize(size_t(returned));
  return results;
}

void Product::launch(hipblasLtHandle_t handle, const hipblasLtMatmulHeuristicResult_t &algorithm, void *workspace,
                     hipStream_t stream) {
  Descriptors descriptors(*this);
  Factor alpha = factor_of(case_.factor_type, case_.alpha), beta = factor_of(case_.factor_type, case_.beta);
  hipblasLtMatmulAlgo_t algo = algorithm.algo;
  const void *c = case_.in_place ? d_.get() : c_.get();
  hipblasStatus_t status =
      hipblasLtMatmul(handle, descriptors.desc, &alpha, a_.get(), descriptors.a, b_.get(), descriptors.b, &beta, c,
                      descriptors.c, d_.get(), descriptors.d, &algo, workspace, algorithm.workspaceSize, stream);
  // What the call was given is the caller's again: none of it may be looked at later.
  std::memset(&alpha, 0x5a, sizeof(alpha));
  std::memset(&beta, 0x5a, sizeof(beta));
  std::memset(&algo, 0x5a, sizeof(algo));
  check(status, "hipblasLtMatmul");
}

std::vector<unsigned char> Product::fetch_results() const {
  std::vector<unsigned char> all = d_.fetch();
  if (case_.stores_aux) {
    std::vector<unsigned char> aux = aux_.fetch();
    all.insert(all.end(), aux.begin(), aux.end());
  }
  if (case_.writes_bias) {
    std::vector<unsigned char> bias = bias_.fetch();
    all.insert(all.end(), bias.begin(), bias.end());
  }
  std::vector<unsigned char> amax = amax_.fetch();
  all.insert(all.end(), amax.begin(), amax.end());
  return all;
}

std::string Product::compare() const {
  std::string fault = compare_part("D", d_, case_.d, case_.d_wanted);
  if (fault.empty() && case_.stores_aux) fault = compare_part("aux", aux_, case_.aux, case_.aux_wanted);
  if (fault.empty() && case_.writes_bias) fault = compare_part("bias gradient", bias_, case_.bias, case_.bias_wanted);
  if (fault.empty() && case_.amax) {
    Matrix one;
    one.rows = one.ld = 1;
    fault = compare_part("amax", amax_, one, {&case_.amax_wanted, &case_.amax_bound});
  }
  return fault;
}

std::string Product::compare_part(const char *what, const Memory &memory, const Matrix &shape,
                                  const Wanted &wanted) const {
  std::vector<unsigned char> seen = memory.fetch();
  size_t item = size_of(shape.type);
  std::vector<bool> element(seen.size() / item);
  const int components = is_complex(shape.type) ? 2 : 1;
  size_t at = 0;
  for (int64_t g = 0; g < case_.batch; ++g) {
    for (int64_t j = 0; j < shape.columns; ++j) {
      for (int64_t i = 0; i < shape.rows; ++i, ++at) {
        int64_t offset = shape.offset(g, i, j);
        element[size_t(offset)] = true;
        for (int part = 0; part < components; ++part) {
          double value = decode(shape.type, seen.data(), offset, part);
          double right = wanted.values[at * size_t(components) + size_t(part)];
          bool overflows = std::isinf(value) && std::copysign(right, value) == right &&
                           std::fabs(right) + wanted.bounds[at] > largest_of(shape.type);
          if (!(std::fabs(value - right) <= wanted.bounds[at]) && !overflows) {
            char text[160];
            std::snprintf(text, sizeof(text), "%s[%lld, %lld, %lld] is %.9g, not %.9g within %.3g", what, (long long)g,
                          (long long)i, (long long)j, value, right, wanted.bounds[at]);
            return text;
          }
        }
      }
    }
  }
  // In place the padding holds what C had there.
  std::vector<unsigned char> before(seen.size(), 0xa5);
  if (case_.in_place && &memory == &d_) std::memcpy(before.data(), case_.c.bytes.data, before.size());
  for (size_t i = 0; i < element.size(); ++i) {
    if (!element[i] && std::memcmp(&seen[i * item], &before[i * item], item) != 0) {
      return std::string(what) + ": padding at element " + std::to_string(i) + " was written";
    }
  }
  return "";
}

}  // namespace driver
