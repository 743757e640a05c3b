// The file in which measured plans of a GPU are kept between runs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "halley/cuda/tuning/tuning_table.h"

namespace halley::cuda {

/// "halley/tuned/nvidia_h100_80gb_hbm3_132.json" in XDG_CACHE_HOME, or in .cache of HOME: the
/// device's name and number of SMs. Empty where neither variable is an absolute path.
std::filesystem::path tuning_cache_path(const std::string& device, int num_sms);

/// The table of a file, for this device. Throws InputError where it cannot be read, is no table, or
/// is of another device.
TuningTable read_tuning_table(const std::filesystem::path& path, const std::string& device,
                              int num_sms);

/// Adds plans to the table of a file, which need not be there; a table that cannot be read is
/// replaced. Other processes see the old file or the new one. Throws InputError where the file
/// cannot be written.
void add_to_tuning_cache(const std::filesystem::path& path, const TuningTable& table);

}  // namespace halley::cuda
