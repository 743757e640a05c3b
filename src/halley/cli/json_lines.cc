#include "halley/cli/json_lines.h"

#include <string>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley::cli {
namespace {

// Like std::getline, but stops at the limit. False at the end of the input.
bool read_line(std::istream& in, std::string& line, size_t line_number) {
  line.clear();
  std::streambuf& buffer = *in.rdbuf();
  bool is_any = false;
  while (true) {
    const int c = buffer.sbumpc();
    if (c == std::char_traits<char>::eof()) return is_any;
    is_any = true;
    if (c == '\n') return true;
    if (line.size() == kJsonLineBytesMax) {
      throw InputError(
          str("line ", line_number, ": expected at most ", kJsonLineBytesMax, " bytes, got more."));
    }
    line += static_cast<char>(c);
  }
}

}  // namespace

void for_each_json_line(std::istream& in, std::ostream& out,
                        const std::function<OrderedJson(const OrderedJson& request)>& answer) {
  std::string line;
  for (size_t line_number = 1; read_line(in, line, line_number); ++line_number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = str("line ", line_number);
    const OrderedJson request = parse_ordered_json(line, where);
    if (!request.is_object()) {
      throw InputError(str(where, ": expected a JSON object, got ", request.type_name(), "."));
    }
    OrderedJson result;
    try {
      result = answer(request);
    } catch (const InputError& error) {
      throw InputError(str(where, ": ", error.what()));
    }
    // Decoded text is valid UTF-8 already; `replace` keeps a surprise from ending the run.
    out << result.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << '\n';
    out.flush();
  }
}

}  // namespace halley::cli
