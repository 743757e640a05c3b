#include "halley/constraint/string_format.h"

#include <algorithm>
#include <array>

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
// RFC 3339, appendix A: units do not skip one.
constexpr std::string_view kTimeOfDuration =
    R"(T(?:\d{1,4}H(?:\d{1,4}M(?:\d{1,4}S)?)?|\d{1,4}M(?:\d{1,4}S)?|\d{1,4}S))";
constexpr std::string_view kDateOfDuration =
    R"((?:\d{1,4}Y(?:\d{1,4}M(?:\d{1,4}D)?)?|\d{1,4}M(?:\d{1,4}D)?|\d{1,4}D))";
constexpr std::string_view kOctet = R"((?:\d|[1-9]\d|1\d\d|2[0-4]\d|25[0-5]))";
constexpr std::string_view kGroup = "[0-9a-fA-F]{1,4}";
// Shorter than the 63 characters that RFC 1035 allows: intersections with patterns stay small.
constexpr std::string_view kLabel = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?";
constexpr std::string_view kLastLabel = "[A-Za-z](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?";
constexpr std::string_view kEmail =
    "[A-Za-z0-9_%+-]{1,15}(?:\\.[A-Za-z0-9_%+-]{1,15}){0,3}"
    "@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?\\.){1,3}[A-Za-z]{2,24}";
// Signs of a path; a query and a fragment have '?' too.
constexpr std::string_view kPathChar = "(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})";
constexpr std::string_view kQueryChar = "(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})";

std::string date() { return str("(?:", kYear, "-", kMonthAndDay, "|", kLeapDay, ")"); }
std::string time() { return std::string(kTime); }
std::string date_time() { return str(date(), "T", kTime); }

std::string duration() {
  return str("P(?:", kDateOfDuration, "(?:", kTimeOfDuration, ")?|", kTimeOfDuration,
             R"(|\d{1,4}W))");
}

// 0: any version.
template <int kVersion>
std::string uuid() {
  constexpr std::string_view kHex = "[0-9a-fA-F]";
  const std::string head = str(kHex, "{8}-", kHex, "{4}-");
  if constexpr (kVersion == 0) return str(head, kHex, "{4}-", kHex, "{4}-", kHex, "{12}");
  return str(head, kVersion, kHex, "{3}-[89abAB]", kHex, "{3}-", kHex, "{12}");
}

std::string email() { return std::string(kEmail); }
std::string hostname() { return str("(?:", kLabel, "\\.){0,3}", kLastLabel); }
std::string ipv4() { return str(kOctet, "(?:\\.", kOctet, "){3}"); }

// RFC 4291, section 2.2; "::" once, for one group or more. Dotted forms: those of mapped addresses.
std::string ipv6() {
  const std::string_view h = kGroup;
  std::string out = str("(?:(?:", h, ":){7}", h, "|(?:", h, ":){1,7}:");
  for (int num_before = 1; num_before <= 6; ++num_before) {
    out += str("|(?:", h, ":){1,", num_before, "}(?::", h, "){1,", 7 - num_before, "}");
  }
  return str(out, "|:(?:(?::", h, "){1,7}|:)|::[fF]{4}:", ipv4(), ")");
}

std::string ip_address() { return str("(?:", ipv4(), "|", ipv6(), ")"); }
std::string ipv4_interface() { return str(ipv4(), R"(/(?:\d|[12]\d|3[0-2]))"); }
std::string ipv6_interface() { return str(ipv6(), R"(/(?:\d|[1-9]\d|1[01]\d|12[0-8]))"); }
std::string ip_interface() { return str("(?:", ipv4_interface(), "|", ipv6_interface(), ")"); }

// An octet whose last 8 - num_bits bits are 0.
std::string masked_octet(int num_bits) {
  if (num_bits == 8) return std::string(kOctet);
  std::string out = "(?:0";
  const int step = 1 << (8 - num_bits);
  for (int value = step; value < 256; value += step) out += str("|", value);
  return out + ")";
}

