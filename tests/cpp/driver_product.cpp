// SPDX-License-Identifier: MIT
// One case as calls of the C ABI: see driver_product.hpp.
#include "driver_product.hpp"

#include <cmath>
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

void upload(const Memory &memory, hipDataType type, const std::vector<double> &values) {
  if (values.empty()) return;
  std::vector<unsigned char> bytes(values.size() * size_of(type));
  encode(type, values, bytes.data());
  check(hipMemcpy(memory.get(), bytes.data(), bytes.size(), hipMemcpyHostToDevice), "hipMemcpy");
}

size_t bias_bytes(const Case &c) {
  if (!c.adds_bias && !c.writes_bias) return 0;
  return size_t(c.bias_stride * (c.batch - 1) + c.bias_length) * size_of(c.result_type);
}

bool has_aux(const Case &c) { return c.stores_aux || c.loads_aux; }

}  // namespace

struct Product::Descriptors {
  hipblasLtMatmulDesc_t desc = nullptr;
  hipblasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, d = nullptr;

  explicit Descriptors(const Product &product) {
    const Case &k = product.case_;
    bool wide = k.type == HIP_R_64F;
    check(hipblasLtMatmulDescCreate(&desc, wide ? HIPBLAS_COMPUTE_64F : HIPBLAS_COMPUTE_32F,
                                    wide ? HIP_R_64F : HIP_R_32F),
          "hipblasLtMatmulDescCreate");
    set(HIPBLASLT_MATMUL_DESC_TRANSA, int32_t(k.op_a));
    set(HIPBLASLT_MATMUL_DESC_TRANSB, int32_t(k.op_b));
    set(HIPBLASLT_MATMUL_DESC_EPILOGUE, k.epilogue);
    if (k.adds_bias || k.writes_bias) {
      set(HIPBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias_.get());
      set(HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t(k.result_type));
      set(HIPBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, int32_t(k.bias_stride));
    }
    if (has_aux(k)) {
      set(HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, product.aux_.get());
      set(HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, k.aux.ld);
      set(HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, k.aux.batch_stride);
      set(HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, int32_t(k.result_type));
    }
    set(HIPBLASLT_MATMUL_DESC_EPILOGUE_ACT_ARG0_EXT, float(k.low));
    set(HIPBLASLT_MATMUL_DESC_EPILOGUE_ACT_ARG1_EXT, float(k.high));
    make(&a, k.type, k.a, k.batch);
    make(&b, k.type, k.b, k.batch);
    make(&c, k.result_type, k.c, k.batch);
    make(&d, k.result_type, k.d, k.batch);
  }
  ~Descriptors() {
    hipblasLtMatmulDescDestroy(desc);
    for (hipblasLtMatrixLayout_t layout : {a, b, c, d}) hipblasLtMatrixLayoutDestroy(layout);
  }

  template <class T>
  void set(hipblasLtMatmulDescAttributes_t attribute, T value) {
    check(hipblasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof(value)), "hipblasLtMatmulDescSetAttribute");
  }

  static void make(hipblasLtMatrixLayout_t *layout, hipDataType type, const Shape &shape, int64_t batch) {
    check(hipblasLtMatrixLayoutCreate(layout, type, uint64_t(shape.rows), uint64_t(shape.columns), shape.ld),
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
      values_(make_values(c)),
      expected_(make_expected(c, values_)),
      a_(values_.a.size() * size_of(c.type)),
      b_(values_.b.size() * size_of(c.type)),
      c_(values_.c.size() * size_of(c.result_type)),
      d_(size_t(c.d.elements(c.batch)) * size_of(c.result_type)),
      aux_(has_aux(c) ? size_t(c.aux.elements(c.batch)) * size_of(c.result_type) : 0),
      bias_(bias_bytes(c)) {
  upload(a_, c.type, values_.a);
  upload(b_, c.type, values_.b);
  upload(bias_, c.result_type, values_.bias);
  upload(aux_, c.result_type, values_.aux);
  // With beta = 0, C is NaN throughout, which must not come through.
  if (c.beta != 0) {
    upload(c_, c.result_type, values_.c);
  } else if (c_.bytes()) {
    check(hipMemset(c_.get(), 0xff, c_.bytes()), "hipMemset");
  }
  reset_results();
}

void Product::reset_results() {
  d_.reset();
  if (case_.in_place) upload(d_, case_.result_type, values_.c);
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
  union {
    float single;
    double wide;
  } alpha, beta;
  if (case_.type == HIP_R_64F) {
    alpha.wide = case_.alpha;
    beta.wide = case_.beta;
  } else {
    alpha.single = float(case_.alpha);
    beta.single = float(case_.beta);
  }
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
  return all;
}

std::string Product::compare() const {
  std::string fault = compare_part("D", d_, case_.d, expected_.d, expected_.d_bound);
  if (fault.empty() && case_.stores_aux) {
    fault = compare_part("aux", aux_, case_.aux, expected_.aux, expected_.aux_bound);
  }
  if (fault.empty() && case_.writes_bias) {
    Shape shape;
    shape.rows = case_.bias_length;
    shape.columns = 1;
    shape.batch_stride = case_.bias_stride;
    fault = compare_part("bias gradient", bias_, shape, expected_.bias, expected_.bias_bound);
  }
  return fault;
}

std::string Product::compare_part(const char *what, const Memory &memory, const Shape &shape,
                                  const std::vector<double> &wanted, const std::vector<double> &bounds) const {
  hipDataType type = case_.result_type;
  std::vector<unsigned char> seen = memory.fetch();
  std::vector<bool> element(seen.size() / size_of(type));
  size_t at = 0;
  for (int64_t g = 0; g < case_.batch; ++g) {
    for (int64_t j = 0; j < shape.columns; ++j) {
      for (int64_t i = 0; i < shape.rows; ++i, ++at) {
        int64_t offset = shape.offset(g, i, j);
        element[size_t(offset)] = true;
        double value = decode(type, seen.data(), offset);
        if (!(std::fabs(value - wanted[at]) <= bounds[at])) {
          char text[160];
          std::snprintf(text, sizeof(text), "%s[%lld, %lld, %lld] is %.9g, not %.9g within %.3g", what, (long long)g,
                        (long long)i, (long long)j, value, wanted[at], bounds[at]);
          return text;
        }
      }
    }
  }
  // In place the padding holds what C had there.
  std::vector<unsigned char> before(seen.size(), 0xa5);
  if (case_.in_place && &memory == &d_) encode(type, values_.c, before.data());
  for (size_t i = 0; i < element.size(); ++i) {
    if (!element[i] && std::memcmp(&seen[i * size_of(type)], &before[i * size_of(type)], size_of(type)) != 0) {
      return std::string(what) + ": padding at element " + std::to_string(i) + " was written";
    }
  }
  return "";
}

}  // namespace driver
