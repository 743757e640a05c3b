// An activation report as JSON.
#pragma once

#include <filesystem>
#include <string>

#include "halley/json/json.h"
#include "halley/quant/inspection/activation_stats.h"

namespace halley {

/// The report without the arrays of channels; docs/quantization.md has the fields.
OrderedJson summary_json(const ActivationReport& report);

/// Writes the whole report: the summary's fields and, one line a site, the arrays. `model` and
/// `text` are names for the reader. Throws DeviceError where the file cannot be written.
void write_activations(const ActivationReport& report, const std::string& model,
                       const std::string& text, const std::filesystem::path& path);

/// Writes `content` to a new file. Throws as write_activations().
void write_picture(const std::string& content, const std::filesystem::path& path);

}  // namespace halley
