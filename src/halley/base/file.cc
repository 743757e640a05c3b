#include "halley/base/file.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

// A file descriptor with an owner.
class Descriptor {
 public:
  explicit Descriptor(const std::filesystem::path& path)
      // Not blocking: opening a FIFO would wait for its writer before its type can be seen.
      : value_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (value_ < 0) {
      throw InputError(str(path.string(), ": cannot open: ", std::strerror(errno),
                           ". Check the path and its permissions."));
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(value_); }
  int get() const { return value_; }

 private:
  int value_;
};

size_t regular_file_size(const Descriptor& file, const std::filesystem::path& path) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) {
    throw InputError(str(path.string(), ": cannot stat: ", std::strerror(errno), "."));
  }
  if (!S_ISREG(info.st_mode)) {
    throw InputError(str(path.string(), ": expected a regular file, got ",
                         S_ISDIR(info.st_mode) ? "a directory" : "something else", "."));
  }
  return static_cast<size_t>(info.st_size);
}

}  // namespace

MappedFile MappedFile::open(const std::filesystem::path& path) {
  const Descriptor file(path);
  const size_t num_bytes = regular_file_size(file, path);
  if (num_bytes == 0) return {nullptr, 0};
  void* data = ::mmap(nullptr, num_bytes, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) {
    throw InputError(str(path.string(), ": cannot map ", num_bytes,
                         " bytes into memory: ", std::strerror(errno), "."));
  }
  return {static_cast<const std::byte*>(data), num_bytes};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), num_bytes_(std::exchange(other.num_bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(num_bytes_, other.num_bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  // munmap takes a mutable pointer, but does not write through it.
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), num_bytes_);
}

void release_pages(std::span<const std::byte> bytes) {
  const auto page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t begin = round_up(address, page_bytes);
  const uintptr_t end = (address + bytes.size()) / page_bytes * page_bytes;
  // An advice: where it fails, memory stays in use.
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

std::string read_text_file(const std::filesystem::path& path, size_t num_bytes_max) {
  const Descriptor file(path);
  const size_t num_bytes = regular_file_size(file, path);
  if (num_bytes > num_bytes_max) {
    throw InputError(
        str(path.string(), ": expected at most ", num_bytes_max, " bytes, got ", num_bytes, "."));
  }
  std::string text(num_bytes, '\0');
  size_t num_read = 0;
  while (num_read < num_bytes) {
    const ssize_t n = ::read(file.get(), text.data() + num_read, num_bytes - num_read);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw InputError(str(path.string(), ": cannot read: ", std::strerror(errno), "."));
    if (n == 0) break;  // the file became shorter meanwhile
    num_read += static_cast<size_t>(n);
  }
  text.resize(num_read);
  return text;
}

}  // namespace halley
