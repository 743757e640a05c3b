#include "halley/quant/inspection/activation_json.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/fmpq/block_weight.h"
#include "halley/quant/fmpq/plan_blocks.h"

namespace halley {
namespace {

/// Six digits: more would be noise, and the file twice as large.
OrderedJson json_of(const std::vector<float>& values) {
  OrderedJson json = OrderedJson::array();
  for (const float value : values) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.6g", double{value});
    json.push_back(std::strtod(text, nullptr));
  }
  return json;
}

OrderedJson json_of(const ChannelMagnitudes& magnitudes) {
  return {{"abs_max", json_of(magnitudes.abs_max)}, {"abs_mean", json_of(magnitudes.abs_mean)}};
}

OrderedJson json_of(const ActivationSite& site) {
  const SiteSummary summary = summarize(site);
  OrderedJson json = {{"name", site.name},
                      {"layer", site.layer},
                      {"num_channels", site.before.abs_max.size()},
                      {"num_tokens", site.num_tokens},
                      {"worst_channel", summary.worst_channel},
                      {"ratio", summary.ratio},
                      {"ratio_after", summary.ratio_after}};
  if (site.is_head_site()) {
    json["head_dim"] = site.head_dim;
    return json;
  }
  json["num_blocks"] = summary.num_blocks;
  json["num_outliers"] = summary.num_outliers;
  json["outlier_blocks"] = summary.outlier_blocks;
  json["num_outliers_after"] = summary.num_outliers_after;
  json["outlier_blocks_after"] = summary.outlier_blocks_after;
  json["num_s8_inputs"] = site.num_s8_inputs;
  json["num_outliers_in_s4"] = summary.num_outliers_in_s4;
  return json;
}

OrderedJson head_of(const ActivationReport& report) {
  return {{"version", 1},
          {"method", "fmpq"},
          {"outlier_ratio", BlockOptions().outlier_ratio},
          {"block_size", kFmpqBlock},
          {"num_layers", report.num_layers},
          {"tokens",
           {{"num_sequences", report.num_sequences}, {"sequence_length", report.sequence_length}}},
          {"notes", report.notes}};
}

void write_file(const std::filesystem::path& path,
                const std::function<void(std::ofstream& file)>& write) {
  std::ofstream file(path, std::ios::binary);
  write(file);
  file.close();
  if (!file) {
    throw DeviceError(str(path.string(),
                          ": expected to write a file, got an error. Check the "
                          "folder's permissions and the free space."));
  }
}

}  // namespace

OrderedJson summary_json(const ActivationReport& report) {
  OrderedJson json = head_of(report);
  json["sites"] = OrderedJson::array();
  for (const ActivationSite& site : report.sites) json["sites"].push_back(json_of(site));
  return json;
}

void write_activations(const ActivationReport& report, const std::string& model,
                       const std::string& text, const std::filesystem::path& path) {
  write_file(path, [&](std::ofstream& file) {
    OrderedJson head = {{"model", model}, {"text", text}};
    head.update(head_of(report));
    std::string line = head.dump();
    line.pop_back();  // the brace, which follows the sites
    file << line << ",\"sites\":[\n";
    for (size_t i = 0; i < report.sites.size(); ++i) {
      const ActivationSite& site = report.sites[i];
      OrderedJson json = json_of(site);
      json["before"] = json_of(site.before);
      json["after"] = json_of(site.after);
      if (!site.is_head_site()) json["perm"] = site.perm;
      file << json.dump() << (i + 1 < report.sites.size() ? ",\n" : "\n");
    }
    file << "]}\n";
  });
}

void write_picture(const std::string& content, const std::filesystem::path& path) {
  write_file(path, [&](std::ofstream& file) { file << content; });
}

}  // namespace halley
