#include "halley/quant/base/linear_loader.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/kernels/gemm/pack_quads.h"
#include "halley/quant/base/dense_tensor.h"
#include "halley/quant/base/self_check.h"

namespace halley {
namespace {

using Part = LinearSpec::Part;

/// Units of one panel that are unpacked and packed at a time: the codes stay in the first-level
/// cache.
constexpr int64_t kUnitsAtOnce = 8;
constexpr int64_t kUnitCodes = kQuadUnitInputs * kPanelRows;

struct OpenPart {
  const Part* spec = nullptr;
  std::unique_ptr<StoredWeight> weight;
  const TensorInfo* bias = nullptr;
};

/// Consecutive parts that become one packed weight.
struct OpenSection {
  std::vector<OpenPart> parts;
  int64_t in_features = 0;

  const WeightDesc& desc() const { return parts[0].weight->desc(); }
  int64_t out_features() const {
    int64_t total = 0;
    for (const OpenPart& part : parts) total += part.spec->out_features;
    return total;
  }
};

/// An order that is found with the data is its layer's own.
bool has_same_order(const WeightDesc& a, const WeightDesc& b) {
  if (!a.has_input_order && !b.has_input_order) return true;
  return a.stated_order && b.stated_order && *a.stated_order == *b.stated_order;
}

bool can_join(const WeightDesc& a, const WeightDesc& b) {
  return a.layout == b.layout && a.group_size == b.group_size && a.zero_kind == b.zero_kind &&
         a.activation == b.activation && a.activation_scale == b.activation_scale &&
         a.num_s8_inputs == b.num_s8_inputs && a.s4_clip == b.s4_clip && has_same_order(a, b) &&
         std::strcmp(a.format, b.format) == 0;
}

/// The part's bias. Some tools write one (of zeros) for every layer that they quantized, whether
/// the model has biases or not; it is added like any other.
const TensorInfo* find_bias(const LinearLoading& loading, const LinearSpec& spec,
                            const OpenPart& part) {
  const std::string name = part.spec->name + ".bias";
  const bool is_extra = is_quantized(part.weight->desc().layout) && part.spec->expert < 0 &&
                        loading.source.find(name) != nullptr;
  if (!spec.has_bias && !is_extra) return nullptr;
  return &find_dense_tensor(loading.source, name, {part.spec->stored_rows});
}

std::vector<OpenSection> open_sections(const LinearLoading& loading, const LinearSpec& spec) {
  std::vector<OpenSection> sections;
  for (const Part& part : spec.parts) {
    OpenPart open;
    open.spec = &part;
    open.weight = loading.scheme.open(loading.source, part, spec.in_features);
    open.bias = find_bias(loading, spec, open);
    const bool joins = !sections.empty() && can_join(sections.back().desc(), open.weight->desc());
    if (!joins) sections.push_back({.parts = {}, .in_features = spec.in_features});
    sections.back().parts.push_back(std::move(open));
  }
  return sections;
}

GemmProblem problem_of(const OpenSection& section) {
  const WeightDesc& desc = section.desc();
  return {.w_layout = desc.layout,
          .N = section.out_features(),
          .K = section.in_features,
          .group_size = desc.group_size,
          .zero_kind = desc.zero_kind,
          .has_input_order = desc.has_input_order,
          .activation = desc.activation};
}

/// What the user is told beside the error itself: which layer it is.
KernelChoice choose_kernel(const LinearLoading& loading, const GemmProblem& problem,
                           const std::string& name) {
  try {
    return choose_gemm_kernel(problem, loading.demands);
  } catch (const InputError& error) {
    throw InputError(str("layer ", quote(name), ": ", error.what()));
  } catch (const UnsupportedError& error) {
    throw UnsupportedError(str("layer ", quote(name), ": ", error.what()));
  }
}

LinearPlan plan_section(const LinearLoading& loading, const OpenSection& section) {
  LinearSpec joined;
  LinearPlan plan;
  for (const OpenPart& part : section.parts) {
    joined.parts.push_back(*part.spec);
    plan.stored_bytes += part.weight->desc().stored_bytes;
    const auto& warnings = part.weight->warnings();
    plan.warnings.insert(plan.warnings.end(), warnings.begin(), warnings.end());
  }
  plan.name = joined.display_name();
  plan.weight = section.desc();
  plan.out_features = section.out_features();
  plan.in_features = section.in_features;
  const auto num_weights = static_cast<double>(plan.out_features * plan.in_features);
  plan.bits_per_weight = num_weights == 0 ? 0 : 8 * plan.stored_bytes / num_weights;
  const WeightDesc& desc = plan.weight;
  plan.packed_bytes = packed_bytes(desc.layout, plan.out_features, plan.in_features);
  if (is_quantized(desc.layout)) {
    plan.packed_bytes += group_bytes(plan.out_features, plan.in_features, desc.group_size);
  }
  const GemmProblem problem = problem_of(section);
  KernelChoice choice = choose_kernel(loading, problem, plan.name);
  plan.kernel = choice.kernel;
  plan.refusals = std::move(choice.refusals);
  if (has_low_precision(desc.layout)) {
    KernelChoice low = choose_kernel(loading, low_problem(problem), plan.name);
    plan.low_kernel = low.kernel;
    plan.refusals.insert(plan.refusals.end(), low.refusals.begin(), low.refusals.end());
  }
  return plan;
}

std::vector<float> read_bias(const LinearLoading& loading, std::span<const OpenSection> sections) {
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
      const TensorView view = loading.source.view(*part.bias);
      const auto values = to_f32(view.rows(begin, begin + part.spec->out_features));
      bias.insert(bias.end(), values.begin(), values.end());
    }
  }
  if (!has_any) bias.clear();
  return bias;
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
    const bool is_ordered = !weight_.quant.input_order.empty();
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

