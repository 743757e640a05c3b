#include "halley/cuda/tuning/tuning_cache.h"

#include <cctype>
#include <fstream>
#include <system_error>
#include <utility>

#include <unistd.h>

#include "halley/base/env.h"
#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"

namespace halley::cuda {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFileBytesMax = size_t{64} << 20;

fs::path cache_folder() {
  if (const auto folder = env_string("XDG_CACHE_HOME"); folder && fs::path(*folder).is_absolute()) {
    return *folder;
  }
  if (const auto home = env_string("HOME"); home && fs::path(*home).is_absolute()) {
    return fs::path(*home) / ".cache";
  }
  return {};
}

/// Lower case, of letters, digits and underscores.
std::string file_name_of(const std::string& device) {
  std::string name;
  for (const char each : device) {
    const auto letter = static_cast<unsigned char>(each);
    name += std::isalnum(letter) != 0 ? static_cast<char>(std::tolower(letter)) : '_';
  }
  return name;
}

[[noreturn]] void fail_to_write(const fs::path& path, const std::error_code& error) {
  throw InputError(str(path.string(), ": cannot write measured plans: ", error.message(),
                       ". Set XDG_CACHE_HOME to a folder that can be written, or use halley tune "
                       "--output FILE and --tuned-plans FILE."));
}

}  // namespace

fs::path tuning_cache_path(const std::string& device, int num_sms) {
  const fs::path folder = cache_folder();
  if (folder.empty()) return {};
  return folder / "halley" / "tuned" / str(file_name_of(device), "_", num_sms, ".json");
}

TuningTable read_tuning_table(const fs::path& path, const std::string& device, int num_sms) {
  TuningTable table = TuningTable::parse(read_text_file(path, kFileBytesMax), path.string());
  if (table.device() == device && table.num_sms() == num_sms) return table;
  throw InputError(str(path.string(), ": expected plans of ", quote(device), " with ", num_sms,
                       " SMs, got those of ", quote(table.device()), " with ", table.num_sms(),
                       ". Run halley tune on this GPU."));
}

void add_to_tuning_cache(const fs::path& path, const TuningTable& table) {
  TuningTable all(table.device(), table.num_sms(), {});
  std::error_code error;
  if (fs::exists(path, error)) {
    try {
      all = read_tuning_table(path, table.device(), table.num_sms());
    } catch (const InputError&) {
      // Its plans are measured anew when they are missed.
    }
  }
  all.merge(table.plans());
  fs::create_directories(path.parent_path(), error);
  if (error) fail_to_write(path, error);
  const fs::path partial = path.string() + str(".", getpid(), ".partial");
  {
    std::ofstream file(partial);
    file << all.to_json();
    if (!file.flush()) fail_to_write(path, std::make_error_code(std::errc::io_error));
  }
  fs::rename(partial, path, error);
  if (!error) return;
  std::error_code ignored;
  fs::remove(partial, ignored);
  fail_to_write(path, error);
}

}  // namespace halley::cuda
