#include "halley/quant/none/none.h"

#include <algorithm>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/quant/base/dense_tensor.h"

namespace halley {
namespace {

using Part = LinearSpec::Part;

std::string weight_name(const Part& part) {
  return part.expert >= 0 ? part.name : part.name + ".weight";
}

const TensorInfo& find_weight(const TensorSource& source, const LinearSpec& spec,
                              const Part& part) {
  Shape shape = {part.stored_rows, spec.in_features};
  if (part.expert >= 0) shape.insert(shape.begin(), part.num_stored_experts);
  return find_dense_tensor(source, weight_name(part), shape);
}

/// The rows of one part: a matrix [out_features, K].
TensorView part_rows(const TensorSource& source, const LinearSpec& spec, const Part& part) {
  TensorView view = source.view(find_weight(source, spec, part));
  if (part.expert >= 0) {
    view = view.rows(part.expert, part.expert + 1);
    view.shape.erase(view.shape.begin());
  }
  return view.rows(part.row_begin, part.row_begin + part.out_features);
}

std::vector<float> read_bias(const TensorSource& source, const LinearSpec& spec) {
  std::vector<float> bias;
  if (!spec.has_bias) return bias;
  bias.reserve(static_cast<size_t>(spec.out_features()));
  for (const Part& part : spec.parts) {
    const TensorInfo& info = find_dense_tensor(source, part.name + ".bias", {part.stored_rows});
    const TensorView view = source.view(info);
    const auto values = to_f32(view.rows(part.row_begin, part.row_begin + part.out_features));
    bias.insert(bias.end(), values.begin(), values.end());
  }
  return bias;
}

/// The one type of all parts.
DType stored_dtype(const TensorSource& source, const LinearSpec& spec) {
  const TensorInfo& first = find_weight(source, spec, spec.parts[0]);
  for (const Part& part : spec.parts) {
    const TensorInfo& info = find_weight(source, spec, part);
    if (info.dtype == first.dtype) continue;
    throw CheckpointError(str(source.description(), ": tensor ", quote(info.name),
                              ": expected type ", first.dtype, " as ", quote(first.name),
                              ", which runs in one product with it, got ", info.dtype,
                              ". Convert both to one type."));
  }
  return first.dtype;
}

class DenseScheme : public QuantScheme {
 public:
  const char* format_name() const override { return "none"; }

  LinearPlan plan(const TensorSource& source, const LinearSpec& spec) const override {
    const DType dtype = stored_dtype(source, spec);
    for (const Part& part : spec.parts) {
      if (spec.has_bias) find_dense_tensor(source, part.name + ".bias", {part.stored_rows});
    }
    LinearPlan plan;
    plan.name = spec.display_name();
    plan.format = format_name();
    plan.stored_dtype = dtype;
    plan.out_features = spec.out_features();
    plan.in_features = spec.in_features;
    plan.bits_per_weight = bits_of(dtype);
    const PackedLayout layout = dense_layout_for(dtype);
    plan.packed_bytes = packed_bytes(layout, plan.out_features, plan.in_features);
    const GemmProblem problem = {layout, plan.out_features, plan.in_features};
    plan.kernel = &find_gemm_kernel(problem);
    for (const GemmKernel& kernel : cpu_gemm_kernels()) {
      if (&kernel == plan.kernel) break;
      if (kernel.w_layout != layout) continue;
      plan.refusals.push_back(str(kernel.name, ": ", kernel.why_not(problem)));
    }
    return plan;
  }

  LinearOp load(ExecContext& context, const TensorSource& source,
                const LinearSpec& spec) const override {
    const LinearPlan checked = plan(source, spec);
    std::vector<TensorView> parts;
    for (const Part& part : spec.parts) parts.push_back(part_rows(source, spec, part));
    return {pack_dense(context, parts), read_bias(source, spec), *checked.kernel};
  }

  std::vector<std::string> tensor_names(const LinearSpec& spec) const override {
    std::vector<std::string> names;
    for (const Part& part : spec.parts) {
      names.push_back(weight_name(part));
      if (spec.has_bias) names.push_back(part.name + ".bias");
    }
    return names;
  }
};

std::unique_ptr<QuantScheme> detect(const HfConfig& config, const TensorSource&) {
  if (config.has("quantization_config")) return nullptr;
  return std::make_unique<DenseScheme>();
}

}  // namespace

const QuantFormat kQuantNone = {.name = "none", .detect = detect};

}  // namespace halley
