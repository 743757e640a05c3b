// The page's files, embedded into the program; the build generates their source.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace halley {

struct PageFile {
  const char* name;
  const unsigned char* data;
  size_t num_bytes;

  std::string content() const { return {reinterpret_cast<const char*>(data), num_bytes}; }
};

const std::vector<PageFile>& page_files();

}  // namespace halley
