#include "halley/quant/packed/packed_tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/core/matrix.h"
#include "halley/core/nested_float.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/kernels/gemm/pack_quads.h"
#include "halley/quant/base/open_section.h"
#include "halley/quant/fmpq/block_weight.h"
#include "halley/quant/fmpq/plan_blocks.h"
#include "halley/quant/nestedfp/encode.h"
#include "halley/quant/solve/grid_rule.h"
#include "halley/quant/stored/byte_weight.h"
#include "halley/quant/stored/float8_tensors.h"

namespace halley {
namespace {

struct Scheme {
  const char* name;
  PackedLayout layout;
  ZeroKind zero_kind;
  ActivationQuant activation;
};

constexpr std::array<Scheme, 7> kSchemes = {{
    {"int4", PackedLayout::kU4Quad, ZeroKind::kPoint, ActivationQuant::kNone},
    {"int8", PackedLayout::kU8Quad, ZeroKind::kPoint, ActivationQuant::kNone},
    {"int4_a8", PackedLayout::kU4Quad, ZeroKind::kOffset, ActivationQuant::kS8Token},
    {"int8_a8", PackedLayout::kU8Quad, ZeroKind::kPoint, ActivationQuant::kS8Token},
    {"int4_ax", PackedLayout::kU4Quad, ZeroKind::kPoint, ActivationQuant::kS4S8Block128},
    {"float8", PackedLayout::kF8E4M3Quad, ZeroKind::kPoint, ActivationQuant::kE4m3Token},
    {"nestedfp", PackedLayout::kNestedF16Quad, ZeroKind::kPoint, ActivationQuant::kNone},
}};

// N * K and its bytes stay far below 2^63.
constexpr int64_t kSizeMax = int64_t{1} << 30;
constexpr int64_t kUnitValues = kQuadUnitInputs * kPanelRows;

void require(bool is_met, const std::string& message) {
  if (!is_met) throw InputError(str("packed weight: ", message));
}

const Scheme& scheme_of(const PackedFormat& format) {
  std::vector<std::string> names;
  for (const Scheme& scheme : kSchemes) {
    if (format.scheme == scheme.name) return scheme;
    names.emplace_back(scheme.name);
  }
  throw InputError(
      str("packed weight: scheme: expected one of ", names, ", got ", quote(format.scheme), "."));
}

const Scheme& check_format(const PackedFormat& format) {
  const Scheme& scheme = scheme_of(format);
  require(format.N >= 1 && format.N <= kSizeMax && format.K >= 1 && format.K <= kSizeMax,
          str("weight: expected N and K from 1 to ", kSizeMax, ", got ", format.N, ", ", format.K,
              "."));
  const bool has_groups = is_quantized(scheme.layout);
  require(
      has_groups ? format.group_size >= 1 && format.group_size <= format.K : format.group_size == 0,
      str("group_size: expected ", has_groups ? "1 to K" : "0", ", got ", format.group_size,
          " for K ", format.K, "."));
  require(format.has_input_perm ? format.num_inputs >= format.K && format.num_inputs <= kSizeMax
                                : format.num_inputs == format.K,
          str("num_inputs: expected ", format.has_input_perm ? "K or more" : "K", ", got ",
              format.num_inputs, " for K ", format.K, "."));
  require(!format.has_input_perm || has_groups, "input_perm: expected none for nestedfp.");
  if (scheme.activation == ActivationQuant::kS4S8Block128) {
    require(format.num_s8_inputs >= 0 && format.num_s8_inputs <= format.K &&
                (format.num_s8_inputs == format.K || format.num_s8_inputs % kFmpqBlock == 0),
            str("num_s8_inputs: expected a multiple of ", kFmpqBlock, " up to K, or K, got ",
                format.num_s8_inputs, " for K ", format.K, "."));
    require(format.s4_clip > 0 && format.s4_clip <= 1,
            str("s4_clip: expected above 0 and at most 1, got ", format.s4_clip, "."));
  }
  return scheme;
}

int64_t num_groups(const PackedFormat& format) {
  return format.group_size == 0 ? 0 : ceil_div(format.K, format.group_size);
}

/// A weight in rows, before it is packed.
struct PlainWeight {
  std::vector<uint8_t> qweight, lower;  // [N, K]
  std::vector<float> scales, zeros;     // [N, num_groups]
};

class PlainStoredWeight : public StoredWeight {
 public:
  PlainStoredWeight(WeightDesc desc, const PackedFormat& format, const PlainWeight& plain)
      : StoredWeight(std::move(desc)), format_(format), plain_(plain) {}

