#include "halley/quant/base/open_section.h"

#include <algorithm>
#include <cstring>

#include "halley/base/checked_math.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/kernels/gemm/pack_quads.h"
#include "halley/quant/base/dense_tensor.h"
#include "halley/quant/base/input_slice.h"

namespace halley {
namespace {

using Part = LinearSpec::Part;

/// Units of one panel that are unpacked and packed at a time: the codes stay in the L1 cache.
constexpr int64_t kUnitsAtOnce = 8;
constexpr int64_t kUnitCodes = kQuadUnitInputs * kPanelRows;

/// Whether both have no permutation or equal ones; one that is found later, with the data, equals
/// no other.
bool has_same_perm(const WeightDesc& a, const WeightDesc& b) {
  if (!a.has_input_perm && !b.has_input_perm) return true;
  return a.declared_perm && b.declared_perm && *a.declared_perm == *b.declared_perm;
}

bool can_join(const WeightDesc& a, const WeightDesc& b) {
  return a.num_inputs == b.num_inputs && a.layout == b.layout && a.group_size == b.group_size &&
         a.zero_kind == b.zero_kind && a.activation == b.activation &&
         a.activation_scale == b.activation_scale && a.num_s8_inputs == b.num_s8_inputs &&
         a.s4_clip == b.s4_clip && has_same_perm(a, b) && std::strcmp(a.format, b.format) == 0;
}

/// The part's bias. Some tools write one (of zeros) for every layer that they quantized, whether
/// the model has biases or not; it is added like any other.
const TensorInfo* find_bias(const TensorSource& source, const LinearSpec& spec,
                            const OpenPart& part) {
  if (spec.inputs && spec.inputs->begin > 0) return nullptr;
  const std::string name = part.spec->name + ".bias";
  const bool is_extra = is_quantized(part.weight->desc().layout) && part.spec->expert < 0 &&
                        source.find(name) != nullptr;
  if (!spec.has_bias && !is_extra) return nullptr;
  return &find_dense_tensor(source, name, {part.spec->stored_rows});
}

PackedWeight pack_dense_section(ExecContext& context, const OpenSection& section) {
  std::vector<TensorView> rows;
  for (const OpenPart& part : section.parts) rows.push_back(part.weight->dense_rows());
  return pack_dense(context, rows);
}

/// Some rows of one part that lie in one panel.
struct PanelRows {
  const StoredWeight* weight = nullptr;
  int64_t row_begin = 0;  // of the part
  int64_t num_rows = 0;
  int64_t column = 0;  // of the panel
};

std::vector<PanelRows> rows_of_panel(const OpenSection& section, int64_t panel) {
  std::vector<PanelRows> pieces;
  int64_t part_begin = 0;
  for (const OpenPart& part : section.parts) {
    const int64_t begin = std::max(part_begin, panel * kPanelRows);
    const int64_t end = std::min(part_begin + part.spec->out_features, (panel + 1) * kPanelRows);
    if (begin < end) {
      pieces.push_back({.weight = part.weight.get(),
                        .row_begin = begin - part_begin,
                        .num_rows = end - begin,
                        .column = begin - panel * kPanelRows});
    }
    part_begin += part.spec->out_features;
  }
  return pieces;
}

/// Packs panels of one section; memory of one thread.
class PanelPacker {
 public:
  PanelPacker(const OpenSection& section, PackedWeight& weight)
      : section_(section), weight_(weight) {}

  void pack(int64_t panel) {
    const auto pieces = rows_of_panel(section_, panel);
    const size_t panel_bytes = packed_bytes(weight_.layout, kPanelRows, weight_.K);
    std::byte* out = weight_.data.data() + static_cast<size_t>(panel) * panel_bytes;
    if (is_quantized(weight_.layout)) {
      pack_groups(panel, pieces);
      return pack_codes(pieces, &StoredWeight::read_codes, out);
    }
    pack_codes(pieces, &StoredWeight::read_codes, out);
    pack_codes(pieces, &StoredWeight::read_lower, out + panel_bytes / 2);
  }

 private:
  using Read = void (StoredWeight::*)(const CodeBlock&, uint8_t*) const;

  /// One plane of a panel.
  void pack_codes(std::span<const PanelRows> pieces, Read read, std::byte* out) {
    const int64_t num_units = ceil_div(weight_.K, kQuadUnitInputs);
    const int64_t unit_bytes = kUnitCodes / 8 * code_bits(weight_.layout);
    const bool is_ordered = !weight_.quant.input_perm.empty() && !section_.desc().has_packed_codes;
    const int64_t step = is_ordered ? num_units : kUnitsAtOnce;
    for (int64_t unit = 0; unit < num_units; unit += step) {
      const int64_t count = std::min(step, num_units - unit);
      read_units(pieces, read, unit, count);
      if (is_ordered) sort_inputs();
      pack_quads(weight_.layout, codes_.data(), count, out + unit * unit_bytes);
    }
  }

  void pack_groups(int64_t panel, std::span<const PanelRows> pieces) {
    const int64_t num_floats = weight_.num_groups() * 2 * kPanelRows;
    auto* groups = reinterpret_cast<float*>(weight_.quant.groups.data()) + panel * num_floats;
    std::fill_n(groups, num_floats, 0.0f);
    for (const PanelRows& piece : pieces) {
      piece.weight->read_groups(piece.row_begin, piece.num_rows, groups + piece.column);
    }
  }