// Networks have no bits behind their prefix.
std::string ipv4_network() {
  std::string out = "(?:";
  for (int num_bits = 0; num_bits <= 32; ++num_bits) {
    if (num_bits > 0) out += "|";
    for (int octet = 0; octet < 4; ++octet) {
      out += str(octet > 0 ? "\\." : "", masked_octet(std::clamp(num_bits - 8 * octet, 0, 8)));
    }
    out += str("/", num_bits);
  }
  return out + ")";
}

std::string ipv6_network() {
  std::string out = "(?:::/0";
  for (int num_groups = 1; num_groups <= 7; ++num_groups) {
    out += str("|(?:", kGroup, ":){", num_groups, "}:/", 16 * num_groups);
  }
  return str(out, "|(?:", kGroup, ":){7}", kGroup, "/128)");
}

std::string ip_network() { return str("(?:", ipv4_network(), "|", ipv6_network(), ")"); }

// RFC 3986: with an authority, or of the schemes that are used without one. Shorter than 2083
// bytes, the limit of Pydantic and of browsers.
std::string uri() {
  const std::string host = str("(?:", hostname(), "|", ipv4(), "|\\[", ipv6(), "\\])");
  const std::string tail = str("(?:\\?", kQueryChar, "{0,80})?(?:#", kQueryChar, "{0,20})?");
  return str("(?:[A-Za-z][A-Za-z0-9+.-]{0,15}://", "(?:[A-Za-z0-9._~-]{1,16}@)?", host,
             R"((?::(?:[1-9]\d{0,3}|[1-5]\d{4}))?(?:/)", kPathChar, "{0,200})?",
             "|(?:mailto|tel|urn|data|news):", kPathChar, "{1,120})", tail);
}

std::string base64() {
  return "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?";
}
std::string base64url() {
  return "(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-][AQgw]==|[A-Za-z0-9_-]{2}[AEIMQUYcgkosw048]=)?";
}

struct Format {
  std::string_view name;
  std::string (*pattern)();  // null: the format says what a text is for, and not how it looks
};
// JSON Schema's first, then those of Pydantic and OpenAPI.
constexpr auto kFormats = std::to_array<Format>({{"date", date},
                                                 {"time", time},
                                                 {"date-time", date_time},
                                                 {"duration", duration},
                                                 {"uuid", uuid<0>},
                                                 {"email", email},
                                                 {"hostname", hostname},
                                                 {"ipv4", ipv4},
                                                 {"ipv6", ipv6},
                                                 {"uri", uri},
                                                 {"multi-host-uri", uri},
                                                 {"uuid1", uuid<1>},
                                                 {"uuid3", uuid<3>},
                                                 {"uuid4", uuid<4>},
                                                 {"uuid5", uuid<5>},
                                                 {"uuid6", uuid<6>},
                                                 {"uuid7", uuid<7>},
                                                 {"uuid8", uuid<8>},
                                                 {"ipvanyaddress", ip_address},
                                                 {"ipv4interface", ipv4_interface},
                                                 {"ipv6interface", ipv6_interface},
                                                 {"ipvanyinterface", ip_interface},
                                                 {"ipv4network", ipv4_network},
                                                 {"ipv6network", ipv6_network},
                                                 {"ipvanynetwork", ip_network},
                                                 {"base64", base64},
                                                 {"byte", base64},
                                                 {"base64url", base64url},
                                                 {"binary", nullptr},
                                                 {"password", nullptr},
                                                 {"path", nullptr},
                                                 {"file-path", nullptr},
                                                 {"directory-path", nullptr}});

}  // namespace

std::optional<std::string> pattern_of_format(std::string_view format) {
  const auto* const found = std::find_if(kFormats.begin(), kFormats.end(),
                                         [&](const Format& row) { return row.name == format; });
  if (found == kFormats.end()) return std::nullopt;
  return found->pattern == nullptr ? std::string() : str("^(?:", found->pattern(), ")$");
}

std::string names_of_formats() {
  std::string names;
  for (const Format& format : kFormats) names += str(names.empty() ? "" : ", ", format.name);
  return names;
}

}  // namespace halley
