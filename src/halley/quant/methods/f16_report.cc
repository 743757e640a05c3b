#include "halley/quant/methods/f16_report.h"

#include <algorithm>
#include <utility>

#include "halley/quant/methods/dense_types.h"

namespace halley {

OrderedJson to_json(const RoundingReport& report) {
  OrderedJson json = {{"name", report.name}, {"from", report.dtype}};
  json.update(to_json(report.rounding));
  json["kept_because"] = report.kept_because;
  return json;
}

RoundingReport rounding_report_of(const Json& json) {
  return {.name = json.at("name"),
          .dtype = json.at("from"),
          .rounding = f16_rounding_of(json),
          .kept_because = json.at("kept_because")};
}

RoundedModel rounded_model_of(std::span<const RoundingReport> reports) {
  RoundedModel model;
  for (const RoundingReport& report : reports) {
    if (!report.kept_because.empty()) continue;
    model.rounding.append(report.rounding);
    if (std::find(model.dtypes.begin(), model.dtypes.end(), report.dtype) == model.dtypes.end()) {
      model.dtypes.push_back(report.dtype);
    }
  }
  std::sort(model.dtypes.begin(), model.dtypes.end());
  return model;
}

CheckpointTensor to_written_type(ExecContext& context, const Recipe& recipe,
                                 const std::string& name, const TensorView& view, DType stored,
                                 std::vector<RoundingReport>& reports) {
  const bool is_rounded =
      recipe.format == WeightFormat::kNestedFp && view.shape.size() > 1 && stored != DType::kF16;
  if (!is_rounded) return to_stored_type(name, view, stored);
  CheckpointTensor tensor = {.info = {.name = name, .dtype = DType::kF16, .shape = view.shape},
                             .data = {}};
  std::vector<uint16_t> bits(static_cast<size_t>(view.num_elements()));
  RoundingReport report = {.name = name,
                           .dtype = name_of(stored),
                           .rounding = round_to_f16(context, name, view, bits),
                           .kept_because = {}};
  const bool overflows = report.rounding.num_overflows > 0;
  if (overflows) report.kept_because = exception_of(view, report.rounding);
  reports.push_back(std::move(report));
  if (overflows) return to_stored_type(name, view, stored);
  const auto bytes = std::as_bytes(std::span(bits));
  tensor.data.assign(bytes.begin(), bytes.end());
  tensor.info.num_bytes = tensor.data.size();
  return tensor;
}

}  // namespace halley