  void read_units(std::span<const PanelRows> pieces, Read read, int64_t unit, int64_t count) {
    codes_.assign(static_cast<size_t>(count * kUnitCodes), 0);
    for (const PanelRows& piece : pieces) {
      const CodeBlock block = {.row_begin = piece.row_begin,
                               .num_rows = piece.num_rows,
                               .k_begin = unit * kQuadUnitInputs,
                               .k_end = std::min(weight_.K, (unit + count) * kQuadUnitInputs)};
      (piece.weight->*read)(block, codes_.data() + 4 * piece.column);
    }
  }

  /// Permutes all codes of the panel from stored to packed order (act-order).
  void sort_inputs() {
    sorted_.assign(codes_.size(), 0);
    const auto offset = [](int64_t k) { return k / 4 * kQuadValues + k % 4; };
    for (int64_t k = 0; k < weight_.K; ++k) {
      const uint8_t* from =
          codes_.data() + offset(weight_.quant.input_perm[static_cast<size_t>(k)]);
      uint8_t* to = sorted_.data() + offset(k);
      for (int64_t n = 0; n < kPanelRows; ++n) to[4 * n] = from[4 * n];
    }
    codes_.swap(sorted_);
  }

  const OpenSection& section_;
  PackedWeight& weight_;
  std::vector<uint8_t> codes_, sorted_;
};

PackedWeight pack_quad_section(ExecContext& context, const OpenSection& section) {
  for (const OpenPart& part : section.parts) part.weight->check_data();
  const WeightDesc& desc = section.desc();
  PackedWeight weight;
  weight.layout = desc.layout;
  weight.N = section.out_features();
  weight.K = section.in_features;
  weight.quant.group_size = desc.group_size;
  weight.quant.zero_kind = desc.zero_kind;
  weight.quant.activation = desc.activation;
  weight.quant.activation_scale = desc.activation_scale;
  weight.quant.num_s8_inputs = desc.num_s8_inputs;
  weight.quant.s4_clip = desc.s4_clip;
  if (desc.has_input_perm) weight.quant.input_perm = section.parts[0].weight->input_perm();
  weight.quant.num_inputs = desc.num_inputs;
  allocate_quantized(&weight);
  std::vector<PanelPacker> packers;
  for (int i = 0; i < context.pool.num_threads(); ++i) packers.emplace_back(section, weight);
  context.pool.run(ceil_div(weight.N, kPanelRows), [&](int64_t panel, int thread) {
    packers[static_cast<size_t>(thread)].pack(panel);
  });
  return weight;
}

}  // namespace

std::string OpenSection::display_name() const {
  LinearSpec joined;
  for (const OpenPart& part : parts) joined.parts.push_back(*part.spec);
  return joined.display_name();
}

std::vector<OpenSection> open_sections(const QuantScheme& scheme, const TensorSource& source,
                                       const LinearSpec& spec) {
  std::vector<OpenSection> sections;
  for (const Part& part : spec.parts) {
    OpenPart open;
    open.spec = &part;
    open.weight = scheme.open(source, part, spec.in_features);
    int64_t in_features = spec.in_features;
    if (spec.inputs) {
      in_features = spec.inputs->size();
      open.weight = slice_inputs(std::move(open.weight), part, spec.in_features, *spec.inputs);
    }
    open.bias = find_bias(source, spec, open);
    open.is_slice = spec.inputs || part.out_features != part.stored_rows || part.expert >= 0;
    const bool joins = !sections.empty() && can_join(sections.back().desc(), open.weight->desc());
    if (!joins) sections.push_back({.parts = {}, .in_features = in_features});
    sections.back().parts.push_back(std::move(open));
  }
  return sections;
}

std::vector<float> read_bias(const TensorSource& source, std::span<const OpenSection> sections) {
  std::vector<float> bias;
  bool has_any = false;
  for (const OpenSection& section : sections) {
    for (const OpenPart& part : section.parts) {
      const auto num_rows = static_cast<size_t>(part.spec->out_features);
      if (part.bias == nullptr) {
        bias.insert(bias.end(), num_rows, 0.0f);
        continue;
      }
      has_any = true;
      const int64_t begin = part.spec->row_begin;
      const TensorView view = source.view(*part.bias);
      const auto values = to_f32(view.rows(begin, begin + part.spec->out_features));
      bias.insert(bias.end(), values.begin(), values.end());
    }
  }
  if (!has_any) bias.clear();
  return bias;
}

PackedWeight pack_section(ExecContext& context, const OpenSection& section) {
  const PackedLayout layout = section.desc().layout;
  const bool has_quads = is_quantized(layout) || has_low_precision(layout);
  return has_quads ? pack_quad_section(context, section) : pack_dense_section(context, section);
}

void release_tensors(const TensorSource& source, const OpenSection& section) {
  for (const OpenPart& part : section.parts) {
    // A tensor of several parts is read again for the next one.
    if (part.is_slice) continue;
    for (const std::string& name : part.weight->desc().tensor_names) {
      if (const TensorInfo* info = source.find(name)) source.release(*info);
    }
  }
}

}  // namespace halley
