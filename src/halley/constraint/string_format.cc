#include "halley/constraint/string_format.h"

#include <iterator>

#include "halley/base/str.h"

namespace halley {
namespace {

// Year 0000 exists in RFC 3339 and in few calendars.
constexpr std::string_view kYear = R"((?:000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d{3}))";
constexpr std::string_view kMonthAndDay =
    R"((?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|)"
    R"(02-(?:0[1-9]|1\d|2[0-8])))";
// 29 February: years divisible by 4; those that end in 00 only if divisible by 400.
constexpr std::string_view kLeapDay =
    R"((?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)";
constexpr std::string_view kTime =
    R"((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d))";
constexpr std::string_view kUuid = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
constexpr std::string_view kOctet = R"((?:\d|[1-9]\d|1\d\d|2[0-4]\d|25[0-5]))";
constexpr std::string_view kEmail =
    "[A-Za-z0-9_%+-]{1,15}(?:\\.[A-Za-z0-9_%+-]{1,15}){0,3}"
    "@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\\.){1,3}[A-Za-z]{2,24}";

constexpr std::string_view kNames[] = {"date", "time", "date-time", "uuid", "email", "ipv4"};

}  // namespace

std::string pattern_of_format(std::string_view format) {
  const std::string date = str("(?:", kYear, "-", kMonthAndDay, "|", kLeapDay, ")");
  if (format == "date") return str("^", date, "$");
  if (format == "time") return str("^", kTime, "$");
  if (format == "date-time") return str("^", date, "T", kTime, "$");
  if (format == "uuid") return str("^", kUuid, "$");
  if (format == "email") return str("^", kEmail, "$");
  if (format == "ipv4") return str("^", kOctet, "(?:\\.", kOctet, "){3}$");
  return {};
}

std::string names_of_formats() {
  std::string names;
  for (size_t i = 0; i < std::size(kNames); ++i) names += str(i == 0 ? "" : ", ", kNames[i]);
  return names;
}

}  // namespace halley
