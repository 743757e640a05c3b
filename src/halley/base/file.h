// Files: a read-only memory map with an owner, and small text files read whole.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace halley {

/// A regular file mapped read-only for the lifetime of this object. Move-only.
/// The mapping is private; a file that another process shortens meanwhile ends the process with
/// SIGBUS, as for every mmap.
class MappedFile {
 public:
  /// Throws InputError where the file is missing, not a regular file, or cannot be mapped.
  /// An empty file gives an empty span.
  static MappedFile open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, num_bytes_}; }

 private:
  MappedFile(const std::byte* data, size_t num_bytes) : data_(data), num_bytes_(num_bytes) {}

  const std::byte* data_ = nullptr;
  size_t num_bytes_ = 0;
};

/// Says that bytes of a MappedFile will not be read again soon: whole pages among them leave this
/// process's memory, and are read from the file again where they are touched.
void release_pages(std::span<const std::byte> bytes);

/// The whole file. Throws InputError where it is missing, not a regular file, cannot be read, or
/// has more than `num_bytes_max` bytes.
std::string read_text_file(const std::filesystem::path& path, size_t num_bytes_max);

}  // namespace halley
