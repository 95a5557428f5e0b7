// SPDX-License-Identifier: MIT
// Cases of the driver: reading them, their operands, and the reference in double precision.
#include "driver_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

namespace driver {

namespace {

const std::map<std::string, hipDataType> types = {
    {"float32", HIP_R_32F}, {"float64", HIP_R_64F}, {"float16", HIP_R_16F}, {"bfloat16", HIP_R_16BF}};

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

enum class Activation { none, relu, gelu, silu, sigmoid, clamp, drelu, dgelu };

Activation activation_of(uint32_t epilogue) {
  if (epilogue == HIPBLASLT_EPILOGUE_DEFAULT || epilogue == HIPBLASLT_EPILOGUE_BIAS) return Activation::none;
  if (epilogue == HIPBLASLT_EPILOGUE_BGRADA || epilogue == HIPBLASLT_EPILOGUE_BGRADB) return Activation::none;
  if (epilogue == HIPBLASLT_EPILOGUE_SIGMOID) return Activation::sigmoid;
  if (epilogue & 65536) return Activation::silu;
  if (epilogue & 131072) return Activation::clamp;
  if (epilogue & 64) return Activation::dgelu;
  if (epilogue & 32) return Activation::gelu;
  if (epilogue & 8) return Activation::drelu;
  return Activation::relu;
}

int64_t product_of(const Json &extents) {
  double product = 1;
  for (const Json &extent : extents.items) product *= extent.number;
  return int64_t(product);
}

// Layout letters are those of the case list: n as it is, t transposed, p and q the same with padding.
bool set_matrix(char letter, int64_t rows, int64_t columns, bool broadcast, hipblasOperation_t *op, Shape *shape) {
  bool transposed = letter == 't' || letter == 'q', padded = letter == 'p' || letter == 'q';
  if (!transposed && !padded && letter != 'n') return false;
  *op = transposed ? HIPBLAS_OP_T : HIPBLAS_OP_N;
  shape->rows = transposed ? columns : rows;
  shape->columns = transposed ? rows : columns;
  shape->ld = shape->rows + (padded ? 3 : 0);
  shape->batch_stride = broadcast ? 0 : shape->ld * shape->columns + (padded ? 5 : 0);
  return true;
}

double unit_roundoff(hipDataType type) {
  switch (type) {
    case HIP_R_64F:
      return 0x1p-53;
    case HIP_R_32F:
      return 0x1p-24;
    case HIP_R_16F:
      return 0x1p-11;
    default:
      return 0x1p-8;
  }
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * x * (1 + 0.044715 * x * x))); }

double gelu_gradient(double x) {
  double t = std::tanh(std::sqrt(2 / M_PI) * x * (1 + 0.044715 * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

double activate(const Case &c, Activation activation, double y, double e) {
  switch (activation) {
    case Activation::relu:
      return std::max(y, 0.0);
    case Activation::gelu:
      return gelu(y);
    case Activation::silu:
      return y / (1 + std::exp(-y));
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-y));
    case Activation::clamp:
      return std::max(float(c.low) * 1.0, std::min(y, float(c.high) * 1.0));
    case Activation::drelu:
      return e > 0 ? y : 0;
    case Activation::dgelu:
      return gelu_gradient(e) * y;
    default:
      return y;
  }
}

}  // namespace