  void read_codes(const CodeBlock& block, uint8_t* quads) const override {
    read_byte_block(rows_of(plain_.qweight), block, /*flip=*/0, quads);
  }
  void read_lower(const CodeBlock& block, uint8_t* quads) const override {
    read_byte_block(rows_of(plain_.lower), block, /*flip=*/0, quads);
  }
  void read_groups(int64_t row_begin, int64_t num_rows, float* groups) const override {
    const int64_t G = num_groups(format_);
    for (int64_t g = 0; g < G; ++g, groups += 2 * kPanelRows) {
      for (int64_t r = 0; r < num_rows; ++r) {
        const auto index = static_cast<size_t>((row_begin + r) * G + g);
        groups[r] = plain_.scales[index];
        groups[kPanelRows + r] = plain_.zeros[index];
      }
    }
  }

 private:
  TensorView rows_of(const std::vector<uint8_t>& bytes) const {
    return {std::as_bytes(std::span(bytes)).data(), DType::kU8, {format_.N, format_.K}};
  }

  const PackedFormat& format_;
  const PlainWeight& plain_;
};

WeightDesc desc_of(const PackedFormat& format, const Scheme& scheme) {
  WeightDesc desc;
  desc.format = scheme.name;
  desc.stored_dtype = DType::kU8;
  desc.layout = scheme.layout;
  desc.bits = code_bits(scheme.layout);
  desc.group_size = format.group_size;
  desc.zero_kind = scheme.zero_kind;
  return desc;
}

void pack(ExecContext& context, const PackedFormat& format, const PlainWeight& plain,
          const PackedTensors& out) {
  const Scheme& scheme = scheme_of(format);
  const PackedWeight to = view_linear(format, out);
  const LinearSpec::Part part = {
      .name = "weight", .out_features = format.N, .stored_rows = format.N};
  OpenSection section;
  section.in_features = format.K;
  section.parts.push_back(
      {.spec = &part,
       .weight = std::make_unique<PlainStoredWeight>(desc_of(format, scheme), format, plain)});
  const PackedWeight packed = pack_section(context, section);
  const auto copy = [](const HostBuffer& from, const TensorMemory& memory) {
    if (from.num_bytes() == 0) return;
    std::memcpy(reinterpret_cast<void*>(memory.address), from.data(), from.num_bytes());
  };
  copy(packed.data, out.qweight);
  copy(packed.quant.groups, out.groups);
}

PlainWeight plain_of(const PackedFormat& format, QuantizedWeight&& quantized) {
  PlainWeight plain = {.qweight = std::move(quantized.codes),
                       .lower = {},
                       .scales = std::move(quantized.scales),
                       .zeros = {}};
  const bool has_offsets = scheme_of(format).zero_kind == ZeroKind::kOffset;
  const auto G = static_cast<size_t>(quantized.num_groups());
  for (size_t i = 0; i < quantized.zeros.size(); ++i) {
    const auto zero = static_cast<float>(quantized.zeros[i]);
    if (!has_offsets) {
      plain.zeros.push_back(zero);
    } else if (quantized.factors.empty()) {  // as QServe stores it
      plain.zeros.push_back(f16_to_f32(f32_to_f16(plain.scales[i] * zero)));
    } else {
      plain.zeros.push_back(quantized.channel_scales[i / G] *
                            (static_cast<float>(quantized.factors[i]) * zero));
    }
  }
  return plain;
}

PlainWeight round_integers(ExecContext& context, const PackedFormat& format, bool is_symmetric,
                           ConstMatrix w) {
  const GridOptions grid = {.bits = code_bits(scheme_of(format).layout),
                            .group_size = format.group_size,
                            .is_symmetric = is_symmetric};
  const bool is_progressive = format.scheme == "int4_a8" && format.group_size < format.K;
  const auto rule =
      is_progressive ? make_progressive_rule(w, format.group_size, {}) : make_minmax_rule(grid, {});
  return plain_of(format, round_to_nearest(context, w, *rule));
}

PlainWeight round_float8(const std::string& name, const PackedFormat& format, bool is_per_tensor,
                         std::span<const float> w) {
  const auto tensors =
      encode_float8(name, w, format.K,
                    is_per_tensor ? Float8Scales::kTensor : Float8Scales::kOutput, std::nullopt);
  PlainWeight plain;
  const auto& bytes = tensors[0].data;
  const auto* qweight = reinterpret_cast<const uint8_t*>(bytes.data());
  plain.qweight.assign(qweight, qweight + bytes.size());
  std::vector<float> scales(tensors[1].data.size() / sizeof(float));
  std::memcpy(scales.data(), tensors[1].data.data(), tensors[1].data.size());
  scales.resize(static_cast<size_t>(format.N), scales[0]);
  const auto G = static_cast<size_t>(num_groups(format));
  for (const float scale : scales) plain.scales.insert(plain.scales.end(), G, scale);
  plain.zeros.resize(plain.scales.size());
  return plain;
}

/// Returns why not, or sets `plain`.
std::string round_nested(ExecContext& context, const std::string& name, const PackedFormat& format,
                         std::span<const float> w, PlainWeight& plain) {
  const TensorView view = {std::as_bytes(w).data(), DType::kF32, {format.N, format.K}};
  std::vector<uint16_t> bits(w.size());
  const F16Rounding rounding = round_to_f16(context, name, view, bits);
  std::string why_not = exception_of(view, rounding);
  if (!why_not.empty()) return why_not;
  for (const uint16_t value : bits) {
    const NestedFloat nested = split_f16(value);
    plain.qweight.push_back(nested.upper);
    plain.lower.push_back(nested.lower);
  }
  return {};
}

void check_finite(const std::string& name, int64_t K, std::span<const float> w) {
  const auto bad = std::find_if(w.begin(), w.end(), [](float v) { return !std::isfinite(v); });
  if (bad == w.end()) return;
  const int64_t index = bad - w.begin();
  throw InputError(str("layer ", quote(name), ": expected finite weights, got ", *bad, " at [",
                       index / K, ", ", index % K, "]. Load the weights again."));
}

}  // namespace

template <typename T>
T* elements_of(const TensorMemory& memory, int64_t count, const char* what) {
  const auto num_bytes = static_cast<size_t>(count) * sizeof(T);
  require(memory.num_bytes == num_bytes && (memory.address != 0 || count == 0),
          str(what, ": expected ", num_bytes, " bytes, got ", memory.num_bytes, "."));
  require(memory.address % alignof(T) == 0,
          str(what, ": expected memory at a multiple of ", alignof(T), " bytes."));
  return reinterpret_cast<T*>(memory.address);
}
template float* elements_of<float>(const TensorMemory&, int64_t, const char*);
template int32_t* elements_of<int32_t>(const TensorMemory&, int64_t, const char*);
template uint8_t* elements_of<uint8_t>(const TensorMemory&, int64_t, const char*);

PackedLayout layout_of(const PackedFormat& format) { return check_format(format).layout; }

GemmProblem problem_of(const PackedFormat& format) {
  const Scheme& scheme = check_format(format);
  return {.w_layout = scheme.layout,
          .N = format.N,
          .K = format.K,
          .group_size = format.group_size,
          .zero_kind = scheme.zero_kind,
          .has_input_perm = format.has_input_perm,
          .activation = scheme.activation};
}

Shape qweight_shape(const PackedFormat& format) {
  const Scheme& scheme = check_format(format);
  const int64_t panels = ceil_div(format.N, kPanelRows);
  const int64_t units = ceil_div(format.K, kQuadUnitInputs);
  const int64_t unit_bytes = kUnitValues / 8 * code_bits(scheme.layout);
  if (has_low_precision(scheme.layout)) return {panels, 2, units, unit_bytes};
  return {panels, units, unit_bytes};
}

Shape groups_shape(const PackedFormat& format) {
  const Scheme& scheme = check_format(format);
  if (!is_quantized(scheme.layout)) return {0};
  return {ceil_div(format.N, kPanelRows), num_groups(format), 2, kPanelRows};
}

std::string round_linear(ExecContext& context, const std::string& name, const PackedFormat& format,
                         const RoundingOptions& options, TensorMemory w, const PackedTensors& out) {
  check_format(format);
  const int64_t count = format.N * format.K;
  const std::span<const float> values(elements_of<float>(w, count, "w"),
                                      static_cast<size_t>(count));
  check_finite(name, format.K, values);
  PlainWeight plain;
  if (format.scheme == "nestedfp") {
    std::string why_not = round_nested(context, name, format, values, plain);
    if (!why_not.empty()) return why_not;
  } else if (format.scheme == "float8") {
    plain = round_float8(name, format, options.is_per_tensor, values);
  } else {
    plain = round_integers(context, format, options.is_symmetric,
                           f32_matrix(values.data(), format.N, format.K));
  }
  pack(context, format, plain, out);
  return {};
}

void pack_linear(ExecContext& context, const PackedFormat& format, const PlainTensors& plain,
                 const PackedTensors& out) {
  const Scheme& scheme = check_format(format);
  const int64_t count = format.N * format.K;
  const bool is_nested = has_low_precision(scheme.layout);
  const uint8_t* qweight =
      elements_of<uint8_t>(plain.qweight, is_nested ? 2 * count : count, "qweight");
  PlainWeight weight;
  weight.qweight.assign(qweight, qweight + count);
  const int largest = (1 << code_bits(scheme.layout)) - 1;
  const auto most = std::max_element(qweight, qweight + count);
  require(*most <= largest, str("qweight: expected 0 to ", largest, ", got ", int{*most}, "."));
  if (is_nested) {
    weight.lower.assign(qweight + count, qweight + 2 * count);
    for (size_t i = 0; i < weight.lower.size(); ++i) {
      require(is_split_f16({weight.qweight[i], weight.lower[i]}),
              str("qweight: expected the two bytes of an f16 value of magnitude at most 1.75, got ",
                  int{weight.qweight[i]}, " and ", int{weight.lower[i]}, "."));
    }
  } else {
    const int64_t num_scales = format.N * num_groups(format);
    const float* scales = elements_of<float>(plain.scales, num_scales, "scales");
    const float* zeros = elements_of<float>(plain.zeros, num_scales, "zeros");
    weight.scales.assign(scales, scales + num_scales);
    weight.zeros.assign(zeros, zeros + num_scales);
    const auto is_finite = [](float value) { return std::isfinite(value); };
    require(std::all_of(scales, scales + num_scales, is_finite) &&
                std::all_of(zeros, zeros + num_scales, is_finite),
            "scales, zeros: expected finite numbers.");
  }
  pack(context, format, weight, out);
}

void unpack_linear(const PackedFormat& format, const PackedTensors& packed,
                   const PlainTensors& out) {
  const PackedWeight weight = view_linear(format, packed);
  const int64_t count = format.N * format.K, G = num_groups(format);
  const int num_planes = has_low_precision(weight.layout) ? 2 : 1;
  uint8_t* qweight = elements_of<uint8_t>(out.qweight, num_planes * count, "qweight");
  const int64_t units = ceil_div(format.K, kQuadUnitInputs);
  const int64_t unit_bytes = kUnitValues / 8 * code_bits(weight.layout);
  std::array<uint8_t, kUnitValues> quads;
  for (int64_t panel = 0; panel < ceil_div(format.N, kPanelRows); ++panel) {
    for (int64_t unit = 0; unit < num_planes * units; ++unit) {
      unpack_unit(weight.layout,
                  weight.data.data() + (panel * num_planes * units + unit) * unit_bytes,
                  quads.data());
      const CodeBlock block = {.row_begin = panel * kPanelRows,
                               .num_rows = std::min(kPanelRows, format.N - panel * kPanelRows),
                               .k_begin = unit % units * kQuadUnitInputs,
                               .k_end = std::min(format.K, (unit % units + 1) * kQuadUnitInputs)};
      for (int64_t n = block.row_begin; n < block.row_begin + block.num_rows; ++n) {
        uint8_t* row = qweight + unit / units * count + n * format.K;
        for (int64_t k = block.k_begin; k < block.k_end; ++k) {
          row[k] = *code_at(quads.data(), block, n, k);
        }
      }
    }
  }
  if (G == 0) return;
  float* scales = elements_of<float>(out.scales, format.N * G, "scales");
  float* zeros = elements_of<float>(out.zeros, format.N * G, "zeros");
  for (int64_t n = 0; n < format.N; ++n) {
    for (int64_t g = 0; g < G; ++g) {
      const float* group = weight.group(n / kPanelRows, g) + n % kPanelRows;
      scales[n * G + g] = group[0];
      zeros[n * G + g] = group[kPanelRows];
    }
  }
}

void dequantize_linear(const PackedFormat& format, const PackedTensors& packed, Precision precision,
                       TensorMemory out) {
  const PackedWeight weight = view_linear(format, packed);
  float* to = elements_of<float>(out, format.N * format.num_inputs, "out");
  std::fill_n(to, format.N * format.num_inputs, 0.0f);
  for (int64_t n = 0; n < format.N; ++n) {
    unpack_row(weight, n, to + n * format.num_inputs, precision);
  }
}

PackedWeight view_linear(const PackedFormat& format, const PackedTensors& packed) {
  const Scheme& scheme = check_format(format);
  PackedWeight weight;
  weight.layout = scheme.layout;
  weight.N = format.N;
  weight.K = format.K;
  const auto borrow = [](const TensorMemory& memory, size_t num_bytes, const char* what) {
    require(memory.num_bytes == num_bytes && (memory.address != 0 || num_bytes == 0),
            str(what, ": expected ", num_bytes, " bytes, got ", memory.num_bytes, "."));
    require(memory.address % HostBuffer::kAlignment == 0,
            str(what, ": expected memory at a multiple of ", HostBuffer::kAlignment,
                " bytes. Clone the tensor."));
    return HostBuffer::borrow(reinterpret_cast<std::byte*>(memory.address), num_bytes);
  };
  weight.data = borrow(packed.qweight, packed_bytes(scheme.layout, format.N, format.K), "qweight");
  if (!is_quantized(scheme.layout)) return weight;
  weight.quant.groups =
      borrow(packed.groups, group_bytes(format.N, format.K, format.group_size), "groups");
  weight.quant.group_size = format.group_size;
  weight.quant.zero_kind = scheme.zero_kind;
  weight.quant.activation = scheme.activation;
  weight.quant.num_s8_inputs = format.num_s8_inputs;
  weight.quant.s4_clip = format.s4_clip;
  if (!format.has_input_perm) return weight;
  const int32_t* perm = elements_of<int32_t>(packed.input_perm, format.K, "input_perm");
  weight.quant.input_perm.assign(perm, perm + format.K);
  for (const int32_t k : weight.quant.input_perm) {
    require(k >= 0 && k < format.num_inputs,
            str("input_perm: expected 0 to ", format.num_inputs - 1, ", got ", k, "."));
  }
  weight.quant.num_inputs = format.num_inputs == format.K ? 0 : format.num_inputs;
  return weight;
}

BlockInputs plan_block_inputs(int64_t N, int64_t K, double s8_share, TensorMemory abs_max,
                              TensorMemory rms, TensorMemory w) {
  require(N >= 1 && N <= kSizeMax && K >= 1 && K <= kSizeMax,
          str("weight: expected N and K from 1 to ", kSizeMax, ", got ", N, ", ", K, "."));
  require(s8_share >= 0 && s8_share <= 1, str("s8_share: expected 0 to 1, got ", s8_share, "."));
  const float* largest = elements_of<float>(abs_max, K, "abs_max");
  const float* squares = elements_of<float>(rms, K, "rms");
  InputStats stats;
  stats.K = K;
  stats.abs_max.assign(largest, largest + K);
  const ConstMatrix weights[] = {
      f32_matrix(static_cast<const float*>(elements_of<float>(w, N * K, "w")), N, K)};
  std::vector<float> importance = column_norms(weights);
  for (int64_t k = 0; k < K; ++k) {
    // plan_blocks() multiplies by the largest magnitude.
    importance[static_cast<size_t>(k)] *= largest[k] > 0 ? squares[k] / largest[k] : 0.0f;
  }
  // Every channel counts as an outlier, so that the share of 8-bit blocks is used up.
  const double outlier_ratio = s8_share > 0 ? 0 : std::numeric_limits<double>::infinity();
  BlockPlan plan =
      plan_blocks(stats, importance, {.s8_share_max = s8_share, .outlier_ratio = outlier_ratio});
  return {std::move(plan.input_perm), plan.num_s8_inputs};
}

}  // namespace halley
