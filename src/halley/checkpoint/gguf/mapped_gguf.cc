#include "halley/checkpoint/gguf/mapped_gguf.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/gguf/split_name.h"

namespace halley {
namespace {

namespace fs = std::filesystem;

// As llama.cpp names them; the number counts from 0.
constexpr const char* kNumber = "split.no";
constexpr const char* kCount = "split.count";
constexpr const char* kNumTensors = "split.tensors.count";
constexpr int64_t kCountMax = 65'535;

[[noreturn]] void fail(const std::string& where, const std::string& problem) {
  throw CheckpointError(
      str(where, ": ", problem, ". The files are of different models: download the model again."));
}

int64_t num_parts_of(const GgufHeader& header) {
  return std::max<int64_t>(1, header.metadata.integer(kCount, 0, kCountMax).value_or(1));
}

/// Throws where the name does not have the form that leads to the other parts.
GgufSplitName split_name_of(const fs::path& path, int64_t num_parts) {
  auto name = parse_gguf_split_name(path.filename().string());
  if (name && name->count == num_parts) return *std::move(name);
  const std::string ending =
      gguf_split_name({.prefix = {}, .number = 1, .count = static_cast<int>(num_parts)});
  throw CheckpointError(str(path.string(), ": expected a name that ends in ", halley::quote(ending),
                            " as that of a first part, since metadata ", halley::quote(kCount),
                            " is ", num_parts,
                            ". Give the files the names that they were made with."));
}

void check_part(const GgufHeader& part, size_t index, size_t num_parts) {
  const GgufMetadata& metadata = part.metadata;
  const auto number = metadata.integer(kNumber, 0, kCountMax);
  if (number != static_cast<int64_t>(index)) {
    fail(metadata.where(), str("metadata ", halley::quote(kNumber), ": expected ", index, ", got ",
                               number ? str(*number) : "nothing"));
  }
  if (num_parts_of(part) != static_cast<int64_t>(num_parts)) {
    fail(metadata.where(), str("metadata ", halley::quote(kCount), ": expected ", num_parts,
                               " as in the first part, got ", num_parts_of(part)));
  }
}

}  // namespace

GgufHeader join_gguf_parts(std::vector<GgufHeader> parts) {
  HALLEY_CHECK(!parts.empty());
  for (size_t i = 0; i < parts.size(); ++i) check_part(parts[i], i, parts.size());
  GgufHeader joined = std::move(parts.front());
  const std::string& where = joined.metadata.where();
  for (size_t i = 1; i < parts.size(); ++i) {
    for (GgufTensor& tensor : parts[i].tensors) {
      if (joined.find(tensor.name) != nullptr) {
        fail(parts[i].metadata.where(), str("tensor ", halley::quote(tensor.name),
                                            ": expected it in one part, got it in two"));
      }
    }
    const auto middle = static_cast<std::ptrdiff_t>(joined.tensors.size());
    std::move(parts[i].tensors.begin(), parts[i].tensors.end(), std::back_inserter(joined.tensors));
    std::inplace_merge(joined.tensors.begin(), joined.tensors.begin() + middle,
                       joined.tensors.end(),
                       [](const GgufTensor& a, const GgufTensor& b) { return a.name < b.name; });
  }
  const auto num_tensors = joined.metadata.integer(kNumTensors, 0, int64_t{1} << 31);
  if (num_tensors && *num_tensors != static_cast<int64_t>(joined.tensors.size())) {
    fail(where, str("metadata ", halley::quote(kNumTensors), ": expected ", *num_tensors,
                    " tensors in all parts, got ", joined.tensors.size()));
  }
  return joined;
}

MappedGguf::MappedGguf(const fs::path& path)
    : header_{.metadata = GgufMetadata(""), .tensors = {}} {
  files_.push_back(MappedFile::open(path));
  header_ = parse_gguf(files_.back().bytes(), path.string());
  const int64_t num_parts = num_parts_of(header_);
  if (num_parts == 1) return;
  GgufSplitName name = split_name_of(path, num_parts);
  files_.clear();
  std::vector<GgufHeader> parts;
  for (name.number = 1; name.number <= name.count; ++name.number) {
    const fs::path part = path.parent_path() / gguf_split_name(name);
    std::error_code error;
    if (!fs::is_regular_file(part, error)) {
      throw CheckpointError(str(path.string(), ": expected all of its ", name.count,
                                " parts in the same folder, got no ",
                                halley::quote(part.filename().string()), ". Download it too."));
    }
    files_.push_back(MappedFile::open(part));
    parts.push_back(parse_gguf(files_.back().bytes(), part.string()));
  }
  header_ = join_gguf_parts(std::move(parts));
}

}  // namespace halley