bool make_case(const Json &json, Case *out) {
  Case c;
  if (!types.count(json.at("dtype").text)) return false;  // types that Python's tests compare with the oracles
  c.name = json.at("name").text;
  c.m = int64_t(json.at("m").number);
  c.n = int64_t(json.at("n").number);
  c.k = int64_t(json.at("k").number);
  c.type = types.at(json.at("dtype").text);
  const std::string &result = json.at("out_dtype").text;
  c.result_type = result.empty() ? c.type : types.at(result);
  c.epilogue = epilogues.at(json.at("epilogue").text);
  c.alpha = json.at("alpha").number;
  c.beta = json.at("beta").number;
  c.integers = json.at("data").text == "integers";
  c.seed = uint32_t(json.at("seed").number);

  int64_t batch_a = product_of(json.at("batch_a")), batch_b = product_of(json.at("batch_b"));
  c.batch = std::max(batch_a, batch_b);
  if ((batch_a != 1 && batch_a != c.batch) || (batch_b != 1 && batch_b != c.batch)) return false;
  const std::string &layout = json.at("layout").text;
  bool broadcast_a = batch_a == 1 && c.batch > 1, broadcast_b = batch_b == 1 && c.batch > 1;
  if (!set_matrix(layout.at(0), c.m, c.k, broadcast_a, &c.op_a, &c.a)) return false;
  if (!set_matrix(layout.at(1), c.k, c.n, broadcast_b, &c.op_b, &c.b)) return false;

  // Padding of the written matrices varies with the seed, so that a stray write shows.
  int64_t pad = c.seed % 3;
  c.d.rows = c.m;
  c.d.columns = c.n;
  c.d.ld = c.m + pad;
  c.d.batch_stride = c.d.ld * c.n + pad;
  c.c = c.d;
  c.in_place = c.beta != 0 && c.seed % 2 == 0;
  if (!c.in_place) c.c.ld = c.m + 2;
  c.c.batch_stride = c.c.ld * c.n + pad;

  c.writes_bias =
      (c.epilogue & 16) != 0 || c.epilogue == HIPBLASLT_EPILOGUE_BGRADA || c.epilogue == HIPBLASLT_EPILOGUE_BGRADB;
  c.adds_bias = !c.writes_bias && (c.epilogue & 4) != 0;
  c.loads_aux = (c.epilogue & 128) != 0 && ((c.epilogue & 8) != 0 || (c.epilogue & 64) != 0);
  c.stores_aux = (c.epilogue & 128) != 0 && !c.loads_aux;
  const std::string &bias = json.at("bias").text;
  c.bias_length = c.epilogue == HIPBLASLT_EPILOGUE_BGRADB ? c.n : c.m;
  bool bias_by_entry = bias == "batch" || (c.writes_bias && c.batch > 1);
  c.bias_stride = bias_by_entry ? c.bias_length + 1 : 0;
  if (bias == "column") {
    // A bias along the other extent is one along the rows of a D stored by rows.
    if (c.stores_aux || c.loads_aux || c.writes_bias) return false;
    for (Shape *shape : {&c.c, &c.d}) {
      shape->by_rows = true;
      shape->ld = c.n + pad;
      shape->batch_stride = shape->ld * c.m;
    }
  }
  c.aux.rows = c.m;
  c.aux.columns = c.n;
  c.aux.ld = c.m + 1;
  c.aux.batch_stride = c.aux.ld * c.n;
  *out = c;
  return true;
}

Values make_values(const Case &c) {
  std::mt19937 generator(c.seed);
  std::normal_distribution<double> normal;
  std::uniform_int_distribution<int> integer(-2, 2);
  auto fill = [&](int64_t count, hipDataType type, double scale) {
    std::vector<double> out(static_cast<size_t>(count));
    for (double &value : out) value = round_to(type, c.integers ? integer(generator) : scale * normal(generator));
    return out;
  };
  Values v;
  v.a = fill(c.a.elements(c.batch), c.type, 1);
  v.b = fill(c.b.elements(c.batch), c.type, 1 / std::sqrt(double(std::max<int64_t>(c.k, 1))));
  v.c = fill(c.c.elements(c.batch), c.result_type, 1);
  if (c.adds_bias) v.bias = fill(c.bias_stride * (c.batch - 1) + c.bias_length, c.result_type, 1);
  if (c.loads_aux) v.aux = fill(c.aux.elements(c.batch), c.result_type, 1);
  return v;
}

