#include "halley/cli/inspect_nested.h"

#include <cstdio>
#include <string>

#include "halley/base/str.h"

namespace halley::cli {
namespace {

double percent_of(int64_t count, int64_t all) {
  return all == 0 ? 100.0 : 100.0 * static_cast<double>(count) / static_cast<double>(all);
}

OrderedJson json_of(const NestedFitKind& kind) {
  OrderedJson json = {{"kind", kind.name},
                      {"num_layers", kind.num_layers},
                      {"num_applicable", kind.num_applicable},
                      {"share_within", kind.share_within()},
                      {"min", nullptr},
                      {"max", nullptr}};
  if (kind.rounding.num_values > 0) {
    json["min"] = kind.rounding.min;
    json["max"] = kind.rounding.max;
  }
  json["rounded_to_f16"] = to_json(kind.rounding);
  return json;
}

void print_kind(const NestedFitKind& kind) {
  const F16Rounding& rounding = kind.rounding;
  if (kind.num_layers == 0) return;
  const std::string layers = str(kind.num_applicable, " of ", kind.num_layers);
  // Few weights are beyond: rounding must not make all of them.
  std::printf("%-9s %13s %7.2f %% %10.4g %10.4g %12.6f %% %12lld\n", kind.name.c_str(),
              layers.c_str(), percent_of(kind.num_applicable, kind.num_layers),
              double{rounding.min}, double{rounding.max}, 100 * kind.share_within(),
              static_cast<long long>(rounding.num_beyond));
}

}  // namespace

OrderedJson nested_fit_json(const NestedFit& fit) {
  OrderedJson kinds = OrderedJson::array();
  for (const NestedFitKind& kind : fit.kinds) kinds.push_back(json_of(kind));
  OrderedJson exceptions = OrderedJson::array();
  for (const NestedFitLayer& layer : fit.exceptions) {
    exceptions.push_back({{"name", layer.name},
                          {"kind", fit.kinds.at(layer.kind).name},
                          {"dtype", name_of(layer.dtype)},
                          {"min", layer.rounding.min},
                          {"max", layer.rounding.max},
                          {"num_beyond", layer.rounding.num_beyond},
                          {"num_overflows", layer.rounding.num_overflows}});
  }
  return {{"kinds", kinds}, {"total", json_of(fit.total)}, {"exceptions", exceptions}};
}

void print_nested_fit(const NestedFit& fit) {
  std::printf("\n%-9s %13s %9s %10s %10s %14s %12s\n", "kind", "applicable", "share", "min", "max",
              "within 1.75", "beyond");
  for (const NestedFitKind& kind : fit.kinds) print_kind(kind);
  print_kind(fit.total);
  if (!fit.exceptions.empty()) std::printf("\nexceptions\n");
  for (const NestedFitLayer& layer : fit.exceptions) {
    const F16Rounding& rounding = layer.rounding;
    std::printf("%-52s %10.4g %10.4g  %lld beyond 1.75", layer.name.c_str(), double{rounding.min},
                double{rounding.max}, static_cast<long long>(rounding.num_beyond));
    if (rounding.num_overflows > 0) {
      std::printf(", %lld overflow f16", static_cast<long long>(rounding.num_overflows));
    }
    std::printf("\n");
  }
  const F16Rounding& all = fit.total.rounding;
  std::printf("\nrounding to f16 changes %lld of %lld weights, %lld to zero",
              static_cast<long long>(all.num_changed), static_cast<long long>(all.num_values),
              static_cast<long long>(all.num_zeroed));
  if (all.num_changed > 0) {
    std::printf("; worst error %.3g relative, %.3g absolute", all.worst_relative_error,
                all.worst_absolute_error);
  }
  std::printf("\n");
}

}  // namespace halley::cli
