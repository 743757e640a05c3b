#include "halley/hub/file_choice.h"

#include <algorithm>
#include <array>

#include <fnmatch.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/gguf/split_name.h"

namespace halley::hub {
namespace {

constexpr const char* kSafetensors = ".safetensors";
constexpr const char* kGguf = ".gguf";
// Data alone. Pickles (.bin, .pt, .pth, .ckpt) and .py are programs that a loader would run.
constexpr std::array<const char*, 7> kExtensions = {kSafetensors, kGguf,  ".json",    ".jinja",
                                                    ".model",     ".txt", ".tiktoken"};
constexpr size_t kNamesShownMax = 20;

bool is_readable(const std::string& path) {
  return std::any_of(kExtensions.begin(), kExtensions.end(),
                     [&](const char* extension) { return path.ends_with(extension); });
}

bool is_at_top(const std::string& path) { return path.find('/') == std::string::npos; }

/// The original release's copy of the same weights, under names that transformers does not read.
bool is_second_copy(const std::string& path) { return path.starts_with("consolidated"); }

bool is_safetensors_weight(const std::string& path) {
  return is_at_top(path) && path.ends_with(kSafetensors) && !is_second_copy(path);
}

bool is_small_file(const std::string& path) {
  return is_at_top(path) && is_readable(path) && !path.ends_with(kSafetensors) &&
         !path.ends_with(kGguf) && !path.ends_with(".bin.index.json") && !is_second_copy(path);
}

/// The name of the first part; the name itself where the file is not split.
std::string first_part_of(const std::string& path) {
  auto part = parse_gguf_split_name(path);
  if (!part) return path;
  part->number = 1;
  return gguf_split_name(*part);
}

template <typename Accepts>
std::vector<RepoFile> files_if(const RepoListing& listing, const Accepts& accepts) {
  std::vector<RepoFile> files;
  for (const RepoFile& file : listing.files) {
    if (accepts(file.path)) files.push_back(file);
  }
  return files;
}

std::string names_of(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamesShownMax); ++i) {
    text += str(i == 0 ? "" : ", ", halley::quote(names[i]));
  }
  if (names.size() > kNamesShownMax) text += str(" and ", names.size() - kNamesShownMax, " more");
  return text.empty() ? "none" : text;
}

std::vector<std::string> readable_names(const RepoListing& listing) {
  std::vector<std::string> names;
  for (const RepoFile& file : listing.files) {
    if (is_readable(file.path)) names.push_back(file.path);
  }
  return names;
}

std::vector<RepoFile> matching_files(const RepoListing& listing, const std::string& where,
                                     const std::vector<std::string>& patterns) {
  std::vector<RepoFile> files = files_if(listing, [&](const std::string& path) {
    return is_readable(path) &&
           std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
             return ::fnmatch(pattern.c_str(), path.c_str(), 0) == 0;
           });
  });
  if (!files.empty()) return files;
  throw InputError(str(where,
                       ": expected patterns that match a file of safetensors, GGUF, "
                       "configuration or tokenizer (never pickles or code), got ",
                       names_of(patterns), ". There are: ", names_of(readable_names(listing)),
                       "."));
}

std::vector<RepoFile> gguf_files(const RepoListing& listing, const std::string& where,
                                 const std::string& gguf) {
  const std::string first = first_part_of(gguf);
  std::vector<RepoFile> files =
      files_if(listing, [&](const std::string& path) { return first_part_of(path) == first; });
  if (!files.empty()) return files;
  throw InputError(str(where, ": expected a model with the file ", halley::quote(gguf),
                       ", got none. There are: ", names_of(readable_names(listing)), "."));
}

std::vector<RepoFile> files_to_run(const RepoListing& listing, const std::string& where) {
  const auto is_weight = [](const RepoFile& file) { return is_safetensors_weight(file.path); };
  if (std::any_of(listing.files.begin(), listing.files.end(), is_weight)) {
    return files_if(listing, [](const std::string& path) {
      return is_safetensors_weight(path) || is_small_file(path);
    });
  }
  std::vector<std::string> models;
  for (const RepoFile& file : listing.files) {
    const std::string name = file.path.substr(file.path.rfind('/') + 1);
    if (!name.ends_with(kGguf) || name.starts_with("mmproj")) continue;
    const std::string first = first_part_of(file.path);
    if (std::find(models.begin(), models.end(), first) == models.end()) models.push_back(first);
  }
  if (models.size() == 1) return gguf_files(listing, where, models.front());
  if (models.empty()) {
    throw InputError(str(where, ": expected a model with safetensors or GGUF files, got ",
                         listing.files.size(),
                         " files of other kinds. Only these are downloaded: convert the model to "
                         "safetensors, or name its files with --include."));
  }
  throw InputError(str(where, ": expected one GGUF file, got ", models.size(), ": ",
                       names_of(models), ". Name one: ", where, "/", models.front(), "."));
}

/// The place among the files of a model: weights, small files, indexes, config.json.
int placing_rank(const std::string& path) {
  if (path == "config.json") return 3;
  if (path.ends_with(".index.json")) return 2;
  const auto part = parse_gguf_split_name(path);
  if (part && part->number == 1) return 2;
  return path.ends_with(kSafetensors) || path.ends_with(kGguf) ? 0 : 1;
}

}  // namespace

void check_limits(const std::vector<RepoFile>& files, const std::string& where,
                  const ChoiceLimits& limits) {
  if (files.size() > limits.num_files_max) {
    throw InputError(str(where, ": expected at most ", limits.num_files_max, " files, got ",
                         files.size(), ". Choose some with --include."));
  }
  uint64_t num_bytes = 0;
  for (const RepoFile& file : files) num_bytes += file.num_bytes.value_or(0);
  if (num_bytes <= limits.num_bytes_max) return;
  throw InputError(str(where, ": expected at most ",
                       format_bytes(static_cast<double>(limits.num_bytes_max)), ", got ",
                       format_bytes(static_cast<double>(num_bytes)),
                       ". Choose some files with --include, or raise --max-bytes."));
}

std::vector<RepoFile> choose_files(const RepoListing& listing, const std::string& where,
                                   const std::string& gguf,
                                   const std::vector<std::string>& patterns,
                                   const ChoiceLimits& limits) {
  std::vector<RepoFile> files = !patterns.empty() ? matching_files(listing, where, patterns)
                                : !gguf.empty()   ? gguf_files(listing, where, gguf)
                                                  : files_to_run(listing, where);
  check_limits(files, where, limits);
  std::stable_sort(files.begin(), files.end(), [](const RepoFile& a, const RepoFile& b) {
    return placing_rank(a.path) < placing_rank(b.path);
  });
  return files;
}

}  // namespace halley::hub
