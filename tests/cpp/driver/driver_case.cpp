// SPDX-License-Identifier: MIT
// Reading the driver's cases, and the values of results.
#include "driver_case.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>

namespace driver {

namespace {

const std::map<std::string, hipDataType> types = {
    {"float32", HIP_R_32F},
    {"float64", HIP_R_64F},
    {"float16", HIP_R_16F},
    {"bfloat16", HIP_R_16BF},
    {"float8_e4m3fn", HIP_R_8F_E4M3},
    {"float8_e5m2", HIP_R_8F_E5M2},
    {"float8_e4m3fnuz", HIP_R_8F_E4M3_FNUZ},
    {"float8_e5m2fnuz", HIP_R_8F_E5M2_FNUZ},
    {"float6_e2m3fn", HIP_R_6F_E2M3},
    {"float6_e3m2fn", HIP_R_6F_E3M2},
    {"float4_e2m1fn", HIP_R_4F_E2M1},
    {"int8", HIP_R_8I},
    {"int32", HIP_R_32I},
    {"complex64", HIP_C_32F},
    {"complex128", HIP_C_64F},
};

const std::map<std::string, hipblasComputeType_t> computes = {
    {"float32", HIPBLAS_COMPUTE_32F}, {"float64", HIPBLAS_COMPUTE_64F}, {"int32", HIPBLAS_COMPUTE_32I}};

const std::map<std::string, int32_t> scale_modes = {{"", -1},
                                                    {"scalar", HIPBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F},
                                                    {"vector", HIPBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F},
                                                    {"block32", HIPBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0}};

const std::map<std::string, uint32_t> epilogues = {
    {"default", HIPBLASLT_EPILOGUE_DEFAULT},
    {"bias", HIPBLASLT_EPILOGUE_BIAS},
    {"relu", HIPBLASLT_EPILOGUE_RELU},
    {"relu_bias", HIPBLASLT_EPILOGUE_RELU_BIAS},
    {"gelu", HIPBLASLT_EPILOGUE_GELU},
    {"gelu_bias", HIPBLASLT_EPILOGUE_GELU_BIAS},
    {"silu", HIPBLASLT_EPILOGUE_SWISH_EXT},
    {"silu_bias", HIPBLASLT_EPILOGUE_SWISH_BIAS_EXT},
    {"sigmoid", HIPBLASLT_EPILOGUE_SIGMOID},
    {"clamp", HIPBLASLT_EPILOGUE_CLAMP_EXT},
    {"clamp_bias", HIPBLASLT_EPILOGUE_CLAMP_BIAS_EXT},
    {"relu_aux", HIPBLASLT_EPILOGUE_RELU_AUX},
    {"relu_aux_bias", HIPBLASLT_EPILOGUE_RELU_AUX_BIAS},
    {"gelu_aux", HIPBLASLT_EPILOGUE_GELU_AUX},
    {"gelu_aux_bias", HIPBLASLT_EPILOGUE_GELU_AUX_BIAS},
    {"clamp_aux", HIPBLASLT_EPILOGUE_CLAMP_AUX_EXT},
    {"clamp_aux_bias", HIPBLASLT_EPILOGUE_CLAMP_AUX_BIAS_EXT},
    {"drelu", HIPBLASLT_EPILOGUE_DRELU},
    {"drelu_bgrad", HIPBLASLT_EPILOGUE_DRELU_BGRAD},
    {"dgelu", HIPBLASLT_EPILOGUE_DGELU},
    {"dgelu_bgrad", HIPBLASLT_EPILOGUE_DGELU_BGRAD},
    {"bgrada", HIPBLASLT_EPILOGUE_BGRADA},
    {"bgradb", HIPBLASLT_EPILOGUE_BGRADB},
};

std::runtime_error cannot_read(const std::string &path) { return std::runtime_error("cannot read " + path); }

Bytes map_file(const std::string &path) {
  int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat about;
  if (file < 0 || fstat(file, &about) != 0) throw cannot_read(path);
  void *mapped = mmap(nullptr, size_t(about.st_size), PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (mapped == MAP_FAILED) throw cannot_read(path);
  return {static_cast<const unsigned char *>(mapped), size_t(about.st_size)};
}

// One case out of its JSON.
class CaseReader {
 public:
  CaseReader(const Json &json, const Bytes &arrays) : json_(json), arrays_(arrays) {}

  Case read() const {
    Case c;
    c.name = text("name");
    c.m = integer(json_, "m");
    c.n = integer(json_, "n");
    c.k = integer(json_, "k");
    c.batch = integer(json_, "batch");
    c.flops = json_.at("flops").number;
    c.epilogue = epilogues.at(text("epilogue"));
    c.compute = computes.at(text("compute"));
    c.factor_type = types.at(text("factors"));
    for (size_t i = 0; i < 2; ++i) {
      c.alpha[i] = json_.at("alpha").items.at(i).number;
      c.beta[i] = json_.at("beta").items.at(i).number;
    }
    c.low = float(json_.at("clamp").items.at(0).number);
    c.high = float(json_.at("clamp").items.at(1).number);
    c.op_a = flag("op_a") ? HIPBLAS_OP_T : HIPBLAS_OP_N;
    c.op_b = flag("op_b") ? HIPBLAS_OP_T : HIPBLAS_OP_N;
    c.a = matrix(json_.at("a"));
    c.b = matrix(json_.at("b"));
    c.c = matrix(json_.at("c"));
    c.d = matrix(json_.at("d"));
    c.c.by_rows = c.d.by_rows = flag("by_rows");
    c.in_place = flag("in_place");
    c.amax = flag("amax");
    c.scale_mode = scale_modes.at(text("scale"));
    c.d_wanted = wanted(json_);
    for (auto [name, place] : {std::pair("scale_a", &c.scale_a), {"scale_b", &c.scale_b}, {"scale_d", &c.scale_d}}) {
      if (const Json *found = json_.find(name)) *place = bytes(*found);
    }
    if (const Json *bias = json_.find("bias")) {
      c.adds_bias = true;
      c.bias = vector(*bias);
    }
    if (const Json *sums = json_.find("sums")) {
      c.writes_bias = true;
      c.bias = vector(*sums);
      c.bias_wanted = wanted(*sums);
    }
    if (const Json *aux = json_.find("aux")) {
      c.aux = matrix(*aux);
      c.stores_aux = aux->find("wanted") != nullptr;
      c.loads_aux = !c.stores_aux;
      if (c.stores_aux) c.aux_wanted = wanted(*aux);
    }
    if (c.amax) {
      c.amax_wanted = json_.at("amax_wanted").items.at(0).number;
      c.amax_bound = json_.at("amax_wanted").items.at(1).number;
    }
    return c;
  }

 private:
  const std::string &text(const char *key) const { return json_.at(key).text; }
  bool flag(const char *key) const { return json_.at(key).number != 0; }
  static int64_t integer(const Json &json, const char *key) { return int64_t(json.at(key).number); }

  Bytes bytes(const Json &place) const {
    size_t begin = size_t(place.items.at(0).number), count = size_t(place.items.at(1).number);
    if (begin + count > arrays_.count) throw std::runtime_error("the file of arrays is too short");
    return {arrays_.data + begin, count};
  }

  Wanted wanted(const Json &json) const {
    const Json &places = json.at("wanted");
    auto doubles = [&](size_t i) {
      return reinterpret_cast<const double *>(arrays_.data + size_t(places.items.at(i).number));
    };
    return {doubles(0), doubles(1)};
  }

  Matrix matrix(const Json &json) const {
    Matrix out;
    out.type = types.at(json.at("type").text);
    out.rows = integer(json, "rows");
    out.columns = integer(json, "columns");
    out.ld = integer(json, "ld");
    out.batch_stride = integer(json, "batch_stride");
    if (const Json *data = json.find("data")) out.bytes = bytes(*data);
    return out;
  }

  Matrix vector(const Json &json) const {
    Matrix out;
    out.type = types.at(json.at("type").text);
    out.rows = out.ld = integer(json, "length");
    out.batch_stride = integer(json, "batch_stride");
    if (const Json *data = json.find("data")) out.bytes = bytes(*data);
    return out;
  }

  const Json &json_;
  const Bytes &arrays_;
};

struct Format {
  int fraction_bits, bias;
  bool has_infinity, one_zero;  // one_zero: the code of minus zero is NaN
};

Format format_of(hipDataType type) {
  switch (type) {
    case HIP_R_16F:
      return {10, 15, true, false};
    case HIP_R_16BF:
      return {7, 127, true, false};
    case HIP_R_8F_E4M3:
      return {3, 7, false, false};
    case HIP_R_8F_E5M2:
      return {2, 15, true, false};
    case HIP_R_8F_E4M3_FNUZ:
      return {3, 8, false, true};
    case HIP_R_8F_E5M2_FNUZ:
      return {2, 16, false, true};
    default:
      throw std::runtime_error("no result has the type " + std::to_string(type));
  }
}

// Independent of the platform's own conversions.
double decode_code(const Format &format, uint32_t code, int bits) {
  uint32_t sign_bit = 1u << (bits - 1), magnitude = code & (sign_bit - 1);
  double sign = code & sign_bit ? -1 : 1;
  int field = int(magnitude >> format.fraction_bits), fraction = int(magnitude & ((1u << format.fraction_bits) - 1));
  int last_field = int((sign_bit - 1) >> format.fraction_bits);
  if (format.one_zero && code == sign_bit) return NAN;
  if (format.has_infinity && field == last_field) return fraction ? NAN : sign * INFINITY;
  if (!format.has_infinity && !format.one_zero && magnitude == sign_bit - 1) return NAN;
  if (field == 0) return sign * std::ldexp(fraction, 1 - format.bias - format.fraction_bits);
  return sign * std::ldexp(fraction + (1 << format.fraction_bits), field - format.bias - format.fraction_bits);
}

template <class T>
T element(const void *data, int64_t index) {
  T out;
  std::memcpy(&out, static_cast<const char *>(data) + size_t(index) * sizeof(T), sizeof(T));
  return out;
}

}  // namespace

std::vector<Case> read_cases(const std::string &json_path) {
  std::ifstream file(json_path);
  if (!file) throw cannot_read(json_path);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Bytes arrays = map_file(json_path.substr(0, json_path.rfind('.')) + ".bin");
  std::vector<Case> cases;
  for (const Json &json : JsonReader(text).read().items) cases.push_back(CaseReader(json, arrays).read());
  return cases;
}

bool is_complex(hipDataType type) { return type == HIP_C_32F || type == HIP_C_64F; }

double largest_of(hipDataType type) { return type == HIP_R_16F ? 65504 : INFINITY; }

size_t size_of(hipDataType type) {
  switch (type) {
    case HIP_C_64F:
      return 16;
    case HIP_R_64F:
    case HIP_C_32F:
      return 8;
    case HIP_R_32F:
    case HIP_R_32I:
      return 4;
    case HIP_R_16F:
    case HIP_R_16BF:
      return 2;
    default:
      return 1;
  }
}

double decode(hipDataType type, const void *data, int64_t index, int component) {
  switch (type) {
    case HIP_R_64F:
      return element<double>(data, index);
    case HIP_C_64F:
      return element<double>(data, 2 * index + component);
    case HIP_R_32F:
      return double(element<float>(data, index));
    case HIP_C_32F:
      return double(element<float>(data, 2 * index + component));
    case HIP_R_32I:
      return element<int32_t>(data, index);
    case HIP_R_8I:
      return element<int8_t>(data, index);
    case HIP_R_16F:
    case HIP_R_16BF:
      return decode_code(format_of(type), element<uint16_t>(data, index), 16);
    default:
      return decode_code(format_of(type), element<uint8_t>(data, index), 8);
  }
}

}  // namespace driver
