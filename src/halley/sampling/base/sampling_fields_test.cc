#include "halley/sampling/base/sampling_fields.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/json/json.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Neutral parameters, with one value for one field.
ChoiceParams params_with(const SamplingField& field, double value) {
  ChoiceParams params;
  std::visit(
      [&](auto member) {
        auto& target = params.*member;
        target = static_cast<std::remove_reference_t<decltype(target)>>(value);
      },
      field.member);
  return params;
}

bool is_real(const SamplingField& field) {
  return std::holds_alternative<double ChoiceParams::*>(field.member);
}

/// The next value of the field's type above `value`, or below for `direction` -1.
double neighbour(const SamplingField& field, double value, int direction) {
  return is_real(field) ? std::nextafter(value, direction * kInfinity) : value + direction;
}

TEST(SamplingFields, HaveOneRowForEveryParameter) {
  EXPECT_EQ(sampling_fields().size() * sizeof(double), sizeof(ChoiceParams));
  std::set<std::string> names;
  for (const SamplingField& field : sampling_fields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_EQ(find_sampling_field(field.name), &field);
    for (const SamplingField& other : sampling_fields()) {
      EXPECT_EQ(field.member == other.member, &field == &other) << field.name;
    }
  }
  EXPECT_EQ(find_sampling_field("max_tokens"), nullptr);
}

TEST(SamplingFields, StateTheDefaultsOfTheParameters) {
  for (const SamplingField& field : sampling_fields()) {
    const double value = parse_json(default_json(field), field.name).get<double>();
    const ChoiceParams params = params_with(field, value);
    std::visit(
        [&](auto member) { EXPECT_EQ(params.*member, ChoiceParams{}.*member) << field.name; },
        field.member);
  }
  EXPECT_FALSE(has_penalty({}));
}

TEST(SamplingFields, AcceptTheEndsOfTheirRangesAndNothingBeyond) {
  EXPECT_NO_THROW(check_choice_params({}));
  for (const SamplingField& field : sampling_fields()) {
    const ParamRange& range = field.range;
    const double least = range.excludes_min ? neighbour(field, range.min, 1) : range.min;
    const auto error = ThrowsMessage<InputError>(HasSubstr(str(field.name, ": expected ")));
    EXPECT_NO_THROW(check_choice_params(params_with(field, least))) << field.name;
    EXPECT_THAT([&] { check_choice_params(params_with(field, neighbour(field, least, -1))); },
                error);
    if (!is_real(field)) continue;  // its largest value is that of the type
    EXPECT_NO_THROW(check_choice_params(params_with(field, range.max))) << field.name;
    for (const double value : {neighbour(field, range.max, 1), kNan, kInfinity, -kInfinity}) {
      EXPECT_THAT([&] { check_choice_params(params_with(field, value)); }, error) << value;
    }
  }
}

TEST(SamplingFields, ApplyTheLastSettingOfEach) {
  const SamplingField* real = find_sampling_field("temperature");
  const SamplingField* integer = find_sampling_field("top_k");
  ChoiceParams params;
  params.top_p = 0.5;
  apply_settings({{real, 0.25}, {integer, int64_t{7}}, {real, 0.75}}, params);
  EXPECT_EQ(params.temperature, 0.75);
  EXPECT_EQ(params.top_k, 7);
  EXPECT_EQ(params.top_p, 0.5);
}

}  // namespace
}  // namespace halley
