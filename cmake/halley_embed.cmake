# Writes a C++ file with the bytes of FILES in FOLDER, in this order: halley::page_files() of
# server/page/page_files.h.
#
#   cmake -DFOLDER=... "-DFILES=a.html;b.css" -DOUTPUT=x.cc -P halley_embed.cmake
set(arrays "")
set(rows "")
set(index 0)
foreach(name IN LISTS FILES)
  file(READ "${FOLDER}/${name}" bytes HEX)
  string(LENGTH "${bytes}" num_digits)
  math(EXPR num_bytes "${num_digits} / 2")
  if(num_bytes EQUAL 0)
    message(FATAL_ERROR "${FOLDER}/${name}: expected a file with content, it is empty")
  endif()
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "constexpr unsigned char kFile${index}[] = {${bytes}};\n")
  string(APPEND rows "    {\"${name}\", kFile${index}, ${num_bytes}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE "${OUTPUT}" "// Made by cmake/halley_embed.cmake.
#include \"halley/server/page/page_files.h\"

namespace halley {
namespace {
${arrays}}  // namespace

const std::vector<PageFile>& page_files() {
  static const std::vector<PageFile> files = {
${rows}  };
  return files;
}

}  // namespace halley
")