// Error of a sum of k products in precision u: at most (k + 1) u times the sum of magnitudes; each later step adds one
// rounding of what it works on. No activation has a slope above 1.13; its own evaluation is good to a few roundings.
// The store rounds once. Integer operands make every step up to the store exact where the activation is.
Expected make_expected(const Case &c, const Values &v) {
  Expected out;
  Activation activation = activation_of(c.epilogue);
  bool exact = c.integers && (activation == Activation::none || activation == Activation::relu ||
                              activation == Activation::clamp || activation == Activation::drelu);
  double u = c.result_type == HIP_R_64F ? 0x1p-53 : 0x1p-24, u_out = unit_roundoff(c.result_type);
  double tiny = c.result_type == HIP_R_16F ? 0x1p-25 : 0;  // half the spacing of its subnormals
  auto stored = [&](double value) { return exact ? round_to(c.result_type, value) : value; };
  auto bound = [&](double value, double error) {
    return exact ? 0.0 : error + u_out * (std::fabs(value) + error) + tiny;
  };
  size_t count = size_t(c.batch * c.m * c.n);
  out.d.resize(count);
  out.d_bound.resize(count);
  if (c.stores_aux) out.aux = out.aux_bound = out.d;
  if (c.writes_bias) {
    out.bias.assign(size_t(c.batch * c.bias_length), 0);
    out.bias_bound = out.bias;
  }
  bool transposed_a = c.op_a != HIPBLAS_OP_N, transposed_b = c.op_b != HIPBLAS_OP_N;
  auto op_a = [&](int64_t g, int64_t i, int64_t x) {
    return v.a[size_t(transposed_a ? c.a.offset(g, x, i) : c.a.offset(g, i, x))];
  };
  auto op_b = [&](int64_t g, int64_t x, int64_t j) {
    return v.b[size_t(transposed_b ? c.b.offset(g, j, x) : c.b.offset(g, x, j))];
  };
  for (int64_t g = 0; g < c.batch; ++g) {
    for (int64_t j = 0; j < c.n; ++j) {
      for (int64_t i = 0; i < c.m; ++i) {
        double sum = 0, magnitude = 0;
        for (int64_t x = 0; x < c.k; ++x) {
          double term = op_a(g, i, x) * op_b(g, x, j);
          sum += term;
          magnitude += std::fabs(term);
        }
        double y = c.alpha * sum, error = u * (double(c.k) + 3) * std::fabs(c.alpha) * magnitude;
        if (c.beta != 0) {
          double term = c.beta * v.c[size_t(c.c.offset(g, i, j))];
          y += term;
          error += 2 * u * (std::fabs(term) + std::fabs(y));
        }
        if (c.adds_bias) {
          y += v.bias[size_t(g * c.bias_stride + i)];
          error += u * std::fabs(y);
        }
        size_t at = size_t((g * c.n + j) * c.m + i);
        if (c.stores_aux) {
          out.aux[at] = stored(y);
          out.aux_bound[at] = bound(y, error);
        }
        double e = c.loads_aux ? v.aux[size_t(c.aux.offset(g, i, j))] : 0;
        double z = activate(c, activation, y, e);
        if (activation != Activation::none && activation != Activation::drelu)
          error = 1.13 * error + 8 * u * (std::fabs(z) + std::fabs(y) + 1);
        out.d[at] = stored(z);
        out.d_bound[at] = bound(z, error);
        if (c.epilogue & 16) {
          size_t sum_at = size_t(g * c.bias_length + i);
          out.bias[sum_at] += z;
          out.bias_bound[sum_at] += error + u * double(c.n) * std::fabs(z);
        }
      }
    }
    bool of_a = c.epilogue == HIPBLASLT_EPILOGUE_BGRADA;
    if (of_a || c.epilogue == HIPBLASLT_EPILOGUE_BGRADB) {
      for (int64_t i = 0; i < c.bias_length; ++i) {
        for (int64_t x = 0; x < c.k; ++x) {
          double term = of_a ? op_a(g, i, x) : op_b(g, x, i);
          out.bias[size_t(g * c.bias_length + i)] += term;
          out.bias_bound[size_t(g * c.bias_length + i)] += u * double(c.k) * std::fabs(term);
        }
      }
    }
  }
  for (size_t i = 0; i < out.bias.size(); ++i) {
    out.bias_bound[i] = bound(out.bias[i], out.bias_bound[i]);
    out.bias[i] = stored(out.bias[i]);
  }
  return out;
}

size_t size_of(hipDataType type) { return type == HIP_R_64F ? 8 : type == HIP_R_32F ? 4 : 2; }

// Independent of the platform's own conversions: the nearest multiple of the spacing at that magnitude, ties to even.
double round_to(hipDataType type, double value) {
  if (type == HIP_R_64F || value == 0 || !std::isfinite(value)) return value;
  if (type == HIP_R_32F) return float(value);
  int digits = type == HIP_R_16F ? 11 : 8, lowest = type == HIP_R_16F ? -24 : -133;
  int exponent;
  std::frexp(value, &exponent);
  int spacing = std::max(exponent - digits, lowest);
  return std::ldexp(std::nearbyint(std::ldexp(value, -spacing)), spacing);
}

void encode(hipDataType type, const std::vector<double> &values, void *out) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == HIP_R_64F) {
      static_cast<double *>(out)[i] = values[i];
    } else if (type == HIP_R_32F) {
      static_cast<float *>(out)[i] = float(values[i]);
    } else {
      double value = values[i], magnitude = std::fabs(value);
      uint16_t bits = std::signbit(value) ? 0x8000 : 0;
      if (magnitude != 0 && type == HIP_R_16F) {
        int exponent;
        std::frexp(magnitude, &exponent);
        int field = std::max(exponent - 1, -14);
        double fraction = std::ldexp(magnitude, 10 - field);  // 1024 and above for normal numbers
        bits = uint16_t(bits | ((field + 14) << 10));
        bits = uint16_t(bits + uint16_t(fraction));
      } else if (magnitude != 0) {
        float single = float(magnitude);
        uint32_t word;
        std::memcpy(&word, &single, sizeof(word));
        bits = uint16_t(bits | (word >> 16));
      }
      static_cast<uint16_t *>(out)[i] = bits;
    }
  }
}

double decode(hipDataType type, const void *data, int64_t index) {
  if (type == HIP_R_64F) return static_cast<const double *>(data)[index];
  if (type == HIP_R_32F) return static_cast<const float *>(data)[index];
  uint16_t bits = static_cast<const uint16_t *>(data)[index];
  double sign = bits & 0x8000 ? -1 : 1;
  int fraction_bits = type == HIP_R_16F ? 10 : 7, bias = type == HIP_R_16F ? 15 : 127;
  int field = (bits & 0x7fff) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
  if (field == 2 * bias + 1) return fraction ? NAN : sign * INFINITY;
  if (field == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp(fraction + (1 << fraction_bits), field - bias - fraction_bits);
}

}  // namespace driver