  /// Stored order to packed order, of all codes of the panel.
  void sort_inputs() {
    sorted_.assign(codes_.size(), 0);
    const auto place = [](int64_t k) { return k / 4 * kQuadCodes + k % 4; };
    for (int64_t k = 0; k < weight_.K; ++k) {
      const uint8_t* from =
          codes_.data() + place(weight_.quant.input_order[static_cast<size_t>(k)]);
      uint8_t* to = sorted_.data() + place(k);
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
  if (desc.has_input_order) weight.quant.input_order = section.parts[0].weight->input_order();
  allocate_quantized(&weight);
  std::vector<PanelPacker> packers;
  for (int i = 0; i < context.pool.num_threads(); ++i) packers.emplace_back(section, weight);
  context.pool.run(ceil_div(weight.N, kPanelRows), [&](int64_t panel, int thread) {
    packers[static_cast<size_t>(thread)].pack(panel);
  });
  return weight;
}

/// Adds the seconds of its life to `total`.
class Stopwatch {
 public:
  explicit Stopwatch(double* total) : total_(total) {}
  ~Stopwatch() {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
    *total_ += seconds.count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double* total_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Touches every page of the section's tensors, on all threads: reading is a step of its own, whose
/// time can be told, and the disk sees several readers.
void read_tensors(ExecContext& context, const LinearLoading& loading, const OpenSection& section) {
  constexpr int64_t kTaskBytes = 1 << 20;
  constexpr int64_t kPageBytes = 4096;
  std::vector<std::span<const std::byte>> tasks;
  for (const OpenPart& part : section.parts) {
    for (const std::string& name : part.weight->desc().tensor_names) {
      const TensorInfo* info = loading.source.find(name);
      if (info == nullptr) continue;
      const std::byte* data = loading.source.view(*info).data;
      const auto num_bytes = static_cast<int64_t>(info->num_bytes);
      for (int64_t begin = 0; begin < num_bytes; begin += kTaskBytes) {
        const int64_t end = std::min(num_bytes, begin + kTaskBytes);
        tasks.emplace_back(data + begin, data + end);
      }
    }
  }
  context.pool.run(static_cast<int64_t>(tasks.size()), [&](int64_t task, int) {
    const auto bytes = tasks[static_cast<size_t>(task)];
    const auto num_bytes = static_cast<int64_t>(bytes.size());
    for (int64_t i = 0; i < num_bytes; i += kPageBytes) {
      [[maybe_unused]] const volatile std::byte touched = bytes[static_cast<size_t>(i)];
    }
  });
}

PackedWeight pack_section(ExecContext& context, const OpenSection& section) {
  const PackedLayout layout = section.desc().layout;
  const bool has_quads = is_quantized(layout) || has_low_precision(layout);
  return has_quads ? pack_quad_section(context, section) : pack_dense_section(context, section);
}

void release_tensors(const LinearLoading& loading, const OpenSection& section) {
  for (const OpenPart& part : section.parts) {
    // A tensor of which this is one of several parts is read again.
    if (part.spec->out_features != part.spec->stored_rows || part.spec->expert >= 0) continue;
    for (const std::string& name : part.weight->desc().tensor_names) {
      if (const TensorInfo* info = loading.source.find(name)) loading.source.release(*info);
    }
  }
}

}  // namespace

std::vector<LinearPlan> plan_linear(const LinearLoading& loading, const LinearSpec& spec) {
  std::vector<LinearPlan> plans;
  for (const OpenSection& section : open_sections(loading, spec)) {
    plans.push_back(plan_section(loading, section));
  }
  return plans;
}

LinearOp load_linear(ExecContext& context, const LinearLoading& loading, const LinearSpec& spec) {
  const std::vector<OpenSection> sections = open_sections(loading, spec);
  LoadTimes unused;
  LoadTimes& times = loading.times == nullptr ? unused : *loading.times;
  std::vector<LinearOp::Section> packed;
  for (const OpenSection& section : sections) {
    const LinearPlan plan = plan_section(loading, section);
    LinearOp::Section result;
    result.kernel = plan.kernel;
    result.low_kernel = plan.low_kernel;
    {
      const Stopwatch watch(&times.read);
      read_tensors(context, loading, section);
    }
    {
      const Stopwatch watch(&times.pack);
      result.weight = pack_section(context, section);
      release_tensors(loading, section);
    }
    if (loading.has_self_check) {
      const Stopwatch watch(&times.self_check);
      for (const GemmKernel* kernel : {result.kernel, result.low_kernel}) {
        if (kernel != nullptr) self_check(context, plan.name, result.weight, *kernel);
      }
    }
    packed.push_back(std::move(result));
  }
  return {std::move(packed), read_bias(loading, sections)};
}

std::vector<std::string> linear_tensor_names(const LinearLoading& loading, const LinearSpec& spec) {
  std::vector<std::string> names;
  for (const OpenSection& section : open_sections(loading, spec)) {
    for (const OpenPart& part : section.parts) {
      const auto& own = part.weight->desc().tensor_names;
      names.insert(names.end(), own.begin(), own.end());
      if (part.bias != nullptr) names.push_back(part.bias->name);
    }
  }
  return names;
}

}  // namespace halley
